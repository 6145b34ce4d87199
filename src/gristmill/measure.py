"""What a unit's documents are like: how long they are, and what they cost by source and script.

Counted while a unit is encoded, from the documents alone, so that the figures of a unit are the same
whatever the size of blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.batch import DocumentBatch, TokenBatch
from gristmill.records import Measured, ScriptCounts
from gristmill.scripts import main_scripts

SCRIPT_EVERY = 64
"""Of so many documents one is looked into for its script."""
NUM_BUCKETS = 64


class RowCosts(NamedTuple):
    """What documents cost where each has rows of its own."""

    full_rows: int
    documents_over: int
    tokens_over: int


def row_costs(num_tokens: NDArray[np.int64], row_length: int) -> RowCosts:
    """Of documents of so many tokens: rows, documents longer than one, and their tokens beyond it."""
    over = np.maximum(num_tokens - row_length, 0)
    rows = int((-(-num_tokens // row_length)).sum())
    return RowCosts(rows, int(np.count_nonzero(over)), int(over.sum()))


class Measurements:
    """Adds up what documents are like."""

    def __init__(self, row_length: int) -> None:
        self._row_length = row_length
        self._costs = RowCosts(0, 0, 0)
        self._document_bytes = np.zeros(NUM_BUCKETS, np.int64)
        self._document_tokens = np.zeros(NUM_BUCKETS, np.int64)
        self._slice_bytes: list[int] = []
        self._slice_tokens: list[int] = []
        self._scripts: dict[str, list[int]] = {}

    def add(self, documents: DocumentBatch, tokens: TokenBatch, *, first: int, slice_index: int) -> None:
        """Count encoded documents; `first` is the number of the first of them in the unit."""
        text_bytes, num_tokens = np.diff(documents.offsets), np.diff(tokens.offsets)
        self._document_bytes += bucketed(text_bytes)
        self._document_tokens += bucketed(num_tokens)
        costs = zip(self._costs, row_costs(num_tokens, self._row_length), strict=True)
        self._costs = RowCosts(*map(sum, costs))
        missing = slice_index + 1 - len(self._slice_bytes)
        self._slice_bytes += [0] * missing
        self._slice_tokens += [0] * missing
        self._slice_bytes[slice_index] += int(text_bytes.sum())
        self._slice_tokens[slice_index] += int(num_tokens.sum())
        chosen = np.arange(-first % SCRIPT_EVERY, len(documents), SCRIPT_EVERY)
        if len(chosen):
            scripts = main_scripts(documents.text, documents.offsets[chosen], documents.offsets[chosen + 1])
            sizes = zip(scripts, text_bytes[chosen].tolist(), num_tokens[chosen].tolist(), strict=True)
            for script, size, count in sizes:
                total = self._scripts.setdefault(script, [0, 0, 0])
                total[:] = total[0] + 1, total[1] + size, total[2] + count

    def measured(self, num_slices: int) -> Measured:
        """The sums."""
        missing = [0] * (num_slices - len(self._slice_bytes))
        return Measured(
            document_bytes=trimmed(self._document_bytes),
            document_tokens=trimmed(self._document_tokens),
            slice_bytes=(*self._slice_bytes, *missing),
            slice_tokens=(*self._slice_tokens, *missing),
            **self._costs._asdict(),
            scripts={name: ScriptCounts(*total) for name, total in sorted(self._scripts.items())},
        )


def bucketed(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many lengths have so many binary digits: bucket k holds those from 2^(k-1) to 2^k - 1."""
    # frexp gives the number of digits of a whole number, exactly while it fits a double.
    return np.bincount(np.frexp(lengths)[1], minlength=NUM_BUCKETS).astype(np.int64)


def trimmed(counts: NDArray[np.int64]) -> tuple[int, ...]:
    """The counts without the empty buckets at the end."""
    filled = np.flatnonzero(counts)
    return tuple(counts[: filled[-1] + 1].tolist()) if len(filled) else ()
