"""The native engine against its slow twins: whatever the threads, the batches, the cache, the memory."""

import ctypes
import json
import mmap
import random
import threading
import time

import numpy as np
import pytest
import sentencepiece
from tokenizers import Tokenizer

import adversarial_texts as adversarial
import made_tokenizers as made
import real_tokenizers as real
from gristmill import _native
from gristmill.batch import flatten_texts
from gristmill.engines.native import DEFAULT_CACHE_BYTES, NativeEngine
from gristmill.engines.twins import merge_ranks
from gristmill.errors import InputError
from gristmill.load.hf_json import load_tokenizer_json
from gristmill.load.sentencepiece_model import load_sentencepiece
from gristmill.load.tiktoken_ranks import Encoding, load_rank_model
from gristmill.pattern import PATTERNS

MEGABYTE = 1 << 20


def spec_of_json(value):
    return load_tokenizer_json(json.dumps(value).encode(), source="made").spec


def spec_of_ranks(ranks, pattern="llama3"):
    return load_rank_model(ranks, Encoding(PATTERNS[pattern], {}), id_offset=0, source="made").spec


def chain_json():
    """A pipeline that drops text, so that the chain of plain splitters runs instead of the transducer."""
    value = made.byte_level_json()
    cut = {"type": "Split", "pattern": {"Regex": r"\p{L}+|\n"}, "behavior": "Removed", "invert": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return value | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, byte_level]}}


SPECS = {
    "byte level": lambda: spec_of_json(made.byte_level_json()),
    "nfc": lambda: spec_of_json(made.byte_level_json() | {"normalizer": {"type": "NFC"}}),
    "chain": lambda: spec_of_json(chain_json()),
    "spaced": lambda: spec_of_json(made.spaced_json()),
    "scores": lambda: load_sentencepiece(made.sentencepiece_model(), source="made").spec,
    "ranks": lambda: spec_of_ranks(made.ranks()),
    "cl100k": lambda: spec_of_ranks(real.real_ranks("cl100k"), "cl100k_base"),
}


@pytest.fixture(scope="module", params=SPECS)
def spec(request):
    return SPECS[request.param]()


@pytest.fixture(scope="module")
def byte_level():
    return NativeEngine(SPECS["byte level"]())


def encode(engine, texts, *, num_threads=1, special_tokens="text"):
    buffer, offsets = flatten_texts(texts)
    ids, ends = engine.encode_batch(buffer, offsets, special_tokens=special_tokens, num_threads=num_threads)
    return [part.tolist() for part in np.split(ids, ends[1:-1])]


def random_words(count, *, seed):
    """Words that hardly ever come back, short and long, of one to four bytes a character."""
    chance = np.random.default_rng(seed)
    alphabets = [range(0x61, 0x7B), range(0xE0, 0x17F), range(0x4E00, 0x5E00), range(0x1F600, 0x1F640)]
    words = []
    for alphabet, share in zip(alphabets, (0.7, 0.1, 0.15, 0.05), strict=True):
        sizes = chance.integers(1, 24, int(count * share))
        letters = "".join(map(chr, chance.choice(alphabet, int(sizes.sum()))))
        ends = np.cumsum(sizes)
        words += [letters[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    chance.shuffle(words)
    return " ".join(words)


# Merging


def random_ranks(size, *, seed, alphabet):
    """Tokens grown from random pairs of earlier ones."""
    chance = random.Random(seed)
    tokens = [bytes([byte]) for byte in range(256)]
    parts = [bytes([byte]) for byte in alphabet]
    while len(tokens) < 256 + size:
        token = chance.choice(parts) + chance.choice(parts)
        if len(token) <= 40 and token not in tokens:
            tokens.append(token)
            parts.append(token)
    return {token: rank for rank, token in enumerate(tokens)}


def score_model(*, num_scores, seed, alphabet="abcé水🙂 "):
    """Pieces that share scores: equal ones go left to right, whatever they make."""
    chance = random.Random(seed)
    pieces = list(alphabet)
    while len(pieces) < 150:
        piece = chance.choice(pieces) + chance.choice(pieces)
        if piece not in pieces:
            pieces.append(piece)
    ranks = [chance.randrange(num_scores) for _ in pieces]
    marked = [piece.replace(" ", "▁") for piece in pieces]
    return _native.compile_scores(marked, list(range(256, 256 + len(pieces))), ranks, list(range(256)))


def merge_model():
    value = made.byte_level_json(vocab_size=700)["model"]
    return _native.compile_merges(value["vocab"], value["merges"], "byte_level", False, False)


def fallback_model():
    value = made.spaced_json()["model"]
    return _native.compile_merges(value["vocab"], value["merges"], "marks", True, False)


MODELS = {
    "two letters": (lambda: _native.compile_ranks(random_ranks(60, seed=1, alphabet=b"ab"), 0), "ab"),
    "four letters": (lambda: _native.compile_ranks(random_ranks(300, seed=2, alphabet=b"abcd"), 0), "abcd"),
    "any bytes": (lambda: _native.compile_ranks(random_ranks(900, seed=3, alphabet=range(256)), 0), None),
    "trained": (merge_model, "the quickbrown jumps 犬をüberé🙂"),
    "byte fallback": (fallback_model, "the quickbrown jumps 犬をüberé🙂"),
    "scores": (lambda: score_model(num_scores=1000, seed=4), "abcé水🙂 x"),
    "few scores": (lambda: score_model(num_scores=3, seed=5), "abcé水🙂 x"),
    "one score": (lambda: score_model(num_scores=1, seed=6), "abc é水🙂x"),
    "cl100k": (
        lambda: _native.compile_ranks(real.real_ranks("cl100k"), 0),
        "the quick 犬をüé🙂\n  \t123.,'s",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_merge_gives_the_same_tokens(name):
    build, alphabet = MODELS[name]
    model = build()
    chance = random.Random(name)
    sizes = [*range(40), *(chance.choice([3, 8, 15, 16, 17, 31, 32, 33, 64, 200]) for _ in range(1500))]
    for size in sizes:
        text = (
            chance.randbytes(size) if alphabet is None else "".join(chance.choices(alphabet, k=size)).encode()
        )
        assert model.merge_fast(text) == model.merge_slowly(text), text


def test_merging_by_rank_is_tiktokens():
    ranks = random_ranks(300, seed=2, alphabet=b"abcd")
    model = _native.compile_ranks(ranks, 0)
    chance = random.Random(8)
    for size in [*range(40), 100, 300]:
        text = bytes(chance.choices(b"abcd", k=size))
        # Doubled, it is no token: those are taken whole before anything is merged.
        assert model.merge_slowly(text * 2) == merge_ranks(text * 2, ranks)


@pytest.mark.parametrize("name", ["cl100k", "llama3"])
def test_a_token_is_reachable_if_merging_its_bytes_gives_it(name):
    model = _native.compile_ranks(real.real_ranks(name), 0)
    ids = random.Random(9).sample(range(model.num_ids), 3000)
    for id_ in ids:
        assert model.is_reachable(id_) == (model.merge_slowly(model.token(id_)) == [id_])


# Threads, batches, cache


def documents():
    special = ["<|endoftext|>", "<s>"]
    texts = adversarial.TEXTS + adversarial.random_texts(2000, seed=3, parts=special)
    return [*texts, random_words(3000, seed=1), *texts[:50], " ".join(texts), ""]


def test_ids_are_the_same_for_any_threads_and_any_batch(spec):
    texts = documents()
    for special_tokens in ("text", "parse"):
        options = {"special_tokens": special_tokens}
        expected = encode(NativeEngine(spec), texts, **options)
        engine = NativeEngine(spec)
        for num_threads in (2, 3, 8):
            assert encode(engine, texts, num_threads=num_threads, **options) == expected
        reversed_ids = encode(engine, texts[::-1], num_threads=2, **options)
        assert reversed_ids[::-1] == expected
        singly = [encode(engine, [text], **options)[0] for text in texts[:400]]
        assert singly == expected[:400]
        buffer, offsets = flatten_texts(texts)
        counts = engine.count_batch(buffer, offsets, num_threads=3, **options)
        assert counts.tolist() == list(map(len, expected))


def test_a_tiny_cache_changes_no_id(spec):
    texts = [random_words(40_000, seed=2), *documents()]
    assert encode(NativeEngine(spec, cache_bytes=1), texts) == encode(NativeEngine(spec), texts)


@pytest.mark.parametrize("cache_bytes", [1, MEGABYTE, 8 * MEGABYTE])
def test_memory_stays_under_the_bound_whatever_is_encoded(cache_bytes):
    engine = NativeEngine(SPECS["byte level"](), cache_bytes=cache_bytes)
    words = random_words(400_000, seed=3)
    step = len(words) // 8
    texts = [words[i * step + shift : (i + 1) * step] for shift in range(8) for i in range(8)]
    held = []
    for start in range(0, len(texts), 8):
        encode(engine, texts[start : start + 8], num_threads=1)
        held.append(engine.state_bytes)
    # What a thread holds besides the cache: the tables' smallest size, and room for one block of text.
    assert max(held) <= cache_bytes + 2 * MEGABYTE


def test_the_default_cache_keeps_a_thread_under_200_megabytes():
    assert DEFAULT_CACHE_BYTES <= 190 * MEGABYTE
    engine = NativeEngine(SPECS["scores"]())
    for seed in range(4):
        encode(engine, [random_words(200_000, seed=10 + seed)])
    assert engine.state_bytes <= 200 * MEGABYTE


@pytest.mark.xfail(strict=True, reason="work space for a long piece is kept with the encoder")
def test_what_one_huge_document_needed_is_given_back():
    engine = NativeEngine(SPECS["byte level"](), cache_bytes=1)
    encode(engine, [" " * 4_000_000])
    encode(engine, ["small"])
    assert engine.state_bytes <= 4 * MEGABYTE


def test_many_callers_at_once_get_the_same_ids(spec):
    engine = NativeEngine(spec, cache_bytes=1)
    texts = documents()[-600:]
    expected = {policy: encode(engine, texts, special_tokens=policy) for policy in ("text", "parse")}
    wrong = []

    def work(policy, num_threads):
        for _ in range(3):
            if encode(engine, texts, num_threads=num_threads, special_tokens=policy) != expected[policy]:
                wrong.append(policy)

    callers = [threading.Thread(target=work, args=(("text", "parse")[i % 2], 1 + i % 3)) for i in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_other_python_threads_run_while_it_encodes(byte_level):
    buffer, offsets = flatten_texts([random_words(600_000, seed=5)])
    is_over = threading.Event()
    gaps = []

    def watch():
        last = time.perf_counter()
        while not is_over.is_set():
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    byte_level.encode_batch(buffer, offsets, special_tokens="text", num_threads=1)
    took_s = time.perf_counter() - start
    is_over.set()
    watcher.join()
    # Were the lock held, the watcher would stand still from start to end.
    assert max(gaps) < took_s / 2


# Hard documents

RUNS = ["a", " ", "\n", "1", "!", "é", "水", "🙂", "\u0301", "\u2581", "ab", "aA", " \n", "<"]


@pytest.mark.parametrize("value", [made.byte_level_json(), made.spaced_json()], ids=["byte level", "spaced"])
@pytest.mark.parametrize("run", RUNS, ids=ascii)
def test_a_long_run_is_encoded_as_the_library_does(value, run):
    text = run * (300_000 // len(run.encode()))
    reference = Tokenizer.from_str(json.dumps(value))
    ids = encode(NativeEngine(spec_of_json(value)), [text])[0]
    assert ids == reference.encode(text, add_special_tokens=False).ids


def test_long_runs_and_random_characters_are_encoded_as_sentencepiece_does():
    content = made.sentencepiece_model()
    engine = NativeEngine(load_sentencepiece(content, source="made").spec)
    library = sentencepiece.SentencePieceProcessor(model_proto=content)
    chance = random.Random(11)
    texts = [run * (100_000 // len(run.encode())) for run in RUNS]
    texts.append("".join(chance.choices("the quickbrown犬をé🙂", k=100_000)))
    assert encode(engine, texts) == [library.encode(text) for text in texts]


class GuardedPage:
    """Memory that ends where no byte may be read."""

    def __init__(self):
        page = mmap.PAGESIZE
        self.size = page
        self.map = mmap.mmap(-1, 2 * page)
        self.bytes = np.frombuffer(self.map, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert libc.mprotect(self.bytes.ctypes.data + page, page, 0) == 0

    def put_at_end(self, content):
        place = self.bytes[self.size - len(content) : self.size]
        place[:] = np.frombuffer(content, np.uint8)
        return place


EDGE_TEXTS = [
    "The quick brown fox jumps over the lazy dog",
    "x" * 60,
    " " * 60,
    "水車小屋" * 6,
    "🙂👩🏽" * 5,
    "été naïve",
    "a1 .\n" * 10,
    "<|endoftext|>" * 4,
    "e\u0301" * 15,
    "▁▁ ▁" * 6,
]


def test_no_byte_past_the_end_of_a_buffer_is_read(spec):
    engine = NativeEngine(spec)
    page = GuardedPage()
    for text in EDGE_TEXTS:
        content = text.encode()
        for size in range(min(41, len(content) + 1)):
            # Both a document that ends there, and one cut off so that the character before it is whole.
            cut = content[:size].decode("utf-8", "ignore").encode()
            placed = page.put_at_end(cut)
            for special_tokens in ("text", "parse"):
                offsets = np.array([0, len(cut)], np.int64)
                ids, _ = engine.encode_batch(placed, offsets, special_tokens=special_tokens, num_threads=1)
                assert [ids.tolist()] == encode(engine, [cut], special_tokens=special_tokens)


def test_no_byte_past_the_end_is_read_where_utf8_is_checked(byte_level):
    page = GuardedPage()
    for tail in (b"\xc3", b"\xe6", b"\xe6\xb0", b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x99", b"\xed", b"\xf4\x90"):
        for before in range(20):
            placed = page.put_at_end(b"a" * before + tail)
            offsets = np.array([0, len(placed)], np.int64)
            assert _native.find_invalid(placed, offsets) == (0, before)
            with pytest.raises(InputError, match=f"at byte {before}"):
                byte_level.encode_batch(placed, offsets, special_tokens="text", num_threads=1)


# Decoding


@pytest.mark.parametrize("name", ["byte level", "ranks", "cl100k"])
def test_decoding_gives_the_bytes_back(name):
    engine = NativeEngine(SPECS[name]())
    texts = documents()
    for text, ids in zip(texts, encode(engine, texts), strict=True):
        assert engine.decode(np.array(ids, np.uint32)).decode() == text


def test_decoding_a_special_token_gives_its_text(byte_level):
    (ids,) = encode(byte_level, ["a<|endoftext|>b"], special_tokens="parse")
    assert len(ids) == 3
    assert byte_level.decode(np.array(ids, np.uint32)) == b"a<|endoftext|>b"


# Broken text


def encode_list(engine, texts, *, errors):
    ids, ends = engine.encode_list(
        texts, special_tokens="text", replace_invalid=errors == "replace", num_threads=2
    )
    return [part.tolist() for part in np.split(ids, ends[1:-1])]


def broken_bytes(count, *, seed):
    """Bytes that are nearly UTF-8."""
    chance = random.Random(seed)
    leads = [
        b"\xc3",
        b"\xe0",
        b"\xe6",
        b"\xed",
        b"\xef",
        b"\xf0",
        b"\xf4",
        b"\xf5",
        b"\xc0",
        b"\xff",
        b"\x80",
        b"\xbf",
    ]
    tails = [
        b"\x80",
        b"\x8f",
        b"\x90",
        b"\x9f",
        b"\xa0",
        b"\xbf",
        b"a",
        b" ",
        "é".encode(),
        "水".encode(),
        "🙂".encode(),
    ]
    return [b"".join(chance.choices(leads + tails * 2, k=chance.randint(1, 12))) for _ in range(count)]


def test_invalid_utf8_is_replaced_as_python_does(byte_level):
    broken = broken_bytes(3000, seed=12)
    replaced = [content.decode("utf-8", "replace") for content in broken]
    assert encode_list(byte_level, broken, errors="replace") == encode(byte_level, replaced)


def test_invalid_utf8_is_found_where_python_finds_it(byte_level):
    for content in broken_bytes(1500, seed=13):
        try:
            content.decode()
        except UnicodeDecodeError as error:
            with pytest.raises(InputError, match=f"document 1: invalid UTF-8 at byte {error.start};"):
                encode_list(byte_level, ["é", content, b"\xff"], errors="strict")
        else:
            assert encode_list(byte_level, [content], errors="strict") == encode(byte_level, [content])


def test_lone_surrogates_are_refused_or_replaced(byte_level):
    texts = ["fine", "é\ud800x\udfff", "\ud83d\ude42", "🙂"]
    with pytest.raises(InputError, match="document 1: a lone surrogate at byte 2;"):
        encode_list(byte_level, texts, errors="strict")
    replaced = ["fine", "é\ufffdx\ufffd", "\ufffd\ufffd", "🙂"]
    assert encode_list(byte_level, texts, errors="replace") == encode(byte_level, replaced)


def test_the_first_broken_document_is_named_for_any_number_of_threads(byte_level):
    texts = [b"fine " * 200] * 400
    for bad in (350, 351, 399):
        texts[bad] = b"ab\xff"
    for num_threads in (1, 2, 3, 8):
        with pytest.raises(InputError, match="document 350: invalid UTF-8 at byte 2;"):
            encode_list_with(byte_level, texts, num_threads)


def encode_list_with(engine, texts, num_threads):
    engine.encode_list(texts, special_tokens="text", replace_invalid=False, num_threads=num_threads)
