"""Columns derived from rows and their borders (stand-in until packing has its own)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.engines import Offsets
from gristmill.pack.rows import Rows


def labels(rows: Rows, *, mask_first_token: bool) -> NDArray[np.int32]:
    """The ids, with -100 on padding and, if asked, on the first token of each document."""
    found: NDArray[np.int32] = rows.ids.astype(np.int32)
    found[attention_mask(rows) == 0] = -100
    if mask_first_token:
        found.reshape(-1)[_segment_places(rows)[rows.starts == 0]] = -100
    return found


def attention_mask(rows: Rows) -> NDArray[np.int8]:
    """1 on tokens, 0 on padding."""
    used = _ends_in_row(rows, with_zero=False)[1]
    return (np.arange(rows.ids.shape[1]) < used[:, None]).astype(np.int8)


def position_ids(rows: Rows) -> NDArray[np.int32]:
    """Places that begin again at every segment."""
    length = rows.ids.shape[1]
    starts = np.zeros(rows.ids.size, np.int64)
    starts[_segment_places(rows)] = _segment_places(rows)
    starts[np.arange(len(rows.ids)) * length] = np.arange(len(rows.ids)) * length
    flat: NDArray[Any] = np.arange(rows.ids.size) - np.maximum.accumulate(starts)
    return flat.astype(np.int32).reshape(rows.ids.shape)


def cu_seqlens(rows: Rows) -> tuple[NDArray[np.int32], Offsets]:
    """Of each row: 0, then where each of its segments ends."""
    counts = np.diff(rows.row_offsets)
    offsets = np.concatenate([[0], np.cumsum(counts + 1)]).astype(np.int64)
    flat = np.zeros(int(offsets[-1]), np.int32)
    places = np.arange(len(rows.lengths)) + np.repeat(np.arange(len(counts)), counts) + 1
    flat[places] = _ends_in_row(rows, with_zero=True)[0]
    return flat, offsets


def _ends_in_row(rows: Rows, *, with_zero: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    totals = np.concatenate([[0], np.cumsum(rows.lengths)])
    bases = totals[rows.row_offsets]
    counts = np.diff(rows.row_offsets)
    return totals[1:] - np.repeat(bases[:-1], counts), np.diff(bases)


def _segment_places(rows: Rows) -> NDArray[Any]:
    ends = _ends_in_row(rows, with_zero=True)[0]
    row = np.repeat(np.arange(len(rows.ids)), np.diff(rows.row_offsets))
    places: NDArray[Any] = row * rows.ids.shape[1] + ends - rows.lengths
    return places
