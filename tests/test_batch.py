"""Whatever holds the texts, the same bytes and offsets come out, and broken UTF-8 is found where it is."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from gristmill.batch import TokenBatch, find_invalid_utf8, flatten_texts
from gristmill.errors import InputError

TEXTS = ["Hello", "", "wörld 日本", "🙂", "\x00", ""]


def documents(texts, **options):
    buffer, offsets = flatten_texts(texts, **options)
    assert buffer.dtype == np.uint8
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert offsets[-1] == len(buffer)
    return [buffer[start:end].tobytes().decode() for start, end in pairwise(offsets)]


@pytest.mark.parametrize(
    "texts",
    [
        TEXTS,
        tuple(TEXTS),
        [text.encode() for text in TEXTS],
        ["Hello", b"", bytearray("wörld 日本".encode()), "🙂", b"\x00", ""],
        (text for text in TEXTS),
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array([text.encode() for text in TEXTS], pa.binary()),
        pa.array([text.encode() for text in TEXTS], pa.large_binary()),
        pa.chunked_array([TEXTS[:2], [], TEXTS[2:]], pa.string()),
        pa.chunked_array([TEXTS]),
        pa.array(["x", "yy", *TEXTS, "zzz"])[2:-1],
        pa.chunked_array([["x", *TEXTS[:3]], [*TEXTS[3:], "y"]])[1:-1],
    ],
    ids=lambda texts: str(getattr(texts, "type", type(texts).__name__)),
)
def test_every_kind_of_input_gives_the_same_documents(texts):
    assert documents(texts) == TEXTS


@pytest.mark.parametrize("offset_type", [np.int32, np.uint32, np.int64, list])
@pytest.mark.parametrize(
    "buffer_type", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8), pa.py_buffer]
)
def test_a_buffer_with_offsets_is_taken_as_it_is(buffer_type, offset_type):
    offsets = [3, 8, 8, 9]
    bounds = offsets if offset_type is list else np.array(offsets, offset_type)
    assert documents((buffer_type(b"???Hello!??"), bounds)) == ["Hello", "", "!"]


@pytest.mark.parametrize(
    "texts", [[], pa.array([], pa.string()), pa.chunked_array([], pa.string()), (b"", [0])]
)
def test_no_documents_are_fine(texts):
    assert documents(texts) == []


def test_empty_documents_are_fine():
    assert documents(pa.array(["", ""])) == ["", ""]
    assert documents((b"", np.array([0, 0, 0]))) == ["", ""]


def test_arrow_buffers_are_not_copied():
    array = pa.array(["abc", "def"], pa.large_string())
    buffer, offsets = flatten_texts(array)
    assert buffer.ctypes.data == array.buffers()[2].address
    assert offsets.ctypes.data == array.buffers()[1].address


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ("one string", "pass a list"),
        (b"one string", "pass a list"),
        (["a", 3], "document 1 is a int"),
        (["a", None], "document 1 is a NoneType"),
        (3, "no list"),
        (pa.array(["a", None, "b", None]), "document 1 is null"),
        (pa.chunked_array([["a"], ["b", None]]), "document 2 is null"),
        (pa.array([1, 2]), "int64"),
        (pa.table({"text": ["a"]}), "one column"),
        ((b"abc", [0, 4]), "offsets must not fall"),
        ((b"abc", [-1, 3]), "offsets must not fall"),
        ((b"abc", [0, 2, 1]), "offsets must not fall"),
        ((b"abc", []), "one row of integers"),
        ((b"abc", [0.0, 3.0]), "one row of integers"),
        ((b"abc", [[0, 3]]), "one row of integers"),
        ((np.zeros(3, np.float32), [0, 3]), "float32"),
        ((3, [0, 3]), "needs bytes"),
    ],
)
def test_wrong_input_is_refused_with_the_reason(texts, reason):
    with pytest.raises(InputError, match=reason):
        flatten_texts(texts)


BROKEN = [
    (b"\xff", 0),
    (b"abc\x80def", 3),
    (b"ab\xc3", 2),
    (b"ab\xe4\xb8", 2),
    (b"\xc0\xaf", 0),
    (b"a\xed\xa0\x80", 1),
    (b"a\xf5\x80\x80\x80", 1),
    (b"\xf4\x90\x80\x80", 0),
    ("é".encode() + b"\xe4\xb8a", 2),
]


@pytest.mark.parametrize(("content", "offset"), BROKEN)
def test_invalid_utf8_is_found_or_replaced(content, offset):
    texts = ["fine", content, "é"]
    with pytest.raises(InputError, match=f"document 1: invalid UTF-8 at byte {offset};"):
        flatten_texts(texts)
    assert documents(texts, errors="replace") == ["fine", content.decode("utf-8", "replace"), "é"]


def test_a_document_that_cuts_a_character_is_found():
    euro = "€".encode()
    for buffer, offsets in ((euro, [0, 1, 3]), (b"a" + euro, [0, 2, 4]), (euro, [0, 3, 3])):
        fault = find_invalid_utf8(np.frombuffer(buffer, np.uint8), np.array(offsets))
        assert (fault is None) == (offsets == [0, 3, 3])
    assert find_invalid_utf8(np.frombuffer(b"a" + euro, np.uint8), np.array([0, 2, 4])) == (0, 1)


@pytest.mark.parametrize(("text", "offset"), [("\ud800", 0), ("é\udfff", 2), ("ab\ud83d\ude00", 2)])
def test_lone_surrogates_are_found_or_replaced(text, offset):
    with pytest.raises(InputError, match=f"document 1: a lone surrogate at byte {offset};"):
        flatten_texts(["x", text])
    replaced = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert documents(["x", text], errors="replace") == ["x", replaced]


def test_a_token_batch_gives_views():
    batch = TokenBatch(np.arange(6, dtype=np.uint32), np.array([0, 2, 2, 6]))
    assert len(batch) == 3
    assert [ids.tolist() for ids in batch] == [[0, 1], [], [2, 3, 4, 5]]
    assert batch[-1].tolist() == [2, 3, 4, 5]
    assert np.shares_memory(batch[2], batch.ids)
    assert len(batch[2:1]) == 0
    with pytest.raises(IndexError):
        batch[3]
    with pytest.raises(IndexError):
        batch[::2]


def test_a_slice_of_a_token_batch_holds_its_own_documents_only():
    batch = TokenBatch(np.arange(6, dtype=np.uint32), np.array([0, 2, 2, 5, 6]))
    part = batch[1:3]
    assert (part.ids.tolist(), part.offsets.tolist()) == ([2, 3, 4], [0, 0, 3])
    assert np.shares_memory(part.ids, batch.ids)
    assert [ids.tolist() for ids in part] == [[], [2, 3, 4]]
    for empty in (batch[4:], batch[2:1], batch[:0]):
        assert (empty.ids.tolist(), empty.offsets.tolist()) == ([], [0])
