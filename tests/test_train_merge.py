"""Learned merges equal those of `tokenizers` on real text, and those of a full recount on everything else."""

import itertools
import json
import os
import random
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import regex
import tokenizers
import transformers
from tokenizers import models, pre_tokenizers, trainers

from gristmill import _native, load_tokenizer
from gristmill.engines.native import compile_model
from gristmill.errors import ConfigError, InputError, UnsupportedTokenizerError
from gristmill.load.hf_json import load_tokenizer_json
from gristmill.pattern import PATTERNS
from gristmill.run.assess import spec_of
from gristmill.sample import made_documents, sample_documents
from gristmill.spec import RankModel, Split, TokenizerSpec
from gristmill.training.inventory import Pieces
from gristmill.training.merging import Learning, memory_needed, resume
from gristmill.training.start import new_start, spelling, start_from
from gristmill.training.tokenizer_json import extended_json, new_json
from slow_merges import learn_slowly

NUM_RANDOM = int(os.environ.get("GRISTMILL_RANDOM_INVENTORIES", "200"))
SCRIPTS = {
    "Cyrillic": (0x430, 0x44F),
    "Greek": (0x3B1, 0x3C9),
    "Han": (0x4E00, 0x4E60),
    "Hangul": (0xAC00, 0xAC80),
    "Emoji": (0x1F600, 0x1F640),
}


def learn_merges(pieces, start, *, report=None, **options):
    """Learn to the end."""
    return Learning(pieces, start, **options).run(report)


def pieces_of(counts: dict[bytes, int]) -> Pieces:
    items = sorted(counts.items())
    offsets = np.cumsum([0, *(len(piece) for piece, _ in items)], dtype=np.int64)
    buffer = np.frombuffer(b"".join(piece for piece, _ in items), np.uint8)
    return Pieces(buffer, offsets, np.array([count for _, count in items], np.uint64))


def cut(texts: list[str], pattern: str = PATTERNS["gpt2"]) -> dict[bytes, int]:
    found = Counter(piece for text in texts for piece in regex.findall(pattern, text))
    return {piece.encode(): count for piece, count in found.items()}


def made_scripts() -> list[str]:
    chance = random.Random(5)
    texts = []
    for first, last in SCRIPTS.values():
        words = [
            "".join(chr(chance.randint(first, last)) for _ in range(chance.randint(1, 9))) for _ in range(300)
        ]
        texts.append(" ".join(chance.choices(words, [1 / (i + 1) for i in range(300)], k=6000)))
    return texts


def python_files() -> list[str]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    names = ("argparse", "ast", "datetime", "decimal", "difflib", "inspect", "subprocess", "typing")
    paths = [path for name in names for path in (folder / f"{name}.py", folder / f"_py{name}.py")]
    return [path.read_text(encoding="utf-8") for path in paths if path.exists()]


CORPORA = {
    "sample": lambda: sample_documents() + made_documents(200),
    "python": python_files,
    "scripts": made_scripts,
}


def reference(texts: list[str], **options) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(show_progress=False, **options)
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def ids_of(tokens: list[str]) -> dict[str, int]:
    return {token: id_ for id_, token in enumerate(tokens)}


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize(
    ("vocab_size", "specials", "options"),
    [
        (300, (), {}),
        (2000, ("<|endoftext|>", "<|pad|>"), {}),
        (2000, ("<s>",), {"min_frequency": 40}),
        (3000, ("<s>",), {"max_token_length": 5}),
        (8000, ("<s>", "</s>"), {"min_frequency": 3, "max_token_length": 16}),
        (1500, ("the", "e", "self", "in", "def", "ing"), {}),
    ],
)
def test_merges_and_vocabulary_are_those_of_tokenizers(corpus, vocab_size, specials, options):
    texts = CORPORA[corpus]()
    vocab, merges = reference(
        texts,
        vocab_size=vocab_size,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        **options,
    )
    pieces = pieces_of(cut(texts))
    start = new_start(pieces, special_tokens=specials)
    learned = learn_merges(pieces, start, vocab_size=vocab_size, **options)
    assert learned.pairs == merges
    assert ids_of(learned.tokens) == vocab


def test_without_initial_alphabet_ids_are_those_of_tokenizers():
    texts = ["zebra über alles\n"] * 3
    vocab, merges = reference(texts, vocab_size=40, special_tokens=["z"])
    pieces = pieces_of(cut(texts))
    start = new_start(pieces, special_tokens=("z",), is_whole_alphabet=False)
    learned = learn_merges(pieces, start, vocab_size=40)
    assert learned.pairs == merges
    assert ids_of(learned.tokens) == vocab


def test_characters_as_symbols_give_the_merges_of_tokenizers():
    texts = list(made_scripts() + sample_documents())
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    specials = ("<unk>", "<s>")
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=3000, special_tokens=[*specials, *byte_tokens], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    pieces = pieces_of(cut_at_spaces(texts))
    start = new_start(pieces, symbols="characters", special_tokens=specials)
    learned = learn_merges(pieces, start, vocab_size=3000)
    assert learned.pairs == [tuple(merge) for merge in model["merges"]]
    assert ids_of(learned.tokens) == model["vocab"]


def cut_at_spaces(texts: list[str]) -> dict[bytes, int]:
    marked = (text if text.startswith(" ") else " " + text for text in texts)
    return {
        piece.encode(): n
        for piece, n in Counter(p for t in marked for p in regex.findall(" [^ ]*", t)).items()
    }


# Against a full recount


def random_inventory(chance: random.Random) -> dict[bytes, int]:
    letters = b"abcdefgh"[: chance.choice([1, 2, 2, 3, 3, 5])]
    longest = chance.choice([4, 8, 20, 20, 60, 600])
    counts = {}
    for _ in range(4 if longest > 100 else chance.randint(0, 40)):
        piece = bytes(chance.choices(letters, k=chance.randint(1, longest)))
        if chance.random() < 0.2:
            piece = bytes([chance.choice(letters)]) * chance.randint(1, longest)
        counts[piece] = chance.choice([1, 1, 2, 3, 5, chance.randint(1, 50), 2**33 + chance.randint(0, 3)])
    return counts


@pytest.mark.parametrize("seed", range(NUM_RANDOM))
def test_merges_equal_a_recount_for_any_threads_floor_and_stop(seed):
    chance = random.Random(seed)
    counts = random_inventory(chance)
    pieces = pieces_of(counts)
    specials = chance.choice([(), ("<s>",), ("ab", "<s>"), ("aa", "a", "ba")])
    start = new_start(pieces, special_tokens=specials, is_whole_alphabet=chance.random() < 0.5)
    options = {
        "vocab_size": len(start.tokens) + chance.randint(0, 40),
        "min_frequency": chance.choice([0, 0, 2, 7]),
        "max_token_length": chance.choice([None, None, 2, 3, 5, 9]),
        "tie_break": chance.choice(["tokenizers", "bytes"]),
    }
    spellings = [spelling(token, "bytes") for token in start.tokens]
    rules, rule_counts = learn_slowly(counts, spellings, start.alphabet, **options)
    for num_threads, floor in ((1, 0), (2, 0), (5, 0), (1, 3), (2, 1000)):
        learned = learn_merges(pieces, start, num_threads=num_threads, floor=floor, **options)
        assert list(map(tuple, learned.rules.tolist())) == rules
        assert learned.counts.tolist() == rule_counts
    done = np.array(rules[: chance.randint(0, len(rules))], np.uint32).reshape(-1, 3)
    resumed = learn_merges(pieces, resume(start, done), **options)
    assert list(map(tuple, resumed.rules.tolist())) == rules
    assert resumed.tokens == learned.tokens


def encode_slowly(word: list[int], rules: list[tuple[int, int, int]]) -> list[int]:
    ranks = {(left, right): (rank, token) for rank, (left, right, token) in enumerate(rules)}
    while True:
        found = [(*ranks[pair], at) for at, pair in enumerate(itertools.pairwise(word)) if pair in ranks]
        if not found:
            return word
        _, token, at = min(found)
        word = [*word[:at], token, *word[at + 2 :]]


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_new_merges_on_top_of_odd_ones_are_those_an_encoder_would_be_given(seed, num_threads):
    # a+bc -> abc never happens after a+b -> ab, but merges go on from abc: a new ab+c -> abc sets them off.
    chance = random.Random(seed)
    lengths = [chance.randint(2, 12) for _ in range(40)] + [400] * (seed % 2)
    counts = {bytes(chance.choices(b"abc", k=length)): chance.randint(1, 9) for length in lengths}
    counts[b"abc"] = 5000
    pieces = pieces_of(counts)
    known = [(0, 1, 3), (1, 2, 4), (0, 4, 5), (5, 0, 6), (2, 5, 7)]
    start = new_start(pieces, is_whole_alphabet=False)
    start = start._replace(
        tokens=[*start.tokens, "ab", "bc", "abc", "abca", "cabc"], known=np.array(known, np.uint32)
    )
    learned = learn_merges(pieces, start, vocab_size=24, num_threads=num_threads)
    rules, tokens = list(known), [spelling(token, "bytes") for token in start.tokens]
    assert [3, 2, 5] in learned.rules[5:].tolist()
    for rule, count in zip(learned.rules[5:].tolist(), learned.counts.tolist(), strict=True):
        sums: Counter[tuple[int, int]] = Counter()
        for piece, times in counts.items():
            word = encode_slowly([start.alphabet[byte] for byte in piece], rules)
            for pair in itertools.pairwise(word):
                sums[pair] += times
        best = min(sums, key=lambda pair: (-sums[pair], pair))
        assert (*rule[:2], count) == (*best, sums[best])
        spelled = tokens[best[0]] + tokens[best[1]]
        assert rule[2] == (tokens.index(spelled) if spelled in tokens else len(tokens))
        tokens += [spelled] if rule[2] == len(tokens) else []
        rules.append(tuple(rule))


def test_real_text_gives_the_same_at_any_number_of_threads_and_floor():
    pieces = pieces_of(cut(python_files()))
    start = new_start(pieces)
    first = learn_merges(pieces, start, vocab_size=4000)
    for num_threads, floor in ((2, 0), (5, 0), (1, 500), (3, 50)):
        other = learn_merges(pieces, start, vocab_size=4000, num_threads=num_threads, floor=floor)
        assert np.array_equal(other.rules, first.rules)
        assert np.array_equal(other.counts, first.counts)


def test_ties_by_bytes_equal_a_recount_on_real_text():
    counts = cut(sample_documents())
    pieces = pieces_of(counts)
    start = new_start(pieces)
    spellings = [spelling(token, "bytes") for token in start.tokens]
    rules, _ = learn_slowly(counts, spellings, start.alphabet, vocab_size=500, tie_break="bytes")
    learned = learn_merges(pieces, start, vocab_size=500, tie_break="bytes", num_threads=2)
    assert list(map(tuple, learned.rules.tolist())) == rules


def test_a_crowd_of_ties_by_bytes_is_merged_in_order():
    counts = {bytes([97 + i % 26, 97 + i // 26 % 26, 65 + i // 676]): 1 for i in range(2600)}
    pieces = pieces_of(counts)
    start = new_start(pieces, is_whole_alphabet=False)
    options = {"vocab_size": len(start.tokens) + 60, "tie_break": "bytes", "max_token_length": 3}
    spellings = [spelling(token, "bytes") for token in start.tokens]
    rules, _ = learn_slowly(counts, spellings, start.alphabet, **options)
    assert list(map(tuple, learn_merges(pieces, start, **options).rules.tolist())) == rules


# Known failures of others


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40])
def test_counts_past_32_bits_are_exact(count):
    counts = {b"    ": count, b"ab": count + 1, b"abab": 3, b"ba": count}
    pieces = pieces_of(counts)
    start = new_start(pieces, is_whole_alphabet=False)
    rules, rule_counts = learn_slowly(
        counts, [spelling(token, "bytes") for token in start.tokens], start.alphabet, vocab_size=20
    )
    learned = learn_merges(pieces, start, vocab_size=20)
    assert list(map(tuple, learned.rules.tolist())) == rules
    assert learned.counts.tolist() == rule_counts
    assert learned.counts[0] == 3 * count


def test_a_pair_that_is_too_long_never_wins_by_a_negative_count():
    # In `tokenizers` such a pair is taken from without ever having been counted, and wins when it wraps.
    counts = {
        piece.encode(): 10 for piece in ("abcd", "bcda", "cdab", "dabc", "abab", "cdcd", "abcabc", "dada")
    }
    pieces = pieces_of(counts)
    start = new_start(pieces, is_whole_alphabet=False)
    learned = learn_merges(pieces, start, vocab_size=60, max_token_length=4)
    assert max(map(len, learned.tokens)) == 3
    assert min(learned.counts) >= 10
    assert len(learned.tokens) == len(set(learned.tokens))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_one_very_long_piece_takes_no_quadratic_time(num_threads):
    # 2 MB and 1,000 merges would be two billion steps if every merge went over the piece.
    chance = np.random.default_rng(3)
    long = chance.choice(np.frombuffer(b"ACGT", np.uint8), 2_000_000).tobytes()
    pieces = pieces_of({long: 1, b"A" * 300_000: 2, b"ACGT": 5})
    start = new_start(pieces, is_whole_alphabet=False)
    learned = learn_merges(pieces, start, vocab_size=1004, num_threads=num_threads)
    assert len(learned.tokens) == 1004
    assert learned.counts[0] == count_overlapping(long, b"AA") + 2 * 299_999


def count_overlapping(text: bytes, pair: bytes) -> int:
    array = np.frombuffer(text, np.uint8)
    return int(np.count_nonzero((array[:-1] == pair[0]) & (array[1:] == pair[1])))


def test_more_than_65536_tokens_begin_with_the_same_merges():
    chance = random.Random(1)
    counts = {bytes(chance.choices(range(256), k=4)): 1 for _ in range(30_000)}
    pieces = pieces_of(counts)
    start = new_start(pieces)
    narrow = learn_merges(pieces, start, vocab_size=65_536)
    wide = learn_merges(pieces, start, vocab_size=68_000)
    assert len(narrow.tokens) == 65_536
    assert len(set(wide.tokens)) == 68_000
    assert np.array_equal(wide.rules[: len(narrow.rules)], narrow.rules)


def test_an_alphabet_larger_than_the_vocabulary_is_refused():
    text = "".join(map(chr, range(0x4E00, 0x5200)))
    pieces = pieces_of({f" {text}".encode(): 1})
    start = new_start(pieces, symbols="characters")
    with pytest.raises(ConfigError, match=r"already 1,281 tokens.*max_alphabet"):
        learn_merges(pieces, start, vocab_size=1000)


def test_a_vocabulary_smaller_than_alphabet_and_special_tokens_is_refused():
    pieces = pieces_of({b"ab": 1})
    start = new_start(pieces, special_tokens=("<s>", "</s>"))
    with pytest.raises(ConfigError, match="258 tokens"):
        learn_merges(pieces, start, vocab_size=257)
    assert learn_merges(pieces, start, vocab_size=258).pairs == []


@pytest.mark.parametrize("counts", [{}, {b"": 3}, {b"a": 5, b"b": 1}, {b"ab": 0}])
def test_nothing_to_merge_gives_the_alphabet_alone(counts):
    pieces = pieces_of(counts)
    learned = learn_merges(pieces, new_start(pieces), vocab_size=1000, num_threads=2)
    assert learned.pairs == []
    assert len(learned.tokens) == 256


def test_counts_beyond_63_bits_are_refused():
    pieces = pieces_of({b"abc": 2**62})
    with pytest.raises(InputError, match="2\\^63"):
        learn_merges(pieces, new_start(pieces), vocab_size=300)


def test_a_limited_alphabet_keeps_the_most_frequent_characters_and_cuts_at_the_others():
    pieces = pieces_of({b"axb": 5, b"ab": 3, "xé".encode(): 1})
    start = new_start(pieces, symbols="characters", max_alphabet=2)
    assert [chr(symbol) for symbol in start.alphabet] == ["a", "b"]
    learned = learn_merges(pieces, start, vocab_size=300)
    assert learned.counts.tolist() == [3]  # axb is not ab


def test_bytes_that_are_no_characters_cut_a_piece():
    pieces = pieces_of({b"a\xffb": 5, b"ab\xe2\x82": 3})
    start = new_start(pieces, symbols="characters")
    assert learn_merges(pieces, start, vocab_size=300).counts.tolist() == [3]


# Progress and resuming


def test_a_training_can_be_stopped_and_resumed(monkeypatch):
    monkeypatch.setattr("gristmill.training.merging.REPORT_S", 0.0)
    pieces = pieces_of(cut(sample_documents()))
    start = new_start(pieces)
    whole = learn_merges(pieces, start, vocab_size=1200)
    seen = []

    def stop(progress):
        seen.append(progress.num_tokens)
        if progress.num_tokens > 600:
            raise KeyboardInterrupt

    learning = Learning(pieces, start, vocab_size=1200)
    with pytest.raises(KeyboardInterrupt):
        learning.run(stop)
    assert seen == sorted(seen)
    done = learning.rules()
    resumed = learn_merges(pieces, resume(start, done), vocab_size=1200)
    assert np.array_equal(resumed.rules, whole.rules)
    assert resumed.tokens == whole.tokens


def test_damaged_merges_are_not_resumed_from():
    pieces = pieces_of({b"ab": 1})
    start = new_start(pieces)
    with pytest.raises(InputError, match="damaged"):
        resume(start, np.array([[0, 1, 999]], np.uint32))


def test_memory_needed_covers_what_is_held():
    few = memory_needed(num_pieces=10, num_symbols=100, vocab_size=1000)
    many = memory_needed(num_pieces=10_000_000, num_symbols=135_000_000, vocab_size=50_000)
    assert few < 100e6
    assert 0.9e9 < many < 1.5e9


def test_arrays_that_do_not_fit_together_are_refused():
    pieces = pieces_of({b"ab": 1, b"cd": 2})
    start = new_start(pieces)
    with pytest.raises(InputError, match="one count"):
        learn_merges(pieces._replace(counts=pieces.counts[:1]), start, vocab_size=300)
    with pytest.raises(InputError, match="offsets"):
        learn_merges(pieces._replace(offsets=np.array([0, 3, 2], np.int64)), start, vocab_size=300)
    with pytest.raises(ValueError, match="symbols"):
        _native.count_symbols(*pieces, symbols="words")


# The file


def check_all_readers_agree(content: bytes, path: Path, texts: list[str]) -> None:
    path.write_bytes(content)
    reference = tokenizers.Tokenizer.from_file(str(path))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    ours = load_tokenizer(path, engine="native")
    vocab = json.loads(content)["model"]["vocab"]
    assert sorted(vocab.values()) == list(range(len(vocab)))
    for text in texts:
        ids = reference.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, special_tokens="parse").tolist() == ids
        assert fast.encode(text, add_special_tokens=False) == ids
        assert reference.decode(ids, skip_special_tokens=False) == text


PATTERN_NAMES = ("gpt2", "llama3", "qwen2", "o200k_base", None)


@pytest.mark.parametrize("pattern", PATTERN_NAMES)
def test_all_readers_of_tokenizer_json_give_the_same_ids(tmp_path, pattern):
    texts = sample_documents()
    regex_ = PATTERNS[pattern] if pattern else r"(?s).+"
    pieces = pieces_of(cut(texts, regex_))
    specials = ("<|endoftext|>", "<|pad|>")
    learned = learn_merges(pieces, new_start(pieces, special_tokens=specials), vocab_size=1500)
    splits = (Split(pattern=PATTERNS[pattern], dialect="oniguruma"),) if pattern else ()
    content = new_json(learned, special_tokens=specials, splits=splits)
    check_all_readers_agree(
        content, tmp_path / "tokenizer.json", [*texts, "one<|endoftext|>two", "\x00é\t\r\n"]
    )


@pytest.mark.parametrize("takes_whole", [False, True])
@pytest.mark.parametrize("specials", [("<|endoftext|>",), ("ab", " th", "中")], ids=["usual", "odd"])
def test_merges_are_compiled_without_texts_to_what_their_texts_give(specials, takes_whole):
    pieces = pieces_of(cut(sample_documents()))
    start = new_start(pieces, special_tokens=specials)
    half = learn_merges(pieces, start, vocab_size=700)
    for learned in (half, learn_merges(pieces, resume(start, half.rules), vocab_size=1500)):
        model = learned.compile_bytes(takes_whole=takes_whole, num_threads=2)
        by_texts = compile_model(spec_of(learned, takes_whole=takes_whole))
        texts = [*cut(python_files()), b"ab", b" the", "中".encode()]
        assert [model.merge_fast(text) for text in texts] == [by_texts.merge_fast(text) for text in texts]
        if specials == ("<|endoftext|>",):
            assert model.pack() == by_texts.pack()


def test_all_readers_of_a_character_tokenizer_give_the_same_ids(tmp_path):
    texts = sample_documents()
    pieces = pieces_of(cut_at_spaces(texts))
    specials = ("<unk>", "<s>", "</s>")
    start = new_start(pieces, symbols="characters", special_tokens=specials, max_alphabet=200)
    learned = learn_merges(pieces, start, vocab_size=1000)
    content = new_json(learned, special_tokens=specials, splits=())
    check_all_readers_agree(content, tmp_path / "tokenizer.json", [*texts, "one  two", "\U0001f9ff\x00"])


def test_an_extended_tokenizer_keeps_all_ids_and_loads_everywhere(tmp_path):
    texts = sample_documents()
    pieces = pieces_of(cut(texts))
    specials = ("<|endoftext|>",)
    old = learn_merges(pieces, new_start(pieces, special_tokens=specials), vocab_size=600)
    split = (Split(pattern=PATTERNS["gpt2"], dialect="oniguruma"),)
    content = json.loads(new_json(old, special_tokens=specials, splits=split))
    content["added_tokens"].append({**content["added_tokens"][0], "id": 600, "content": "<|later|>"})
    content = json.dumps(content).encode()
    new_pieces = pieces_of(cut(python_files()))
    start = start_from(load_tokenizer_json(content, source="made").spec)
    learned = learn_merges(new_pieces, start, vocab_size=1400)
    extended = extended_json(content, learned, source="made")
    vocab = json.loads(extended)["model"]["vocab"]
    assert len(vocab) == 1400
    assert {token: vocab[token] for token in old.tokens} == ids_of(old.tokens)
    assert vocab["<|later|>"] == 600
    merges = [tuple(merge) for merge in json.loads(extended)["model"]["merges"]]
    assert merges[: len(old.pairs)] == old.pairs
    check_all_readers_agree(extended, tmp_path / "tokenizer.json", [*texts, *python_files()[:1]])


def test_extending_by_nothing_and_resuming_to_the_full_size_give_what_one_training_gives():
    pieces = pieces_of(cut(sample_documents()))
    split = (Split(pattern=PATTERNS["gpt2"], dialect="oniguruma"),)
    start = new_start(pieces)
    whole = learn_merges(pieces, start, vocab_size=900)
    half = new_json(learn_merges(pieces, start, vocab_size=500), special_tokens=(), splits=split)
    again = start_from(load_tokenizer_json(half, source="made").spec)
    learned = learn_merges(pieces, again, vocab_size=900)
    assert learned.pairs == whole.pairs
    assert extended_json(half, learned, source="made") == new_json(whole, special_tokens=(), splits=split)


def test_only_merges_can_be_extended():
    with pytest.raises(UnsupportedTokenizerError, match="merges"):
        start_from(TokenizerSpec(model=RankModel(ranks={b"a": 0})))


# The benchmark


def test_the_benchmark_makes_the_same_pieces_again_and_learns_the_same_at_any_number_of_threads():
    script = Path(__file__).parents[1] / "benchmarks" / "train_inventory.py"
    options = ["--pieces", "3000", "--vocab-size", "600", "--threads", "1", "2"]
    first, again = (
        subprocess.run([sys.executable, script, *options], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    results = [json.loads(line) for line in (first + again).splitlines()]
    assert [result["threads"] for result in results] == [1, 2, 1, 2]
    assert {result["num_pieces"] for result in results} == {3000}
    assert {result["num_merges"] for result in results} == {344}
    assert len({result["sha256"] for result in results}) == 1
