"""Parquet: a row a row, or a document a row; `datasets` and everything else reads it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from gristmill.config import WriteConfig
from gristmill.errors import RunError
from gristmill.formats.drafts import Draft
from gristmill.formats.layout import Documents, Layout, with_suffix
from gristmill.formats.tables import (
    Batch,
    Batches,
    TableView,
    check_table,
    chosen_columns,
    schema_of,
    to_arrow,
)
from gristmill.pack.rows import Rows
from gristmill.records import ShardRecord


class ParquetWriter:
    """Writes one file, a row group for each batch."""

    def __init__(self, stem: Path, config: WriteConfig, layout: Layout, shelf: list[Draft]) -> None:
        names = chosen_columns(config, layout)
        self._schema = schema_of(names)
        self._batches = Batches(names, layout)
        self._draft = Draft(with_suffix(stem, ".parquet"), shelf)
        # Ids are nearly random numbers: a dictionary costs time and saves nothing, statistics help no one.
        self._file: Any = pq.ParquetWriter(
            self._draft,
            self._schema,
            compression=config.compression,
            use_dictionary=False,
            write_statistics=False,
        )

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
        self._file.close()
        return [self._draft]

    def _write(self, batch: Batch) -> None:
        self._file.write_batch(to_arrow(batch, self._schema))


def read(stem: Path, layout: Layout) -> TableView:
    """The rows or documents of a shard."""
    return _open(with_suffix(stem, ".parquet"), layout)[0]


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    view, schema = _open(with_suffix(stem, ".parquet"), layout)
    return check_table(view, schema, shard, layout)


def _open(path: Path, layout: Layout) -> tuple[TableView, pa.Schema]:
    try:
        file = pq.ParquetFile(str(path), memory_map=True)
        sizes = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
        starts = [0, *itertools.accumulate(sizes)]
        return TableView(
            path, layout, starts, lambda group: _read_group(file, group, path)
        ), file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"{path}: is no whole Parquet file ({' '.join(str(error).split())})") from error


def _read_group(file: Any, group: int, path: Path) -> Any:
    try:
        return file.read_row_group(group, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise RunError(
            f"{path}: row group {group} cannot be read ({' '.join(str(error).split())})"
        ) from error
