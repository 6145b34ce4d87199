"""The units of a run, done by a backend: as many as its limit needs, and the tails at the end."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Protocol

from gristmill.config import RunConfig
from gristmill.errors import RunError
from gristmill.ledger import add_up, count_bad
from gristmill.limits import Limit
from gristmill.plan import UnitPlan
from gristmill.records import UnitRecord
from gristmill.run.messages import Task
from gristmill.run.outcome import Outcome
from gristmill.run.progress import Progress
from gristmill.sidecars import FOLDER
from gristmill.store import RunFolder

MIN_DOCUMENTS_TO_JUDGE = 1000
"""Fewer say nothing about the fraction that is bad, before the end."""


class Backend(Protocol):
    """Maps the same function over the same units, wherever that happens."""

    def prepare(self, store: RunFolder, *, num_tasks: int) -> None:
        """The plan is in the folder: get ready."""
        ...

    def run(self, tasks: Sequence[Task], progress: Progress) -> Generator[Outcome, None, None]:
        """Outcomes of tasks, as they come; closed when the caller has enough."""
        ...


class Work:
    """The records a run has so far, and what is still allowed."""

    def __init__(
        self,
        plan: UnitPlan,
        run: RunConfig,
        backend: Backend,
        progress: Progress,
        records: dict[int, UnitRecord],
    ) -> None:
        self.records = records
        self.failed: dict[int, str] = {}
        self._plan = plan
        self._backend = backend
        self._progress = progress
        self._max_bad_fraction = run.max_bad_fraction
        self._limit = Limit(run.max_rows, run.max_tokens)
        self._has_limit = self._limit != Limit()

    def do_units(self, pending: list[int]) -> None:
        """Every unit that is not done, or as many as the limit needs."""
        last = self._last_needed()
        tasks = [Task(unit) for unit in pending if last is None or unit < last]
        outcomes = self._backend.run(tasks, self._progress)
        for outcome in outcomes:
            self._take(outcome)
            last = self._last_needed() if self._has_limit else None
            if last is not None:
                break
        outcomes.close()
        if last is not None:
            self._cut(last)

    def do_tails(self) -> None:
        """What the units carried over, packed together; a limit that was reached leaves nothing to pack."""
        tails = len(self._plan.units)
        is_limited = any(record.is_limited for record in self.records.values())
        carried = sum(record.ledger.tokens_carried for record in self.records.values())
        if carried and not is_limited and tails not in self.records:
            limit = _left(self._limit, self.records.values())
            self._do_one(Task(tails, limit))

    def _do_one(self, task: Task) -> None:
        for outcome in self._backend.run([task], self._progress):
            self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        if outcome.record is None:
            self.failed[outcome.task.unit] = str(outcome.why_failed)
            self._progress.failed(outcome.task.unit, str(outcome.why_failed))
            return
        self.records[outcome.record.unit] = outcome.record
        self._progress.done(outcome.record)
        check_bad_fraction(self.records.values(), self._max_bad_fraction, is_end=False)

    def _last_needed(self) -> int | None:
        """The unit in which the limit is reached, once all before it are done."""
        limit, units = self._limit, len(self._plan.units)
        for unit in range(units):
            record = self.records.get(unit)
            if record is None:
                return None
            if record.is_limited:
                return unit
            rows, tokens = _left(limit, [record])
            if (rows is not None and rows < 0) or (tokens is not None and tokens < 0):
                return unit
            limit = Limit(rows, tokens)
        return None

    def _cut(self, last: int) -> None:
        """Do the last unit again with what is left of the limit, and forget what comes after it."""
        for unit in [unit for unit in self.records if unit > last]:
            del self.records[unit]
        self.failed.clear()  # all up to the last are done; whether one after it was tried is chance
        if not self.records[last].is_limited:
            before = [self.records[unit] for unit in range(last)]
            self._do_one(Task(last, _left(self._limit, before)))


def _left(limit: Limit, records: Iterable[UnitRecord]) -> Limit:
    rows, tokens = limit
    for record in records:
        ledger = record.ledger
        rows = None if rows is None else rows - ledger.rows
        written = ledger.tokens_written + ledger.tokens_repeated + ledger.padding
        tokens = None if tokens is None else tokens - written
    return Limit(rows, tokens)


def check_bad_fraction(
    records: Iterable[UnitRecord], allowed: float, *, is_end: bool, cause: str = ""
) -> None:
    """Refuse a run of which more documents are bad than is allowed, or all of them; `cause` is an example."""
    if allowed >= 1 and not is_end:
        return
    total = add_up(record.ledger for record in records)
    bad = count_bad(total)
    reasons = ", ".join(f"{reason} {count}" for reason, count in total.documents_dropped.items())
    files = ", ".join(f"{reason} {count}" for reason, count in total.bad_files.items())
    remedy = f"{cause or 'nothing is in quarantine'}; see the quarantine files in {FOLDER}/ of the run folder"
    is_judged = is_end or total.documents_read >= MIN_DOCUMENTS_TO_JUDGE
    if is_judged and bad > allowed * total.documents_read:
        raise RunError(
            f"{bad} of {total.documents_read} documents are bad ({reasons}), more than run.max_bad_fraction "
            f"{allowed} allows; {remedy}"
        )
    if is_end and total.documents_encoded == 0 and not total.documents_dropped.get("limit"):
        raise RunError(
            f"no document could be used (documents: {reasons or 'none'}; files: {files or 'none bad'}); "
            f"{remedy}"
        )
