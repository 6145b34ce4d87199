"""Counting pieces: exact against a Counter over the slow splitters, whatever the memory and spills."""

import json
import os
import random
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from adversarial_texts import TEXTS, code_point_texts, random_texts
from gristmill import _native
from gristmill.batch import pack_texts
from gristmill.errors import ConfigError, InputError
from gristmill.run.cutting import load_base
from gristmill.spec import Split
from gristmill.training import inventory as inventory_module
from gristmill.training.count_team import CounterTeam
from gristmill.training.counting import LEAST_BYTES, PieceCounter
from gristmill.training.cut import (
    NAMES,
    Cut,
    build_cut,
    cut_of,
    cut_of_spec,
    decode_cut,
    encode_cut,
    name_of_cut,
)
from gristmill.training.figures import measure_growth, script_shares, top_pieces
from gristmill.training.inventory import Inventory, Summary, merge_inventories
from made_tokenizers import byte_characters, byte_level, spaced_json
from slow_count import block, count_slowly, footer, header, inventory_bytes, varint

ADVERSARIAL = [*TEXTS, *random_texts(400, seed=4), *code_point_texts(together=500)]
WORDS = "a b c the of and to in " * 3


def many_texts(count: int, *, seed: int) -> list[str]:
    """Texts with far more distinct pieces, short and long, than the least memory holds."""
    choose = random.Random(seed)
    return [
        " ".join(
            "".join(choose.choices("abcdef水", k=choose.choice([3, 5, 8, 14, 15, 16, 17, 40])))
            for _ in range(50)
        )
        + WORDS
        for _ in range(count)
    ]


def add(counter: PieceCounter, texts: list[str], *, weight: int = 1) -> None:
    counter.add(*pack_texts(texts, errors="strict"), weight=weight)


def count(
    texts: list[str], cut: Cut, folder: Path, *, max_bytes: int = 1 << 26, at_once: int = 10**9
) -> Path:
    folder.mkdir()
    counter = PieceCounter(cut, folder, max_bytes=max_bytes)
    for start in range(0, len(texts), at_once):
        add(counter, texts[start : start + at_once])
        assert counter.memory_bytes <= max_bytes + (1 << 20)  # and what splitting one document takes
    counter.finish(folder / "all.pieces")
    assert [path.name for path in folder.iterdir()] == ["all.pieces"]
    return folder / "all.pieces"


def written(path: Path, counts: dict[bytes, int], about: bytes = b"{}") -> Path:
    path.write_bytes(inventory_bytes(counts, about))
    return path


CUTS = [(name, None) for name in NAMES if name not in ("gpt4", "cl100k_base", "o200k_base")]
CUTS += [(pattern, form) for pattern in ("gpt2", "none", "metaspace") for form in ("nfc", "nfkc")]
CUTS += [(pattern, None) for pattern in ("none", "metaspace", r"\d|\s*\w+", "(?:a)", r"\s+(?!\S)|b+c")]


@pytest.mark.parametrize(("pattern", "form"), CUTS)
def test_counts_equal_those_of_the_slow_splitters(pattern, form, tmp_path):
    cut = cut_of(pattern, form=form)
    path = count(ADVERSARIAL, cut, tmp_path / "counted")
    assert path.read_bytes() == inventory_bytes(count_slowly(ADVERSARIAL, cut), encode_cut(cut))


def test_pieces_that_a_split_removes_are_not_counted(tmp_path):
    split = Split(pattern=r"\s+", dialect="oniguruma", behavior="removed")
    cut = Cut(splits=(split, Split(pattern="b", dialect="oniguruma")))
    path = count(ADVERSARIAL, cut, tmp_path / "counted")
    assert path.read_bytes() == inventory_bytes(count_slowly(ADVERSARIAL, cut), encode_cut(cut))


def _sequence(*parts):
    bytes_last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*parts, bytes_last])


TOKENIZERS = {
    "gpt2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "prefix": (normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "digits": (normalizers.NFKC(), _sequence(pre_tokenizers.Digits(individual_digits=True))),
    "several": (
        None,
        _sequence(
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            pre_tokenizers.Split(Regex(r"[^\s\w]|\s?\w+"), "removed", invert=True),
        ),
    ),
    "metaspace": (None, pre_tokenizers.Metaspace()),
    "metaspace_never": (normalizers.NFC(), pre_tokenizers.Metaspace(prepend_scheme="never")),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_to_extend_is_counted_as_it_cuts(name, tmp_path):
    normalizer, cutter = TOKENIZERS[name]
    tokenizer = Tokenizer.from_str(byte_level().to_str())
    if name.startswith("metaspace"):
        tokenizer = Tokenizer.from_str(json.dumps(spaced_json()))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, cutter
    tokenizer.save(str(tmp_path / "base.json"))
    spec = load_base(str(tmp_path / "base.json"))
    characters = {character: byte for byte, character in byte_characters().items()}
    expected = Counter()
    for text in ADVERSARIAL:
        normal = normalizer.normalize_str(text) if normalizer else text
        for piece, _ in cutter.pre_tokenize_str(normal):
            if name.startswith("metaspace"):
                expected[piece.replace("▁", " ").encode()] += 1
            else:
                expected[bytes(map(characters.__getitem__, piece))] += 1
    assert dict(Inventory(count(ADVERSARIAL, cut_of_spec(spec), tmp_path / "counted"))) == expected


def test_every_named_cut_is_known_by_its_name():
    for name in ("gpt2", "llama3", "qwen2", "o200k_base", "metaspace", "none"):
        assert name_of_cut(cut_of(name, form="nfc")) == name
    assert name_of_cut(cut_of("a|b")) == encode_cut(cut_of("a|b")).decode()


@pytest.mark.parametrize(
    ("name", "near"), [("lama3", "llama3"), ("cl100k-base", "cl100k_base"), ("GPT2", "gpt2"), ("foo", "")]
)
def test_a_word_that_names_no_pattern_is_refused(name, near):
    with pytest.raises(ConfigError, match=rf"no pattern '{name}'.*\(\?:{name}\)") as error:
        cut_of(name)
    assert ("did you mean" in str(error.value)) == bool(near)
    assert near in str(error.value)
    assert cut_of(f"(?:{name})").splits[0].pattern == f"(?:{name})"


@pytest.mark.parametrize("at_once", [1, 7, 1000])
@pytest.mark.parametrize("max_bytes", [LEAST_BYTES, 3 * LEAST_BYTES, 1 << 26])
def test_the_file_is_the_same_for_any_memory_and_batches(max_bytes, at_once, tmp_path):
    cut = cut_of("gpt2")
    texts = many_texts(600, seed=1)
    path = count(texts, cut, tmp_path / "counted", max_bytes=max_bytes, at_once=at_once)
    assert path.read_bytes() == inventory_bytes(count_slowly(texts, cut), encode_cut(cut))


def test_little_memory_is_spilled_in_many_runs(tmp_path):
    counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=LEAST_BYTES)
    add(counter, many_texts(600, seed=1))
    assert len(counter.runs) > 3


def test_a_document_larger_than_the_memory_is_counted_whole(tmp_path):
    cut = cut_of("gpt2")
    text = " ".join(many_texts(600, seed=2))
    path = count([text], cut, tmp_path / "counted", max_bytes=LEAST_BYTES)
    assert path.read_bytes() == inventory_bytes(count_slowly([text], cut), encode_cut(cut))


def test_a_piece_larger_than_the_memory_is_counted(tmp_path):
    cut = cut_of("gpt2")
    texts = ["x" * 3_000_000, "a b", "x" * 3_000_000, "x" * 2_999_999 + "y", "a"]
    folder = tmp_path / "counted"
    folder.mkdir()
    counter = PieceCounter(cut, folder, max_bytes=LEAST_BYTES)
    add(counter, texts)
    counter.finish(folder / "all.pieces")
    expected = Counter({b"x" * 3_000_000: 2, b"x" * 2_999_999 + b"y": 1, b"a": 2, b" b": 1})
    assert dict(Inventory(folder / "all.pieces")) == expected


def test_weights_multiply_and_counts_pass_32_bits(tmp_path):
    counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=LEAST_BYTES)
    add(counter, ["a a"], weight=3 << 32)
    add(counter, ["a"])
    add(counter, ["b"], weight=0)
    counter.finish(tmp_path / "out")
    assert dict(Inventory(tmp_path / "out")) == {b"a": (3 << 32) + 1, b" a": 3 << 32}


def test_counts_past_64_bits_are_refused(tmp_path):
    counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=LEAST_BYTES)
    add(counter, ["a"], weight=2**63)
    with pytest.raises(InputError, match="64 bits"):
        add(counter, ["b"], weight=2**63)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=LEAST_BYTES)
    with pytest.raises(InputError, match="document 1 is not UTF-8"):
        counter.add(np.frombuffer(b"ab\xe6\xb0", np.uint8), np.array([0, 2, 4]))


@pytest.mark.parametrize("texts", [[], ["", "", ""]])
def test_nothing_gives_an_empty_inventory(texts, tmp_path):
    path = count(texts, cut_of("gpt2"), tmp_path / "counted")
    assert Inventory(path).summary == Summary(0, 0, 0, 0, 0, 0)
    assert list(Inventory(path)) == []
    assert len(Inventory(path).load().counts) == 0


def test_a_pattern_that_does_not_parse_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="gpt2"):
        PieceCounter(cut_of(r"(a"), tmp_path, max_bytes=LEAST_BYTES)


def test_too_little_memory_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="memory"):
        PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=1000)


def test_a_full_counter_that_is_not_spilled_is_an_error():
    counter = _native.PieceCounter(build_cut(cut_of("gpt2")), LEAST_BYTES, False)
    text, offsets = pack_texts(many_texts(600, seed=1), errors="strict")
    with pytest.raises(RuntimeError, match="not spilled"):
        counter.add(text, offsets, 1, lambda: None)


def test_a_counter_refuses_to_do_two_things_at_once():
    counter = _native.PieceCounter(build_cut(cut_of("gpt2")), LEAST_BYTES, False)
    text, offsets = pack_texts(many_texts(600, seed=1), errors="strict")
    errors = []

    def add_again() -> None:
        for use in (lambda: counter.add(text, offsets, 1, add_again), lambda: counter.spill(b"", add_twice)):
            try:
                use()
            except RuntimeError as error:
                errors.append(str(error))

    def add_twice(_: bytes) -> None:
        with pytest.raises(RuntimeError, match="one thing at a time"):
            counter.spill(b"", print)

    counter.add(text, offsets, 1, add_again)
    assert set(errors) == {"a counter does one thing at a time"}


def test_threads_count_apart_and_merge_to_the_same_file(tmp_path):
    cut, texts = cut_of("o200k"), many_texts(400, seed=3)
    paths = [tmp_path / f"part{i}" for i in range(4)]

    def work(i: int) -> None:
        count(texts[i::4], cut, paths[i], max_bytes=LEAST_BYTES)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    merge_inventories([path / "all.pieces" for path in paths], tmp_path / "merged")
    assert (tmp_path / "merged").read_bytes() == count(texts, cut, tmp_path / "one").read_bytes()


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("max_bytes", [LEAST_BYTES, 1 << 26])
def test_a_team_of_threads_writes_the_file_that_one_counter_writes(num_threads, max_bytes, tmp_path):
    texts = [*ADVERSARIAL, *many_texts(300, seed=8)]
    counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=max_bytes, text_bytes=num_threads << 20)
    team = CounterTeam(counter, num_threads=num_threads)
    for start in range(0, len(texts), 37):
        team.add(*pack_texts(texts[start : start + 37], errors="strict"), weight=3)
    summary = team.finish(tmp_path / "team.pieces")
    assert [path.name for path in tmp_path.iterdir()] == ["team.pieces"]  # no run is left
    one = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=1 << 26)
    add(one, texts, weight=3)
    assert one.finish(tmp_path / "one.pieces") == summary
    assert (tmp_path / "team.pieces").read_bytes() == (tmp_path / "one.pieces").read_bytes()


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("texts", [[*ADVERSARIAL, *many_texts(300, seed=8)], ["one"], []], ids=len)
def test_what_is_told_before_it_is_written_is_what_the_file_holds(num_threads, texts, tmp_path):
    team = CounterTeam(PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=1 << 26), num_threads=num_threads)
    for start in range(0, len(texts), 37):
        team.add(*pack_texts(texts[start : start + 37], errors="strict"), weight=3)
    told = []
    summary = team.finish(tmp_path / "told.pieces", on_pieces=told.append)
    one = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=1 << 26)
    add(one, texts, weight=3)
    assert one.finish(tmp_path / "one.pieces") == summary
    assert (tmp_path / "told.pieces").read_bytes() == (tmp_path / "one.pieces").read_bytes()
    held = Inventory(tmp_path / "one.pieces").load()
    add(one, texts, weight=3)  # it begins anew
    for pieces in (*told, one.take()):
        assert all(map(np.array_equal, pieces, held))
        assert [array.dtype for array in pieces] == [array.dtype for array in held]


def test_what_was_spilled_is_not_told_and_is_taken_from_the_runs(tmp_path):
    texts = many_texts(300, seed=8)
    counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=LEAST_BYTES)
    add(counter, texts)
    assert counter.runs
    told = []
    counter.finish(tmp_path / "one.pieces", on_pieces=told.append)
    assert not told
    add(counter, texts)
    assert counter.runs
    assert all(map(np.array_equal, counter.take(), Inventory(tmp_path / "one.pieces").load()))


def test_what_was_forgotten_is_written_with_what_is_told(tmp_path):
    texts = many_texts(300, seed=8)
    for name, on_pieces in (("plain", None), ("told", lambda pieces: None)):
        counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=LEAST_BYTES, when_full="forget")
        add(counter, texts)
        assert counter.finish(tmp_path / name, on_pieces=on_pieces).dropped_count > 0
    assert (tmp_path / "told").read_bytes() == (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize("text_bytes", [0, 1 << 20, 1 << 62])
def test_however_much_text_is_expected_memory_is_bounded(text_bytes, tmp_path):
    counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=1 << 22, text_bytes=text_bytes)
    assert counter.memory_bytes <= (1 << 20) + 1000  # a quarter, and a few empty strings
    add(counter, many_texts(300, seed=8))
    assert counter.memory_bytes <= 1 << 22


@pytest.mark.parametrize("num_threads", [1, 3])
def test_what_a_thread_of_a_team_refuses_reaches_the_caller(num_threads, tmp_path):
    before = threading.active_count()
    team = CounterTeam(PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=1 << 26), num_threads=num_threads)
    bad = np.frombuffer(b"ab\xff", np.uint8), np.array([0, 3], np.int64)

    def count_bad() -> None:
        for _ in range(100):
            team.add(*bad, weight=1)
        team.finish(tmp_path / "never")

    with pytest.raises(InputError, match="document 0 is not UTF-8"):
        count_bad()
    team.abandon()
    assert threading.active_count() == before
    assert not any(tmp_path.iterdir())


def test_merging_does_not_depend_on_order_or_grouping(tmp_path, monkeypatch):
    choose = random.Random(5)
    total: Counter[bytes] = Counter()
    paths = []
    for i in range(23):
        part = Counter(bytes(choose.choices(b"ab\x00\xff", k=choose.randint(1, 20))) for _ in range(i * 10))
        total += part
        paths.append(written(tmp_path / f"{i}", part))
    expected = inventory_bytes(total, b"{}")
    for max_open in (2, 3, 256):
        monkeypatch.setattr(inventory_module, "MAX_OPEN", max_open)
        choose.shuffle(paths)
        merge_inventories(paths, tmp_path / "merged")
        assert (tmp_path / "merged").read_bytes() == expected
    assert not list(tmp_path.glob(".*"))


def test_a_name_that_is_not_utf8_is_refused_with_a_remedy(tmp_path):
    path = tmp_path / os.fsdecode(b"a\xff.pieces")
    with pytest.raises(InputError, match="its name is not UTF-8; rename it"):
        merge_inventories([path], tmp_path / "merged")
    assert not list(tmp_path.iterdir())



def test_min_count_drops_after_adding_and_says_how_much(tmp_path):
    first = written(tmp_path / "1", {b"a": 1, b"b": 1, b"ccc": 2, b"d": 9})
    second = written(tmp_path / "2", {b"a": 1, b"e": 2})
    report = merge_inventories([first, second], tmp_path / "out", min_count=3)
    assert dict(Inventory(tmp_path / "out")) == {b"d": 9}
    assert report == (Summary(1, 9, 1, 1, 7, 2), 4, 7, 6)
    assert Inventory(tmp_path / "out").summary == report.summary


def test_counts_that_pass_64_bits_are_not_merged(tmp_path):
    paths = [written(tmp_path / name, {b"a": 2**63}) for name in "12"]
    with pytest.raises(InputError, match="64 bits"):
        merge_inventories(paths, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_inventories_cut_in_different_ways_are_not_merged(tmp_path):
    paths = [written(tmp_path / name, {b"a": 1}, name.encode()) for name in "12"]
    with pytest.raises(InputError, match="another way"):
        merge_inventories(paths, tmp_path / "out")
    with pytest.raises(InputError, match="no inventory"):
        merge_inventories([], tmp_path / "out")


def test_the_cut_comes_back_from_the_file(tmp_path):
    cut = cut_of("cl100k", form="nfkc")
    assert Inventory(count(["a"], cut, tmp_path / "counted")).cut == cut
    assert cut_of("gpt4") == cut_of("cl100k_base")
    with pytest.raises(ConfigError, match="not known"):
        decode_cut(b'{"no": 1}')


def test_forgetting_keeps_the_bound_it_states(tmp_path):
    cut, texts = cut_of("gpt2"), many_texts(1500, seed=6)
    counter = PieceCounter(cut, tmp_path, max_bytes=LEAST_BYTES, when_full="forget")
    for start in range(0, len(texts), 100):
        add(counter, texts[start : start + 100])
        assert counter.memory_bytes <= LEAST_BYTES + (1 << 20)
    summary = counter.finish(tmp_path / "out")
    exact = count_slowly(texts, cut)
    found = dict(Inventory(tmp_path / "out"))
    assert 0 < summary.max_undercount < exact[b" the"]
    assert summary.total_count + summary.dropped_count == sum(exact.values())
    assert set(found) < set(exact)
    assert all(
        found.get(piece, 0) <= n <= found.get(piece, 0) + summary.max_undercount for piece, n in exact.items()
    )
    assert found[b" the"] == exact[b" the"]


@pytest.mark.parametrize("at_once", [1, 50])
def test_what_is_forgotten_does_not_depend_on_batches(at_once, tmp_path):
    texts = many_texts(600, seed=7)
    files = []
    for step in (at_once, 600):
        counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=LEAST_BYTES, when_full="forget")
        for start in range(0, len(texts), step):
            add(counter, texts[start : start + step])
        counter.finish(tmp_path / "out")
        files.append((tmp_path / "out").read_bytes())
    assert files[0] == files[1]


def test_forgotten_counts_and_bounds_add_up_in_a_merge(tmp_path):
    for name, bound in (("1", 5), ("2", 7)):
        payload = varint(1) + b"a" + varint(3)
        content = header(b"{}") + block(payload, 1) + footer(1, 3, 1, 1, 10, bound)
        (tmp_path / name).write_bytes(content)
    report = merge_inventories([tmp_path / "1", tmp_path / "2"], tmp_path / "out")
    assert report.summary == Summary(1, 6, 1, 1, 20, 12)


GOOD = inventory_bytes({b"a": 1, b"ab": 300, b"b" * 20: 7}, b"{}")
PIECE = varint(1) + b"a" + varint(1)
ENDS = footer(1, 1, 1, 1, 0, 0)
DAMAGED = {
    "empty": b"",
    "another format": b"x" * 200,
    "another version": header(b"{}", version=2) + block(PIECE, 1) + ENDS,
    "about too long": header(b"")[:12] + b"\xff\xff\xff\xff" + GOOD[16:],
    "no pieces in a block": header(b"{}") + block(b"", 0) + footer(0, 0, 0, 0, 0, 0),
    "fewer pieces than said": header(b"{}") + block(PIECE, 1) + footer(2, 2, 2, 1, 0, 0),
    "far more pieces than said": header(b"{}") + block(PIECE, 1) + footer(2**63, 1, 1, 1, 0, 0),
    "far more bytes than said": header(b"{}") + block(PIECE, 1) + footer(1, 1, 2**63, 1, 0, 0),
    "another total": header(b"{}") + block(PIECE, 1) + footer(1, 2, 1, 1, 0, 0),
    "another longest piece": header(b"{}") + block(PIECE, 1) + footer(1, 1, 1, 9, 0, 0),
    "a piece past its block": header(b"{}") + block(varint(99) + b"a", 1) + ENDS,
    "a size past its block": header(b"{}") + block(b"\xff", 1) + ENDS,
    "a size past 64 bits": header(b"{}") + block(b"\xff" * 10 + PIECE, 1) + ENDS,
    "an empty piece": header(b"{}") + block(varint(0) + varint(1), 1) + footer(1, 1, 0, 0, 0, 0),
    "no count": header(b"{}") + block(varint(1) + b"a", 1) + ENDS,
    "a count of 0": header(b"{}") + block(varint(1) + b"a" + varint(0), 1) + footer(1, 0, 1, 1, 0, 0),
    "twice in a block": header(b"{}") + block(PIECE * 2, 2) + footer(2, 2, 2, 1, 0, 0),
    "twice in two blocks": header(b"{}") + block(PIECE, 1) * 2 + footer(2, 2, 2, 1, 0, 0),
    "more than its pieces": header(b"{}") + block(PIECE * 2, 1) + footer(1, 1, 1, 1, 0, 0),
    "a total past 64 bits": header(b"{}")
    + block(varint(1) + b"a" + varint(2**63) + varint(1) + b"b" + varint(2**63), 2)
    + footer(2, 0, 2, 1, 0, 0),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_an_input_error_that_names_the_file(content, tmp_path):
    path = tmp_path / "bad.pieces"
    path.write_bytes(content)
    for use in (
        lambda: list(Inventory(path)),
        lambda: Inventory(path).load(),
        lambda: merge_inventories([path], tmp_path / "out"),
    ):
        with pytest.raises(InputError, match=r"bad\.pieces: "):
            use()
    assert not (tmp_path / "out").exists()


def test_every_cut_and_every_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "bad.pieces"
    changed = [GOOD[:i] + bytes([GOOD[i] ^ 4]) + GOOD[i + 1 :] for i in range(len(GOOD))]
    for content in [*(GOOD[:i] for i in range(len(GOOD))), *changed, GOOD + b"x"]:
        path.write_bytes(content)
        with pytest.raises(InputError):
            Inventory(path).load()


def test_a_missing_file_and_a_folder_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        Inventory(tmp_path / "none")
    with pytest.raises(InputError, match="plain file"):
        Inventory(tmp_path)


def test_chunks_and_load_give_the_same_pieces(tmp_path):
    counts = {bytes([65 + i % 26]) * (1 + i // 26): i + 1 for i in range(400)}
    inventory = Inventory(written(tmp_path / "1", counts))
    loaded = inventory.load()
    assert [(loaded.piece(i), int(n)) for i, n in enumerate(loaded.counts)] == sorted(counts.items())
    parts = list(inventory.chunks(max_bytes=10))
    assert len(parts) > 50
    assert [(part.piece(i), int(n)) for part in parts for i, n in enumerate(part.counts)] == list(inventory)


@pytest.mark.parametrize("num_pieces", [0, 1, 5, 10_000])
def test_top_pieces_are_the_commonest_in_a_fixed_order(num_pieces, tmp_path):
    choose = random.Random(8)
    counts = {choose.randbytes(3): choose.randint(1, 9) for _ in range(2000)}
    inventory = Inventory(written(tmp_path / "1", counts))
    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:num_pieces]
    assert top_pieces(inventory, num_pieces) == expected


def test_growth_counts_hapaxes_and_ends_at_all_pieces(tmp_path):
    growth = measure_growth(Inventory(written(tmp_path / "1", {b"a": 1, b"b": 1, b"c": 2})))
    assert growth.num_hapax == 2
    assert growth.distinct[-1] == (1.0, 3.0)
    assert growth.distinct[-2] == (0.5, 1.75)


def test_scripts_are_those_of_the_first_letters(tmp_path):
    texts = {"the": 5, " мир": 2, "水車": 3, " 1": 1, "1a": 1, "(水": 1, "한": 1, "🙂": 1, "  ": 4}
    texts |= {"é": 1, "ไทย": 1}
    counts = {piece.encode(): n for piece, n in texts.items()}
    inventory = Inventory(written(tmp_path / "1", counts))
    shares = script_shares(inventory)
    assert {name: share.total_count for name, share in shares.items()} == {
        "Latin": 7, "Cyrillic": 2, "Han": 4, "symbols": 6, "Hangul": 1, "Thai": 1,
    }  # fmt: skip
    assert shares["Han"] == (2, 4, 22)
    assert {name: share.num_pieces for name, share in script_shares(inventory, below=2).items()} == {
        "Thai": 1, "symbols": 2, "Latin": 2, "Han": 1, "Hangul": 1,
    }  # fmt: skip
