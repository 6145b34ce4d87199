"""The units of a run, done by a backend: as many as its limit needs, and the tails at the end."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Protocol

import msgspec

from gristmill.config import RunConfig
from gristmill.errors import RunError
from gristmill.ledger import count_bad
from gristmill.limits import Limit
from gristmill.plan import UnitPlan
from gristmill.records import Ledger
from gristmill.run.budget import Budget
from gristmill.run.done import DoneUnits
from gristmill.run.messages import Task
from gristmill.run.outcome import Outcome
from gristmill.run.progress import Progress
from gristmill.run.settle import TokenizerFacts
from gristmill.sidecars import FOLDER
from gristmill.store import RunFolder

MIN_DOCUMENTS_TO_JUDGE = 1000
"""Fewer say nothing about the fraction that is bad, before the end."""


class Backend(Protocol):
    """Maps the same function over the same units, wherever that happens."""

    @property
    def budget(self) -> Budget:
        """What the run may use."""
        ...

    def facts(self) -> TokenizerFacts | None:
        """What the run must know of the tokenizer, if the job has one."""
        ...

    def prepare(self, store: RunFolder, *, num_tasks: int) -> None:
        """The plan is in the folder: get ready."""
        ...

    def run(self, tasks: Sequence[Task], progress: Progress) -> Generator[Outcome, None, None]:
        """Outcomes of tasks, as they come; closed when the caller has enough."""
        ...

    def close(self) -> None:
        """Nothing runs on."""
        ...


class Work:
    """The units that are done so far, and what is still allowed."""

    def __init__(
        self,
        plan: UnitPlan,
        run: RunConfig,
        backend: Backend,
        progress: Progress,
        done: DoneUnits,
        store: RunFolder,
    ) -> None:
        self.done = done
        self._store = store
        self.failed: dict[int, str] = {}
        self._plan = plan
        self._backend = backend
        self._progress = progress
        self._max_bad_fraction = run.max_bad_fraction
        self._judged = self._num_documents = self._num_bad = 0
        """Units from the first on, and what is in them."""
        self._limit = Limit(run.max_rows, run.max_tokens)
        self._has_limit = self._limit != Limit()
        self._left = self._limit
        self._num_in_order = 0
        """Units from the first on that are done without reaching the limit; `_left` is what they leave."""

    def do_units(self, pending: list[int]) -> None:
        """Every unit that is not done, or as many as the limit needs."""
        last = self._last_needed()
        tasks = [Task(unit) for unit in pending if last is None or unit < last]
        # Closed, whatever comes: units that were begun must not go on beside whatever comes next.
        with closing(self._backend.run(tasks, self._progress)) as outcomes:
            for outcome in outcomes:
                self._take(outcome)
                self._judge()
                last = self._last_needed()
                if last is not None:
                    break
        if last is not None:
            self._cut(last)

    def _judge(self) -> None:
        """Stop where the first units have too many bad documents, whichever units end first."""
        while self._judged < len(self._plan.units) and self._judged in self.done:
            documents, bad = self.done.documents_of(self._judged)
            self._num_documents += documents
            self._num_bad += bad
            self._judged += 1
            is_known = self._num_documents >= MIN_DOCUMENTS_TO_JUDGE
            if is_known and self._num_bad > self._max_bad_fraction * self._num_documents:
                raise RunError(
                    f"{self._num_bad} of the first {self._num_documents} documents are bad, more than "
                    f"run.max_bad_fraction {self._max_bad_fraction} allows; what is kept of them is in the "
                    f"quarantine files in {FOLDER}/ of the run folder"
                )

    def do_tails(self) -> None:
        """What the units carried over, packed together; a limit that was reached leaves nothing to pack."""
        tails = len(self._plan.units)
        if self.done.tokens_carried and not self.done.is_limited and tails not in self.done:
            self._do_one(Task(tails, self.done.left_of(self._limit, slice(None))))

    def _do_one(self, task: Task) -> None:
        with closing(self._backend.run([task], self._progress)) as outcomes:
            for outcome in outcomes:
                self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        if outcome.record is None:
            self.failed[outcome.task.unit] = str(outcome.why_failed)
            self._progress.failed(outcome.task.unit, str(outcome.why_failed))
            return
        if self._store.is_remote:
            path = f"{FOLDER}/{self._plan.unit_name(outcome.record.unit)}.json"
            self._store.keep(path, msgspec.json.encode(outcome.record))
        self.done.add(outcome.record)
        self._progress.done(outcome.record)

    def _last_needed(self) -> int | None:
        """The unit in which the limit is reached, once all before it are done."""
        while self._has_limit and self._num_in_order < len(self._plan.units):
            unit = self._num_in_order
            if unit not in self.done:
                return None
            rows, tokens = self.done.left_of(self._left, slice(unit, unit + 1))
            is_over = (rows is not None and rows < 0) or (tokens is not None and tokens < 0)
            if is_over or self.done.is_cut_short(unit):
                return unit
            self._left = Limit(rows, tokens)
            self._num_in_order += 1
        return None

    def _cut(self, last: int) -> None:
        """Do the last unit again with what is left of the limit, and forget what comes after it."""
        self.done.forget_after(last)
        self.failed.clear()  # all up to the last are done; whether one after it was tried is chance
        if not self.done.is_cut_short(last):
            self._do_one(Task(last, self._left))


def check_bad_fraction(total: Ledger, allowed: float, *, cause: str = "") -> None:
    """Refuse a whole run of which more documents are bad than is allowed, or all; `cause` is an example."""
    bad = count_bad(total)
    reasons = ", ".join(f"{reason} {count}" for reason, count in total.documents_dropped.items())
    files = ", ".join(f"{reason} {count}" for reason, count in total.bad_files.items())
    remedy = "nothing is in quarantine"
    if cause:
        remedy = f"{cause}; see the quarantine files in {FOLDER}/ of the run folder"
    if 0 < total.documents_read == total.documents_dropped.get("bad_json"):
        remedy = f"if the input is plain text, set read.format (--input-format text); {remedy}"
    if bad > allowed * total.documents_read:
        raise RunError(
            f"{bad} of {total.documents_read} documents are bad ({reasons}), more than run.max_bad_fraction "
            f"{allowed} allows; {remedy}"
        )
    if total.documents_encoded == 0 and not total.documents_dropped.get("limit"):
        raise RunError(
            f"no document could be used (documents: {reasons or 'none'}; files: {files or 'none bad'}); "
            f"{remedy}"
        )
