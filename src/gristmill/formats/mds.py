"""MosaicML Streaming: an .mds of samples a shard, and an index.json that names all of them.

A sample has an array a column. llm-foundry reads `tokens`, which is what `input_ids` are called here; the
other columns keep their names.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
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
from gristmill.formats.payload import map_file
from gristmill.formats.protocol import with_suffix, write_run_file
from gristmill.layout import Layout
from gristmill.pack.rows import offsets_of
from gristmill.records import FileRecord, ShardRecord

TOKENS = "tokens"
VERSION = 2
PLACE_TYPE = np.dtype("<u4")
MAX_FILE_BYTES = (1 << 32) - 1
"""Places in a shard are of 32 bits."""
MAX_HEAD_BYTES = 1 << 12
"""Of what a shard says about its columns."""
GROUP_BYTES = 1 << 24
"""Of samples that are decoded at a time."""


class MdsWriter(ListWriter):
    """Writes samples aside, since their places come before them."""

    def __init__(self, stem: Path, config: WriteConfig, layout: Layout, shelf: list[Draft]) -> None:
        names = mds_order(chosen_columns(config, layout))
        super().__init__(names, layout, id_type=np.dtype(DTYPES["input_ids"]))
        self._names = names
        self._path = with_suffix(stem, ".mds")
        self._shelf = shelf
        self._samples = Scratch(self._path, shelf)
        self._ends = Scratch(self._path, shelf)

    def write(self, batch: Batch) -> None:
        """A sample an item."""
        words = struct.Struct(f"<{len(self._names)}I")
        sizes = []
        for cells in zip(*(_cells(batch[name]) for name in self._names), strict=True):
            sizes.append(self._samples.write(words.pack(*map(len, cells)) + b"".join(cells)))
        before = self._samples.num_bytes - sum(sizes)
        self._ends.write((before + np.cumsum(sizes)).astype("<u8"))

    def finish(self) -> list[Draft]:
        """The file of a shard."""
        ends = self._ends.map(np.dtype("<u8"))
        head = _columns_json(self._names)
        first = 4 + 4 * (len(ends) + 1) + len(head)
        assert first + self._samples.num_bytes <= MAX_FILE_BYTES, "max_ids() keeps shards smaller"
        draft = Draft(self._path, self._shelf)
        draft.write(np.array([len(ends), first], PLACE_TYPE))
        for at in range(0, len(ends), GROUP_BYTES):
            draft.write((ends[at : at + GROUP_BYTES] + first).astype(PLACE_TYPE))
        draft.write(head)
        for block in self._samples.blocks():
            draft.write(block)
        self._samples.discard()
        self._ends.discard()
        return [draft]


def mds_order(names: Sequence[Column]) -> tuple[Column, ...]:
    """Columns in the order of what they are called in a shard."""
    return tuple(sorted(names, key=_mds_name))


def max_ids(config: WriteConfig, layout: Layout) -> int:
    """Ids that fit into a shard, whatever the documents."""
    names = chosen_columns(config, layout)
    length = layout.sequence_length or 1
    # An item has a place, and each of its columns a size, a shape and its numbers; cu_seqlens has one more
    # than there are segments, of which each has a token at least.
    per_item = 4 + sum(4 + 5 + np.dtype(DTYPES[name]).itemsize * (length + 1) for name in names)
    return (MAX_FILE_BYTES - MAX_HEAD_BYTES) // per_item * length


def read(stem: Path, layout: Layout) -> TableView:
    """The rows or documents of a shard."""
    path = with_suffix(stem, ".mds")
    content = map_file(path, np.dtype("u1"))
    places, names = _read_head(path, content)
    starts = cut_groups(places, max_size=GROUP_BYTES)

    def group(number: int) -> dict[str, Lists]:
        return _decode(path, content, places[starts[number] : starts[number + 1] + 1], names)

    return TableView(path, layout, starts, group)


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    return check_columns(read(stem, layout), shard, layout)


def finish_run(
    folder: Path, shards: Sequence[ShardRecord], config: WriteConfig, layout: Layout
) -> list[FileRecord]:
    """Write what `StreamingDataset` looks for first."""
    about = _about_columns(mds_order(chosen_columns(config, layout)))
    entries = []
    for shard in shards:
        (file,) = shard.files["mds"]
        raw = {"basename": Path(file.path).name, "bytes": file.num_bytes, "hashes": {}}
        samples = shard.num_rows + shard.num_documents
        entries.append(about | {"raw_data": raw, "samples": samples, "zip_data": None})
    return [write_run_file(folder, "mds/index.json", _as_json({"shards": entries, "version": VERSION}))]


def _mds_name(name: Column) -> str:
    return TOKENS if name == "input_ids" else name


def _about_columns(names: Sequence[Column]) -> dict[str, Any]:
    return {
        "column_encodings": [f"ndarray:{DTYPES[name]}" for name in names],
        "column_names": [_mds_name(name) for name in names],
        "column_sizes": [None] * len(names),
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": None,
        "version": VERSION,
    }


def _columns_json(names: Sequence[Column]) -> bytes:
    return _as_json(_about_columns(names))


def _as_json(value: dict[str, Any]) -> bytes:
    import json  # only where it is needed

    return json.dumps(value, sort_keys=True).encode()


def _cells(lists: Lists) -> Iterator[bytes]:
    """Each list as an array whose shape is not known before."""
    content, width = lists.values.data.cast("B"), lists.values.itemsize
    for start, stop in itertools.pairwise(lists.offsets.tolist()):
        yield _shape(stop - start) + content[start * width : stop * width]


def _shape(length: int) -> bytes:
    """One dimension, its length in as few bytes as hold it."""
    power = 0 if length < 1 << 8 else 1 if length < 1 << 16 else 2
    return bytes([1 << 2 | power]) + length.to_bytes(1 << power, "little")


def _read_head(path: Path, content: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[Column, ...]]:
    """Where samples begin and the last ends, and the columns in their order."""
    (count,) = map_file(path, PLACE_TYPE, count=1).tolist()
    places = map_file(path, PLACE_TYPE, offset=4, count=count + 1).astype(np.int64)
    head_at = 4 + 4 * (count + 1)
    if np.any(places[1:] <= places[:-1]) or places[-1] != len(content) or places[0] < head_at:
        raise RunError(f"{path}: its samples do not follow one another to the end of the file")
    head = content[head_at : min(int(places[0]), head_at + MAX_HEAD_BYTES)].tobytes()
    known: dict[str, Column] = {_mds_name(name): name for name in DTYPES}
    try:
        names = tuple(known[name] for name in msgspec.json.decode(head)["column_names"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise RunError(f"{path}: what it says about its columns cannot be read") from error
    if "input_ids" not in names or head != _columns_json(names) or len(head) != places[0] - head_at:
        raise RunError(f"{path}: its columns are not those of a run")
    return places, names


def _decode(
    path: Path, content: NDArray[Any], places: NDArray[np.int64], names: tuple[Column, ...]
) -> dict[str, Lists]:
    """The columns of neighbouring samples."""
    words = struct.Struct(f"<{len(names)}I")
    cells: list[list[NDArray[Any]]] = [[] for _ in names]
    for start, stop in itertools.pairwise(places.tolist()):
        sample = content[start:stop].tobytes()
        at = words.size
        for name, column, size in zip(names, cells, _sizes(sample, words), strict=True):
            array = _decode_cell(sample[at : at + size], np.dtype(DTYPES[name]))
            if array is None or len(sample) < at + size:
                raise RunError(f"{path}: the sample at byte {start} is damaged in column {_mds_name(name)}")
            column.append(array)
            at += size
        if at != len(sample):
            raise RunError(f"{path}: the sample at byte {start} has {len(sample)} bytes, its columns {at}")
    return {name: _gather(column) for name, column in zip(names, cells, strict=True)}


def _sizes(sample: bytes, words: struct.Struct) -> tuple[int, ...]:
    sizes: tuple[int, ...] = words.unpack_from(sample.ljust(words.size, b"\0"))
    return sizes


def _decode_cell(cell: bytes, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """An array, or None where the cell is no array of one dimension."""
    width = 1 << (cell[0] & 3) if cell else 0
    length = int.from_bytes(cell[1 : 1 + width], "little")
    shape = _shape(length) if length < 1 << 32 else b""
    if not cell or cell[: 1 + width] != shape or len(cell) != len(shape) + length * dtype.itemsize:
        return None
    return np.frombuffer(cell, dtype, offset=len(shape))


def _gather(arrays: list[NDArray[Any]]) -> Lists:
    offsets = offsets_of(np.array([len(array) for array in arrays], np.int64))
    return Lists(np.concatenate(arrays), offsets.astype(np.int32))
