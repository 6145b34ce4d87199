"""Documents at the edge of what the native engine meets: very long ones, the end of memory, broken text."""

import ctypes
import json
import mmap
import random
import sys

import numpy as np
import pytest
import sentencepiece
from tokenizers import Tokenizer

import made_tokenizers as made
from gristmill import _native
from gristmill.engines.native import NativeEngine
from gristmill.errors import InputError
from gristmill.load.sentencepiece_model import load_sentencepiece
from native_engines import SPECS, encode, spec_of_json


@pytest.fixture(scope="module", params=SPECS)
def spec(request):
    return SPECS[request.param]()


@pytest.fixture(scope="module")
def byte_level():
    return NativeEngine(SPECS["byte level"]())


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


WITH_PAGES = pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")


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


@WITH_PAGES
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


@WITH_PAGES
def test_no_byte_past_the_end_is_read_where_utf8_is_checked(byte_level):
    page = GuardedPage()
    for tail in (b"\xc3", b"\xe6", b"\xe6\xb0", b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x99", b"\xed", b"\xf4\x90"):
        for before in range(20):
            placed = page.put_at_end(b"a" * before + tail)
            offsets = np.array([0, len(placed)], np.int64)
            assert _native.find_invalid(placed, offsets) == (0, before)
            with pytest.raises(InputError, match=f"at byte {before}"):
                byte_level.encode_batch(placed, offsets, special_tokens="text", num_threads=1)


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
