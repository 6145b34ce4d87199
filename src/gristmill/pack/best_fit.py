"""Whole documents where they fit: rows are filled from a pool of those that wait."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from gristmill import _native
from gristmill.config import PackConfig
from gristmill.engines import Offsets
from gristmill.pack.rows import RowIds, Rows, Segments
from gristmill.pack.windows import Windows, copy_windows, cut_windows, join_windows, lay_rows, no_windows

MAX_POOL_TOKENS = 1 << 23
"""Tokens that may wait, or two rows, if that is more: bounds the memory where documents are long."""
LEAST_FILL = 0.99
"""Of a row, at the end of a unit; what would fill less waits for the end of the run."""


class BestFitPacker:
    """Holds the pool: documents shorter than a row, and what long ones have left after their full rows."""

    def __init__(self, config: PackConfig, *, pad_id: int, dtype: np.dtype[Any]) -> None:
        self._config = config
        self._pad_id = pad_id
        self._dtype = dtype
        self._store: RowIds = np.empty(0, dtype)
        """Ids of the pool's windows, among those of windows that have gone."""
        self._num_stored = 0
        self._pool = no_windows()

    def add(self, segments: Segments) -> Rows:
        """Full rows of long documents, and rows from the pool as far as it is over its limits."""
        length = self._config.sequence_length
        new = cut_windows(segments, sequence_length=length, overlap=self._config.overlap)
        np.add(new.begins, len(self._store), out=new.begins)
        windows = join_windows(self._pool, new)
        max_tokens = max(MAX_POOL_TOKENS, 2 * length)
        row_offsets, picks, left = _native.plan_rows(
            windows.lengths, len(self._pool), length, self._config.lookahead, max_tokens
        )
        rows = self._rows(windows.pick(picks), row_offsets, segments.ids)
        self._keep(windows.pick(left), segments.ids)
        return rows

    def finish(self, *, is_last: bool) -> tuple[Rows, Segments]:
        """Rows of all that waits, or only the well filled ones and the rest as segments."""
        length, tail = self._config.sequence_length, self._config.tail
        is_padded = tail == "pad" or (tail == "carry" and is_last)
        least = 0 if is_padded else int(np.ceil(length * LEAST_FILL))
        row_offsets, picks, left = _native.plan_rest(self._pool.lengths, length, least)
        nothing = self._store[:0]
        rows = self._rows(self._pool.pick(picks), row_offsets, nothing)
        rest = copy_windows(self._pool.pick(left).without_repeats(), self._store, nothing)
        self._store, self._num_stored, self._pool = np.empty(0, self._dtype), 0, no_windows()
        return rows, rest

    def _rows(self, windows: Windows, row_offsets: Offsets, new_ids: RowIds) -> Rows:
        return lay_rows(
            windows,
            row_offsets,
            self._store,
            new_ids,
            sequence_length=self._config.sequence_length,
            pad_id=self._pad_id,
        )

    def _keep(self, pool: Windows, new_ids: RowIds) -> None:
        """Ids of new windows go behind those stored; where there is no room, all move to a store twice as
        large as the pool, so that on average each is moved a few times at most."""
        num_old = int(np.searchsorted(pool.begins, len(self._store)))
        new = copy_windows(pool.pick(slice(num_old, None)), self._store, new_ids)
        if self._num_stored + len(new.ids) > len(self._store):
            num_old, new = 0, copy_windows(pool, self._store, new_ids)
            self._store, self._num_stored = np.empty(2 * len(new.ids), self._dtype), 0
        begins = np.concatenate([pool.begins[:num_old], self._num_stored + new.offsets[:-1]])
        self._pool = replace(pool, begins=begins)
        self._store[self._num_stored : self._num_stored + len(new.ids)] = new.ids
        self._num_stored += len(new.ids)
