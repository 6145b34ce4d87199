"""Arrow and Feather -> documents: record batches of an IPC file or stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from gristmill.config import ReadConfig
from gristmill.errors import BadFileError, GristmillError
from gristmill.read.blocks import Batches, Blocks
from gristmill.read.columns import find_columns, make_documents
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.storage import describe_error, fault_of, is_remote, open_columns, read_start, unreadable

FILE_MAGIC = b"ARROW1"
OLD_MAGIC = b"FEA1"
STREAM_MAGIC = b"\xff\xff\xff\xff"


def read_arrow(file: InputFile, part: Slice, config: ReadConfig, blocks: Blocks) -> Batches:
    """Documents of record batches; of a stream, all of it."""
    num_records = 0
    with _open_arrow(file, memory_map=blocks.memory_map) as (source, is_file):
        columns = find_columns(_open_reader(source, is_file, None).schema, config)
        wanted = {path[0] for path in columns.paths()}
        reader = _open_reader(source, is_file, wanted)
        for rows in _iterate(reader, is_file, part):
            for some in _split_rows(rows, blocks):
                batch = make_documents(some, columns, config, blocks, record=num_records)
                num_records += batch.num_records
                yield batch


def count_batches(file: InputFile) -> int:
    """Record batches that can be read apart: those of a file; a stream is one."""
    with _open_arrow(file, memory_map=False) as (source, is_file):
        return int(_open_reader(source, True, None).num_record_batches) if is_file else 1


def count_rows(file: InputFile, part: Slice) -> float:
    """Rows in the record batches of a slice, as far as the first of them tells."""
    with _open_arrow(file, memory_map=False) as (source, is_file):
        reader = _open_reader(source, is_file, None)
        if is_file:
            num_batches = min(part.stop, reader.num_record_batches) - part.start
            return float(len(reader.get_batch(part.start)) * num_batches)
        return float(len(reader.read_next_batch()) * file.num_bytes / source.tell())


@contextmanager
def _open_arrow(file: InputFile, *, memory_map: bool) -> Iterator[tuple[Any, bool]]:
    try:
        head = read_start(file.path, len(FILE_MAGIC))
        watched = open_columns(file.path) if is_remote(file.path) else None
        if watched is not None:
            source = pa.PythonFile(watched, "r")
        else:
            source = pa.memory_map(file.path) if memory_map and head else pa.OSFile(file.path)
    except GristmillError:
        raise
    except Exception as error:
        raise unreadable(error) from error
    with source:
        if not head:
            raise BadFileError("empty_file", "the file holds no bytes")
        if head.startswith(OLD_MAGIC):
            raise BadFileError("not_arrow", "Feather version 1 is not read; write it anew as version 2")
        if head != FILE_MAGIC and not head.startswith(STREAM_MAGIC):
            raise BadFileError("not_arrow", "neither an Arrow file nor an Arrow stream")
        try:
            yield source, head == FILE_MAGIC
        except BadFileError as error:
            raise fault_of(watched, error) from error


def _open_reader(source: Any, is_file: bool, wanted: set[str] | None) -> Any:
    open_reader: Callable[..., Any] = pa.ipc.open_file if is_file else pa.ipc.open_stream
    try:
        source.seek(0)
        reader = open_reader(source)
        if wanted is None:
            return reader
        indices = [index for index, name in enumerate(reader.schema.names) if name in wanted]
        source.seek(0)
        options = pa.ipc.IpcReadOptions(included_fields=indices, use_threads=False)
        return open_reader(source, options=options)
    except Exception as error:
        raise BadFileError("corrupt", describe_error(error)) from error


def _iterate(reader: Any, is_file: bool, part: Slice) -> Iterator[Any]:
    try:
        if is_file:
            indices = range(part.start, min(part.stop, reader.num_record_batches))
            batches = (reader.get_batch(index) for index in indices)
        else:
            batches = iter(reader)
        for rows in batches:
            # Buffers that are shorter than a file claims must be noticed before anything looks into them.
            rows.validate()
            yield rows
    except Exception as error:
        raise BadFileError("corrupt", describe_error(error)) from error


def _split_rows(rows: Any, blocks: Blocks) -> Iterator[Any]:
    """Parts of a record batch of about a block each."""
    num_rows = max(1, len(rows) * blocks.block_bytes // max(rows.nbytes, 1))
    for start in range(0, len(rows), num_rows):
        yield rows.slice(start, num_rows)
