"""A shard as arrays, a file a column: what .npy and .pt have in common.

Columns of rows are of two dimensions. Where items differ in length (documents, cu_seqlens) a column is flat,
and a second file says where each item begins: item i is `values[offsets[i]:offsets[i + 1]]`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gristmill.config import Column, WriteConfig
from gristmill.drafts import Draft, Scratch
from gristmill.errors import RunError
from gristmill.formats.lists import (
    DTYPES,
    Batch,
    Lists,
    ListWriter,
    TableView,
    check_columns,
    chosen_columns,
    cut_groups,
)
from gristmill.formats.mapped import MappedRows, Stretch, map_content
from gristmill.formats.protocol import with_suffix
from gristmill.layout import Layout
from gristmill.pack.rows import offsets_of
from gristmill.records import ShardRecord

OFFSET_TYPE = np.dtype("<i8")


class Container(Struct, frozen=True):
    """How one array lies in a file."""

    suffix: str
    id_type: Callable[[Layout], np.dtype[Any]]
    wrap: Callable[[Scratch, np.dtype[Any], tuple[int, ...]], tuple[bytes, bytes]]
    """What stands before and after the numbers of an array."""
    unwrap: Callable[[Path, np.dtype[Any], int | None], NDArray[Any]]
    """The numbers of a file, flat, where it holds rows of this length, or none; else `RunError`."""


class ArrayWriter(ListWriter):
    """Writes a file for each column, and one for the places of items where they differ in length."""

    def __init__(
        self, container: Container, stem: Path, config: WriteConfig, layout: Layout, shelf: list[Draft]
    ) -> None:
        names = chosen_columns(config, layout)
        super().__init__(names, layout, id_type=container.id_type(layout))
        self._container = container
        self._stem = stem
        self._shelf = shelf
        self._row_length = layout.sequence_length
        self._values = {name: self._scratch(name) for name in names}
        self._offsets = {
            name: self._scratch(f"{name}.offsets") for name in names if is_ragged(name, self._row_length)
        }
        for offsets in self._offsets.values():
            offsets.write(np.zeros(1, OFFSET_TYPE))

    def write(self, batch: Batch) -> None:
        """Append neighbouring items to every column."""
        for name, lists in batch.items():
            if name in self._offsets:
                before = self._values[name].num_bytes // self.dtypes[name].itemsize
                self._offsets[name].write((lists.offsets[1:] + before).astype(OFFSET_TYPE))
            self._values[name].write(lists.values)

    def finish(self) -> list[Draft]:
        """The files of a shard."""
        drafts = []
        for name, values in self._values.items():
            is_flat = name in self._offsets
            drafts.append(
                self._wrapped(values, name, self.dtypes[name], None if is_flat else self._row_length)
            )
            if is_flat:
                drafts.append(self._wrapped(self._offsets[name], f"{name}.offsets", OFFSET_TYPE, None))
        return drafts

    def _wrapped(self, scratch: Scratch, name: str, dtype: np.dtype[Any], row_length: int | None) -> Draft:
        count = scratch.num_bytes // dtype.itemsize
        shape = (count // row_length, row_length) if row_length else (count,)
        head, tail = self._container.wrap(scratch, dtype, shape)
        draft = Draft(self._path(name), self._shelf)
        draft.write(head)
        for block in scratch.blocks():
            draft.write(block)
        draft.write(tail)
        scratch.discard()
        return draft

    def _scratch(self, name: str) -> Scratch:
        return Scratch(self._path(name), self._shelf)

    def _path(self, name: str) -> Path:
        return with_suffix(self._stem, f".{name}{self._container.suffix}")


def is_ragged(name: Column, row_length: int | None) -> bool:
    """Whether items of a column differ in length."""
    return row_length is None or name == "cu_seqlens"


def read_arrays(container: Container, stem: Path, layout: Layout) -> TableView:
    """The rows or documents of a shard."""
    path = with_suffix(stem, f".input_ids{container.suffix}")
    names = [n for n in DTYPES if with_suffix(stem, f".{n}{container.suffix}").exists()]
    length = layout.sequence_length
    dtypes = {name: np.dtype(DTYPES[name]) for name in names} | {"input_ids": container.id_type(layout)}
    columns = {name: _open(container, stem, name, dtype, length) for name, dtype in dtypes.items()}
    ids, places = columns["input_ids"]
    num_items = len(ids) // length if length else len(places) - 1
    for name, (values, offsets) in columns.items():
        num_there = len(offsets) - 1 if is_ragged(name, length) else len(values) / (length or 1)
        if num_there != num_items:
            raise RunError(f"{path}: has {num_items} items, column {name} beside it {num_there:g}")
    bounds = offsets_of(np.full(num_items, length, np.int64)) if length else places
    starts = cut_groups(bounds)

    def group(number: int) -> dict[str, Lists]:
        first, last = starts[number], starts[number + 1]
        found: dict[str, Lists] = {}
        for name, (values, offsets) in columns.items():
            part = np.asarray(offsets[first : last + 1] if len(offsets) else bounds[first : last + 1])
            found[name] = Lists(np.asarray(values[part[0] : part[-1]]), (part - part[0]).astype(np.int32))
        return found

    return TableView(path, layout, starts, group)


def map_arrays(container: Container, stem: Path, layout: Layout) -> MappedRows:
    """The rows of a shard, where they lie in its files."""
    length = layout.sequence_length
    assert length is not None
    contents, group = {}, {}
    for name in DTYPES:
        path = with_suffix(stem, f".{name}{container.suffix}")
        if name == "input_ids" or path.exists():
            dtype = container.id_type(layout) if name == "input_ids" else np.dtype(DTYPES[name])
            values = container.unwrap(path, dtype, None if is_ragged(name, length) else length)
            contents[str(name)] = map_content(path)
            at = values.offset if isinstance(values, np.memmap) else 0
            group[str(name)] = Stretch(at, len(values), dtype)
    starts = [0, group["input_ids"].num_values // length]
    return MappedRows(stem, contents, starts, [group], length)


def check_arrays(container: Container, stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    return check_columns(read_arrays(container, stem, layout), shard, layout)


def _open(
    container: Container, stem: Path, name: Column, dtype: np.dtype[Any], length: int | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The values of a column and, where items differ in length, where each begins."""
    path = with_suffix(stem, f".{name}{container.suffix}")
    if not is_ragged(name, length):
        return container.unwrap(path, dtype, length), np.empty(0, OFFSET_TYPE)
    values = container.unwrap(path, dtype, None)
    beside = with_suffix(stem, f".{name}.offsets{container.suffix}")
    offsets = container.unwrap(beside, OFFSET_TYPE, None)
    bounds = (offsets[0], offsets[-1]) if len(offsets) else ()
    if bounds != (0, len(values)) or np.any(offsets[1:] < offsets[:-1]):
        raise RunError(f"{beside}: offsets do not rise from 0 to {len(values)}")
    return values, offsets
