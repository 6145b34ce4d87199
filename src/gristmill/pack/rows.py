"""What passes through packing: stretches of documents in, rows of equal length out."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import DTypeLike, NDArray

from gristmill.engines import Offsets

RowIds = NDArray[np.uint16 | np.uint32]


class Segments(Struct, frozen=True, eq=False):
    """Stretches of documents: the ids of segment i are `ids[offsets[i]:offsets[i + 1]]`."""

    ids: RowIds
    offsets: Offsets
    """From 0 to the number of ids."""
    documents: Offsets
    """Of each segment: the key of its document, (unit << 32) + its number among the unit's documents."""
    starts: Offsets
    """Of each segment: its first token's place in the document."""

    def __len__(self) -> int:
        return len(self.documents)


class Rows(Struct, frozen=True, eq=False):
    """Rows of one length, and the segments each was made of."""

    ids: RowIds
    """Shape (rows, sequence_length); padding holds the pad id."""
    row_offsets: Offsets
    """Segments of row r are those from `row_offsets[r]` to `row_offsets[r + 1]`; they follow one another from
    the row's first token, and padding is what comes after the last."""
    lengths: Offsets
    """Of each segment: its number of tokens."""
    documents: Offsets
    starts: Offsets
    repeated: Offsets
    """Of each row: its tokens that stand in an earlier row too, by overlap."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_tokens(self) -> int:
        """Tokens in the rows, what overlap repeats included, padding not."""
        return int(self.lengths.sum())

    @property
    def num_padding(self) -> int:
        """Places in the rows that hold no token."""
        return self.ids.size - self.num_tokens

    @property
    def num_repeated(self) -> int:
        """Tokens that stand in an earlier row too, by overlap."""
        return int(self.repeated.sum())


def empty_rows(sequence_length: int, dtype: DTypeLike) -> Rows:
    """No rows."""
    return Rows(
        ids=np.empty((0, sequence_length), dtype),
        row_offsets=offsets_of(no_numbers()),
        lengths=no_numbers(),
        documents=no_numbers(),
        starts=no_numbers(),
        repeated=no_numbers(),
    )


def empty_segments(dtype: DTypeLike) -> Segments:
    """No segments."""
    return Segments(
        ids=np.empty(0, dtype), offsets=offsets_of(no_numbers()), documents=no_numbers(), starts=no_numbers()
    )


def slice_rows(rows: Rows, start: int, stop: int) -> Rows:
    """Rows from `start` to `stop`, as views."""
    start, stop, _ = slice(start, stop).indices(len(rows))
    stop = max(start, stop)
    first, last = int(rows.row_offsets[start]), int(rows.row_offsets[stop])
    return Rows(
        ids=rows.ids[start:stop],
        row_offsets=rows.row_offsets[start : stop + 1] - first,
        lengths=rows.lengths[first:last],
        documents=rows.documents[first:last],
        starts=rows.starts[first:last],
        repeated=rows.repeated[start:stop],
    )


def take_rows(rows: Rows, n: int) -> Rows:
    """The first `n` rows, as views."""
    return slice_rows(rows, 0, n)


def slice_segments(segments: Segments, start: int, stop: int) -> Segments:
    """Segments from `start` to `stop`, as views."""
    offsets = segments.offsets[start : stop + 1]
    return Segments(
        ids=segments.ids[offsets[0] : offsets[-1]],
        offsets=offsets - offsets[0],
        documents=segments.documents[start:stop],
        starts=segments.starts[start:stop],
    )


def drop_empty(segments: Segments) -> Segments:
    """The same without segments that hold no token: none of them may stand in a row."""
    lengths = np.diff(segments.offsets)
    if lengths.all():
        return segments
    held = lengths > 0
    return Segments(
        ids=segments.ids,
        offsets=offsets_of(lengths[held]),
        documents=segments.documents[held],
        starts=segments.starts[held],
    )


def drop_tokens(segments: Segments, n: int) -> Segments:
    """What is left without the first `n` tokens, as a copy, so that the rest of the memory can go."""
    first = int(np.searchsorted(segments.offsets, n, side="right")) - 1
    starts = segments.starts[first:].copy()
    if len(starts):
        starts[0] += n - segments.offsets[first]
    return Segments(
        ids=segments.ids[n:].copy(),
        offsets=np.maximum(segments.offsets[first:] - n, 0),
        documents=segments.documents[first:].copy(),
        starts=starts,
    )


def offsets_of(lengths: Offsets) -> Offsets:
    """Where parts of these lengths begin, and where the last ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def no_numbers() -> NDArray[Any]:
    """An empty array of offsets."""
    return np.empty(0, np.int64)
