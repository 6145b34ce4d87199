"""The rows of a finished run: which shard a row lies in, its ids, and where its segments begin."""

from __future__ import annotations

import hashlib
import itertools
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gristmill import _native
from gristmill.config import OutputFormat
from gristmill.dataset.batch_rows import Empty
from gristmill.engines import Offsets
from gristmill.errors import RunError
from gristmill.formats import ATTEMPT, FORMATS, check_size, map_rows
from gristmill.formats.mapped import BORDERS, Column, MappedRows, RowShard, ViewRows
from gristmill.layout import Layout
from gristmill.records import Manifest, ShardRecord
from gristmill.run.folder import MANIFEST, require_manifest
from gristmill.sidecars import FOLDER, SEGMENT, find_sidecar, read_table
from gristmill.store import FinishedFolder

MAX_OPEN_SHARDS = 1024
"""Mapped at a time; a few kilobytes each, beside what the system keeps of the files."""
MAX_OPEN_VIEWS = 8
"""Of shards that are not mapped: each may hold files open, and a group of rows decoded."""
MAX_OPEN_UNITS = 64
"""Whose segments are known; 8 bytes a row."""
UNIT_NAME = re.compile(r"[0-9]{5,}")
UNIT_FILE = re.compile(rf"{ATTEMPT}\.\w+$")
"""What the name of a unit's file has beside that of the unit."""
FILE_NAME = re.compile(r"(?:\w+/)?[\w-][\w.-]*", re.ASCII)

Key = TypeVar("Key")
Opened = TypeVar("Opened")


class Items(Protocol):
    """Rows, documents or windows of a run, by number."""

    num_items: int
    columns: frozenset[str]
    """What is stored beside the ids, and `stored` gives."""

    @property
    def length(self) -> int | None:
        """Of each, in ids; absent where they differ."""
        ...

    def ids(self, item: int) -> NDArray[Any]:
        """As they are stored; not to be written to."""
        ...

    def stored(self, name: str, item: int) -> NDArray[Any]:
        """A column that is stored, as it is stored."""
        ...

    def may_pad(self, item: int) -> bool:
        """Whether there may be padding at its end."""
        ...

    def any_may_pad(self, items: Offsets) -> bool:
        """Whether there may be padding in one of them."""
        ...

    def borders(self, item: int) -> NDArray[Any]:
        """0, then where each of its segments ends."""
        ...

    def starts(self, item: int) -> Offsets:
        """Of each of its segments: the first token's place in the document."""
        ...


@dataclass(frozen=True, eq=False)
class SourceRun:
    """A run, or a conversion of one, that is read in one of its formats."""

    store: FinishedFolder
    manifest: Manifest
    layout: Layout
    format: OutputFormat
    identity: str
    """Changes when anything in the manifest does."""

    @property
    def folder(self) -> Path:
        """Where its files are read on this machine: its own, or that of the copies."""
        return self.store.path

    def stem(self, shard: ShardRecord) -> Path:
        """Where the files of a shard lie, all of them there and of their size."""
        files = shard.files.get(self.format, [])
        suffix = FORMATS[self.format].suffixes[0]
        named = [file.path for file in files if file.path.endswith(suffix)]
        if len(named) != 1 or not all(FILE_NAME.fullmatch(file.path) for file in files):
            raise RunError(f"{self.store}: shard {shard.name} names no file of {self.format}; it is damaged")
        self.store.fetch(files)
        faults = [fault for file in files for fault in check_size(self.folder, file)]
        if faults:
            raise RunError(f"{faults[0]}; run the job again to make it anew, or copy the whole folder again")
        return self.folder / named[0].removesuffix(suffix)


def find_run(store: FinishedFolder, wanted: OutputFormat | None) -> SourceRun:
    """A finished run by its manifest alone, read in the format wanted or the first that it has."""
    folder = store.path
    manifest = require_manifest(folder)
    names = ", ".join(manifest.formats)
    if wanted is not None and wanted not in manifest.formats:
        raise RunError(f"{store}: has no {wanted} (it has {names}); gristmill convert makes it")
    fields = {name: getattr(manifest, name, None) for name in Layout.__struct_fields__}
    try:
        layout = msgspec.convert(fields, Layout)
    except msgspec.ValidationError as error:
        raise RunError(f"{folder / MANIFEST}: is damaged ({error}); gristmill verify says more") from error
    counts = [(shard.num_rows, shard.num_documents, shard.num_tokens) for shard in manifest.shards]
    if not layout.formats or any(min(count) < 0 for count in counts):
        raise RunError(f"{folder / MANIFEST}: is damaged (no format, or a count under 0); copy it again")
    identity = hashlib.sha256(msgspec.json.encode(manifest)).hexdigest()[:16]
    return SourceRun(store, manifest, layout, wanted or layout.formats[0], identity)


class Cache(dict[Key, Opened], Generic[Key, Opened]):
    """Opens what is asked for and keeps so many; the first to come is the first to go."""

    def __init__(
        self,
        open_one: Callable[[Key], Opened],
        max_items: int,
        on_drop: Callable[[Key], object] = lambda key: None,
    ) -> None:
        super().__init__()
        self._open_one = open_one
        self._on_drop = on_drop
        self.max_items = max_items

    def __missing__(self, key: Key) -> Opened:
        opened = self._open_one(key)
        if len(self) >= self.max_items:
            first = next(iter(self))
            self.pop(first, None)
            self._on_drop(first)
        self[key] = opened
        return opened


class RowItems:
    """Rows of one length, as packing made them."""

    def __init__(self, run: SourceRun) -> None:
        self._run = run
        self._shards = run.manifest.shards
        self._starts = [0, *itertools.accumulate(shard.num_rows for shard in self._shards)]
        self._bounds = np.array(self._starts, np.int64)
        self._padded = np.array([shard.num_padding > 0 for shard in self._shards], np.bool_)
        padded = np.flatnonzero(self._padded)
        self._first_padded = self._starts[padded[0]] if len(padded) else self._starts[-1]
        self._opened: Cache[int, RowShard] = Cache(self._open, MAX_OPEN_SHARDS, self._forget)
        self._table: _native.RowTable | None = None
        self._units = _Segments(run)
        self.num_items = self._starts[-1]
        self.length = run.layout.sequence_length
        self.columns: frozenset[str] = frozenset()
        if self._shards:
            self.columns = self._opened[0].columns - {"input_ids"}
            if isinstance(self._opened[0], ViewRows):
                self._opened.max_items = MAX_OPEN_VIEWS
            if (column := self._column(0)) is not None and self.length is not None:
                self._kind = column.dtype
                self._table = _native.RowTable(self._bounds, self.length * column.dtype.itemsize)

    def ids(self, item: int) -> NDArray[Any]:
        """As they are stored, padding included."""
        at = bisect_right(self._starts, item) - 1
        return self._opened[at].row("input_ids", item - self._starts[at])

    def gather(self, items: Offsets, empty: Empty) -> NDArray[Any] | None:
        """Ids of several rows side by side, the quick twin of `ids`; None where not all lie in mapped files
        as numbers of one kind."""
        if self._table is None or self.length is None:
            return None
        items = np.ascontiguousarray(items)
        # In the order of the shards where there are more than can be open, so that each is opened once.
        order = items.argsort(kind="stable") if len(self._shards) > self._opened.max_items else None
        out = empty((len(items), self.length), self._kind)
        flat, at = out.reshape(-1).view(np.uint8), 0
        while (at := self._table.take(items, order, at, flat)) < len(items):
            item = items[at if order is None else order[at]]
            shard = bisect_right(self._starts, int(item)) - 1
            column = self._column(shard)
            if column is None or column.dtype != self._kind:
                return None
            self._table.put(shard, column.content, column.starts, column.begins)
        return out

    def _column(self, shard: int) -> Column | None:
        opened = self._opened[shard]
        return opened.column("input_ids") if isinstance(opened, MappedRows) else None

    def _forget(self, shard: int) -> None:
        if self._table is not None:
            self._table.drop(shard)

    def stored(self, name: str, item: int) -> NDArray[Any]:
        """A column that is stored."""
        at = bisect_right(self._starts, item) - 1
        return self._opened[at].row(name, item - self._starts[at])

    def may_pad(self, item: int) -> bool:
        """As the manifest says of the row's shard."""
        return bool(self._padded[bisect_right(self._starts, item) - 1])

    def any_may_pad(self, items: Offsets) -> bool:
        """As the manifest says of the rows' shards."""
        if len(items) == 0 or items.max() < self._first_padded:
            return False
        shards = self._bounds.searchsorted(items, side="right") - 1
        return bool(self._padded[shards].any())

    def borders(self, item: int) -> NDArray[Any]:
        """From the shard, or from the run's table of segments."""
        if BORDERS in self.columns:
            return self.stored(BORDERS, item)
        return np.append(0, np.cumsum(self._segments(item)["length"]))

    def starts(self, item: int) -> Offsets:
        """From the run's table of segments."""
        starts: Offsets = self._segments(item)["start"].astype(np.int64)
        return starts

    def _segments(self, item: int) -> NDArray[Any]:
        at = bisect_right(self._starts, item) - 1
        return self._units.of_row(at, item - self._starts[at])

    def _open(self, at: int) -> RowShard:
        shard = self._shards[at]
        opened = map_rows(self._run.stem(shard), self._run.format, self._run.layout)
        if opened.num_rows != shard.num_rows:
            raise RunError(
                f"{self._run.store}: shard {shard.name} holds {opened.num_rows} rows, its record says "
                f"{shard.num_rows}; gristmill verify says more"
            )
        if at and self.columns - opened.columns:
            missing = ", ".join(sorted(self.columns - opened.columns))
            raise RunError(f"{self._run.store}: shard {shard.name} has no {missing}, the first one has")
        return opened


class _Segments:
    """The tables of segments of a run's units, by shard."""

    def __init__(self, run: SourceRun) -> None:
        self._run = run
        self._places: list[tuple[str, int]] = []
        """Of each shard: its unit, and its first row there."""
        self._num_rows: dict[str, int] = {}
        for shard in run.manifest.shards:
            unit = shard.name.partition("-")[0]
            first = self._num_rows.get(unit, 0)
            self._places.append((unit, first))
            self._num_rows[unit] = first + shard.num_rows
        self._tables: Cache[str, tuple[NDArray[Any], Offsets]] = Cache(self._open, MAX_OPEN_UNITS)

    def of_row(self, shard: int, row: int) -> NDArray[Any]:
        """Segments of a row of a shard."""
        unit, first = self._places[shard]
        table, bounds = self._tables[unit]
        return table[bounds[first + row] : bounds[first + row + 1]]

    def _open(self, unit: str) -> tuple[NDArray[Any], Offsets]:
        """A table, and where the segments of each row begin in it."""
        of_unit = (f for f in self._run.manifest.sidecars if UNIT_FILE.sub("", f.path) == f"{FOLDER}/{unit}")
        named = find_sidecar(of_unit, "segments")
        path = self._run.folder / (named.path if named else f"{FOLDER}/{unit}.segments")
        self._run.store.fetch([named] if named else [])
        if not UNIT_NAME.fullmatch(unit) or not path.is_file():
            raise RunError(
                f"{self._run.store}: does not say where documents begin in its rows (it has no column "
                f"cu_seqlens and no {FOLDER}/); open the run folder itself, or write the column cu_seqlens"
            )
        table = read_table(path, SEGMENT)
        bounds = np.searchsorted(table["row"], np.arange(self._num_rows[unit] + 1))
        if int(bounds[-1]) != len(table):
            raise RunError(f"{path}: has segments of rows that are not there; gristmill verify says more")
        return table, bounds
