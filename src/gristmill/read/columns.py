"""Columns of Parquet and Arrow -> documents, without a copy of the text where a column allows it.

What a file says of itself is checked before it is used: offsets and indices that point outside make it bad.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.batch import BadDocument, DocumentBatch
from gristmill.config import ReadConfig
from gristmill.engines import Bytes, Offsets
from gristmill.errors import BadFileError
from gristmill.read.blocks import Blocks
from gristmill.read.documents import NO_OFFSETS, check_documents
from gristmill.read.fields import FieldPath, id_path, show_path, text_paths
from gristmill.read.storage import describe_error

MAX_NAMES_SHOWN = 8
ColumnPath = list[str]


class Columns(NamedTuple):
    """Where a file has what the config asks for."""

    texts: list[ColumnPath]
    name: ColumnPath | None

    def paths(self) -> list[ColumnPath]:
        """Every column to read."""
        return self.texts if self.name is None else [*self.texts, self.name]


@contextmanager
def checked_arrow() -> Iterator[None]:
    """What Arrow refuses to work with is a corrupt file."""
    try:
        yield
    except (pa.ArrowException, UnicodeError, OSError) as error:
        raise BadFileError("corrupt", describe_error(error)) from error


@checked_arrow()
def find_columns(schema: Any, config: ReadConfig) -> Columns:
    """The columns of a file that are to be read; of several text fields, those that it has."""
    texts = []
    for path in text_paths(config):
        kind = _find_type(schema, path)
        if kind is not None and not _is_text(kind):
            raise BadFileError("wrong_type", f"column {show_path(path)} is {kind}, not text")
        if kind is not None:
            texts.append(_decode(path))
    if not texts:
        raise _missing(schema, text_paths(config)[0], "read.text_field")
    named = id_path(config)
    if named is None:
        return Columns(texts, None)
    kind = _find_type(schema, named)
    if kind is None:
        raise _missing(schema, named, "read.id_field")
    if pa.types.is_nested(kind):
        raise BadFileError("wrong_type", f"column {show_path(named)} is {kind}, which is no id")
    return Columns(texts, _decode(named))


@checked_arrow()
def make_documents(
    batch: Any, columns: Columns, config: ReadConfig, blocks: Blocks, *, record: int
) -> DocumentBatch:
    """Documents of the rows of a record batch, `record` being the number of its first row."""
    text = _join([_to_binary(_find_column(batch, path)) for path in columns.texts], config.join)
    names = None if columns.name is None else _to_names(_find_column(batch, columns.name))
    records = np.arange(record, record + len(batch))
    bad: tuple[BadDocument, ...] = ()
    if text.null_count:
        is_null = text.is_null().to_numpy(zero_copy_only=False)
        bad = tuple(_null_document(number) for number in records[is_null].tolist())
        names = None if names is None else names.filter(text.is_valid())
        records, text = records[~is_null], text.drop_null()
    flat, offsets = _flatten(text)
    found = DocumentBatch(
        text=flat,
        offsets=offsets,
        records=records,
        positions=np.full(len(records), -1),
        names=None if names is None else _flatten(names),
        bad=bad,
        num_records=len(batch),
        num_bytes=len(flat),
    )
    return check_documents(found, blocks)


def _decode(path: FieldPath) -> ColumnPath:
    return [name.decode() for name in path]


def _find_type(schema: Any, path: FieldPath) -> Any:
    """Type of a column, or None where there is none of that name."""
    kind = pa.struct(list(schema))
    for name in _decode(path):
        if not pa.types.is_struct(kind):
            raise BadFileError("wrong_type", f"column {show_path(path)} goes through {kind}")
        indices = kind.get_all_field_indices(name)
        if not indices:
            return None
        kind = kind.field(indices[-1]).type
    return kind


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")
    return any(getattr(pa.types, f"is_{name}", lambda kind: False)(kind) for name in tests)


def _missing(schema: Any, path: FieldPath, option: str) -> BadFileError:
    names = ", ".join(schema.names[:MAX_NAMES_SHOWN])
    more = ", ..." if len(schema.names) > MAX_NAMES_SHOWN else ""
    return BadFileError("missing_field", f"no column {show_path(path)} (has {names}{more}); set {option}")


def _null_document(record: int) -> BadDocument:
    return BadDocument(record, -1, "null", "the text is null", "")


def _find_column(batch: Any, path: ColumnPath) -> Any:
    column = batch.column(batch.schema.get_all_field_indices(path[0])[-1])
    for name in path[1:]:
        column = pc.struct_field(column, column.type.get_all_field_indices(name)[-1])
    return column


def _to_binary(column: Any) -> Any:
    """A column as large_binary, its text where it was, with offsets that were checked."""
    if isinstance(column, pa.DictionaryArray):
        values = _to_binary(column.dictionary)
        column = pa.DictionaryArray.from_arrays(column.indices, values, safe=True).dictionary_decode()
    column = column.cast(pa.large_binary())
    column.validate(full=True)
    return column


def _to_names(column: Any) -> Any:
    kind = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    column = _to_binary(column) if _is_text(kind) else column.cast(pa.string()).cast(pa.large_binary())
    return column.fill_null(b"")


def _join(texts: list[Any], join: str) -> Any:
    if len(texts) == 1:
        return texts[0]
    is_null = reduce(pc.and_, [text.is_null() for text in texts])
    # A row of nulls alone would be missing from what the join gives (seen with pyarrow 26).
    first = pc.if_else(is_null, pa.scalar(b"", pa.large_binary()), texts[0])
    separator = pa.scalar(join.encode(), pa.large_binary())
    joined = pc.binary_join_element_wise(first, *texts[1:], separator, null_handling="skip")
    return pc.if_else(is_null, pa.scalar(None, pa.large_binary()), joined)


def _flatten(array: Any) -> tuple[Bytes, Offsets]:
    if len(array) == 0:
        return np.empty(0, np.uint8), NO_OFFSETS
    _, bounds, content = array.buffers()
    offsets = np.frombuffer(bounds, np.int64)[array.offset : array.offset + len(array) + 1]
    start, stop = int(offsets[0]), int(offsets[-1])
    flat = np.frombuffer(content, np.uint8)[start:stop] if stop > start else np.empty(0, np.uint8)
    return flat, offsets - start if start else offsets
