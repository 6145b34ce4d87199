"""The records of a run's units, added up as they appear: bounded memory, whatever their number."""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from gristmill.plan import UnitPlan
from gristmill.records import Ledger, Measured
from gristmill.report.sources import Sources, read_own
from gristmill.sidecars import FOLDER, Quarantined

MAX_BUCKETS = 64
"""Of lengths, by their number of bits."""
MAX_SLOW = 12
MAX_SAMPLES = 6
"""Of bad records of one reason."""
MAX_REASONS = 24
MAX_RECORD_BYTES = 64 << 20
MAX_LINES_SEEN = 1000
"""Of a unit's quarantine."""
LOOK_EVERY = 64


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is added up of a unit's record."""

    unit: int
    ledger: Ledger
    measured: Measured = Measured()
    stage_s: dict[str, float] = {}


class Slow(msgspec.Struct, frozen=True, order=True):
    """A unit that took long."""

    seconds: float
    unit: int
    num_bytes: int
    stage: str
    """The one that took most of it."""
    source: str


class UnitTotals:
    """Sums over the units whose records were read so far."""

    def __init__(self, folder: Path, plan: UnitPlan) -> None:
        self._folder = folder
        self._plan_name = plan.unit_name
        self._num_units = len(plan.units)
        self._sources = Sources(plan)
        self._pending: deque[int] = deque()
        self._first = iter(range(self._num_units + 1))
        self._is_read = bytearray(self._num_units + 1)
        self._decoder = msgspec.json.Decoder(Record)
        self.num_read = 0
        self.num_damaged = 0
        self.is_complete = False
        """Every record there was when the run was opened has been read."""
        self.counts: Counter[str] = Counter()
        self.by_reason: dict[str, Counter[str]] = {}
        self.stage_s: Counter[str] = Counter()
        self.lengths: dict[str, list[int]] = {"document_bytes": [], "document_tokens": []}
        self.packing: Counter[str] = Counter()
        self.scripts: dict[str, list[int]] = {}
        self.slow: list[Slow] = []
        self.samples: dict[str, list[Quarantined]] = {}

    def expect(self, units: Iterable[int]) -> None:
        """These units were committed."""
        self._pending.extend(unit for unit in units if 0 <= unit <= self._num_units)

    def read(self, *, for_s: float) -> bool:
        """Read records that are new, for so long at most; whether all are read."""
        deadline = time.monotonic() + for_s
        while True:
            units = [self._pending.popleft() for _ in range(min(LOOK_EVERY, len(self._pending)))]
            if not units:
                units = list(islice(self._first, LOOK_EVERY))
                self.is_complete = self.is_complete or not units
            if not units:
                return True
            for unit in units:
                self._read_unit(unit)
            if time.monotonic() > deadline:
                return False

    def ledger(self) -> Ledger:
        """What went in and came out of the units read so far."""
        reasons = {name: dict(sorted(counts.items())) for name, counts in self.by_reason.items()}
        return msgspec.convert({**self.counts, **reasons}, Ledger)

    def sources(self) -> list[dict[str, object]]:
        """What each source has given, the largest first."""
        return self._sources.listed()

    def _read_unit(self, unit: int) -> None:
        if self._is_read[unit]:
            return
        content = read_own(self._folder / FOLDER / f"{self._plan_name(unit)}.json", MAX_RECORD_BYTES)
        if content is None:
            return
        self._is_read[unit] = 1
        try:
            record = self._decoder.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.num_damaged += 1
            return
        self.num_read += 1
        self._add(unit, record)

    def _add(self, unit: int, record: Record) -> None:
        for name, value in msgspec.structs.asdict(record.ledger).items():
            if isinstance(value, Mapping):
                self.by_reason.setdefault(name, Counter()).update(value)
            else:
                self.counts[name] += value
        self.stage_s.update(record.stage_s)
        self._measure(record.measured)
        self._sources.add(unit, record.measured, sum(record.stage_s.values()))
        self._judge(unit, record)
        if record.ledger.documents_dropped or record.ledger.bad_files:
            self._sample(unit, {*record.ledger.documents_dropped, *record.ledger.bad_files})

    def _measure(self, measured: Measured) -> None:
        for name, totals in self.lengths.items():
            counts = getattr(measured, name)[:MAX_BUCKETS]
            totals += [0] * (len(counts) - len(totals))
            for bucket, count in enumerate(counts):
                totals[bucket] += count
        for name in ("full_rows", "documents_over", "tokens_over"):
            self.packing[name] += getattr(measured, name)
        for script, found in measured.scripts.items():
            total = self.scripts.setdefault(script, [0, 0, 0])
            for place, value in enumerate((found.num_documents, found.text_bytes, found.num_tokens)):
                total[place] += value

    def _judge(self, unit: int, record: Record) -> None:
        seconds = round(sum(record.stage_s.values()), 3)
        if len(self.slow) == MAX_SLOW and seconds <= self.slow[0].seconds:
            return
        stage = max(record.stage_s, key=lambda name: record.stage_s[name], default="")
        source = self._sources.first_file(unit)
        entry = Slow(seconds, unit, record.ledger.bytes_read, stage, source)
        heapq.heappush(self.slow, entry)
        if len(self.slow) > MAX_SLOW:
            heapq.heappop(self.slow)

    def _sample(self, unit: int, reasons: set[str]) -> None:
        """Look into the unit's quarantine for reasons of which there are few samples."""
        wanted = {reason for reason in reasons if len(self.samples.get(reason, ())) < MAX_SAMPLES}
        if not wanted or len(self.samples) >= MAX_REASONS:
            return
        decoder = msgspec.json.Decoder(Quarantined)
        content = read_own(self._folder / FOLDER / f"{self._plan_name(unit)}.quarantine", 1 << 20) or b""
        for line in content.split(b"\n")[:MAX_LINES_SEEN]:
            try:
                entry = decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # cut off
            kept = self.samples.setdefault(entry.reason, [])
            if len(kept) < MAX_SAMPLES:
                kept.append(entry)
