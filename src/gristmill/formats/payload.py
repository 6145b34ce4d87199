"""The bytes that several formats share: ids of documents one after the other, and where each ends.

Megatron, nanoGPT, OLMo and datatrove read the same file under different names; it is written once and
linked. Each format adds small files of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gristmill.drafts import Draft
from gristmill.errors import RunError
from gristmill.formats.protocol import Documents, ItemBlock, with_suffix
from gristmill.layout import Layout
from gristmill.pack.rows import Rows
from gristmill.records import ShardRecord

END_TYPE = np.dtype("<u8")
BLOCK_ITEMS = 1 << 20
"""Of files that are gone through in pieces."""


class Payload:
    """The ids and ends of one shard while it is written."""

    def __init__(self, stem: Path, layout: Layout, shelf: list[Draft]) -> None:
        self.shelf = shelf
        self.layout = layout
        self.num_documents = 0
        self.num_tokens = 0
        self.tokens = Draft(with_suffix(stem, ".payload"), shelf)
        self.ends = Draft(with_suffix(stem, ".ends"), shelf)

    def add(self, documents: Documents) -> None:
        """Append whole documents."""
        first, last = int(documents.offsets[0]), int(documents.offsets[-1])
        assert np.all(np.diff(documents.offsets) > 0), "a document without tokens"
        ids = documents.ids[first:last]
        self.tokens.write(np.ascontiguousarray(ids, self.layout.id_type))
        self.ends.write((documents.offsets[1:] + (self.num_tokens - first)).astype(END_TYPE))
        self.num_documents += len(documents)
        self.num_tokens += last - first

    def spans(self) -> Spans:
        """Starts and ends of the documents written so far, in tokens, a block at a time."""
        self.ends.flush()
        return blocks_of_spans(np.memmap(self.ends.temporary, END_TYPE, mode="r"))

    def blocks(self) -> Iterator[NDArray[Any]]:
        """The ids written so far, a block at a time."""
        self.tokens.flush()
        tokens = np.memmap(self.tokens.temporary, self.layout.id_type, mode="r")
        return (tokens[at : at + BLOCK_ITEMS] for at in range(0, len(tokens), BLOCK_ITEMS))

    def discard(self) -> None:
        """Drop the payload's own names; what was linked stays."""
        self.tokens.discard()
        self.ends.discard()


Spans = Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""Starts and ends of documents, in tokens, a block at a time."""
Finish = Callable[[Payload, Path], list[Draft]]
"""Makes the files of a format out of the payload."""


class SidecarWriter:
    """Writer of a format that is made from the payload alone."""

    def __init__(self, finish: Finish, stem: Path, payload: Payload) -> None:
        self._finish = finish
        self._stem = stem
        self._payload = payload

    def add_documents(self, documents: Documents) -> None:
        """The payload has them."""

    def add_rows(self, rows: Rows) -> None:
        raise AssertionError("rows in a format of documents")

    def finish(self) -> list[Draft]:
        """The files, under hidden names."""
        return self._finish(self._payload, self._stem)


class PayloadView(Struct, frozen=True, eq=False):
    """Documents of a shard on disk."""

    tokens: NDArray[Any]
    num_items: int
    span: Callable[[int], tuple[int, int]]
    """Where a document starts and ends in the tokens."""
    spans: Callable[[], Spans]
    """The same of all documents, a block at a time."""

    def ids(self, item: int) -> NDArray[Any]:
        """Ids of a document."""
        start, end = self.span(range(self.num_items)[item])
        return self.tokens[start:end]

    def stream(self, start: int, stop: int) -> NDArray[Any]:
        """Ids of all documents one after the other, from one place to another."""
        return self.tokens[start:stop]

    def borders(self, item: int) -> None:
        """Documents have none."""

    def blocks(self) -> Iterator[ItemBlock]:
        """All documents in order; their ids are read where they lie."""
        for starts, ends in self.spans():
            first = int(starts[0])
            offsets = np.concatenate([starts[:1], ends]) - first
            yield ItemBlock(self.tokens[first : int(ends[-1])], offsets, None)


def view_by_ends(tokens: NDArray[Any], ends: NDArray[Any]) -> PayloadView:
    """Documents of tokens, by where each ends."""
    return PayloadView(
        tokens,
        len(ends),
        lambda i: (int(ends[i - 1]) if i else 0, int(ends[i])),
        lambda: blocks_of_spans(ends),
    )


def map_file(path: Path, dtype: np.dtype[Any], *, offset: int = 0, count: int | None = None) -> NDArray[Any]:
    """The numbers in a file, or in part of it, read where they lie."""
    try:
        num_bytes = path.stat().st_size - offset
        if count is None and num_bytes % dtype.itemsize:
            raise RunError(f"{path}: {num_bytes} bytes are no whole number of {dtype.itemsize}-byte items")
        count = num_bytes // dtype.itemsize if count is None else count
        if count < 0 or count * dtype.itemsize > num_bytes:
            raise RunError(f"{path}: is too short")
        return (
            np.memmap(path, dtype, mode="r", offset=offset, shape=(count,)) if count else np.empty(0, dtype)
        )
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from error


def check_documents(
    tokens: NDArray[Any],
    ends: NDArray[Any],
    shard: ShardRecord,
    layout: Layout,
    *,
    eos_at: Literal["end", "start"] = "end",
) -> list[str]:
    """What is wrong with ids and ends, each in its own words."""
    faults = []
    if len(tokens) != shard.num_tokens:
        faults.append(f"holds {len(tokens)} tokens, its record says {shard.num_tokens}")
    if len(ends) != shard.num_documents:
        faults.append(f"holds {len(ends)} documents, its record says {shard.num_documents}")
    last = int(ends[-1]) if len(ends) else 0
    if last != len(tokens):
        faults.append(f"its last document ends at token {last} of {len(tokens)}")
    if any(np.any(stops <= starts) for starts, stops in blocks_of_spans(ends)):
        faults.append("documents do not follow one another: an end is not after the one before it")
    elif not faults and layout.eos_id is not None:
        places = (e - 1 if eos_at == "end" else s for s, e in blocks_of_spans(ends))
        wrong = sum(np.count_nonzero(tokens[place] != layout.eos_id) for place in places)
        faults += [f"{wrong} documents have no EOS ({layout.eos_id}) at their {eos_at}"] if wrong else []
    return faults


def blocks_of_spans(ends: NDArray[Any]) -> Spans:
    """Starts and ends, a block at a time, as signed numbers."""
    before = 0
    for at in range(0, len(ends), BLOCK_ITEMS):
        stops = ends[at : at + BLOCK_ITEMS].astype(np.int64)
        yield np.concatenate([[before], stops[:-1]]), stops
        before = int(stops[-1])
