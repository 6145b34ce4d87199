"""Manifest, plan and unit records say the same."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import msgspec

from gristmill.errors import GristmillError
from gristmill.finished import FinishedRun
from gristmill.formats import ATTEMPT, FORMATS
from gristmill.read.lines import END_OF_FILE
from gristmill.records import VERSION, FileRecord, ShardRecord, UnitRecord
from gristmill.run.folder import QUARANTINE
from gristmill.run.settle import differences, identity_of
from gristmill.sidecars import FOLDER
from gristmill.verify.findings import Findings

LAYOUT_FIELDS = (
    *("tokenizer", "fingerprint", "vocab_size", "dtype", "formats", "mode"),
    *("sequence_length", "eos_id", "bos_id", "pad_id", "mask_first_token"),
)
SIDECAR_KINDS = ("documents", "names", "segments", "quarantine")


def check_records(run: FinishedRun) -> Findings:
    """Compare what is written down more than once."""
    faults = [
        f"manifest.json: {name} is {getattr(run.manifest, name)!r}, plan.json says "
        f"{getattr(run.layout, name)!r}"
        for name in LAYOUT_FIELDS
        if getattr(run.manifest, name) != getattr(run.layout, name)
    ]
    if run.manifest.version != VERSION:
        faults.append(f"manifest.json: version {run.manifest.version}, not {VERSION}")
    if run.layout.mask_first_token != run.plan.config.pack.mask_first_token:
        faults.append("plan.json: layout and config do not agree on mask_first_token")
    identity = identity_of(run.plan.config, run.layout, run.plan.files)
    faults += [f"plan.json: {change}" for change in differences(run.plan.identity, identity)]
    faults += _check_slices(run)
    faults += _check_units(run)
    faults += _check_shards(run)
    faults += _check_sidecars(run)
    faults += _check_quarantine(run)
    num_records = len(run.records)
    return Findings(f"manifest, plan and {num_records:,} unit records", faults)


def named_files(run: FinishedRun) -> list[FileRecord]:
    """Every file that the manifest or a record names, each once; a path outside the run is left out."""
    found: dict[str, FileRecord] = {}
    shards = [*run.manifest.shards, *(shard for _, shard in run.shards)]
    for file in (file for shard in shards for files in shard.files.values() for file in files):
        found.setdefault(file.path, file)
    for file in (*run.manifest.sidecars, *(f for record in run.records.values() for f in kept(record))):
        found.setdefault(file.path, file)
    return [file for file in found.values() if is_inside(run, file.path)]


def is_inside(run: FinishedRun, path: str) -> bool:
    """Whether a path is that of a file in a folder which the run writes to."""
    names = "|".join((FOLDER, *run.layout.formats))
    return re.fullmatch(rf"({names})/[\w-][\w.-]*", path) is not None


def kept(record: UnitRecord) -> list[FileRecord]:
    """Sidecars that outlive the run: all but what was carried over."""
    return [file for file in record.sidecars if not file.path.endswith(".tail")]


def _check_slices(run: FinishedRun) -> Iterator[str]:
    """The slices of each file follow one another from its start to its end."""
    reached: dict[int, int] = {}
    for unit in run.plan.units:
        for part in unit.slices:
            if part.start != reached.get(part.file, 0) or part.stop <= part.start:
                path = run.plan.files[part.file].path
                yield f"plan.json: unit {unit.index} reads {path} from {part.start}, not where the last ended"
            reached[part.file] = part.stop
    for index, file in enumerate(run.plan.files):
        # Only bytes of files that are cut by bytes end at a number that is known.
        if reached.get(index, 0) not in (1, END_OF_FILE, file.num_bytes) and file.format in ("jsonl", "text"):
            yield f"plan.json: {file.path} is read as far as {reached.get(index)} of {file.num_bytes} bytes"


def _check_units(run: FinishedRun) -> Iterator[str]:
    num_units = len(run.plan.units)
    limited = [unit for unit, record in run.records.items() if record.is_limited]
    last = min([*limited, num_units])
    for index, unit in enumerate(run.plan.units):
        if unit.index != index:
            yield f"plan.json: unit {index} is called {unit.index}"
        if index <= last and index not in run.records:
            yield f"{FOLDER}/{run.plan.unit_name(index)}.json: is missing"
        if index > last and index in run.records:
            yield f"{FOLDER}/{run.plan.unit_name(index)}.json: is there, though unit {last} reached the limit"
    for record in run.records.values():
        dropped = {**record.ledger.documents_dropped, **record.ledger.tokens_dropped}
        if record.is_limited != ("limit" in dropped):
            yield f"unit {record.unit}: its record and its ledger disagree on whether it reached the limit"
    carried = sum(record.ledger.tokens_carried for record in run.records.values())
    if carried and not limited and num_units not in run.records:
        yield f"{FOLDER}/{run.plan.unit_name(num_units)}.json: is missing, with {carried} tokens carried over"


def _check_shards(run: FinishedRun) -> Iterator[str]:
    """The manifest has the shards of the records, in their order, each as there."""
    yield from _compare(
        {shard.name: shard for shard in run.manifest.shards}, {shard.name: shard for _, shard in run.shards}
    )
    if [shard.name for shard in run.manifest.shards] != [shard.name for _, shard in run.shards]:
        yield "manifest.json: its shards are not those of the unit records, in their order"
    for unit, shard in run.shards:
        if not shard.name.startswith(f"{run.plan.unit_name(unit)}-"):
            yield f"unit {unit}: its record names shard {shard.name}, another unit's"
        if sorted(shard.files) != sorted(run.layout.formats):
            yield f"shard {shard.name}: has files of {', '.join(shard.files)}, not of each format of the run"


def _compare(ours: dict[str, ShardRecord], theirs: dict[str, ShardRecord]) -> Iterator[str]:
    for name in ours.keys() & theirs.keys():
        before, now = msgspec.to_builtins(theirs[name]), msgspec.to_builtins(ours[name])
        for change in differences(before, now):
            yield f"shard {name}: the unit record and manifest.json differ: {change}"


def _check_sidecars(run: FinishedRun) -> Iterator[str]:
    expected = [file for unit in sorted(run.records) for file in kept(run.records[unit])]
    of_all = [f"{name}/{file}" for name in run.layout.formats for file in FORMATS[name].run_files]
    own = [file for file in run.manifest.sidecars if file.path not in of_all]
    if own != expected:
        wrong = {file.path for file in own} ^ {file.path for file in expected}
        wrong |= {a.path for a, b in zip(own, expected, strict=False) if a != b}
        yield f"manifest.json: sidecars differ from the unit records': {', '.join(sorted(wrong)[:5])}"
    yield from (f"manifest.json: does not name {path}" for path in of_all if path not in _paths(run))
    for unit, record in run.records.items():
        name = run.plan.unit_name(unit)
        allowed = re.compile(rf"{FOLDER}/{name}{ATTEMPT}\.({'|'.join(SIDECAR_KINDS)})")
        yield from (
            f"unit {unit}: {f.path} is no sidecar of it"
            for f in kept(record)
            if not allowed.fullmatch(f.path)
        )


def _paths(run: FinishedRun) -> set[str]:
    return {file.path for file in run.manifest.sidecars}


def _check_quarantine(run: FinishedRun) -> Iterator[str]:
    """The quarantine of the run is that of its units, line by line."""
    path = run.folder / QUARANTINE
    entries = run.quarantined()
    try:
        with path.open("rb") if path.is_file() else io.BytesIO() as lines:
            for number, line in enumerate(lines):
                entry = next(entries, None)
                if entry is None or msgspec.json.encode(entry) + b"\n" != line:
                    yield f"{path}, line {number + 1}: is not what the unit has in quarantine"
                    return
        if next(entries, None) is not None:
            yield f"{path}: lacks entries that units have in quarantine"
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError, KeyError, GristmillError) as error:
        yield f"{path}: quarantine cannot be read ({error})"
