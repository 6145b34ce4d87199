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


def merge_quarantine(folder: Path, plan: UnitPlan, records: Iterable[UnitRecord]) -> None:
    """Write `quarantine.jsonl`, where anything is in quarantine."""
    file: Draft | None = None
    for entry in quarantined(folder, plan, records):
        file = file or Draft(folder / QUARANTINE, [])
        file.write(msgspec.json.encode(entry) + b"\n")
    if file is None:
        (folder / QUARANTINE).unlink(missing_ok=True)
    else:
        file.finish()
        file.commit()


def quarantined(folder: Path, plan: UnitPlan, records: Iterable[UnitRecord]) -> Iterator[Quarantined]:
    """Every entry, in the order of the input."""
    decoder = msgspec.json.Decoder(Quarantined)
    ordered = sorted(records, key=lambda record: record.unit)
    firsts = first_records(plan, ordered)
    for record in ordered:
        kept = find_sidecar(record.sidecars, "quarantine")
        if kept is None:  # a file that is there is of an attempt that was not committed
            continue
        name = kept.path
        try:
            with (folder / name).open("rb") as lines:
                for line in lines:
                    entry = decoder.decode(line)
                    first = firsts[record.unit, entry.slice or 0]
                    yield msgspec.structs.replace(entry, slice=msgspec.UNSET, record=first + entry.record)
        except (OSError, UnicodeDecodeError, msgspec.MsgspecError, KeyError) as error:
            raise RunError(f"{folder / name}: cannot be read ({error}); --force starts over") from error


def first_fault(folder: Path, plan: UnitPlan, records: Iterable[UnitRecord]) -> str:
    """Why the first record or file in quarantine is there; nothing where none is."""
    entry = next(quarantined(folder, plan, records), None)
    return explain_fault(entry) if entry else ""


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
    firsts = {}
    for record in sorted(records, key=lambda record: record.unit):
        if record.unit == len(plan.units):
            continue
        parts = zip(plan.units[record.unit].slices, record.slice_records, strict=True)
        for index, (part, num_records) in enumerate(parts):
            firsts[record.unit, index] = counted[part.file]
            counted[part.file] += num_records
    return firsts
