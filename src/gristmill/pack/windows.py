"""Documents cut into windows of at most a row: what `pad` and `best_fit` lay into rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from gristmill import _native
from gristmill.config import PackConfig
from gristmill.engines import Offsets
from gristmill.pack.rows import RowIds, Rows, Segments, no_numbers, offsets_of, slice_segments


class Windows(Struct, frozen=True, eq=False):
    """Stretches of an array of ids, at most a row each."""

    begins: Offsets
    """In the array of ids."""
    lengths: Offsets
    documents: Offsets
    starts: Offsets
    repeated: Offsets
    """Of each window: its first tokens that stand in the window before too."""

    def __len__(self) -> int:
        return len(self.begins)

    def pick(self, index: Offsets | slice) -> Windows:
        """The windows at these places, in this order."""
        return Windows(
            begins=self.begins[index],
            lengths=self.lengths[index],
            documents=self.documents[index],
            starts=self.starts[index],
            repeated=self.repeated[index],
        )

    def without_repeats(self) -> Windows:
        """Only the tokens that stand in no window before."""
        return Windows(
            begins=self.begins + self.repeated,
            lengths=self.lengths - self.repeated,
            documents=self.documents,
            starts=self.starts + self.repeated,
            repeated=np.zeros_like(self.repeated),
        )


def no_windows() -> Windows:
    """No windows."""
    return Windows(*[no_numbers() for _ in range(5)])


def join_windows(first: Windows, second: Windows) -> Windows:
    """The windows of both, which lie in one array of ids."""
    return Windows(
        begins=np.concatenate([first.begins, second.begins]),
        lengths=np.concatenate([first.lengths, second.lengths]),
        documents=np.concatenate([first.documents, second.documents]),
        starts=np.concatenate([first.starts, second.starts]),
        repeated=np.concatenate([first.repeated, second.repeated]),
    )


def cut_windows(segments: Segments, *, sequence_length: int, overlap: int) -> Windows:
    """Every segment as one window, or, if longer than a row, as several that share `overlap` tokens; each but
    a segment's last is a full row, and each holds a token that the one before does not."""
    stride = sequence_length - overlap
    lengths = np.diff(segments.offsets)
    counts = count_windows(lengths, sequence_length=sequence_length, overlap=overlap)
    ends = np.cumsum(counts)
    owners = np.repeat(np.arange(len(segments), dtype=np.int64), counts)
    nth = np.arange(len(owners), dtype=np.int64) - (ends - counts)[owners]
    shifts = nth * stride
    return Windows(
        begins=segments.offsets[owners] + shifts,
        lengths=np.minimum(lengths[owners] - shifts, sequence_length),
        documents=segments.documents[owners],
        starts=segments.starts[owners] + shifts,
        repeated=np.where(nth > 0, np.int64(overlap), 0),
    )


def count_windows(lengths: Offsets, *, sequence_length: int, overlap: int) -> Offsets:
    """Of each segment: how many windows it is cut into."""
    stride = sequence_length - overlap
    counts: Offsets = 1 + np.maximum(lengths - sequence_length + stride - 1, 0) // stride
    return np.where(lengths > 0, counts, 0)


def split_segments(segments: Segments, config: PackConfig, *, max_rows: int) -> Iterator[Segments]:
    """The segments, so many at a time that a packer makes about `max_rows` rows of them at most (or of one,
    if that alone makes more), as views: short documents padded to long rows are many times their size."""
    if config.mode == "pad":
        counts = count_windows(
            np.diff(segments.offsets), sequence_length=config.sequence_length, overlap=config.overlap
        )
        rows_before, limit = offsets_of(counts), max_rows
    else:
        rows_before, limit = segments.offsets, max_rows * (config.sequence_length - config.overlap)
    start = 0
    while start < len(segments):
        stop = int(np.searchsorted(rows_before, rows_before[start] + limit, side="right")) - 1
        stop = max(start + 1, stop)
        yield slice_segments(segments, start, stop)
        start = stop


def lay_rows(
    windows: Windows,
    row_offsets: Offsets,
    first: RowIds,
    second: RowIds,
    *,
    sequence_length: int,
    pad_id: int,
) -> Rows:
    """Rows of these windows, row by row; the windows begin in `first`, or, past its end, in `second`."""
    ids = _native.gather_rows(
        first, second, windows.begins, windows.lengths, row_offsets, sequence_length, pad_id
    )
    repeated_before = offsets_of(windows.repeated)
    return Rows(
        ids=ids,
        row_offsets=row_offsets,
        lengths=windows.lengths,
        documents=windows.documents,
        starts=windows.starts,
        repeated=np.diff(repeated_before[row_offsets]),
    )


def copy_windows(windows: Windows, first: RowIds, second: RowIds) -> Segments:
    """The windows as segments of their own, one after the other."""
    offsets = offsets_of(windows.lengths)
    whole = np.array([0, len(windows)], np.int64)
    ids = _native.gather_rows(
        first, second, windows.begins, windows.lengths, whole, int(offsets[-1]), 0
    )
    return Segments(ids=ids[0], offsets=offsets, documents=windows.documents, starts=windows.starts)
