"""What is derived from rows and their segments: labels, attention mask, places, borders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.engines import Offsets
from gristmill.pack.rows import Rows, offsets_of

IGNORED = -100
"""The label of a token that is not learned from."""


def labels(rows: Rows, *, mask_first_token: bool) -> NDArray[Any]:
    """The ids, with IGNORED on padding and, if asked, on the first token of each document; int32 for ids of
    uint16, int64 for uint32."""
    out = rows.ids.astype(np.int32 if rows.ids.dtype == np.uint16 else np.int64)
    padded = np.flatnonzero(_row_tokens(rows) < rows.ids.shape[1])
    out[padded] = np.where(_is_token(rows, padded), out[padded], IGNORED)
    if mask_first_token:
        row_of, begins = _segment_places(rows)
        out[row_of[rows.starts == 0], begins[rows.starts == 0]] = IGNORED
    return out


def attention_mask(rows: Rows) -> NDArray[np.int8]:
    """1 on tokens, 0 on padding."""
    return _is_token(rows, np.arange(len(rows))).astype(np.int8)


def position_ids(rows: Rows) -> NDArray[np.int32]:
    """Places from 0 in each segment; padding is counted like one more segment."""
    padding = rows.ids.shape[1] - _row_tokens(rows)
    runs = np.insert(rows.lengths, rows.row_offsets[1:], padding)
    runs = runs[runs > 0]
    steps = np.ones(rows.ids.size, np.int32)
    steps[offsets_of(runs)[:-1]] = 1 - np.concatenate([np.ones(min(1, len(runs)), np.int64), runs[:-1]])
    return np.cumsum(steps, dtype=np.int32, out=steps).reshape(rows.ids.shape)


def segment_ids(rows: Rows) -> NDArray[np.int32]:
    """1 in the first segment of a row, 2 in the next, and so on; 0 on padding."""
    row_of = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(rows.row_offsets))
    numbers = np.arange(1, len(row_of) + 1) - rows.row_offsets[row_of]
    padding = rows.ids.shape[1] - _row_tokens(rows)
    numbers = np.insert(numbers, rows.row_offsets[1:], 0).astype(np.int32)
    return np.repeat(numbers, np.insert(rows.lengths, rows.row_offsets[1:], padding)).reshape(rows.ids.shape)


def cu_seqlens(rows: Rows) -> tuple[NDArray[np.int32], Offsets]:
    """Of each row: 0 and the ends of its segments, flat, and the rows' offsets in that."""
    offsets = rows.row_offsets + np.arange(len(rows) + 1)
    row_of, begins = _segment_places(rows)
    flat = np.zeros(offsets[-1], np.int32)
    flat[np.arange(len(row_of)) + row_of + 1] = begins + rows.lengths
    return flat, offsets


def _row_tokens(rows: Rows) -> Offsets:
    """Of each row: its number of tokens."""
    before = offsets_of(rows.lengths)
    return before[rows.row_offsets[1:]] - before[rows.row_offsets[:-1]]


def _is_token(rows: Rows, index: Offsets) -> NDArray[np.bool_]:
    places = np.arange(rows.ids.shape[1], dtype=np.int32)
    return places < _row_tokens(rows)[index, None]


def _segment_places(rows: Rows) -> tuple[Offsets, Offsets]:
    """Of each segment: its row, and its first token's place there."""
    row_of = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(rows.row_offsets))
    before = offsets_of(rows.lengths)
    return row_of, before[:-1] - before[rows.row_offsets[row_of]]
