"""The units of a run that are done: a few numbers of each, while their records stay in the run folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gristmill.ledger import LedgerSum, count_bad
from gristmill.limits import Limit
from gristmill.records import Ledger, UnitRecord


class DoneUnits:
    """What limits and the end of a run ask of units: fifty bytes of each, so that a million are little."""

    def __init__(self, num_units: int, records: Iterable[UnitRecord] = ()) -> None:
        size = num_units + 1  # the last is the tails'
        self.ledger = LedgerSum()
        """Of every unit that was added."""
        self._is_done = np.zeros(size, np.bool_)
        self._is_limited = np.zeros(size, np.bool_)
        self._rows, self._tokens, self._carried = (np.zeros(size, np.int64) for _ in range(3))
        self._documents, self._bad = (np.zeros(size, np.int64) for _ in range(2))
        for record in records:
            self.add(record)

    def __contains__(self, unit: int) -> bool:
        return bool(self._is_done[unit])

    def __iter__(self) -> Iterator[int]:
        """In order; the tails' comes last."""
        return map(int, np.flatnonzero(self._is_done))

    def __len__(self) -> int:
        return int(np.count_nonzero(self._is_done))

    def pending(self) -> list[int]:
        """Units that are not done, in order; the tails are not among them."""
        return [int(unit) for unit in np.flatnonzero(~self._is_done[:-1])]

    def add(self, record: UnitRecord) -> None:
        """A unit is done, or done again."""
        unit, ledger = record.unit, record.ledger
        self.ledger.add(ledger)
        self._is_done[unit] = True
        self._is_limited[unit] = record.is_limited
        self._rows[unit] = ledger.rows
        self._tokens[unit] = tokens_used(ledger)
        self._carried[unit] = ledger.tokens_carried
        self._documents[unit] = ledger.documents_read
        self._bad[unit] = count_bad(ledger)

    def forget_after(self, unit: int) -> None:
        """Units after this one do not count."""
        self._is_done[unit + 1 :] = False

    def is_cut_short(self, unit: int) -> bool:
        """Whether a limit ended the unit."""
        return bool(self._is_limited[unit])

    def documents_of(self, unit: int) -> tuple[int, int]:
        """How many documents were read of it, and how many of them are bad."""
        return int(self._documents[unit]), int(self._bad[unit])

    @property
    def is_limited(self) -> bool:
        """Whether a limit ended any of them."""
        return bool(np.any(self._is_limited & self._is_done))

    @property
    def tokens_carried(self) -> int:
        """Put aside by all of them."""
        return int(self._carried[self._is_done].sum())

    def left_of(self, limit: Limit, units: slice) -> Limit:
        """What these units leave of a limit."""
        done = self._is_done[units]
        rows, tokens = limit
        return Limit(
            None if rows is None else rows - int(self._rows[units][done].sum()),
            None if tokens is None else tokens - int(self._tokens[units][done].sum()),
        )


def tokens_used(ledger: Ledger) -> int:
    """What counts towards run.max_tokens."""
    return ledger.tokens_written + ledger.tokens_repeated + ledger.padding
