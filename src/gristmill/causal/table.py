"""A `datasets.Dataset` of text becomes one of rows, written to an Arrow file in the cache of `datasets`."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from gristmill.batch import TokenBatch, flatten_texts
from gristmill.causal.encoding import Encoder
from gristmill.causal.rows import NAMES, RowShape, cut_rows, lay_columns, new_columns, to_arrow
from gristmill.engines import Bytes, Offsets
from gristmill.errors import InputError, MissingPackageError, RunError
from gristmill.run.resources import available_memory

log = logging.getLogger(__name__)

VERSION = 1
"""Of the rows of a text: part of the fingerprint, so that a change here leaves no old cache in use."""
MAX_BATCH = 10_000
PART_BYTES = (1 << 20, 16 << 20)
"""Text encoded at a time: the least where memory is short, and as much as makes calls no faster."""
MEMORY_SHARE = 128
"""Of the memory there is, the part that the text of a batch may take: ids and rows are several times that."""
RECORD_BATCH_BYTES = 8 << 20
MAX_RECORD_BATCH = 1000
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
DRAFT = ".draft"
OLD_S = 3600


class Part(NamedTuple):
    """Documents that are encoded together."""

    text: Bytes
    offsets: Offsets
    first_row: int
    """Of the dataset."""


def load_datasets() -> Any:
    """The package `datasets`."""
    try:
        return import_module("datasets")
    except ImportError as error:
        raise MissingPackageError("datasets is not installed: pip install 'gristmill[datasets]'") from error


def tokenize_table(dataset: Any, encoder: Encoder, *, name: str | None) -> Any:
    """The rows of a dataset; those that were made before of the same dataset and config are used again."""
    config = encoder.config
    check_column(dataset.column_names, config.text_column)
    _check_format(dataset)
    fingerprint = _fingerprint(dataset, encoder)
    path = _place(dataset, fingerprint)
    if not _is_whole(path):
        batch_size = config.batch_size or choose_batch_size(dataset, config.text_column)
        encoder.announce(batch_size)
        _write(dataset, path, encoder, batch_size, name=name)
    else:
        log.info("rows of the same dataset and config are in the cache: %s", path)
    return _opened(dataset, path, fingerprint, encoder.shape)


def check_column(columns: Iterable[str], column: str) -> None:
    """Refuse a dataset without the text column."""
    if column not in columns:
        raise InputError(
            f"the dataset has no column {column!r} (it has {', '.join(columns)}); set text_column"
        )


def _check_format(dataset: Any) -> None:
    """Refuse a transform: texts are read as they are stored, and rows would go through it afterwards."""
    if dataset.format["type"] == "custom":
        raise InputError(
            "the dataset has a transform (with_transform), which makes texts only when they are looked at; "
            "apply it with dataset.map, or drop it with dataset.with_format(None)"
        )


def choose_batch_size(dataset: Any, column: str) -> int:
    """Documents whose text takes a small share of the memory there is."""
    texts = dataset.data.column(column)
    mean_bytes = max(1, int(texts.nbytes) // max(1, len(texts)))
    return max(1, min(MAX_BATCH, part_bytes() // mean_bytes))


def part_bytes() -> int:
    """Text that is encoded at a time."""
    least, most = PART_BYTES
    return max(least, min(most, available_memory() // MEMORY_SHARE))


def read_parts(tables: Iterator[Any], column: str) -> Iterator[Part]:
    """Documents of tables, as they lie in Arrow's memory, in parts of bounded size."""
    first_row, most = 0, part_bytes()
    for table in tables:
        for chunk in table.column(column).chunks:
            yield from _cut(chunk, column, first_row, most)
            first_row += len(chunk)


def _cut(chunk: Any, column: str, first_row: int, most: int) -> Iterator[Part]:
    if chunk.null_count:
        row = first_row + int(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(
            f"row {row}: {column} is null; drop such rows: "
            f"dataset.filter(lambda row: row[{column!r}] is not None)"
        )
    try:
        text, offsets = flatten_texts(chunk)
    except InputError as error:
        raise InputError(f"column {column}, rows from {first_row}: {error}; set text_column") from error
    start = 0
    while start < len(chunk):
        stop = int(np.searchsorted(offsets, offsets[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), len(chunk))
        own = offsets[start : stop + 1]
        yield Part(text[own[0] : own[-1]], own - own[0], first_row + start)
        start = stop


def encode_part(encoder: Encoder, part: Part) -> TokenBatch:
    """Ids of the documents; an error says which rows."""
    try:
        return encoder.encode(part.text, part.offsets)
    except InputError as error:
        last = part.first_row + len(part.offsets) - 2
        raise InputError(f"rows {part.first_row} to {last} (document 0 is the first): {error}") from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path.parent}: rows cannot be written there ({error.strerror or error}); make room, or have "
            "the caches of datasets elsewhere (HF_DATASETS_CACHE; TMPDIR for datasets in memory)"
        ) from error


class RowsFile:
    """Rows as an Arrow stream, in record batches that do not depend on how many documents come at a time."""

    def __init__(self, path: Path, shape: RowShape) -> None:
        self._path = path
        _remove_old_drafts(path)
        self._draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{DRAFT}")
        self._shape = shape
        self._schema = schema_of(shape)
        self._rows = new_columns(record_batch_rows(shape), shape)
        self._num_held = 0
        with _writing(self._path):
            self._file = pa.OSFile(str(self._draft), "wb")
            self._stream = pa.ipc.new_stream(self._file, self._schema)

    def add(self, tokens: TokenBatch) -> None:
        """Append the rows of documents."""
        windows = cut_rows(tokens, self._shape)
        start = 0
        while start < len(windows):
            stop = min(len(windows), start + len(self._rows.input_ids) - self._num_held)
            held = self._num_held + stop - start
            out = self._rows.part(self._num_held, held)
            lay_columns(tokens, windows.pick(slice(start, stop)), self._shape, out)
            self._num_held, start = held, stop
            if held == len(self._rows.input_ids):
                self._flush()

    def finish(self) -> None:
        """Let the file be seen, whole."""
        if self._num_held:
            self._flush()
        with _writing(self._path):
            self._stream.close()
            self._file.close()
            os.replace(self._draft, self._path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):
            self._file.close()
        with suppress(FileNotFoundError):
            self._draft.unlink()

    def _flush(self) -> None:
        with _writing(self._path):
            self._stream.write_batch(to_arrow(self._rows.part(0, self._num_held), self._schema))
        self._num_held = 0


def record_batch_rows(shape: RowShape) -> int:
    """Rows of a record batch: a few MB, so that a reader that wants one row maps little."""
    return max(1, min(MAX_RECORD_BATCH, RECORD_BATCH_BYTES // shape.row_bytes))


def features_of(shape: RowShape) -> dict[str, Any]:
    """Columns in the words of `datasets`; Sequence, because versions before 4 know no List."""
    dtypes = {"input_ids": shape.dtype, "attention_mask": "int8", "labels": shape.dtype}
    return {
        name: {"feature": {"dtype": dtypes[name], "_type": "Value"}, "_type": "Sequence"} for name in NAMES
    }


def schema_of(shape: RowShape) -> pa.Schema:
    """Of the Arrow file, with the features that `datasets` reads from it."""
    kinds = [pa.from_numpy_dtype(np.dtype(dtype)) for dtype in (shape.dtype, "int8", shape.dtype)]
    fields = [pa.field(name, pa.list_(kind)) for name, kind in zip(NAMES, kinds, strict=True)]
    info = {"info": {"features": features_of(shape)}}
    return pa.schema(fields, metadata={"huggingface": msgspec.json.encode(info)})


def _write(dataset: Any, path: Path, encoder: Encoder, batch_size: int, *, name: str | None) -> None:
    column = encoder.config.text_column
    tables = dataset.select_columns([column]).with_format("arrow").iter(batch_size)
    file = RowsFile(path, encoder.shape)
    bar = load_datasets().utils.tqdm(
        total=len(dataset),
        unit=" documents",
        desc=f"Tokenizing {name}" if name else "Tokenizing",
        disable=not encoder.config.show_progress,
    )
    try:
        # One thread lays out and writes the rows of a part while the next is encoded.
        with bar, ThreadPoolExecutor(1) as behind:
            written: Future[None] | None = None
            for part in read_parts(tables, column):
                tokens = encode_part(encoder, part)
                if written is not None:
                    written.result()
                written = behind.submit(file.add, tokens)
                bar.update(len(part.offsets) - 1)
            if written is not None:
                written.result()
        file.finish()
    except BaseException:
        file.abandon()
        raise


def _fingerprint(dataset: Any, encoder: Encoder) -> str:
    about = msgspec.json.encode([VERSION, dataset._fingerprint, encoder.config.text_column, encoder.identity])
    return hashlib.sha256(about).hexdigest()[:16]


def _place(dataset: Any, fingerprint: str) -> Path:
    """Beside the dataset's own file, as `datasets` does it; else in its temporary folder."""
    datasets = load_datasets()
    if datasets.is_caching_enabled() and dataset.cache_files:
        folder = Path(dataset.cache_files[0]["filename"]).parent
        if os.access(folder, os.W_OK):
            return folder / f"cache-{fingerprint}.arrow"
    folder = Path(import_module("datasets.fingerprint").get_temporary_cache_files_directory())
    unique = import_module("datasets.fingerprint").generate_random_fingerprint()
    return folder / f"cache-{fingerprint}-{unique}.arrow"


def _is_whole(path: Path) -> bool:
    """Whether a file was written to its end; one that a crash of the machine cut short was not."""
    try:
        with pa.memory_map(str(path)) as file:
            pa.ipc.open_stream(file)
            file.seek(file.size() - len(END_OF_STREAM))
            return bytes(file.read()) == END_OF_STREAM
    except (OSError, pa.ArrowInvalid):
        return False


def _remove_old_drafts(path: Path) -> None:
    """Those of processes that were killed: a living one writes every few seconds."""
    for draft in path.parent.glob(f".{path.name}.*{DRAFT}"):
        with suppress(OSError):
            if time.time() - draft.stat().st_mtime > OLD_S:
                draft.unlink()


def _opened(dataset: Any, path: Path, fingerprint: str, shape: RowShape) -> Any:
    datasets = load_datasets()
    table = import_module("datasets.arrow_reader").ArrowReader.read_table(str(path))
    info = dataset.info.copy()
    info.features = datasets.Features.from_dict(features_of(shape))
    made = datasets.Dataset(table, info=info, split=dataset.split, fingerprint=fingerprint)
    format_ = dataset.format
    return made.with_format(format_["type"], **format_["format_kwargs"]) if format_["type"] else made
