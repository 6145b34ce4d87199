"""A run folder, live or finished, watched from outside: what is new is read, and the run is told in figures.

Nothing is written and nothing is locked. `overview` is what the page, the JSON API and `report.html` show.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from gristmill.errors import GristmillError
from gristmill.records import Ledger
from gristmill.report.figures import (
    bad,
    balance,
    describe_plan,
    left_out,
    lengths_of,
    modes_of,
    problem,
    sample_of,
    script_figures,
    source_figures,
)
from gristmill.report.history import Event, History
from gristmill.report.tail import Tail, file_key
from gristmill.report.unit_totals import UnitTotals
from gristmill.run.bottleneck import STAGES, find_bottleneck
from gristmill.run.folder import (
    CONFIG,
    COUNTED,
    EVENTS,
    MANIFEST,
    PLAN,
    QUARANTINE,
    REPORT,
    REPORT_PAGE,
    read_any_plan,
)
from gristmill.store import Mirror

STEP_S = 0.25
"""Spent on unit records in one go."""
SILENT_S = 20.0
"""Without an event, a run that has not ended is taken for stopped."""
CLOCK_S = 2.0
"""A file may seem that much older than an event that was written before it."""
MAX_LONGEST = 8
MAX_TOKEN_CHARACTERS = 60
NOW = (
    *("time", "elapsed_s", "units_done", "units_total", "units_failed", "bytes_done", "bytes_total"),
    *("documents", "bad_documents", "tokens", "bytes_per_s", "tokens_per_s", "memory_bytes"),
    *("memory_budget_bytes", "num_workers", "num_nodes", "fetched_bytes", "fetch_bytes"),
)
"""Of an event, what is shown of the run's last moment."""
FILES = (REPORT_PAGE, CONFIG, PLAN, MANIFEST, EVENTS, QUARANTINE, COUNTED)
"""Of a run folder, what people ask for."""
STATES = ("waiting", "running", "finishing", "learning", "stopped", "failed", "finished")
DAMAGED = (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""What reading a folder that no run has written may lead to."""


class FinishedLedger(msgspec.Struct, frozen=True):
    """What is read of a manifest, or of a finished count, however long it is."""

    ledger: Ledger


class CountedSummary(msgspec.Struct, frozen=True):
    """What is read of a finished count."""

    ledger: Ledger
    summary: tuple[int, int, int, int, int, int]
    """As `training.inventory.Summary` has it, whose import takes long."""


class Trained(msgspec.Struct, frozen=True):
    """What is read of the report of a training."""

    fit: dict[str, Any] | None
    """How well the tokenizer fits a sample of text."""
    stage_s: dict[str, float] = {}
    stage_peak_bytes: dict[str, int] = {}
    longest_tokens: list[str] = []


class RunWatch:
    """One run folder; of a run in a store, the mirror of it."""

    def __init__(self, where: Path | Mirror) -> None:
        self._mirror = where if isinstance(where, Mirror) else None
        self.folder = where.path if isinstance(where, Mirror) else where
        self.place = where.url if isinstance(where, Mirror) else str(where)
        """As the user knows it."""
        self.name = self.folder.resolve().name or str(self.folder)
        self._plan_key: tuple[int, int, int] | None = None
        self._begin()

    def _begin(self) -> None:
        self._tail = Tail(self.folder / EVENTS)
        self._plan: dict[str, Any] | None = None
        self._units: UnitTotals | None = None
        self._final: Ledger | None = None
        self._counted: dict[str, Any] | None = None
        self._trained: Trained | None = None
        self._trained_key: tuple[int, int, int] | None = None
        self._error = ""
        self._is_checked = self._has_peeked = self._has_looked_for_end = False
        self.history = History()

    def refresh(self, *, for_s: float = STEP_S) -> bool:
        """Read what is new, for a moment at most; whether all there is has been read.

        Whatever is wrong with the folder is told on its page: others are shown beside it."""
        try:
            return self._refresh(for_s)
        except DAMAGED as error:
            self._tell_damage(error)
            return True

    def _refresh(self, for_s: float) -> bool:
        if self._mirror is not None:
            try:
                self._mirror.refresh()
            except (GristmillError, OSError) as error:
                self._error = str(error)
                return True
        self._notice_another_run()
        if not self._has_peeked:  # how far it is can be told at once, whatever there is to read
            self._has_peeked = True
            self.history.peek(self._tail.last_lines())
            return False
        self.history.read(self._tail.lines())
        if self._plan is None:
            self._open_plan()
        if self._units is None:
            return not self._tail.is_behind
        self._units.expect(self.history.take_new())
        is_read = self._units.read(for_s=for_s) and not self._tail.is_behind
        if is_read and self._final is None:
            self._has_looked_for_end = True
            self._read_end()
        if is_read and self._final is not None and not self._is_checked:
            self._is_checked = True
            if self._units.counts["documents_read"] != self._final.documents_read:
                self._count_again()  # a limit took back units that were counted
                return False
        return is_read

    def read_all(self) -> None:
        """Read all there is."""
        if self._mirror is not None:
            self._mirror.bring()
        while not self.refresh(for_s=60.0):
            pass

    def state(self, *, now: float | None = None) -> str:
        """One of STATES."""
        history = self.history
        if history.ended == "failed":
            return "failed"
        if self._is_tokenized():
            return "finished"
        if history.ended == "trained" and self._has_report():
            return "finished"
        last = history.learning or history.last
        if last is None:
            return "waiting"
        if (now or time.time()) - last.time > SILENT_S:
            return "stopped"
        if history.learning is not None and history.ended != "trained":
            return "learning"
        return "finishing" if history.ended else "running"

    def _is_tokenized(self) -> bool:
        """Whether a run has written its manifest: before it is read, its name and the last event tell."""
        if not self._has_looked_for_end:
            return self.history.ended == "finished" and (self.folder / MANIFEST).is_file()
        return self._final is not None and (self._plan or {}).get("job") == "tokenize"

    def _has_report(self) -> bool:
        """Whether the report of a training is that of the merges learned last."""
        key, learning = file_key(self.folder / REPORT), self.history.learning
        return key is not None and learning is not None and key[2] / 1e9 > learning.time - CLOCK_S

    def ledger(self) -> Ledger:
        """What went in and came out: of the run where it has ended, else of the units that are done."""
        if self._final is not None:
            return self._final
        return self._units.ledger() if self._units else Ledger()

    def stage_s(self) -> dict[str, float]:
        """Seconds by stage, in the order of a run."""
        found: dict[str, float] = dict(self._units.stage_s) if self._units and self._units.num_read else {}
        if not found and self.history.last is not None:
            found = dict(self.history.last.stage_s)
        order = [*STAGES, *sorted(found)]
        return {stage: round(found[stage], 3) for stage in dict.fromkeys(order) if stage in found}

    def _tell_damage(self, error: BaseException) -> None:
        self._begin()
        said = f"{type(error).__name__}: {error}"[:200]
        self._error = f"{self.place}: is damaged ({said}); gristmill verify says more"

    def overview(self) -> dict[str, Any]:
        """The run in figures, all but its course over time; of one that is damaged, little more than that."""
        try:
            return self._figures()
        except DAMAGED as error:
            self._tell_damage(error)
            return self._figures()

    def _figures(self) -> dict[str, Any]:
        history, stage_s, ledger = self.history, self.stage_s(), self.ledger()
        found = find_bottleneck(
            stage_s,
            is_count=(self._plan or {}).get("job") == "count",
            why_not_native=history.start.why_not_native if history.start else "",
        )
        return {
            "name": self.name,
            "folder": self.place,
            "error": self._error,
            "state": self.state(),
            "plan": self._plan,
            "now": _now(history.last),
            "peak_memory_bytes": history.peak_memory_bytes,
            "workers": [msgspec.structs.asdict(worker) for worker in history.workers],
            "stage_s": stage_s,
            "stage_names": {stage: STAGES[stage][0] if stage in STAGES else stage for stage in stage_s},
            "bottleneck": msgspec.to_builtins(found) if found else None,
            "ledger": msgspec.to_builtins(ledger),
            "balance": balance(ledger),
            "bad": bad(ledger),
            "left_out": left_out(ledger),
            "is_final": self._final is not None,
            "retries": history.num_retries,
            "failed_units": history.last.units_failed if history.last else 0,
            "problems": [problem(event) for event in reversed(history.problems)],
            "damaged_lines": history.num_damaged,
            **self._unit_figures(ledger),
            "start": _start(history.start),
            "reproduce": self._reproduce(),
            "files": [name for name in FILES if (self.folder / name).is_file()],
            "training": self._training(),
        }

    def course(self) -> dict[str, Any]:
        """The run over time: rows of time, process, bytes, tokens and memory."""
        return {"epoch": self.history.series.epoch, "points": self.history.series.shown()}

    def _unit_figures(self, ledger: Ledger) -> dict[str, Any]:
        units = self._units
        if units is None:
            return {"units_read": 0, "is_complete": False}
        return {
            "units_read": units.num_read,
            "damaged_units": units.num_damaged,
            "is_complete": units.is_complete,
            "slow": [msgspec.to_builtins(slow) for slow in sorted(units.slow, reverse=True)],
            "samples": [sample_of(entry) for kept in units.samples.values() for entry in kept],
            "sources": source_figures(units.sources()),
            "scripts": script_figures(units.scripts),
            "lengths": lengths_of(units.lengths),
            "modes": modes_of(self._plan or {}, ledger, units.packing),
        }

    def _reproduce(self) -> str:
        if self._plan is None:
            return ""
        from shlex import quote

        word = "tokenize" if self._plan["job"] == "tokenize" else "train"
        config = "config.yaml" if self._mirror else str(self.folder.absolute() / "config.yaml")
        command = f"gristmill {word} --config {quote(config)}"
        command += " -o NEW_FOLDER" if word == "tokenize" else " -o NEW.json --counts NEW_FOLDER"
        if self._mirror:
            return f"{command}  # {self.place}/config.yaml, copied here"
        cwd = self.history.start.cwd if self.history.start else ""
        return f"cd {quote(cwd)} && {command}" if cwd else command

    def _training(self) -> dict[str, Any] | None:
        learning = self.history.learning
        if self._counted is None and learning is None:
            return None
        return {
            "counted": self._counted,
            "num_tokens": learning.num_tokens if learning else 0,
            "vocab_size": learning.vocab_size if learning else 0,
            "bytes_per_token": learning.bytes_per_token if learning else 0.0,
            "curve": self.history.curve,
            **self._trained_figures(),
        }

    def _trained_figures(self) -> dict[str, Any]:
        """What is known when a training has ended."""
        key = file_key(self.folder / REPORT)
        if self._trained_key != key:
            self._trained, self._trained_key = _decode(self.folder / REPORT, Trained), key
        if self.history.ended != "trained" or not self._has_report() or self._trained is None:
            return {"fit": None, "stage_s": {}, "stage_peak_bytes": {}, "longest_tokens": []}
        longest = [token[:MAX_TOKEN_CHARACTERS] for token in self._trained.longest_tokens[:MAX_LONGEST]]
        return msgspec.structs.asdict(self._trained) | {"longest_tokens": longest}

    def _notice_another_run(self) -> None:
        """A folder in which a run was started over is read from its beginning."""
        key = file_key(self.folder / PLAN)
        if (self._plan_key is not None and key != self._plan_key) or self._tail.is_another():
            self._begin()
        self._plan_key = key

    def _open_plan(self) -> None:
        try:
            plan = read_any_plan(self.folder)
        except GristmillError as error:
            self._error = str(error)
            return
        if plan is not None:
            self._plan = describe_plan(plan)
            self._units = UnitTotals(self.folder, plan)

    def _count_again(self) -> None:
        plan = read_any_plan(self.folder)
        assert plan is not None
        self._units = UnitTotals(self.folder, plan)

    def _read_end(self) -> None:
        """The ledger of a run that has ended; of a manifest of any size nothing else is held."""
        if (found := _decode(self.folder / MANIFEST, FinishedLedger)) is not None:
            self._final = found.ledger
        elif (counted := _decode(self.folder / COUNTED, CountedSummary)) is not None:
            num_pieces, total_count, *_ = counted.summary
            self._final = counted.ledger
            self._counted = {"num_pieces": num_pieces, "total_count": total_count}


def _decode(path: Path, kind: type[Any]) -> Any:
    """A large JSON file, of which little is kept; None where it is not there or is damaged."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file, mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
            del file
            return msgspec.json.decode(content, type=kind)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _now(last: Event | None) -> dict[str, Any] | None:
    if last is None:
        return None
    left = last.bytes_total - last.bytes_done
    figures = {name: getattr(last, name) for name in NOW}
    return figures | {"eta_s": round(left / last.bytes_per_s, 1) if last.bytes_per_s > 0 else None}


def _start(start: Event | None) -> dict[str, Any] | None:
    if start is None:
        return None
    names = ("time", "backend", "block_bytes", "engine", "why_not_native", "loading_s", "cwd", "machine")
    return {name: getattr(start, name) for name in names}
