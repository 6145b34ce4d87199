"""What passes between stages: documents and ids as one flat buffer with offsets.

`flatten_texts` is the edge: whatever the user holds becomes one buffer of valid UTF-8, copied only where
it must be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple, overload

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from gristmill import _native
from gristmill.config import Errors
from gristmill.engines import Bytes, Ids, Offsets
from gristmill.errors import InputError

Texts = Any
"""list of str or bytes | pyarrow string, large_string, binary or large_binary array, chunked or not |
(buffer, offsets)"""


class TokenBatch(Struct, frozen=True, eq=False):
    """Ids of many documents: those of document i are `batch[i]`, a view of `batch.ids`; a slice is a batch
    of its own."""

    ids: Ids
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Ids: ...
    @overload
    def __getitem__(self, index: slice) -> TokenBatch: ...
    def __getitem__(self, index: int | slice) -> Ids | TokenBatch:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise IndexError("a TokenBatch has slices of step 1 only")
            offsets = self.offsets[start : max(start, stop) + 1]
            return TokenBatch(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0])
        document = range(len(self))[index]
        return self.ids[self.offsets[document] : self.offsets[document + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[i] for i in range(len(self)))


class DocumentBatch(Struct, frozen=True, eq=False):
    """Documents of one slice of a file, as one flat buffer, with where each came from."""

    text: Bytes
    """Valid UTF-8, one document after the other."""
    offsets: Offsets
    records: Offsets
    """Of each document: its number among the records of the slice, from 0."""
    positions: Offsets
    """Of each document: the byte its record begins at in the decompressed file, or -1 where a format has
    none."""
    names: tuple[Bytes, Offsets] | None = None
    """Of each document: the text of its id field, flat."""
    bad: tuple[BadDocument, ...] = ()
    """Records of this part of the slice that are no documents."""
    num_records: int = 0
    """Records gone through for this batch: its documents, the bad ones, and blank lines."""
    num_bytes: int = 0
    """Input that was read for it, decompressed."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def after(self, num_records: int) -> DocumentBatch:
        """The same, where so many records come before those it was read after."""
        if num_records == 0:
            return self
        bad = tuple(each._replace(record=each.record + num_records) for each in self.bad)
        return replace(self, records=self.records + num_records, bad=bad)

    def head(self, num_documents: int) -> DocumentBatch:
        """The first documents; the bad records stay."""
        names = self.names
        if names is not None:
            names = names[0][: names[1][num_documents]], names[1][: num_documents + 1]
        return replace(
            self,
            text=self.text[: self.offsets[num_documents]],
            offsets=self.offsets[: num_documents + 1],
            records=self.records[:num_documents],
            positions=self.positions[:num_documents],
            names=names,
        )


    def part(self, start: int, stop: int) -> DocumentBatch:
        """Some of the documents; what was read for all of them, and the bad records, stay with the first."""
        head = self.head(min(stop, len(self)))
        if start == 0:
            return head
        first = self.offsets[start]
        names = head.names
        if names is not None:
            names = names[0][names[1][start] :], names[1][start:] - names[1][start]
        return replace(
            head,
            text=head.text[first:],
            offsets=head.offsets[start:] - first,
            records=head.records[start:],
            positions=head.positions[start:],
            names=names,
            bad=(),
            num_records=0,
            num_bytes=0,
        )


class BadDocument(NamedTuple):
    """A record that gives no document, and why."""

    record: int
    position: int
    reason: str
    detail: str
    excerpt: str
    """How it begins, for people."""


def join_texts(texts: Texts, *, errors: Errors = "strict") -> tuple[Bytes, Offsets]:
    """One buffer and the documents' offsets in it, from 0 to its length; bytes may be anything."""
    if isinstance(texts, str | bytes | bytearray):
        raise InputError("texts is one string; pass a list of them, or use encode() for one")
    if type(texts).__module__.split(".")[0] == "pyarrow":
        return _from_arrow(texts)
    if isinstance(texts, tuple) and len(texts) == 2 and not isinstance(texts[1], str | bytes | bytearray):
        return _from_pair(*texts)
    return pack_texts(texts, errors=errors)


def flatten_texts(texts: Texts, *, errors: Errors = "strict") -> tuple[Bytes, Offsets]:
    """The same, and all of it is UTF-8."""
    buffer, offsets = join_texts(texts, errors=errors)
    fault = find_invalid_utf8(buffer, offsets)
    if fault is None:
        return buffer, offsets
    if errors == "replace":
        return _replace_invalid(buffer, offsets)
    document, offset = fault
    raise InputError(
        f"document {document}: invalid UTF-8 at byte {offset}; errors='replace' puts U+FFFD there"
    )


def pack_texts(texts: Iterable[str | bytes], *, errors: Errors) -> tuple[Bytes, Offsets]:
    """Strings and bytes one after the other; bytes are taken as they are."""
    try:
        listed = texts if isinstance(texts, list) else list(texts)
    except TypeError as error:
        raise InputError(f"texts is no list of strings: {error}") from error
    try:
        buffer, offsets = _native.pack(listed, replace_invalid=errors == "replace")
    except TypeError as error:
        raise InputError(str(error)) from error
    if buffer is None:
        document, offset = offsets
        raise InputError(
            f"document {document}: a lone surrogate at byte {offset}; errors='replace' puts U+FFFD there"
        )
    return buffer, offsets


def find_invalid_utf8(buffer: Bytes, offsets: Offsets) -> tuple[int, int] | None:
    """Document and byte offset in it of the first byte that is not UTF-8, or None."""
    return _native.find_invalid(np.ascontiguousarray(buffer), np.ascontiguousarray(offsets))


def _replace_invalid(buffer: Bytes, offsets: Offsets) -> tuple[Bytes, Offsets]:
    view = buffer.data
    ends = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return pack_texts([str(view[start:end], "utf-8", "replace") for start, end in ends], errors="strict")


def _from_pair(buffer: Any, offsets: Any) -> tuple[Bytes, Offsets]:
    if isinstance(buffer, np.ndarray) and (buffer.dtype != np.uint8 or buffer.ndim != 1):
        raise InputError(
            f"buffer is an array of {buffer.dtype} with {buffer.ndim} dimensions, not a row of uint8"
        )
    try:
        flat = np.frombuffer(buffer, dtype=np.uint8)
        bounds = np.asarray(offsets)
    except (TypeError, ValueError, BufferError) as error:
        raise InputError(f"(buffer, offsets) needs bytes and integers: {error}") from error
    if bounds.ndim != 1 or len(bounds) == 0 or bounds.dtype.kind not in "iu":
        raise InputError("offsets must be one row of integers, one more than there are documents")
    return _cut_to_size(flat, bounds.astype(np.int64, copy=False))


def _from_arrow(array: Any) -> tuple[Bytes, Offsets]:
    pa: Any = import_module("pyarrow")

    if isinstance(array, pa.Array | pa.ChunkedArray) and array.null_count:
        first = int(np.flatnonzero(np.asarray(array.is_null()))[0])
        raise InputError(f"document {first} is null; drop nulls or fill them before encoding")
    if isinstance(array, pa.ChunkedArray):
        parts = [_from_arrow(chunk) for chunk in array.chunks]
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0] + [len(buffer) for buffer, _ in parts])
        pieces = [offsets[1:] + start for (_, offsets), start in zip(parts, starts[:-1], strict=True)]
        buffers = [buffer for buffer, _ in parts]
        return (
            np.concatenate([np.empty(0, np.uint8), *buffers]),
            np.concatenate([np.zeros(1, np.int64), *pieces]),
        )
    if not isinstance(array, pa.Array):
        raise InputError(
            f"texts is a pyarrow {type(array).__name__}; pass an Array or ChunkedArray, such as one column"
        )
    offset_type = _arrow_offset_type(array.type)
    if len(array) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, bounds, content = array.buffers()
    offsets = np.frombuffer(bounds, dtype=offset_type)[array.offset : array.offset + len(array) + 1]
    buffer = (
        np.frombuffer(content, dtype=np.uint8)
        if content is not None and content.size
        else np.empty(0, np.uint8)
    )
    return _cut_to_size(buffer, offsets.astype(np.int64, copy=False))


def _arrow_offset_type(kind: Any) -> type[np.signedinteger[Any]]:
    types: Any = import_module("pyarrow.types")

    if types.is_string(kind) or types.is_binary(kind):
        return np.int32
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return np.int64
    raise InputError(
        f"texts is an Arrow array of {kind}; string, large_string, binary or large_binary is needed"
    )


def _cut_to_size(buffer: Bytes, offsets: Offsets) -> tuple[Bytes, Offsets]:
    start, end = int(offsets[0]), int(offsets[-1])
    if start < 0 or end > len(buffer) or np.any(offsets[1:] < offsets[:-1]):
        raise InputError(f"offsets must not fall, and lie in 0..{len(buffer)}, the size of the buffer")
    return buffer[start:end], offsets - start if start else offsets
