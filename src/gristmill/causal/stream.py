"""A `datasets.IterableDataset` of text becomes one of rows, a batch of documents at a time.

`datasets` itself keeps shards, shuffling, and the state that a loader resumes from.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gristmill.causal.encoding import Encoder
from gristmill.causal.rows import cut_rows, lay_columns, new_columns, to_arrow
from gristmill.causal.table import (
    check_column,
    encode_part,
    features_of,
    load_datasets,
    read_parts,
    schema_of,
)
from gristmill.errors import InputError

BATCH_BYTES = 32 << 20
"""Of rows, at a row a document: what is held while they are iterated over."""
MAX_BATCH = 1000


def tokenize_stream(dataset: Any, encoder: Encoder) -> Any:
    """The rows of a dataset, made as they are asked for."""
    config = encoder.config
    texts = dataset
    if dataset.column_names is None:  # of a generator, say: each document is looked at
        texts = dataset.with_format(None).map(ColumnCheck(config.text_column))
    else:
        check_column(dataset.column_names, config.text_column)
    most = max(1, min(MAX_BATCH, BATCH_BYTES // encoder.shape.row_bytes))
    batch_size = config.batch_size or most
    encoder.announce(batch_size)
    made = (
        texts.select_columns([config.text_column])
        .with_format("arrow")
        .map(
            RowsOfBatch(encoder),
            batched=True,
            batch_size=batch_size,
            features=load_datasets().Features.from_dict(features_of(encoder.shape)),
        )
    )
    return made.with_format(dataset._formatting.format_type if dataset._formatting else None)


class ColumnCheck:
    """Refuses a record without a text in the text column, and changes nothing."""

    def __init__(self, column: str) -> None:
        self._column = column

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        """No new columns."""
        check_column(record, self._column)
        if not isinstance(text := record[self._column], str | bytes):
            raise InputError(
                f"a document of the stream has no text in {self._column} but {text!r:.100}; drop such ones: "
                f"dataset.filter(lambda row: isinstance(row[{self._column!r}], str))"
            )
        return {}


class RowsOfBatch:
    """Turns a table of documents into the table of their rows."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __call__(self, table: Any) -> Any:
        """All rows of the documents; an error counts them from the first of the batch."""
        try:
            return self._rows_of(table)
        except InputError as error:
            raise InputError(f"in a batch of {len(table)} documents of the stream, {error}") from error

    def _rows_of(self, table: Any) -> Any:
        shape = self._encoder.shape
        schema = schema_of(shape)
        batches = []
        for part in read_parts(iter([table]), self._encoder.config.text_column):
            tokens = encode_part(self._encoder, part)
            windows = cut_rows(tokens, shape)
            rows = new_columns(len(windows), shape)
            lay_columns(tokens, windows, shape, rows)
            batches.append(to_arrow(rows, schema))
        return pa.Table.from_batches(batches, schema=schema)
