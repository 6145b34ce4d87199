"""A finished run, opened to be read: which item lies in which shard, and which record of which file it is.

An item is a row, or a document where those are what was written. A document is named by its key, as in
`Segments.documents`."""

from __future__ import annotations

import itertools
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gristmill.config import OutputFormat, TokenizerConfig
from gristmill.errors import InputError, RunError
from gristmill.formats import read_shard
from gristmill.formats.protocol import ShardView
from gristmill.layout import Layout
from gristmill.pack.rows import RowIds, Rows, offsets_of
from gristmill.plan import Plan
from gristmill.records import Manifest, ShardRecord, UnitRecord
from gristmill.run.folder import MANIFEST, PLAN, QUARANTINE, read_records, require_manifest, require_plan
from gristmill.run.quarantine import first_records, quarantined
from gristmill.sidecars import DOCUMENT, FOLDER, SEGMENT, Quarantined, find_sidecar, read_table
from gristmill.store import CachedFolder, FinishedFolder, open_finished

SHARD_NAME = re.compile(r"\d{5,}-\d{3,}")
MAX_NAMES_SHOWN = 5


class Place(NamedTuple):
    """Where an item lies."""

    unit: int
    item: int
    """Among those of the unit."""
    shard: ShardRecord
    item_in_shard: int


class Source(NamedTuple):
    """Where a document came from."""

    key: int
    name: str | None
    """What the id field holds; absent where the run has none."""
    file: str
    record: int
    """In the file, from 0."""
    offset: int | None
    """Byte of the decompressed file that the record begins at; absent where the format has none."""
    num_tokens: int


class Occurrence(NamedTuple):
    """A part of a document in a row."""

    row: int
    """In the run."""
    begin: int
    """In the row: its first token's place."""
    start: int
    """In the document."""
    length: int


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """What a run folder holds, read once."""

    store: FinishedFolder
    plan: Plan
    manifest: Manifest
    records: dict[int, UnitRecord]

    @property
    def folder(self) -> Path:
        """Where its files are read on this machine: its own, or that of the copies."""
        return self.store.path

    @property
    def layout(self) -> Layout:
        """Of every shard."""
        return self.plan.layout

    @property
    def has_rows(self) -> bool:
        """Items are rows, not documents."""
        return self.layout.sequence_length is not None

    @property
    def tokenizer(self) -> TokenizerConfig:
        """The run's tokenizer, found from any folder."""
        config, path = self.plan.config.tokenizer, self.plan.tokenizer_path
        return msgspec.structs.replace(config, source=path) if os.path.exists(path) else config

    @cached_property
    def shards(self) -> list[tuple[int, ShardRecord]]:
        """Every shard in order, with its unit."""
        return [(unit, shard) for unit in sorted(self.records) for shard in self.records[unit].shards]

    @cached_property
    def starts(self) -> list[int]:
        """First item of each shard, and the number of items."""
        return [0, *itertools.accumulate(num_items(shard) for _, shard in self.shards)]

    @cached_property
    def unit_starts(self) -> dict[int, int]:
        """First item of each unit that has a shard."""
        found: dict[int, int] = {}
        for (unit, _), start in zip(self.shards, self.starts[:-1], strict=True):
            found.setdefault(unit, start)
        return found

    @cached_property
    def first_records(self) -> dict[tuple[int, int], int]:
        """Of each slice, by unit and number in it: how many records of its file come before it."""
        return first_records(self.plan, self.records.values())

    def documents(self, unit: int) -> NDArray[Any]:
        """The table of a unit's documents, mapped."""
        return read_table(self._sidecar(unit, "documents"), DOCUMENT)

    def segments(self, unit: int) -> NDArray[Any]:
        """The table of a unit's segments, mapped."""
        return read_table(self._sidecar(unit, "segments"), SEGMENT)

    def names(self, unit: int) -> NDArray[np.uint8] | None:
        """What the id fields of a unit's documents hold, flat and mapped; None where there are none."""
        path = self._sidecar(unit, "names")
        return read_table(path, np.dtype(np.uint8)) if self.plan.config.read.id_field is not None else None

    def read(self, shard: ShardRecord, name: OutputFormat) -> ShardView:
        """Open a shard in a format; damage raises `RunError`."""
        self.store.fetch(shard.files.get(name, []))
        return read_shard(self.folder, shard, name, self.layout)

    def quarantined(self) -> Iterator[Quarantined]:
        """Every entry of its quarantine, in the order of the input."""
        kept = (find_sidecar(record.sidecars, "quarantine") for record in self.records.values())
        self.store.fetch([file for file in kept if file is not None])
        return quarantined(self.folder, self.plan, self.records.values())

    def _sidecar(self, unit: int, kind: str) -> Path:
        record = self.records.get(unit)
        found = find_sidecar(record.sidecars, kind) if record else None
        if found is None:
            return self.folder / FOLDER / f"{self.plan.unit_name(unit)}.{kind}"
        self.store.fetch([found])
        return self.folder / found.path


def open_run(where: str | os.PathLike[str] | FinishedFolder) -> FinishedRun:
    """A finished run, or what is wrong with the folder."""
    store = open_finished(where) if isinstance(where, str | os.PathLike) else where
    if isinstance(store, CachedFolder):
        store.pull()
    folder = store.path
    if is_conversion(folder):
        raise RunError(f"{folder}: holds a conversion, not a run; name the folder of the run that it is of")
    plan = require_plan(folder)
    manifest = require_manifest(folder)
    records = read_records(folder, plan)
    names = [shard.name for record in records.values() for shard in record.shards]
    for name in [*names, *(shard.name for shard in manifest.shards)]:
        if not SHARD_NAME.fullmatch(name):
            raise RunError(f"{folder}: {name!r} is no name of a shard; a record is damaged")
    if any(not 0 <= part.file < len(plan.files) for unit in plan.units for part in unit.slices):
        raise RunError(f"{folder}: its plan reads a file that it does not name; it is damaged")
    return FinishedRun(store, plan, manifest, records)


def is_conversion(folder: Path) -> bool:
    """Whether a folder is what `convert` writes: shards with a manifest, and nothing else of a run."""
    return (folder / MANIFEST).is_file() and not any((folder / name).exists() for name in (PLAN, FOLDER))


def num_items(shard: ShardRecord) -> int:
    """Its rows or documents."""
    return shard.num_rows + shard.num_documents


def find_item(run: FinishedRun, index: int) -> Place:
    """Where an item of the run lies."""
    total = run.starts[-1]
    if not 0 <= index < total:
        kind = "row" if run.has_rows else "document"
        there = f"it has {kind}s 0..{total - 1}" if total else f"it has no {kind}s"
        raise InputError(f"{run.store}: has no {kind} {index}; {there}")
    at = bisect_right(run.starts, index) - 1
    unit, shard = run.shards[at]
    return Place(unit, index - run.unit_starts[unit], shard, index - run.starts[at])


def source_of(run: FinishedRun, key: int) -> Source:
    """Where a document came from."""
    unit, number = key >> 32, key & 0xFFFFFFFF
    table = run.documents(unit)
    if number >= len(table) or (unit, int(table[number]["slice"])) not in run.first_records:
        raise RunError(f"{run.store}: unit {unit} has no document {number}; gristmill verify says more")
    entry = table[number]
    part = int(entry["slice"])
    position = int(entry["position"])
    return Source(
        key=key,
        name=_name_of(run, unit, number),
        file=run.plan.files[run.plan.units[unit].slices[part].file].path,
        record=run.first_records[unit, part] + int(entry["record"]),
        offset=position if position >= 0 else None,
        num_tokens=int(entry["num_tokens"]),
    )


def segments_of_rows(run: FinishedRun, unit: int, first: int, last: int) -> NDArray[Any]:
    """The segments of neighbouring rows of a unit, `last` not included."""
    table = run.segments(unit)
    start = bisect_left(table, first, key=_row_of)
    return table[start : bisect_left(table, last, lo=start, key=_row_of)]


def find_occurrences(run: FinishedRun, key: int) -> list[Occurrence]:
    """Every part of a document in a row, by its place in the document."""
    found = []
    for unit in (key >> 32, len(run.plan.units)):
        if unit not in run.records:  # of a damaged run
            continue
        table = run.segments(unit)
        for at in np.flatnonzero(table["document"] == key).tolist():
            row = int(table[at]["row"])
            first = bisect_left(table, row, key=_row_of)
            begin = int(table["length"][first:at].sum())
            start, length = int(table[at]["start"]), int(table[at]["length"])
            found.append(Occurrence(run.unit_starts[unit] + row, begin, start, length))
    return sorted(found, key=lambda part: (part.start, part.row))


def find_documents(run: FinishedRun, wanted: str) -> list[int]:
    """Keys of the documents with this id, or of the one that is FILE:RECORD; there is at least one."""
    by_name = [(unit << 32) + number for unit in sorted(run.records) for number in _named(run, unit, wanted)]
    found = by_name or list(_at_record(run, wanted))
    if not found:
        raise InputError(
            f"{run.store}: no document {wanted!r}; give its id, where the run was made with read.id_field, "
            "or FILE:RECORD, such as part-0.jsonl:16"
        )
    return found


def rows_of(ids: RowIds, segments: NDArray[Any], first_row: int) -> Rows:
    """Rows of a shard again as packing made them, from their segments; what was repeated is not known."""
    _check_segments(segments, first_row, ids.shape)
    counts = np.bincount(segments["row"] - first_row, minlength=len(ids))
    return Rows(
        ids=ids,
        row_offsets=offsets_of(counts),
        lengths=segments["length"].astype(np.int64),
        documents=segments["document"].astype(np.int64),
        starts=segments["start"].astype(np.int64),
        repeated=np.zeros(len(ids), np.int64),
    )


def _check_segments(segments: NDArray[Any], first_row: int, shape: tuple[int, ...]) -> None:
    """Refuse segments that are not those of so many rows of such a length: a damaged table."""
    num_rows, length = shape
    rows = segments["row"].astype(np.int64) - first_row
    lengths = segments["length"].astype(np.int64)
    is_in_order = not np.any(np.diff(rows) < 0) and bool(np.all((rows >= 0) & (rows < num_rows)))
    are_filled = bool(np.all((lengths > 0) & (lengths <= length)))
    if not (is_in_order and are_filled and np.all(np.bincount(rows, lengths, num_rows) <= length)):
        raise RunError(
            f"segments of rows {first_row} to {first_row + num_rows - 1} of a unit do not fit into them; "
            "gristmill verify says more"
        )


def _named(run: FinishedRun, unit: int, wanted: str) -> list[int]:
    """Numbers of the unit's documents with an id, compared a byte at a time for all of them."""
    names = run.names(unit)
    if names is None or len(names) == 0 or not wanted:
        return []
    name = wanted.encode("utf-8", "surrogateescape")
    ends = run.documents(unit)["name_end"]
    starts = np.concatenate([[0], ends[:-1]])
    same = np.flatnonzero((ends - starts == len(name)) & (starts >= 0) & (ends <= len(names)))
    for place, byte in enumerate(name):
        same = same[names[starts[same] + place] == byte]
    found: list[int] = same.tolist()
    return found


def _name_of(run: FinishedRun, unit: int, number: int) -> str | None:
    names = run.names(unit)
    if names is None:
        return None
    ends = run.documents(unit)["name_end"]
    start = int(ends[number - 1]) if number else 0
    return names[start : int(ends[number])].tobytes().decode("utf-8", "replace")


def _at_record(run: FinishedRun, wanted: str) -> Iterator[int]:
    name, _, number = wanted.rpartition(":")
    if not name or not number.isascii() or not number.isdecimal():
        return
    file, record = _file_named(run, name), int(number)
    for (unit, part), first in run.first_records.items():
        num_records = run.records[unit].slice_records[part]
        if run.plan.units[unit].slices[part].file == file and first <= record < first + num_records:
            table = run.documents(unit)
            entry = part, record - first
            at = bisect_left(table, entry, key=lambda e: (int(e["slice"]), int(e["record"])))
            if at < len(table) and (int(table[at]["slice"]), int(table[at]["record"])) == entry:
                yield (unit << 32) + at
                return
    path = run.plan.files[file].path
    for bad in run.quarantined():
        if (bad.file, bad.record) == (path, record):
            why = f"{bad.reason}{': ' + bad.detail if bad.detail else ''}"
            raise InputError(
                f"{run.store}: record {record} of {name} was bad and is no document of this run ({why}); "
                f"see {run.store}/{QUARANTINE}"
            )
    raise InputError(
        f"{run.store}: record {record} of {name} is no document of this run; it was skipped, left out by a "
        "limit, or is not there"
    )


def _file_named(run: FinishedRun, name: str) -> int:
    """The input file of this path, or whose path ends so."""
    paths = [file.path for file in run.plan.files]
    found = [i for i, path in enumerate(paths) if path == name]
    found = found or [i for i, path in enumerate(paths) if path.endswith(f"/{name}")]
    if len(found) != 1:
        near = [paths[i] for i in found] or paths
        more = f" and {len(near) - MAX_NAMES_SHOWN} more" if len(near) > MAX_NAMES_SHOWN else ""
        what = "is the end of several input files' names" if found else "is no input file of this run"
        raise InputError(
            f"{run.store}: {name!r} {what}; there are {', '.join(near[:MAX_NAMES_SHOWN])}{more}"
        )
    return found[0]


def _row_of(segment: Any) -> int:
    return int(segment["row"])
