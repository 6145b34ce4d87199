"""The events of a run, gone through once: its last moment, its course, and what went wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from gristmill.report.series import Point, Series
from gristmill.run.progress import WorkerState

MAX_PROBLEMS = 50
MAX_CURVE = 400
LEARNING = ("learning", "trained")
SNAPSHOTS = ("start", "progress", "retry", "unit failed", "finished", "failed", "counted")
DAMAGE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a line that is no event leads to."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `events.jsonl`, of any version and of any kind."""

    event: str
    time: float
    elapsed_s: float = 0.0
    units_done: int = 0
    units_total: int = 0
    units_failed: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    bytes_before: int = 0
    documents: int = 0
    bad_documents: int = 0
    tokens: int = 0
    bytes_per_s: float = 0.0
    tokens_per_s: float = 0.0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    memory_budget_bytes: int = 0
    num_workers: int = 0
    num_nodes: int = 1
    fetched_bytes: int = 0
    fetch_bytes: int = 0
    stage_s: dict[str, float] = {}
    bottleneck: str = ""
    advice: str = ""
    new_units: tuple[int, ...] = ()
    workers: msgspec.Raw = msgspec.Raw(b"")
    unit: int | None = None
    why: str = ""
    worker: str = ""
    backend: str = ""
    block_bytes: int = 0
    engine: str = ""
    why_not_native: str = ""
    loading_s: float = 0.0
    """At the start: what it took to get there."""
    cwd: str = ""
    machine: dict[str, Any] = {}
    num_tokens: int = 0
    """While merges are learned: tokens there are."""
    vocab_size: int = 0
    merge_count: int = 0
    """How often the pair merged last occurred."""
    bytes_per_token: float = 0.0
    curve: tuple[tuple[int, int, float], ...] = ()
    """At the end: tokens, count of the pair merged last, bytes a token."""


class History:
    """What events say, in bounded memory."""

    def __init__(self) -> None:
        self.last: Event | None = None
        """The last that tells how far units are."""
        self.start: Event | None = None
        self.learning: Event | None = None
        self.ended = ""
        """The event the run ended with, if it has."""
        self.peak_memory_bytes = 0
        self.num_retries = 0
        self.num_damaged = 0
        self.problems: deque[Event] = deque(maxlen=MAX_PROBLEMS)
        self.series = Series()
        self.curve: list[tuple[int, int, float]] = []
        self.workers: list[WorkerState] = []
        self.new_units: list[int] = []
        """Units that were committed, for whoever reads their records; taken with `take_new`."""
        self._num_processes = 0
        self._decoder = msgspec.json.Decoder(Event)
        self._worker_decoder = msgspec.json.Decoder(list[WorkerState])

    def read(self, lines: Iterable[bytes]) -> bool:
        """Go through lines; whether there were any."""
        workers, has_lines = b"", False
        for line in lines:
            has_lines = True
            try:
                event = self._decoder.decode(line)
            except DAMAGE:
                self.num_damaged += 1
                continue
            self._take(event)
            workers = bytes(event.workers) or workers
        if workers:
            try:
                self.workers = self._worker_decoder.decode(workers)
            except DAMAGE:
                self.num_damaged += 1
        return has_lines

    def peek(self, lines: Iterable[bytes]) -> None:
        """Learn how far the run is from its last lines, before all of them are gone through."""
        for line in lines:
            with suppress(*DAMAGE):
                event = self._decoder.decode(line)
                if event.event in SNAPSHOTS:
                    self._move_to(event)
                elif event.event in LEARNING:
                    self._move_learning_to(event)

    def take_new(self) -> list[int]:
        """Units that were committed since the last call."""
        new, self.new_units = self.new_units, []
        return new

    def _take(self, event: Event) -> None:
        if event.event in LEARNING:
            self._learn(event)
            return
        if event.event not in SNAPSHOTS:
            return
        if event.event == "start":
            self.start, self._num_processes = event, self._num_processes + 1
        if event.event in ("retry", "unit failed"):
            self.num_retries += event.event == "retry"
            self.problems.append(event)
        self._move_to(event)
        self.new_units += event.new_units
        self.series.add(
            Point(event.time, self._num_processes, event.bytes_done, event.tokens, event.memory_bytes)
        )

    def _move_to(self, event: Event) -> None:
        self.peak_memory_bytes = max(self.peak_memory_bytes, event.peak_memory_bytes)
        if self.last is None or event.time >= self.last.time:
            self.last = event
            if self.learning is None or event.time >= self.learning.time:
                self.ended = event.event if event.event in ("finished", "failed", "counted") else ""

    def _move_learning_to(self, event: Event) -> None:
        self.peak_memory_bytes = max(self.peak_memory_bytes, event.peak_memory_bytes)
        if self.learning is None or event.time >= self.learning.time:
            self.learning = event
            self.ended = "trained" if event.event == "trained" else ""

    def _learn(self, event: Event) -> None:
        self._move_learning_to(event)
        if event.curve:
            self.curve = list(event.curve[:MAX_CURVE])
            return
        self.curve.append((event.num_tokens, event.merge_count, event.bytes_per_token))
        if len(self.curve) >= MAX_CURVE:
            self.curve = self.curve[::2]
