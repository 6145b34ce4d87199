"""Ids of documents become rows of one length, as the three columns a causal model is trained on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gristmill import _native
from gristmill.batch import TokenBatch
from gristmill.pack.columns import IGNORED
from gristmill.pack.rows import Segments
from gristmill.pack.windows import Windows, cut_windows

NAMES = ("input_ids", "attention_mask", "labels")


class RowShape(NamedTuple):
    """What is the same for every row."""

    context_length: int
    overlap: int
    mask_overlap: bool
    pad_id: int
    dtype: str
    """Of ids and labels."""

    @property
    def row_bytes(self) -> int:
        """Of a row in all columns."""
        return self.context_length * (2 * np.dtype(self.dtype).itemsize + 1)


class Columns(NamedTuple):
    """Rows; each array has the shape (rows, context_length)."""

    input_ids: NDArray[Any]
    attention_mask: NDArray[np.int8]
    labels: NDArray[Any]

    def part(self, start: int, stop: int) -> Columns:
        """Some of the rows, as views."""
        return Columns(*[column[start:stop] for column in self])


def new_columns(num_rows: int, shape: RowShape) -> Columns:
    """Room for so many rows."""
    size = (num_rows, shape.context_length)
    return Columns(np.empty(size, shape.dtype), np.empty(size, np.int8), np.empty(size, shape.dtype))


def cut_rows(tokens: TokenBatch, shape: RowShape) -> Windows:
    """Windows of every document, in order; a document without tokens has none, and no window holds only what
    the one before has."""
    nothing = np.zeros(len(tokens), np.int64)
    segments = Segments(tokens.ids, tokens.offsets, nothing, nothing)
    return cut_windows(segments, sequence_length=shape.context_length, overlap=shape.overlap)


def lay_columns(tokens: TokenBatch, windows: Windows, shape: RowShape, out: Columns) -> None:
    """Fill a row for each window."""
    each = np.arange(len(windows) + 1, dtype=np.int64)
    length = shape.context_length
    out.input_ids[:] = _native.gather_rows(
        tokens.ids, tokens.ids[:0], windows.begins, windows.lengths, each, length, shape.pad_id
    )
    is_token = np.arange(length) < windows.lengths[:, None]
    out.attention_mask[:] = is_token
    out.labels[:] = out.input_ids
    padded = np.flatnonzero(windows.lengths < length)
    out.labels[padded] = np.where(is_token[padded], out.labels[padded], IGNORED)
    if shape.mask_overlap and shape.overlap:
        out.labels[windows.repeated > 0, : shape.overlap] = IGNORED


def to_arrow(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as lists, over the same memory."""
    num_rows, length = columns.input_ids.shape
    offsets = pa.array(np.arange(num_rows + 1, dtype=np.int32) * np.int32(length))
    lists = [pa.ListArray.from_arrays(offsets, pa.array(column.reshape(-1))) for column in columns]
    return pa.RecordBatch.from_arrays(lists, schema=schema)
