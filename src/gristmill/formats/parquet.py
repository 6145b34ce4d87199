"""Parquet: a row a row, or a document a row; `datasets` and everything else reads it.

Writing needs no Arrow: it is imported where shards are read, or compressed."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gristmill.config import Column, WriteConfig
from gristmill.drafts import Draft
from gristmill.formats import thrift
from gristmill.formats.lists import (
    DTYPES,
    Batches,
    Collected,
    Lists,
    TableView,
    check_table,
    chosen_columns,
    features_of,
)
from gristmill.formats.pages import CODECS, INT32, Chunk, find_values, write_chunk
from gristmill.formats.protocol import Documents, with_suffix
from gristmill.layout import Layout
from gristmill.pack.rows import Rows
from gristmill.records import ShardRecord

if TYPE_CHECKING:  # only readers need it
    from gristmill.formats.mapped import Group, RowShard

MAGIC = b"PAR1"
CREATED_BY = b"gristmill"
LIST, INT_8 = 3, 15
"""Converted types."""
OPTIONAL, REPEATED = 1, 2


class ParquetWriter:
    """Writes one file, a row group for each batch."""

    def __init__(self, stem: Path, config: WriteConfig, layout: Layout, shelf: list[Draft]) -> None:
        self._columns = chosen_columns(config, layout)
        self._compression = config.compression
        self._batches = Batches(self._columns, layout, id_type=layout.id_type)
        self._groups: list[thrift.Value] = []
        self._num_rows = 0
        self._draft = Draft(with_suffix(stem, ".parquet"), shelf)
        self._draft.write(MAGIC)

    def add_documents(self, documents: Documents) -> None:
        """A document a row."""
        for batch in self._batches.add_documents(documents):
            self._write(batch)

    def add_rows(self, rows: Rows) -> None:
        """Rows with their columns."""
        for batch in self._batches.add_rows(rows):
            self._write(batch)

    def finish(self) -> list[Draft]:
        """The file of a shard."""
        if not self._batches.is_empty:
            self._write(self._batches.take())
        footer = _footer(self._columns, self._num_rows, self._groups)
        self._draft.write(footer + struct.pack("<I", len(footer)) + MAGIC)
        return [self._draft]

    def _write(self, batch: dict[Column, Collected]) -> None:
        chunks = {name: write_chunk(self._draft, lists, self._compression) for name, lists in batch.items()}
        num_rows = len(batch["input_ids"].offsets) - 1
        self._groups.append(_row_group(chunks, num_rows, CODECS[self._compression]))
        self._num_rows += num_rows


def read(stem: Path, layout: Layout) -> TableView:
    """The rows or documents of a shard."""
    return _open(with_suffix(stem, ".parquet"), layout)[0]


def map_rows(stem: Path, layout: Layout) -> RowShard:
    """The rows of a shard, where they lie in its pages; compressed ones are decoded, a row group at a
    time."""
    from gristmill.formats.mapped import MappedRows, ViewRows, map_content
    from gristmill.formats.tables import reading

    path = with_suffix(stem, ".parquet")
    content = map_content(path)
    with reading(path):
        # Not by pyarrow: asked for a column of a damaged footer, it ends the process.
        parts = _row_groups(content)
        groups = [_find_columns(content, part) for part in parts]
        starts = [0, *itertools.accumulate(int(part[3]) for part in parts)]
    assert layout.sequence_length is not None
    if not all("input_ids" in group for group in groups):
        return ViewRows(read(stem, layout))
    contents = {name: content for group in groups for name in group}
    return MappedRows(path, contents, starts, groups, layout.sequence_length)


def _row_groups(content: NDArray[np.uint8]) -> list[dict[int, Any]]:
    """The metadata of the row groups of a file, as `_footer` writes it."""
    end = len(content) - 8
    size = int.from_bytes(content[end : end + 4].tobytes(), "little") if end >= 0 else 0
    if not 0 < size <= end or content[end + 4 :].tobytes() != MAGIC:
        raise ValueError("it does not end like a Parquet file")
    groups = thrift.read_struct(content[end - size : end].tobytes()).get(4, [])
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ValueError("its metadata is damaged")
    return groups


def _find_columns(content: NDArray[np.uint8], group: dict[int, Any]) -> Group:
    """The columns of a row group that need no decoding."""
    try:
        found = {chunk[3][3][0].decode(): find_values(content, chunk[3]) for chunk in group[1]}
        if not 0 <= group[3] < 1 << 62:
            raise ValueError("a row group has no number of rows")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("its metadata is damaged") from error
    return {name: stretch for name, stretch in found.items() if stretch is not None}


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    view, names = _open(with_suffix(stem, ".parquet"), layout)
    return check_table(view, names, shard, layout)


def _open(path: Path, layout: Layout) -> tuple[TableView, list[str]]:
    """The rows, and the columns' names."""
    import pyarrow.parquet as pq

    from gristmill.formats.tables import lists_of, reading

    def group(number: int) -> dict[str, Lists]:
        with reading(path):
            table = file.read_row_group(number, use_threads=False)
        return lists_of(table, path, num_rows=starts[number + 1] - starts[number])

    with reading(path):
        file = pq.ParquetFile(str(path), memory_map=True)
        sizes = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
        starts = [0, *itertools.accumulate(sizes)]
        return TableView(path, layout, starts, group), file.schema_arrow.names


def _row_group(chunks: dict[Column, Chunk], num_rows: int, codec: int) -> thrift.Value:
    return thrift.struct(
        {
            1: thrift.array([_column_chunk(name, chunk, codec) for name, chunk in chunks.items()]),
            2: thrift.i64(sum(chunk.plain_bytes for chunk in chunks.values())),
            3: thrift.i64(num_rows),
        }
    )


def _column_chunk(name: Column, chunk: Chunk, codec: int) -> thrift.Value:
    fields = {
        1: thrift.i32(INT32),
        2: thrift.array([thrift.i32(encoding) for encoding in chunk.encodings]),
        3: thrift.array([thrift.text(part) for part in (name.encode(), b"list", b"element")]),
        4: thrift.i32(codec),
        5: thrift.i64(chunk.num_values),
        6: thrift.i64(chunk.plain_bytes),
        7: thrift.i64(chunk.stored_bytes),
        9: thrift.i64(chunk.data_at),
    }
    if chunk.dictionary_at is not None:
        fields[11] = thrift.i64(chunk.dictionary_at)
    return thrift.struct({2: thrift.i64(0), 3: thrift.struct(fields)})


def _footer(columns: tuple[Column, ...], num_rows: int, groups: list[thrift.Value]) -> bytes:
    root = thrift.struct({4: thrift.text(b"schema"), 5: thrift.i32(len(columns))})
    elements = [element for name in columns for element in _schema_elements(name)]
    features = msgspec.json.encode({"info": {"features": features_of(columns)}})
    pair = thrift.struct({1: thrift.text(b"huggingface"), 2: thrift.text(features)})
    return thrift.struct(
        {
            1: thrift.i32(2),
            2: thrift.array([root, *elements]),
            3: thrift.i64(num_rows),
            4: thrift.array(groups),
            5: thrift.array([pair]),
            6: thrift.text(CREATED_BY),
        }
    ).content


def _schema_elements(name: Column) -> list[thrift.Value]:
    """The three levels of a list, as the Parquet specification has them."""
    outer = {3: OPTIONAL, 5: 1, 6: LIST}
    middle = {3: REPEATED, 5: 1}
    inner = {1: INT32, 3: OPTIONAL} | ({6: INT_8} if DTYPES[name] == "int8" else {})
    named = ((name.encode(), outer), (b"list", middle), (b"element", inner))
    return [
        thrift.struct({4: thrift.text(text), **{key: thrift.i32(value) for key, value in fields.items()}})
        for text, fields in named
    ]
