"""At the end of a run: the quarantine of all units in one file, records numbered within each input file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from gristmill.drafts import Draft
from gristmill.errors import RunError
from gristmill.plan import UnitPlan
from gristmill.records import UnitRecord
from gristmill.run.folder import QUARANTINE
from gristmill.sidecars import Quarantined, find_sidecar


class QuarantineDraft:
    """`quarantine.jsonl` while the entries of all units are gathered."""

    def __init__(self, folder: Path, plan: UnitPlan, records: Iterable[UnitRecord]) -> None:
        self._path = folder / QUARANTINE
        self._file: Draft | None = None
        self.first_fault = ""
        """Why the first record or file in quarantine is there; nothing where none is."""
        for entry in quarantined(folder, plan, records):
            self.first_fault = self.first_fault or explain_fault(entry)
            self._file = self._file or Draft(self._path, [])
            self._file.write(msgspec.json.encode(entry) + b"\n")

    def commit(self) -> None:
        """Give it its name, where anything is in quarantine."""
        if self._file is None:
            self._path.unlink(missing_ok=True)
        else:
            self._file.finish()
            self._file.commit()

    def discard(self) -> None:
        """Leave nothing behind; after `commit` it does nothing."""
        if self._file is not None:
            self._file.discard()


def quarantined(folder: Path, plan: UnitPlan, records: Iterable[UnitRecord]) -> Iterator[Quarantined]:
    """Every entry, in the order of the input, which is that of the records."""
    decoder = msgspec.json.Decoder(Quarantined)
    counted: Counter[int] = Counter()
    for record in records:
        firsts = _firsts_of(record, plan, counted)
        kept = find_sidecar(record.sidecars, "quarantine")
        if kept is None:  # a file that is there is of an attempt that was not committed
            continue
        name = kept.path
        try:
            with (folder / name).open("rb") as lines:
                for line in lines:
                    entry = decoder.decode(line)
                    first = firsts[entry.slice or 0]
                    yield msgspec.structs.replace(entry, slice=msgspec.UNSET, record=first + entry.record)
        except (OSError, UnicodeDecodeError, msgspec.MsgspecError, IndexError) as error:
            raise RunError(f"{folder / name}: cannot be read ({error}); --force starts over") from error


def first_bad_file(folder: Path, reasons: set[str]) -> Quarantined | None:
    """The first file of a finished run that was not read to its end for one of the reasons."""
    decoder = msgspec.json.Decoder(Quarantined)
    path = folder / QUARANTINE
    if not path.exists():
        return None
    with path.open("rb") as lines:
        entries = (decoder.decode(line) for line in lines)
        return next((entry for entry in entries if entry.is_file and entry.reason in reasons), None)


def explain_fault(entry: Quarantined) -> str:
    """What is wrong with a record or a file, where, and what to do."""
    place = entry.file if entry.is_file else f"{entry.file}, record {entry.record}"
    is_field = entry.reason == "missing_field" and "; set read." not in entry.detail
    remedy = "; set read.text_field" if is_field else ""
    return f"first {place}: {entry.reason} ({entry.detail}{remedy})"


def first_records(plan: UnitPlan, records: Iterable[UnitRecord]) -> dict[tuple[int, int], int]:
    """Of each slice, by unit and number in it: how many records of its file come before it."""
    counted: Counter[int] = Counter()
    firsts: dict[tuple[int, int], int] = {}
    for record in sorted(records, key=lambda record: record.unit):
        found = _firsts_of(record, plan, counted)
        firsts |= {(record.unit, index): first for index, first in enumerate(found)}
    return firsts


def _firsts_of(record: UnitRecord, plan: UnitPlan, counted: Counter[int]) -> list[int]:
    """The same of the slices of one unit; `counted` is what units before it have of each file."""
    if record.unit == len(plan.units):
        return []
    firsts = []
    for part, num_records in zip(plan.units[record.unit].slices, record.slice_records, strict=True):
        firsts.append(counted[part.file])
        counted[part.file] += num_records
    return firsts
