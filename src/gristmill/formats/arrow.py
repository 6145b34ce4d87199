"""Arrow as `datasets` keeps it on disk (`save_to_disk`): .arrow streams and two JSON files beside them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from blake3 import blake3
from numpy.typing import NDArray

from gristmill.config import WriteConfig
from gristmill.drafts import Draft
from gristmill.formats.lists import (
    DTYPES,
    Batches,
    Lists,
    TableView,
    check_columns,
    chosen_columns,
    features_of,
)
from gristmill.formats.mapped import Group, MappedRows, Stretch, map_content
from gristmill.formats.protocol import Documents, with_suffix, write_run_file
from gristmill.formats.tables import lists_of, reading, schema_of, to_arrow
from gristmill.layout import Layout
from gristmill.pack.rows import Rows
from gristmill.records import FileRecord, ShardRecord


class ArrowWriter:
    """Writes one stream of record batches."""

    def __init__(self, stem: Path, config: WriteConfig, layout: Layout, shelf: list[Draft]) -> None:
        names = chosen_columns(config, layout)
        self._schema = schema_of(names)
        self._batches = Batches(names, layout, id_type=np.dtype(DTYPES["input_ids"]))
        self._draft = Draft(with_suffix(stem, ".arrow"), shelf)
        self._stream = pa.ipc.new_stream(self._draft, self._schema)

    def add_documents(self, documents: Documents) -> None:
        """A document a row."""
        for batch in self._batches.add_documents(documents):
            self._stream.write_batch(to_arrow(batch, self._schema))

    def add_rows(self, rows: Rows) -> None:
        """Rows with their columns."""
        for batch in self._batches.add_rows(rows):
            self._stream.write_batch(to_arrow(batch, self._schema))

    def finish(self) -> list[Draft]:
        """The file of a shard."""
        if not self._batches.is_empty:
            self._stream.write_batch(to_arrow(self._batches.take(), self._schema))
        self._stream.close()
        return [self._draft]


def read(stem: Path, layout: Layout) -> TableView:
    """The rows or documents of a shard."""
    path = with_suffix(stem, ".arrow")
    with reading(path):
        batches = pa.ipc.open_stream(pa.memory_map(str(path))).read_all().to_batches()
    starts = [0, *itertools.accumulate(len(batch) for batch in batches)]

    def group(number: int) -> dict[str, Lists]:
        return lists_of(batches[number], path, num_rows=len(batches[number]))

    return TableView(path, layout, starts, group)


def map_rows(stem: Path, layout: Layout) -> MappedRows:
    """The rows of a shard, where they lie in its record batches."""
    path = with_suffix(stem, ".arrow")
    content = map_content(path)
    starts: list[int] = [0]
    groups: list[Group] = []
    with reading(path):
        for batch in pa.ipc.open_stream(pa.py_buffer(content)):
            lists = lists_of(batch, path, num_rows=len(batch))
            groups.append({name: _stretch(column, content) for name, column in lists.items()})
            starts.append(starts[-1] + len(batch))
    assert layout.sequence_length is not None
    contents = {name: content for group in groups for name in group}
    return MappedRows(path, contents, starts, groups, layout.sequence_length)


def _stretch(column: Lists, content: NDArray[np.uint8]) -> Stretch:
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    at = column.values[first:].ctypes.data - content.ctypes.data
    return Stretch(at, last - first, column.values.dtype)


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    return check_columns(read(stem, layout), shard, layout)


def finish_run(
    folder: Path, shards: Sequence[ShardRecord], config: WriteConfig, layout: Layout
) -> list[FileRecord]:
    """Write what `datasets.load_from_disk` needs beside the shards."""
    files = [file for shard in shards for file in shard.files["arrow"]]
    fingerprint = blake3("".join(file.blake3 for file in files).encode()).hexdigest()[:16]
    state: dict[str, object] = {
        "_data_files": [{"filename": Path(file.path).name} for file in files],
        "_fingerprint": fingerprint,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    info: dict[str, object] = {"features": features_of(chosen_columns(config, layout))}
    return [
        write_run_file(folder, f"arrow/{name}", msgspec.json.format(msgspec.json.encode(content), indent=2))
        for name, content in (("state.json", state), ("dataset_info.json", info))
    ]
