"""Columns of lists as Parquet pages, at the speed of copying.

pyarrow computes two levels for every token and widens ids to four bytes; rows of ids need neither. Levels
are runs, so they are written as runs. Ids of two bytes are indices, 16 bits each, into a dictionary that
holds every number at its own place: the bytes of a bit-packed run of them are the bytes of the array.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gristmill.drafts import Draft
from gristmill.formats import thrift
from gristmill.formats.lists import Collected

if TYPE_CHECKING:  # only readers need it
    from gristmill.formats.mapped import Stretch

INT32 = 1
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
PAGE_FIELDS = {DATA_PAGE: 5, DICTIONARY_PAGE: 7}
"""Of a page header: where the header of that kind of page stands."""
CODECS = {"none": 0, "snappy": 1, "zstd": 6, "lz4": 7}
ARROW_CODECS = {"snappy": "snappy", "zstd": "zstd", "lz4": "lz4_raw"}
MAX_HEADER_BYTES = 64
MAX_DEFINITION = 3
"""An element of a list, where both may be null: the schema that readers expect, though nothing is null."""


class Chunk(Struct, frozen=True):
    """Where a column of a row group was written."""

    dictionary_at: int | None
    data_at: int
    num_values: int
    plain_bytes: int
    stored_bytes: int
    encodings: tuple[int, ...]


def write_chunk(draft: Draft, lists: Collected, compression: str) -> Chunk:
    """Append a column of a row group, and its dictionary where it has one."""
    begin, plain_bytes, dictionary_at = draft.num_bytes, 0, None
    dictionary, body, encoding = _encode_values(lists)
    if dictionary is not None:
        dictionary_at = begin
        head = {1: len(dictionary), 2: PLAIN}
        plain_bytes += _write_page(draft, DICTIONARY_PAGE, head, [dictionary.data], compression)
    data_at = draft.num_bytes
    head = {1: lists.num_values, 2: encoding, 3: RLE, 4: RLE}
    plain_bytes += _write_page(draft, DATA_PAGE, head, [_levels(lists.offsets), *body], compression)
    encodings = (PLAIN, RLE) if encoding == PLAIN else (PLAIN, RLE, RLE_DICTIONARY)
    stored_bytes = draft.num_bytes - begin
    return Chunk(dictionary_at, data_at, lists.num_values, plain_bytes, stored_bytes, encodings)


def _encode_values(lists: Collected) -> tuple[NDArray[np.int32] | None, list[Any], int]:
    """The dictionary if there is one, the values as stored, and the encoding."""
    parts, num_values = lists.parts, lists.num_values
    if parts[0].dtype == np.int8:
        return np.array([0, 1], "<i4"), [b"\x01", _bit_runs(lists.joined())], RLE_DICTIONARY
    if parts[0].dtype == np.uint16:
        size = max(int(part.max()) for part in parts) + 1
        # The dictionary takes 4 bytes a number, and saves 2 bytes a value.
        if num_values > 2 * size:
            groups = -(-num_values // 8)
            head = b"\x10" + thrift.varint(groups << 1 | 1)
            fill = b"\0" * (groups * 16 - 2 * num_values)
            values = [part.astype("<u2", copy=False).data for part in parts]
            return np.arange(size, dtype="<i4"), [head, *values, fill], RLE_DICTIONARY
    return None, [_as_int32(part).data for part in parts], PLAIN


def _as_int32(values: NDArray[Any]) -> NDArray[np.int32]:
    """Numbers below 2^31 in four bytes each; those that have four already are not copied."""
    if values.dtype == "<u4":
        return values.view("<i4")
    return values.astype("<i4", copy=False)


def find_values(content: NDArray[np.uint8], chunk: dict[int, Any]) -> Stretch | None:
    """Where the values of a column chunk lie as numbers, by its metadata in the footer; None where they have
    to be decoded."""
    from gristmill.formats.mapped import Stretch

    begin = chunk.get(11, chunk[9])
    end, count = begin + chunk[7], chunk[5]
    is_dictionary = RLE_DICTIONARY in chunk[2]
    num_bytes = -(-count // 8) * 16 if is_dictionary else count * 4
    head = thrift.varint(count << 1) + bytes([MAX_DEFINITION])
    if is_dictionary:
        head += b"\x10" + thrift.varint(-(-count // 8) << 1 | 1)
    at = end - num_bytes
    is_ours = chunk[4] == CODECS["none"] and chunk[1] == INT32
    if not (is_ours and 0 <= begin <= at - len(head) and end <= len(content)):
        return None
    if content[at - len(head) : at].tobytes() != head:
        return None
    if is_dictionary and not _is_identity(content[begin : chunk[9]]):
        return None
    return Stretch(at, count, np.dtype("<u2" if is_dictionary else "<i4"))


def _is_identity(page: NDArray[np.uint8]) -> bool:
    """Whether a dictionary page, header included, holds each number at its own place."""
    for num_head in range(8, min(MAX_HEADER_BYTES, len(page))):
        size, rest = divmod(len(page) - num_head, 4)
        if not rest and page[:num_head].tobytes() == _page_header(
            DICTIONARY_PAGE, {1: size, 2: PLAIN}, 4 * size
        ):
            return np.array_equal(page[num_head:].view("<i4"), np.arange(size, dtype="<i4"))
    return False


def _levels(offsets: NDArray[Any]) -> bytes:
    """Repetition levels, 0 on the first value of each list, and definition levels, all the same."""
    lengths = np.diff(offsets)
    assert lengths.all(), "an empty list"
    if (lengths == lengths[0]).all():
        repetition = _list_start(int(lengths[0])) * len(lengths)
    else:
        counts = lengths.tolist()
        runs = {length: _list_start(length) for length in set(counts)}
        repetition = b"".join(map(runs.__getitem__, counts))
    definition = thrift.varint(int(offsets[-1] - offsets[0]) << 1) + bytes([MAX_DEFINITION])
    return b"".join(struct.pack("<I", len(part)) + part for part in (repetition, definition))


def _list_start(length: int) -> bytes:
    """Repetition levels of one list: a run of one 0 and a run of 1."""
    return b"\x02\x00" + (thrift.varint((length - 1) << 1) + b"\x01" if length > 1 else b"")


def _bit_runs(values: NDArray[np.int8]) -> bytes:
    """Runs of 0 and 1, of bit width 1."""
    begins = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1, [len(values)]])
    counts, bits = np.diff(begins).tolist(), values[begins[:-1]].tolist()
    return b"".join(thrift.varint(n << 1) + bytes([bit]) for n, bit in zip(counts, bits, strict=True))


def _write_page(draft: Draft, kind: int, head: dict[int, int], parts: list[Any], compression: str) -> int:
    """Append a page; returns its size before compression, header included."""
    plain_bytes = stored_bytes = sum(memoryview(part).nbytes for part in parts)
    if compression != "none":
        import pyarrow as pa  # a tenth of a second, and 37 MB in every worker

        joined = b"".join(parts)
        parts = [pa.compress(joined, codec=ARROW_CODECS[compression], asbytes=True)]
        stored_bytes = len(parts[0])
    header = _page_header(kind, head, plain_bytes, stored_bytes)
    for part in (header, *parts):
        draft.write(part)
    return len(header) + plain_bytes


def _page_header(kind: int, head: dict[int, int], plain_bytes: int, stored_bytes: int | None = None) -> bytes:
    stored_bytes = plain_bytes if stored_bytes is None else stored_bytes
    sizes = {1: thrift.i32(kind), 2: thrift.i32(plain_bytes), 3: thrift.i32(stored_bytes)}
    special = thrift.struct({key: thrift.i32(value) for key, value in head.items()})
    return thrift.struct({**sizes, PAGE_FIELDS[kind]: special}).content
