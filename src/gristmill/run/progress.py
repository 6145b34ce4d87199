"""How far a run is: counts that the terminal shows and `events.jsonl` keeps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from gristmill.drafts import reported
from gristmill.ledger import count_bad
from gristmill.limits import Block
from gristmill.plan import CountPlan, UnitPlan
from gristmill.records import Ledger, UnitRecord
from gristmill.run.bottleneck import find_bottleneck
from gristmill.run.done import DoneUnits
from gristmill.run.folder import open_own

EVENT_EVERY_S = 1.0
SHOW_EVERY_S = 0.2
WORKERS_A_SECOND = 32
"""Whose state an event a second holds; that of more workers is noted less often."""

OnProgress = Callable[["Snapshot"], None]


class WorkerState(msgspec.Struct, frozen=True, array_like=True):
    """A worker at a moment: an array in `events.jsonl`, where there are many."""

    name: str
    """Its process id, or the thread's number."""
    unit: int | None
    """Absent: it has nothing to do."""
    since: float
    """When it took up the unit, in seconds since 1970."""
    seen: float
    """When it was last heard of."""
    bytes_done: int = 0
    """Of the unit."""
    unit_bytes: int = 0
    memory_bytes: int = 0
    """Of a process of its own."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run at a moment."""

    event: str
    time: float
    """Seconds since 1970."""
    elapsed_s: float
    """Since this process took up the run."""
    units_done: int
    units_total: int
    units_failed: int
    num_retries: int = 0
    """Units that were begun anew, since their worker was lost."""
    bytes_done: int
    bytes_total: int
    bytes_before: int
    """Done by earlier processes of the same run."""
    units_before: int
    """Likewise."""
    documents: int
    bad_documents: int
    tokens: int
    bytes_per_s: float
    tokens_per_s: float
    memory_bytes: int
    peak_memory_bytes: int
    num_workers: int
    stage_s: dict[str, float]
    """Of committed units."""
    fetched_bytes: int = 0
    """Of a dataset, in the cache."""
    fetch_bytes: int = 0
    """Of a dataset, to be in the cache when all is done; 0 where nothing is fetched."""
    memory_budget_bytes: int = 0
    """What all processes together may hold."""
    bottleneck: str = ""
    """The stage that takes most of the time, in words."""
    advice: str = ""
    """What would help."""
    num_nodes: int = 1
    """That workers are on."""


class Progress:
    """Adds up what workers report; what a lost worker had reported of its unit is taken back."""

    def __init__(
        self, plan: UnitPlan, done: DoneUnits, events: Path, on_progress: OnProgress | None
    ) -> None:
        self._plan = plan
        self._num_units, self._num_bytes = len(plan.units), plan.num_bytes
        self._is_done = bytearray(self._num_units + 1)
        self._num_done = 0
        self._start = time.monotonic()
        self._last_event = self._last_shown = self._start
        self._on_progress = on_progress
        self._under_way: dict[int, Block] = {}
        self._path = events
        with reported(events):
            self._events = open_own(events)
        self._totals = _Totals(done.ledger.total())
        self._bytes_done = 0
        for unit in done:
            self._count(unit)
        self._bytes_before, self._units_before = self._bytes_done, self._num_done
        self._tokens_before = self._totals.tokens
        self._failed: set[int] = set()
        self._num_retries = 0
        self._stage_s: Counter[str] = Counter()
        self.fetching: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.check: Callable[[], None] = lambda: None
        """Raises where the run may not go on; asked with every event."""
        self._new_units: list[int] = []
        self._last_workers = 0.0
        self.why_not_native = ""
        """What keeps the native engine from encoding; nothing where it encodes."""
        self.memory_bytes = self.peak_memory_bytes = self.num_workers = self.memory_budget_bytes = 0
        self.workers: Callable[[], list[WorkerState]] = list
        """Set by the backend: what each worker is at now."""
        self.num_nodes = 1

    def worked(self, unit: int, block: Block) -> None:
        """A worker has done some more of a unit."""
        before = self._under_way.get(unit, Block(0, 0, 0, 0))
        self._under_way[unit] = Block(*map(sum, zip(before, block, strict=True)))

    def lost(self, unit: int) -> None:
        """A unit must be done again."""
        self._under_way.pop(unit, None)

    def retried(self, unit: int, why: str, *, worker: str) -> None:
        """A unit's worker is lost."""
        self._num_retries += 1
        self.note("retry", unit=unit, why=why, worker=worker)

    def failed(self, unit: int, why: str) -> None:
        """A unit is given up."""
        self.lost(unit)
        self._failed.add(unit)
        self.note("unit failed", unit=unit, why=why)

    def done(self, record: UnitRecord) -> None:
        """A unit is committed."""
        self.lost(record.unit)
        if self._is_done[record.unit]:
            return  # a unit done again under a limit is counted at the end
        self._count(record.unit)
        self._new_units.append(record.unit)
        self._totals.add(record.ledger)
        self._stage_s.update(record.stage_s)

    def saw_memory(self, memory_bytes: int) -> None:
        """All processes together hold this much now."""
        self.memory_bytes = memory_bytes
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory_bytes)

    def snapshot(self, event: str = "progress") -> Snapshot:
        """The run now."""
        elapsed = max(time.monotonic() - self._start, 1e-9)
        parts = [Block(*map(sum, zip(*self._under_way.values(), strict=True)))] if self._under_way else []
        bytes_under_way = sum(
            min(block.num_bytes, self._unit_bytes(unit)) for unit, block in self._under_way.items()
        )
        tokens = self._totals.tokens + sum(part.num_tokens for part in parts)
        bytes_done = self._bytes_done + bytes_under_way
        fetched_bytes, fetch_bytes = self.fetching()
        is_count = isinstance(self._plan, CountPlan)
        found = find_bottleneck(self._stage_s, is_count=is_count, why_not_native=self.why_not_native)
        return Snapshot(
            event=event,
            time=round(time.time(), 3),
            elapsed_s=round(elapsed, 3),
            units_done=self._num_done,
            units_total=self._num_units,
            units_failed=len(self._failed),
            num_retries=self._num_retries,
            bytes_done=bytes_done,
            bytes_total=self._num_bytes,
            bytes_before=self._bytes_before,
            units_before=self._units_before,
            documents=self._totals.documents + sum(part.num_documents for part in parts),
            bad_documents=self._totals.bad + sum(part.num_bad for part in parts),
            tokens=tokens,
            bytes_per_s=round((bytes_done - self._bytes_before) / elapsed, 1),
            tokens_per_s=round((tokens - self._tokens_before) / elapsed, 1),
            memory_bytes=self.memory_bytes,
            peak_memory_bytes=self.peak_memory_bytes,
            num_workers=self.num_workers,
            num_nodes=self.num_nodes,
            stage_s={stage: round(seconds, 3) for stage, seconds in sorted(self._stage_s.items())},
            fetched_bytes=fetched_bytes,
            fetch_bytes=fetch_bytes,
            memory_budget_bytes=self.memory_budget_bytes,
            bottleneck=found.name if found else "",
            advice=found.advice if found else "",
        )

    def note(self, event: str = "progress", **facts: object) -> Snapshot:
        """Write an event, with facts of its own."""
        self.check()
        self._last_event = time.monotonic()
        snapshot = self.snapshot(event)
        line = msgspec.to_builtins(snapshot) | {"new_units": self._new_units} | facts
        if (states := self._worker_states()) is not None:
            line["workers"] = msgspec.to_builtins(states)
        self._new_units = []
        with reported(self._path):
            self._events.write(msgspec.json.encode(line) + b"\n")
        return snapshot

    def tick(self) -> None:
        """Write an event and show the run, each if the last time is a while ago."""
        now = time.monotonic()
        if now - self._last_event >= EVENT_EVERY_S:
            self.note()
        if self._on_progress is not None and now - self._last_shown >= SHOW_EVERY_S:
            self._last_shown = now
            self._on_progress(self.snapshot())

    def _worker_states(self) -> list[WorkerState] | None:
        """What each worker is at, unless that was noted a short while ago and there are many."""
        now = time.monotonic()
        is_many = self.num_workers > WORKERS_A_SECOND
        if is_many and now - self._last_workers < self.num_workers / WORKERS_A_SECOND:
            return None
        self._last_workers = now
        return [self._with_unit(state) for state in self.workers()]

    def _with_unit(self, state: WorkerState) -> WorkerState:
        if state.unit is None:
            return state
        done, size = self._under_way.get(state.unit), self._unit_bytes(state.unit)
        bytes_done = min(done.num_bytes, size) if done else 0
        return msgspec.structs.replace(state, bytes_done=bytes_done, unit_bytes=size)

    def close(self) -> None:
        """No more events."""
        self._events.close()

    def _count(self, unit: int) -> None:
        self._is_done[unit] = True
        self._num_done += unit < self._num_units
        self._bytes_done += self._unit_bytes(unit)

    def _unit_bytes(self, unit: int) -> int:
        return self._plan.units[unit].num_bytes if unit < self._num_units else 0


class _Totals:
    def __init__(self, ledger: Ledger) -> None:
        self.documents = self.bad = self.tokens = 0
        self.add(ledger)

    def add(self, ledger: Ledger) -> None:
        self.documents += ledger.documents_encoded
        self.bad += count_bad(ledger)
        self.tokens += ledger.tokens_encoded
