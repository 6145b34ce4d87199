"""Documents one after the other, cut every `sequence_length` tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill import _native
from gristmill.config import PackConfig
from gristmill.engines import Offsets
from gristmill.pack.rows import (
    RowIds,
    Rows,
    Segments,
    drop_empty,
    drop_tokens,
    empty_rows,
    empty_segments,
    offsets_of,
)


class ConcatPacker:
    """Holds less than a row: what fills none yet, after the tokens that the next row repeats."""

    def __init__(self, config: PackConfig, *, pad_id: int, dtype: np.dtype[Any]) -> None:
        self._config = config
        self._pad_id = pad_id
        self._dtype = dtype
        self._held = empty_segments(dtype)
        self._num_repeats = 0
        """Tokens at the front of those held that stand in a row already."""

    def add(self, segments: Segments) -> Rows:
        """The rows that are full now."""
        length, overlap = self._config.sequence_length, self._config.overlap
        stride = length - overlap
        stream = _follow(self._held, drop_empty(segments))
        num_rows = max(0, (len(stream.ids) - overlap) // stride)
        if num_rows == 0:
            self._held = drop_tokens(stream, 0)  # a copy: a view would keep the caller's whole block alive
            return empty_rows(length, self._dtype)
        begins = np.arange(num_rows, dtype=np.int64) * stride
        repeated = np.full(num_rows, overlap, np.int64)
        repeated[0] = self._num_repeats
        ids = _cut_ids(stream.ids, num_rows, length, stride)
        rows = rows_of_stream(stream, begins, begins + length, ids, repeated)
        self._held = drop_tokens(stream, num_rows * stride)
        self._num_repeats = overlap
        return rows

    def finish(self, *, is_last: bool) -> tuple[Rows, Segments]:
        """What fills no row, as a padded row or as segments."""
        length, tail = self._config.sequence_length, self._config.tail
        held, num_repeats = self._held, self._num_repeats
        self._held, self._num_repeats = empty_segments(self._dtype), 0
        if len(held.ids) == num_repeats:
            return empty_rows(length, self._dtype), empty_segments(self._dtype)
        if tail == "pad" or (tail == "carry" and is_last):
            ids = np.full((1, length), self._pad_id, self._dtype)
            ids[0, : len(held.ids)] = held.ids
            ends = np.array([len(held.ids)], np.int64)
            repeated = np.array([num_repeats], np.int64)
            return rows_of_stream(held, ends * 0, ends, ids, repeated), empty_segments(self._dtype)
        return empty_rows(length, self._dtype), drop_tokens(held, num_repeats)


def _follow(held: Segments, segments: Segments) -> Segments:
    """Both as one, the ids in memory that blocks before have used: fresh memory costs more than the copy."""
    if not len(held) or not len(segments):
        return held if len(held) else segments
    lengths = np.array([len(held.ids), len(segments.ids)], np.int64)
    begins, whole = np.array([0, lengths[0]], np.int64), np.array([0, 2], np.int64)
    ids = _native.gather_rows(held.ids, segments.ids, begins, lengths, whole, int(lengths.sum()), 0)
    return Segments(
        ids=ids[0],
        offsets=np.concatenate([held.offsets, segments.offsets[1:] + len(held.ids)]),
        documents=np.concatenate([held.documents, segments.documents]),
        starts=np.concatenate([held.starts, segments.starts]),
    )


def _cut_ids(ids: RowIds, num_rows: int, length: int, stride: int) -> RowIds:
    if stride == length:
        return ids[: num_rows * length].reshape(num_rows, length)
    windows = np.lib.stride_tricks.sliding_window_view(ids, length)
    return np.ascontiguousarray(windows[::stride][:num_rows])


def rows_of_stream(stream: Segments, begins: Offsets, ends: Offsets, ids: RowIds, repeated: Offsets) -> Rows:
    """Rows that hold the stream's tokens from each begin to its end, with the segments found there."""
    firsts = np.searchsorted(stream.offsets, begins, side="right") - 1
    row_offsets = offsets_of(np.searchsorted(stream.offsets, ends, side="left") - firsts)
    counts = np.diff(row_offsets)
    owners = np.arange(row_offsets[-1]) + np.repeat(firsts - row_offsets[:-1], counts)
    cuts = np.maximum(stream.offsets[owners], np.repeat(begins, counts))
    return Rows(
        ids=ids,
        row_offsets=row_offsets,
        lengths=np.minimum(stream.offsets[owners + 1], np.repeat(ends, counts)) - cuts,
        documents=stream.documents[owners],
        starts=stream.starts[owners] + cuts - stream.offsets[owners],
        repeated=repeated,
    )
