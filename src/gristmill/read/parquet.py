"""Parquet -> documents: only the columns asked for, row group by row group, some rows at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import pyarrow.parquet as pq

from gristmill.config import ReadConfig
from gristmill.errors import BadFileError, GristmillError
from gristmill.read.blocks import Batches, Blocks
from gristmill.read.columns import Columns, find_columns, make_documents
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.storage import (
    describe_error,
    fault_of,
    is_remote,
    open_columns,
    read_start,
    unreadable,
)

MAGIC = b"PAR1"
BUFFER_BYTES = 1 << 20
"""Read at a time of each column; without a limit a column of a row group is read whole."""
MAX_ROWS = 1 << 14
"""At a time: a column of few values can be far larger than the footer says."""


def read_parquet(file: InputFile, part: Slice, config: ReadConfig, blocks: Blocks) -> Batches:
    """Documents of row groups; of one with a fault, those of the rows before it."""
    with _open_parquet(file, memory_map=blocks.memory_map) as parquet:
        columns = find_columns(parquet.schema_arrow, config)
        num_records = 0
        for group in _groups(parquet, file, part):
            for rows in _read_group(parquet, group, columns, blocks):
                batch = make_documents(rows, columns, config, blocks, record=num_records)
                num_records += batch.num_records
                yield batch


def row_group_sizes(file: InputFile) -> list[int]:
    """Bytes of each row group, uncompressed, as the footer tells."""
    with _open_parquet(file, memory_map=False) as parquet:
        footer = parquet.metadata
        return [footer.row_group(group).total_byte_size for group in range(footer.num_row_groups)]


def count_rows(file: InputFile, part: Slice) -> float:
    """Rows in the row groups of a slice."""
    with _open_parquet(file, memory_map=False) as parquet:
        groups = _groups(parquet, file, part)
        return float(sum(parquet.metadata.row_group(group).num_rows for group in groups))


def _groups(parquet: Any, file: InputFile, part: Slice) -> range:
    """The row groups of a slice; of a share, those that begin in it."""
    num_groups = parquet.metadata.num_row_groups
    if not part.is_share:
        return range(part.start, min(part.stop, num_groups))
    sizes = [max(parquet.metadata.row_group(group).total_byte_size, 0) for group in range(num_groups)]
    ends = list(accumulate(sizes, initial=0))
    places = [file.num_bytes * end // max(ends[-1], 1) for end in ends[:-1]]
    is_last = part.stop >= file.num_bytes  # also takes groups at the end that claim to hold no bytes
    return range(bisect_left(places, part.start), num_groups if is_last else bisect_left(places, part.stop))


@contextmanager
def _open_parquet(file: InputFile, *, memory_map: bool) -> Iterator[Any]:
    try:
        if not (head := read_start(file.path, len(MAGIC))):
            raise BadFileError("empty_file", "the file holds no bytes")
        source = open_columns(file.path) if is_remote(file.path) else None
    except GristmillError:
        raise
    except Exception as error:
        raise unreadable(error) from error
    try:
        parquet = pq.ParquetFile(
            source or file.path,
            memory_map=memory_map,
            buffer_size=BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
    except Exception as error:
        reason = "corrupt" if head == MAGIC else "not_parquet"
        raise fault_of(source, BadFileError(reason, describe_error(error))) from error
    with parquet:
        try:
            yield parquet
        except BadFileError as error:
            raise fault_of(source, error) from error


def _read_group(parquet: Any, group: int, columns: Columns, blocks: Blocks) -> Iterator[Any]:
    num_rows = 0
    try:
        for rows in _iterate(parquet, group, columns, _rows_at_a_time(parquet, group, blocks)):
            num_rows += len(rows)
            yield rows
    except Exception as fault:
        # How far a fault is felt depends on the rows read at a time; one by one, on the file alone.
        yield from _read_slowly(parquet, group, columns, skip=num_rows)
        raise BadFileError("corrupt", f"row group {group}: {describe_error(fault)}") from fault


def _read_slowly(parquet: Any, group: int, columns: Columns, *, skip: int) -> Iterator[Any]:
    try:
        for number, row in enumerate(_iterate(parquet, group, columns, 1)):
            if number >= skip:
                yield row
    except Exception:
        return


def _iterate(parquet: Any, group: int, columns: Columns, num_rows: int) -> Iterator[Any]:
    names = [".".join(path) for path in columns.paths()]
    return iter(
        parquet.iter_batches(batch_size=num_rows, row_groups=[group], columns=names, use_threads=False)
    )


def _rows_at_a_time(parquet: Any, group: int, blocks: Blocks) -> int:
    # What the footer says of single columns is not asked for: on a damaged one that ends the process.
    footer = parquet.metadata.row_group(group)
    num_rows = blocks.block_bytes * footer.num_rows // max(footer.total_byte_size, 1)
    return int(max(1, min(MAX_ROWS, num_rows)))
