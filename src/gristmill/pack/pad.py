"""One document a row, padded; a long one is cut into windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill.config import PackConfig
from gristmill.pack.rows import Rows, Segments, empty_rows, empty_segments
from gristmill.pack.windows import cut_windows, lay_rows


class PadPacker:
    """Holds nothing: every document is whole when it comes."""

    def __init__(self, config: PackConfig, *, pad_id: int, dtype: np.dtype[Any]) -> None:
        self._config = config
        self._pad_id = pad_id
        self._dtype = dtype

    def add(self, segments: Segments) -> Rows:
        """A row for every document, several for one longer than a row."""
        length = self._config.sequence_length
        windows = cut_windows(segments, sequence_length=length, overlap=self._config.overlap)
        each = np.arange(len(windows) + 1, dtype=np.int64)
        return lay_rows(
            windows, each, segments.ids, segments.ids[:0], sequence_length=length, pad_id=self._pad_id
        )

    def finish(self, *, is_last: bool) -> tuple[Rows, Segments]:
        """Nothing is ever left."""
        return empty_rows(self._config.sequence_length, self._dtype), empty_segments(self._dtype)
