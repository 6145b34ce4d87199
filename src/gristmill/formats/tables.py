"""Lists as Arrow has them, for arrow and parquet; imported only where one of them is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from gristmill.config import Column
from gristmill.errors import RunError
from gristmill.formats.lists import DTYPES, Collected, Lists, features_of


def schema_of(names: tuple[Column, ...]) -> pa.Schema:
    """Arrow schema, with the features that `datasets` reads from it."""
    fields = [pa.field(name, pa.list_(pa.from_numpy_dtype(DTYPES[name]))) for name in names]
    info = {"info": {"features": features_of(names)}}
    return pa.schema(fields, metadata={"huggingface": msgspec.json.encode(info)})


def to_arrow(batch: dict[Column, Collected], schema: pa.Schema) -> pa.RecordBatch:
    """A batch as Arrow sees it."""
    arrays = [
        pa.ListArray.from_arrays(pa.array(lists.offsets), pa.array(lists.joined()))
        for lists in batch.values()
    ]
    return pa.record_batch(arrays, schema=schema)


def lists_of(group: Any, path: Path, *, num_rows: int) -> dict[str, Lists]:
    """Columns of an Arrow table or batch, checked to be that many whole lists of numbers."""
    found = {}
    with reading(path):
        for name in group.schema.names:
            column = group.column(name)
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            column.validate(full=True)
            if not pa.types.is_list(column.type) or column.null_count or column.values.null_count:
                raise RunError(f"{path}: column {name} is no list of numbers in every row")
            if len(column) != num_rows:
                raise RunError(f"{path}: column {name} has {len(column)} of {num_rows} rows")
            found[name] = Lists(column.values.to_numpy(), column.offsets.to_numpy())
    if "input_ids" not in found:
        raise RunError(f"{path}: has no column input_ids")
    return found


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What pyarrow says of a damaged file becomes an error that names it."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
