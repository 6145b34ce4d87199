"""Rows or documents as columns of lists: what tables and samples on disk are made of.

Batches are cut by what is in them, never by how it came; values stay where they came until they are written.
"""

from __future__ import annotations

import bisect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gristmill.config import Column, WriteConfig
from gristmill.drafts import Draft
from gristmill.engines import Offsets
from gristmill.formats.protocol import Documents, ItemBlock, count_fitting, cut_documents
from gristmill.layout import Layout
from gristmill.pack import columns
from gristmill.pack.rows import Rows, slice_rows
from gristmill.records import ShardRecord

BATCH_ROWS = 1000
BATCH_TOKENS = 1 << 21
"""Of a batch: a few MB a column, so that a reader that wants one row reads little."""
DTYPES: dict[Column, str] = {
    "input_ids": "int32",
    "labels": "int32",
    "attention_mask": "int8",
    "position_ids": "int32",
    "cu_seqlens": "int32",
}
"""int32 holds every id and is what torch computes with; its uint16 lacks most operations."""


class Lists(NamedTuple):
    """A column: list i is `values[offsets[i]:offsets[i + 1]]`."""

    values: NDArray[Any]
    offsets: NDArray[Any]


Batch = dict[Column, Lists]


class Collected(Struct, frozen=True):
    """The same, with the values where they came: one array after the other."""

    parts: list[NDArray[Any]]
    offsets: NDArray[Any]

    @property
    def num_values(self) -> int:
        """In all parts."""
        return int(self.offsets[-1])

    def joined(self) -> NDArray[Any]:
        """The values as one array."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)


def features_of(names: tuple[Column, ...]) -> dict[str, Any]:
    """Columns in the words of `datasets`; Sequence, because versions before 4 know no List."""
    return {
        name: {"feature": {"dtype": DTYPES[name], "_type": "Value"}, "_type": "Sequence"} for name in names
    }


def chosen_columns(config: WriteConfig, layout: Layout) -> tuple[Column, ...]:
    """Columns of the table; documents have no borders inside."""
    return config.columns if layout.sequence_length else ("input_ids",)


class ListWriter(ABC):
    """Writer of a format that holds one item after the other: nothing is collected first."""

    def __init__(self, names: tuple[Column, ...], layout: Layout, *, id_type: np.dtype[Any]) -> None:
        self._layout = layout
        self.dtypes = {name: np.dtype(DTYPES[name]) for name in names} | {"input_ids": id_type}

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Append neighbouring items; values have the dtypes of their columns."""

    @abstractmethod
    def finish(self) -> list[Draft]:
        """The files of a shard."""

    def add_documents(self, documents: Documents) -> None:
        """A document an item."""
        offsets = documents.offsets
        for start, stop in itertools.pairwise(cut_groups(offsets)):
            first, last = int(offsets[start]), int(offsets[stop])
            ids = documents.ids[first:last].astype(self.dtypes["input_ids"], copy=False)
            self.write({"input_ids": Lists(ids, offsets[start : stop + 1] - first)})

    def add_rows(self, rows: Rows) -> None:
        """A row an item, with its columns."""
        for start, stop in itertools.pairwise(cut_groups(_row_bounds(rows))):
            part = slice_rows(rows, start, stop)
            batch: Batch = {}
            for name, dtype in self.dtypes.items():
                values, offsets = _derive(name, part, self._layout)
                batch[name] = Lists(np.ascontiguousarray(values, dtype), offsets)
            self.write(batch)


def cut_groups(offsets: Offsets, *, max_size: int = BATCH_TOKENS) -> list[int]:
    """First item of each group of at most so much in all, or of one item that is larger, and the number of
    items; item i goes from `offsets[i]` to `offsets[i + 1]`."""
    starts, count = [0], len(offsets) - 1
    while starts[-1] < count:
        fitting = count_fitting(offsets, starts[-1], max_tokens=max_size, max_items=BATCH_ROWS)
        starts.append(starts[-1] + max(fitting, 1))
    return starts


class ListBuffer:
    """Lists of a column that are collected for a batch."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._parts: list[NDArray[Any]] = []
        self._offsets = np.zeros(BATCH_ROWS + 1, np.int32)
        self.num_lists = 0
        self.num_values = 0

    def add(self, values: NDArray[Any], offsets: Offsets) -> None:
        """Append lists; their values are held, and copied only where they have another type."""
        start, end = int(offsets[0]), int(offsets[-1])
        self._parts.append(values[start:end].astype(self._dtype, copy=False))
        last = self.num_lists + len(offsets) - 1
        self._offsets[self.num_lists + 1 : last + 1] = offsets[1:] + (self.num_values - start)
        self.num_lists, self.num_values = last, self.num_values + end - start

    def take(self) -> Collected:
        """What was collected, valid until the next `add`."""
        collected = Collected(self._parts, self._offsets[: self.num_lists + 1])
        self._parts = []
        self.num_lists = self.num_values = 0
        return collected


class Batches:
    """Collects rows or documents and gives full batches."""

    def __init__(self, names: tuple[Column, ...], layout: Layout, *, id_type: np.dtype[Any]) -> None:
        self._layout = layout
        dtypes = {name: np.dtype(DTYPES[name]) for name in names} | {"input_ids": id_type}
        self._buffers = {name: ListBuffer(dtypes[name]) for name in names}
        self._ids = self._buffers["input_ids"]

    def add_documents(self, documents: Documents) -> Iterator[dict[Column, Collected]]:
        """Batches that are full now."""
        for start, stop in self._cuts(documents.offsets):
            if start == stop:
                yield self.take()
            else:
                part = cut_documents(documents, start, stop)
                self._ids.add(part.ids, part.offsets)

    def add_rows(self, rows: Rows) -> Iterator[dict[Column, Collected]]:
        """Batches that are full now."""
        for start, stop in self._cuts(_row_bounds(rows)):
            if start == stop:
                yield self.take()
            else:
                part = slice_rows(rows, start, stop)
                for name, buffer in self._buffers.items():
                    buffer.add(*_derive(name, part, self._layout))

    def take(self) -> dict[Column, Collected]:
        """What is left, perhaps nothing."""
        return {name: buffer.take() for name, buffer in self._buffers.items()}

    @property
    def is_empty(self) -> bool:
        """Nothing is left."""
        return self._ids.num_lists == 0

    def _cuts(self, offsets: Offsets) -> Iterator[tuple[int, int]]:
        """Ranges of items to append; an empty one: the batch is full."""
        start, count = 0, len(offsets) - 1
        while start < count:
            fitting = count_fitting(
                offsets,
                start,
                max_tokens=BATCH_TOKENS - self._ids.num_values,
                max_items=BATCH_ROWS - self._ids.num_lists,
            )
            # An item larger than a batch is one of its own.
            stop = start + (fitting or int(self.is_empty))
            yield start, stop
            start = stop


class TableView(Struct, eq=False):
    """Rows or documents of a shard on disk that holds columns, one group of them in memory."""

    path: Path
    layout: Layout
    starts: list[int]
    """First row of each group, and the number of rows."""
    group: Callable[[int], dict[str, Lists]]
    """Columns of a group."""
    _group: int = -1
    _columns: dict[str, Lists] | None = None

    @property
    def num_items(self) -> int:
        """Rows, or documents."""
        return self.starts[-1]

    def ids(self, item: int) -> NDArray[Any]:
        """Ids of a row, padding included."""
        return self._list("input_ids", item).astype(self.layout.id_type)

    def borders(self, item: int) -> NDArray[np.int32] | None:
        """0, then where each segment of the row ends."""
        self._open(item)
        return self._list("cu_seqlens", item) if "cu_seqlens" in (self._columns or {}) else None

    def blocks(self) -> Iterator[ItemBlock]:
        """All rows in order, a group at a time."""
        for group in range(len(self.starts) - 1):
            lists = self.group(group)
            ids, offsets = _from_zero(lists["input_ids"])
            borders = _from_zero(lists["cu_seqlens"]) if "cu_seqlens" in lists else None
            yield ItemBlock(ids.astype(self.layout.id_type), offsets, borders)

    def _list(self, name: str, item: int) -> NDArray[Any]:
        lists = self._open(item)[name]
        row = range(self.num_items)[item] - self.starts[self._group]
        values: NDArray[Any] = lists.values[lists.offsets[row] : lists.offsets[row + 1]]
        return values

    def _open(self, item: int) -> dict[str, Lists]:
        group = bisect.bisect_right(self.starts, range(self.num_items)[item]) - 1
        if group != self._group or self._columns is None:
            self._columns = self.group(group)
            self._group = group
        return self._columns


def _from_zero(lists: Lists) -> tuple[NDArray[Any], Offsets]:
    start, stop = int(lists.offsets[0]), int(lists.offsets[-1])
    return lists.values[start:stop], lists.offsets.astype(np.int64) - start


def check_columns(view: TableView, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard whose columns are those of its first group."""
    return check_table(view, list(view.group(0)) if view.num_items else [], shard, layout)


def check_table(view: TableView, names: list[str], shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard of columns."""
    length = layout.sequence_length
    expected = shard.num_rows if length else shard.num_documents
    faults = []
    if set(names) - set(DTYPES):
        return [f"columns {', '.join(names)}; those of a run are among {', '.join(DTYPES)}"]
    if view.num_items != expected:
        faults.append(f"holds {view.num_items} rows, its record says {expected}")
    num_ids, num_padding, has_borders = 0, 0, "cu_seqlens" in names
    for group in range(len(view.starts) - 1):
        lists = view.group(group)
        num_ids += int(lists["input_ids"].offsets[-1] - lists["input_ids"].offsets[0])
        faults += _check_lengths(lists, length)
        if has_borders and length:
            more, padding = _check_borders(lists["cu_seqlens"], length)
            faults += more
            num_padding += padding
    if num_ids != shard.num_tokens + shard.num_padding:
        faults.append(
            f"holds {num_ids} ids, its record says {shard.num_tokens} and {shard.num_padding} padding"
        )
    if has_borders and num_padding != shard.num_padding:
        faults.append(
            f"has {num_padding} padding after its last borders, its record says {shard.num_padding}"
        )
    return list(dict.fromkeys(faults))


def _check_lengths(lists: dict[str, Lists], length: int | None) -> list[str]:
    wrong = [
        name
        for name, column in lists.items()
        if name != "cu_seqlens" and length and np.any(np.diff(column.offsets) != length)
    ]
    return [f"column {name} has rows that are not {length} long" for name in wrong]


def _check_borders(borders: Lists, length: int) -> tuple[list[str], int]:
    values, offsets = borders.values, borders.offsets
    if np.any(np.diff(offsets) < 1):
        return ["a row has no borders"], 0
    lasts = values[offsets[1:] - 1]
    steps = np.diff(values[offsets[0] : offsets[-1]])
    inside = np.ones(len(steps), bool)
    inside[offsets[1:-1] - offsets[0] - 1] = False
    if np.any(values[offsets[:-1]]) or np.any(lasts > length) or np.any(steps[inside] <= 0):
        return ["borders of a row do not rise from 0 to its length"], 0
    return [], int(len(lasts) * length - lasts.sum(dtype=np.int64))


def _derive(name: Column, rows: Rows, layout: Layout) -> tuple[NDArray[Any], Offsets]:
    if name == "cu_seqlens":
        return columns.cu_seqlens(rows)
    if name == "labels":
        values: NDArray[Any] = columns.labels(rows, mask_first_token=layout.mask_first_token)
    elif name == "attention_mask":
        values = columns.attention_mask(rows)
    elif name == "position_ids":
        values = columns.position_ids(rows)
    else:
        values = rows.ids
    return values.reshape(-1), _row_bounds(rows)


def _row_bounds(rows: Rows) -> Offsets:
    return np.arange(len(rows.ids) + 1, dtype=np.int64) * int(rows.ids.shape[1])
