"""The kernels, run by the emulator, give the native engine's ids and offsets; without a GPU nothing asks
for one."""

import ctypes
import json
import random
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import adversarial_texts as adversarial
import gristmill
import made_tokenizers as made
import native_engines
import real_tokenizers as real
from emulated_device import EmulatedDevice
from gristmill import _native
from gristmill.batch import flatten_texts
from gristmill.engines.cuda import batch as cuda_batch
from gristmill.engines.cuda import late as late_engine
from gristmill.engines.cuda.copies import Copies, IdPart
from gristmill.engines.cuda.engine import NUM_SPARED, Stretch, engine_on, flagged_documents, put_on_device
from gristmill.engines.cuda.late import LateEngine
from gristmill.engines.cuda.tables import build_tables
from gristmill.engines.native import compile_model, compile_native
from gristmill.errors import InputError, MissingPackageError, UnsupportedTokenizerError
from gristmill.load.hf_json import load_tokenizer_json
from gristmill.load.tiktoken_ranks import Encoding, load_rank_model
from gristmill.pattern import PATTERNS

TILE = 992
SPECIALS = ("<|endoftext|>", "<|im_start|>")


def of_ranks(name, pattern):
    return load_rank_model(
        real.real_ranks(name), Encoding(PATTERNS[pattern], {}), id_offset=0, source=name
    ).spec


def of_json(value):
    return load_tokenizer_json(json.dumps(value).encode(), source="made").spec


SPECS = {
    "made, 16 bits": lambda: native_engines.spec_of_json(made.byte_level_json()),
    "made, normalised": lambda: of_json(made.byte_level_json() | {"normalizer": {"type": "NFC"}}),
    "llama3": lambda: of_json(real.rank_json("llama3", "llama3", ignore_merges=True)),
    "o200k": lambda: of_ranks("o200k", "o200k_base"),
    "qwen": lambda: of_json(real.rank_json("qwen3", "qwen2", normalizer={"type": "NFC"})),
}


@pytest.fixture(scope="module", params=SPECS)
def engine(request):
    """Small tables and batches, so that places are taken and calls have several batches."""
    spec = SPECS[request.param]()
    tables = build_tables(spec, compile_model(spec), word_bits=18, is_padded=True)
    on = put_on_device(spec, tables, EmulatedDevice(tables))
    return engine_on(on, compile_native(spec), batch_bytes=1 << 16, num_spared=0)


def assert_same(engine, documents, *, special_tokens="text"):
    buffer, offsets = flatten_texts(documents)
    ids, ends = engine.encode_batch(buffer, offsets, special_tokens=special_tokens, num_threads=2)
    theirs = engine._native.encode_batch(buffer, offsets, special_tokens=special_tokens, num_threads=2)
    assert ids.dtype == np.uint32
    assert ends.tolist() == theirs[1].tolist()
    assert ids.tolist() == theirs[0].tolist()


def test_hostile_and_random_texts_have_the_native_ids(engine):
    texts = adversarial.TEXTS + adversarial.random_texts(600, seed=8, parts=SPECIALS)
    assert_same(engine, [*texts, "", " ".join(texts[:80]), "", ""])
    assert_same(engine, texts[:200], special_tokens="parse")


def test_a_second_time_pieces_come_from_what_was_learned(engine):
    text = native_engines.random_words(1500, seed=4)
    before = engine._slots._on.known["learned"].bytes[:8].view(np.uint32).copy()
    for _ in range(3):
        assert_same(engine, [text, text[: len(text) // 2]])
    after = engine._slots._on.known["learned"].bytes[:8].view(np.uint32)
    assert (after > before).all()


def test_documents_may_begin_at_every_offset_of_a_tile(engine):
    word = "Borders 12 at every's offset\n\n  of a tile, поле 水車 "
    text = (word * 20 + " " * 40 + "9" * 40 + word * 400).encode()[: 40 * TILE]
    text = text.decode("utf-8", "ignore").encode()
    first = [text[:at].decode("utf-8", "ignore") for at in range(TILE - 34, TILE + 34)]
    assert_same(engine, first)
    cut = [text[i * 31 : (i + 1) * 31].decode("utf-8", "ignore") for i in range(len(text) // 31)]
    assert_same(engine, cut)


def test_documents_of_one_character_and_of_none(engine):
    characters = [*adversarial.NASTY, ""] * 3
    assert_same(engine, characters)
    assert_same(engine, [""] * 10)
    assert_same(engine, [])


RUNS = ["a", "Z", "1", " ", "\n", "\r", "\t", "'", ".", "/", "é", "水", "\u0301", "🙂", "\u00a0", "ab", "s'"]


def test_runs_of_every_class_across_tiles(engine):
    sizes = (31, 32, 33, 257, TILE, TILE + 1, 2100)
    assert_same(engine, [run * (size // len(run)) + "x" for run in RUNS for size in sizes])


def test_long_pieces_are_merged_by_a_thread_a_warp_and_a_block(engine):
    chance = random.Random(2)
    sizes = (32, 33, 64, 255, 256, 257, 700)
    assert_same(engine, ["".join(chance.choices("abcdeghilmnorst", k=size)) for size in sizes])
    assert_same(engine, ["ab" * 140, "xyz" * 90] * 100)
    assert_same(engine, ["ab" * 1500, "a" * 3001, "0123456789" * 300, "xyz" * 1000])
    assert {"merge_missed", "merge_long_pieces", "merge_sections"} <= set(engine._device.kernels)


SECTION_SIZES = (257, 511, 512, 513, 640, 641, 895, 896, 897, 1024, 1025, 1281, 3000)


def test_longer_pieces_are_joined_from_sections(engine):
    chance, num_unjoined = random.Random(3), engine._device.num_unjoined
    letters = ["".join(chance.choices("abcdeghilmnorst", k=size)) for size in SECTION_SIZES]
    assert_same(engine, letters)
    assert_same(engine, ["x " + "".join(letters), *(run * 1500 for run in (" ", ".", "=", "ก", "xyz"))])
    assert engine._device.num_unjoined == num_unjoined


def doubled_json():
    """Tokens of 1, 2, 4, ... 256 times the letter a: longer than what sections have in common."""
    made_json = made.byte_level_json()
    model = made_json["model"]
    half = "a"
    while len(half) < 256:
        model["merges"].append([half, half])
        half += half
        model["vocab"].setdefault(half, 1000 + len(half))
    return made_json


def test_a_piece_whose_sections_share_no_token_is_merged_as_a_whole():
    spec = of_json(doubled_json())
    tables = build_tables(spec, compile_model(spec), word_bits=16, is_padded=True)
    on = put_on_device(spec, tables, EmulatedDevice(tables))
    engine = engine_on(on, compile_native(spec), batch_bytes=1 << 16, num_spared=0)
    assert_same(engine, ["a" * size for size in (512, 900, 1500, 2049, 3000)] + ["ab" * 600])
    assert engine._device.num_unjoined == 4


def test_threads_share_the_device(engine):
    texts = [adversarial.random_texts(60, seed=seed, parts=SPECIALS) for seed in range(6)]
    texts[3] = [text * 40 for text in texts[3]]  # more than the slots that the others had
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(assert_same, engine, documents) for documents in texts * 2]:
            done.result()


def test_a_call_that_fails_leaves_its_slots_to_others(engine):
    good = "water " * 10_000
    for _ in range(4):
        buffer = np.frombuffer(4 * good.encode() + b"\xff" * 10, np.uint8)
        offsets = np.array([0, 60_000, 120_000, 180_000, 240_000, 240_010])
        with pytest.raises(InputError, match="document 4: invalid UTF-8"):
            engine.encode_batch(buffer, offsets, special_tokens="text", num_threads=1)
    assert_same(engine, [good] * 4)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_537, 3 << 20])
def test_split_ids_are_put_together(size):
    ids = np.random.default_rng(size).integers(0, 1 << 21, size).astype(np.uint32)
    part = IdPart((ids & 0xFFFF).astype(np.uint16), (ids >> 16).astype(np.uint8))
    for num_threads in (1, 3):
        found = np.full(size + 5, 7, np.uint32)
        between = IdPart(np.arange(5, dtype=np.uint16))
        Copies().join([part[: size // 3], between, part[size // 3 :]], found, num_threads)
        expected = np.concatenate([ids[: size // 3], np.arange(5), ids[size // 3 :]])
        assert np.array_equal(found, expected)
    with pytest.raises(ValueError, match="differ in length"):
        _native.widen_ids(part.low, part.high, np.empty(size + 1, np.uint32))


@pytest.mark.parametrize("name", ["TILE", "GROUP", "STAGE", "BEHIND", "NUM_COUNTERS"])
def test_the_driver_knows_the_sizes_of_the_kernels(name):
    text = (cuda_batch.SOURCE / "work.h").read_text()
    assert int(re.search(rf"#define {name} (\d+)u", text)[1]) == getattr(cuda_batch, name)


def test_kernels_are_launched_in_order_until_one_fails():
    calls = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
    def launch(function, *arguments):
        *sizes, stream, parameters, extra = arguments
        argument = ctypes.c_void_p.from_address(parameters).value
        calls.append((function, tuple(sizes), stream, argument, extra))
        return 700 if function == 12 else 0

    address = ctypes.cast(launch, ctypes.c_void_p).value
    rows = np.array([(10, 3, 256), (11, 1 << 31, 32)], np.uint64)
    assert _native.launch(address, rows, 77, 88) == 0
    one, two = (3, 1, 1, 256, 1, 1, 0), (1 << 31, 1, 1, 32, 1, 1, 0)
    assert calls == [(10, one, 77, 88, None), (11, two, 77, 88, None)]
    assert _native.launch(address, np.array([(12, 1, 1), (13, 1, 1)], np.uint64), 77, 88) == 700
    assert calls[2:] == [(12, (1, 1, 1, 1, 1, 1, 0), 77, 88, None)]


def test_a_document_larger_than_a_batch_goes_to_the_cpu(engine):
    engine.num_documents = engine.num_fallbacks = 0
    assert_same(engine, ["short", "long " * 20_000, "short again"])
    assert engine.fallback_rate == pytest.approx(1 / 3)


def test_text_that_is_mostly_for_the_cpu_goes_there_for_a_while():
    spec = SPECS["made, normalised"]()
    tables = build_tables(spec, compile_model(spec), word_bits=18, is_padded=True)
    on = put_on_device(spec, tables, EmulatedDevice(tables))
    engine = engine_on(on, compile_native(spec), batch_bytes=1 << 16)
    marked = "e\u0301\u0323" * 500
    used = []
    for _ in range(NUM_SPARED + 2):
        before = count(engine)
        assert_same(engine, ["plain", marked])
        used.append(count(engine) > before)
    assert used == [True, *[False] * NUM_SPARED, True]
    engine._num_spared = 0
    for _ in range(3):
        before = count(engine)
        assert_same(engine, ["plain " * 1000, "between " * 50, marked])
        assert count(engine) > before


def test_wrong_utf8_is_refused_with_its_place(engine):
    good = "Straße 水 🙂 ".encode() * 90
    for wrong in (
        b"\xff",
        b"\xc3",
        b"\xe6\xb0",
        b"\xf0\x9f\x99",
        b"\x80",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
    ):
        for at in (0, 500, len(good)):
            text = good[:at] + wrong + good[at:]
            buffer = np.frombuffer(good + text + b"then", np.uint8)
            offsets = np.array([0, len(good), len(good) + len(text), len(buffer)])
            with pytest.raises(InputError, match="document 1: invalid UTF-8"):
                engine.encode_batch(buffer, offsets, special_tokens="text", num_threads=1)


def test_a_border_inside_a_character_is_refused(engine):
    buffer = np.frombuffer("水水".encode(), np.uint8)
    with pytest.raises(InputError, match="invalid UTF-8"):
        engine.encode_batch(buffer, np.array([0, 4, 6]), special_tokens="text", num_threads=1)


def test_ids_may_stay_on_the_device(engine):
    buffer, offsets = flatten_texts(["one", "", "two " * 30_000, adversarial.TEXTS[16]])
    ids, ends = engine.encode_on_device(buffer, offsets, special_tokens="parse", num_threads=1)
    theirs = engine._native.encode_batch(buffer, offsets, special_tokens="parse", num_threads=1)
    assert ids.dtype == engine._slots.id_type
    assert ids.tolist() == theirs[0].tolist()
    assert ends.tolist() == theirs[1].tolist()


def test_a_late_engine_is_native_until_the_gpu_is_open(engine, monkeypatch):
    monkeypatch.setattr(late_engine, "RUN_BATCH_BYTES", 1000)
    may_open = threading.Event()

    def open_gpu():
        may_open.wait()
        return engine

    late = LateEngine(engine._native, open_gpu)
    arguments = (*flatten_texts(["water", "Wasser"]),)
    before, num_kernels = late.encode_batch(*arguments, special_tokens="text", num_threads=1), count(engine)
    may_open.set()
    late.wait()
    after = late.encode_batch(*arguments, special_tokens="text", num_threads=1)
    assert count(engine) > num_kernels
    assert [array.tolist() for array in before] == [array.tolist() for array in after]


def count(engine):
    return len(engine._device.kernels)


def test_a_gpu_that_cannot_be_opened_is_an_error_of_the_next_call(engine):
    def open_gpu():
        raise MissingPackageError("no GPU")

    late = LateEngine(engine._native, open_gpu)
    late.wait()
    with pytest.raises(MissingPackageError, match="no GPU"):
        late.encode_batch(*flatten_texts(["water"]), special_tokens="text", num_threads=1)


def test_documents_are_flagged_by_the_parts_they_touch():
    offsets = np.array([0, 10, 10, 50, 100, 4000])
    whole = Stretch(0, 5)
    assert flagged_documents(offsets, whole, np.array([0])).tolist() == [0, 1, 2]
    assert flagged_documents(offsets, whole, np.array([64])).tolist() == [3]
    assert flagged_documents(offsets, whole, np.array([TILE])).tolist() == [4]
    assert flagged_documents(offsets, whole, np.array([], np.int64)).tolist() == []
    assert flagged_documents(offsets, Stretch(3, 5), np.array([0])).tolist() == [0]


@pytest.mark.parametrize("name", ["spaced", "scores", "chain"])
def test_tokenizers_that_do_not_fit_are_refused_with_the_reason(name):
    spec = native_engines.SPECS[name]()
    with pytest.raises(UnsupportedTokenizerError, match=r"no byte-level BPE|cannot be read"):
        build_tables(spec, compile_model(spec))


def test_without_cupy_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path))
    with pytest.raises(MissingPackageError, match=r"gristmill\[gpu\]"):
        gristmill.load_tokenizer(made.byte_level(), engine="cuda")


def test_only_a_tokenizer_on_the_gpu_leaves_ids_there():
    tokenizer = gristmill.load_tokenizer(made.byte_level())
    with pytest.raises(gristmill.ConfigError, match="needs engine 'cuda'"):
        tokenizer.encode_batch(["a"], device="cuda")


def test_encoding_on_the_cpu_imports_no_gpu_package():
    code = (
        "import sys, gristmill, gristmill.cli; from gristmill.sample import train_sample_tokenizer as t;"
        "import tempfile, pathlib; d = pathlib.Path(tempfile.mkdtemp()); t(d);"
        "gristmill.load_tokenizer(d).encode('a');"
        "print([m for m in sys.modules if m.split('.')[0] in ('cupy', 'cuda') or 'engines.cuda' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
