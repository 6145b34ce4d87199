"""How learning goes, as events of the run folder: tokens there are, counts of merged pairs, compression."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gristmill.drafts import reported
from gristmill.run.folder import EVENTS, PLAN, open_own
from gristmill.run.progress import EVENT_EVERY_S
from gristmill.run.resources import peak_resident_bytes, resident_bytes
from gristmill.training.inventory import Pieces

CURVE_POINTS = 200


class LearningEvents:
    """Writes an event about once a second; none where the counts are another run's."""

    def __init__(self, folder: Path, *, vocab_size: int, text_bytes: int, num_symbols: int) -> None:
        self._path = folder / EVENTS if (folder / PLAN).exists() else None
        self._vocab_size = vocab_size
        self._text_bytes, self._num_symbols = text_bytes, num_symbols
        self._last = 0.0

    def is_due(self) -> bool:
        """Whether the last event is a while ago."""
        return self._path is not None and time.monotonic() - self._last >= EVENT_EVERY_S

    def note(self, num_tokens: int, counts: NDArray[np.int64]) -> None:
        """Learning has come so far; `counts` are those of the merges learned."""
        spent = int(counts.sum())
        last = int(counts[-1]) if len(counts) else 0
        self._write("learning", num_tokens, merge_count=last, bytes_per_token=self._squeezed(spent))

    def end(self, num_tokens: int, counts: NDArray[np.int64]) -> None:
        """Learning is over: how it went, in few points."""
        first = num_tokens - len(counts)
        places = sorted({*np.geomspace(1, max(len(counts), 1), CURVE_POINTS).astype(int).tolist()})
        sums = np.cumsum(counts)
        curve = [
            (first + place, int(counts[place - 1]), self._squeezed(int(sums[place - 1])))
            for place in places
            if place <= len(counts)
        ]
        spent = int(sums[-1]) if len(counts) else 0
        self._write("trained", num_tokens, bytes_per_token=self._squeezed(spent), curve=curve)

    def _squeezed(self, spent: int) -> float:
        """Bytes a token when so many pairs have become one token each."""
        return round(self._text_bytes / max(self._num_symbols - spent, 1), 4)

    def _write(self, event: str, num_tokens: int, **facts: Any) -> None:
        if self._path is None:
            return
        self._last = time.monotonic()
        line = {
            "event": event,
            "time": round(time.time(), 3),
            "num_tokens": num_tokens,
            "vocab_size": self._vocab_size,
            "memory_bytes": resident_bytes(),
            "peak_memory_bytes": peak_resident_bytes(),
        } | facts
        with reported(self._path), open_own(self._path) as file:
            file.write(msgspec.json.encode(line) + b"\n")


def count_characters(pieces: Pieces) -> int:
    """Characters of the text that was counted."""
    starts = np.concatenate([[0], np.cumsum((pieces.text & 0xC0) != 0x80)])
    # A sum of products may exceed 64 bits; digits do not matter.
    return int(np.dot(np.diff(starts[pieces.offsets]), pieces.counts.astype(np.float64)))
