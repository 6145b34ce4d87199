"""CSV and TSV -> documents: a header, then rows, whose quoted fields may hold line ends.

Rows are found by the csv module of the standard library, which tells stray quotes from quoting ones. It is
given text in which each character stands for one byte, so that a field comes back as the bytes it was.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gristmill.batch import BadDocument, DocumentBatch, pack_texts
from gristmill.config import ReadConfig
from gristmill.errors import BadFileError
from gristmill.read.blocks import Batches, Blocks, RecordBlock
from gristmill.read.documents import check_documents, explain_too_large, show_excerpt
from gristmill.read.fields import FieldPath, id_path, show_path, text_paths
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.lines import END_OF_FILE, line_blocks

QUOTE = '"'
ONE_TO_ONE = "latin-1"
WHOLE = Slice(file=0, start=0, stop=END_OF_FILE, num_bytes=0)
MAX_NAMES_SHOWN = 8
MAX_ROWS = 1 << 14


class Row(NamedTuple):
    """A row with the bytes it takes, or why it is none."""

    fields: list[str]
    position: int
    num_bytes: int
    fault: BadDocument | None = None


class Header(NamedTuple):
    """Where a row has what the config asks for."""

    texts: list[int]
    name: int | None
    num_fields: int


class TooLargeError(Exception):
    """The row that is being read is too large to hold."""


class LineFeed:
    """Gives lines to the csv reader, and knows where the row began that it asks them for."""

    def __init__(self, found: Iterator[RecordBlock], blocks: Blocks) -> None:
        self._pieces = _split_pieces(found)
        self._limit = blocks.max_document_bytes
        self.begin_row()

    def begin_row(self) -> None:
        """What is asked for next is of another row."""
        self.position = 0
        self.num_bytes = 0
        self.excerpt = ""
        self._num_quotes = 0
        self._is_line_ended = True

    def __iter__(self) -> LineFeed:
        return self

    def __next__(self) -> str:
        text, position, is_large = next(self._pieces)
        if self.num_bytes == 0:
            self.position = position
            self.excerpt = show_excerpt(text[: self._limit].encode(ONE_TO_ONE))
        self._add(text)
        if is_large or self.num_bytes - self._is_line_ended > self._limit:
            raise TooLargeError
        return text

    def skip_row(self) -> None:
        """Step over the rest of a row: up to a line end that is not inside quotes."""
        while not self._is_line_ended or self._num_quotes % 2:
            piece = next(self._pieces, None)
            if piece is None:
                return
            self._add(piece[0])

    def _add(self, text: str) -> None:
        self.num_bytes += len(text)
        self._num_quotes += text.count(QUOTE)
        self._is_line_ended = text.endswith("\n")


def read_csv(file: InputFile, part: Slice, config: ReadConfig, blocks: Blocks) -> Batches:
    """Documents of the rows after the header; of several text fields, those that are not empty are joined."""
    found = line_blocks(file, WHOLE, blocks)
    rows = _read_rows(found, _delimiter(file), blocks)
    header = _find_header(rows, config)
    num_records = 0
    for some in _gather_rows(rows, blocks):
        yield check_documents(_make_documents(some, header, config, num_records), blocks)
        num_records += len(some)


def _delimiter(file: InputFile) -> str:
    return "\t" if ".tsv" in file.path.rsplit("/", 1)[-1].lower() else ","


def _split_pieces(found: Iterator[RecordBlock]) -> Iterator[tuple[str, int, bool]]:
    """Lines, and parts of lines that are too large."""
    for block in found:
        text = block.content.tobytes().decode(ONE_TO_ONE)
        if block.kind != "records":
            yield text, block.position, True
            continue
        position = block.position
        for line in io.StringIO(text, newline="\n"):
            yield line, position, False
            position += len(line)


def _read_rows(found: Iterator[RecordBlock], delimiter: str, blocks: Blocks) -> Iterator[Row]:
    # The limit is one of the whole process, and far too low for documents; rows have a limit of their own.
    csv.field_size_limit(sys.maxsize)
    feed = LineFeed(found, blocks)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.begin_row()
        reason, detail = "", ""
        fields: list[str] = []
        try:
            fields = next(reader)
        except StopIteration:
            return
        except TooLargeError:
            reason, detail = "too_large", explain_too_large(blocks)
            feed.skip_row()
        except csv.Error as error:
            reason, detail = "bad_csv", str(error)
        fault = BadDocument(0, feed.position, reason, detail, feed.excerpt) if reason else None
        yield Row(fields, feed.position, feed.num_bytes, fault)


def _find_header(rows: Iterator[Row], config: ReadConfig) -> Header:
    row = next((row for row in rows if row.fields or row.fault), None)
    if row is None or row.fault is not None:
        detail = "there is none" if row is None or row.fault is None else row.fault.detail
        raise BadFileError("missing_field", f"no header with the names of the columns: {detail}")
    columns = {name.encode(ONE_TO_ONE): index for index, name in enumerate(row.fields)}
    names = [columns.get(_column_name(path)) for path in text_paths(config)]
    texts = [index for index in names if index is not None]
    named = id_path(config)
    if not texts:
        raise _missing(columns, text_paths(config)[0], "read.text_field")
    if named is not None and _column_name(named) not in columns:
        raise _missing(columns, named, "read.id_field")
    return Header(texts, None if named is None else columns[_column_name(named)], len(row.fields))


def _column_name(path: FieldPath) -> bytes:
    # Columns have no fields inside, so that a dot in a path can only be one in a name.
    return b".".join(path)


def _missing(columns: dict[bytes, int], path: FieldPath, option: str) -> BadFileError:
    names = [show_excerpt(name) for name in list(columns)[:MAX_NAMES_SHOWN]]
    more = ", ..." if len(columns) > MAX_NAMES_SHOWN else ""
    return BadFileError(
        "missing_field", f"no column {show_path(path)} (has {', '.join(names)}{more}); set {option}"
    )


def _gather_rows(rows: Iterator[Row], blocks: Blocks) -> Iterator[list[Row]]:
    """Rows of about a block together; those before a fault of the file come before it is raised."""
    gathered: list[Row] = []
    num_bytes = 0
    try:
        for row in rows:
            gathered.append(row)
            num_bytes += row.num_bytes
            if num_bytes >= blocks.block_bytes or len(gathered) >= MAX_ROWS:
                yield gathered
                gathered, num_bytes = [], 0
    except BadFileError:
        if gathered:
            yield gathered
        raise
    if gathered:
        yield gathered


def _make_documents(rows: list[Row], header: Header, config: ReadConfig, record: int) -> DocumentBatch:
    join = config.join.encode()
    texts: list[str | bytes] = []
    names: list[str | bytes] = []
    kept, bad = [], []
    for number, row in enumerate(rows):
        fault = row.fault or _check_fields(row, header)
        if fault is not None:
            bad.append(fault._replace(record=record + number))
        elif row.fields:
            fields = [row.fields[index].encode(ONE_TO_ONE) for index in header.texts]
            texts.append(join.join(field for field in fields if field))
            names.append(b"" if header.name is None else row.fields[header.name].encode(ONE_TO_ONE))
            kept.append(number)
    text, offsets = pack_texts(texts, errors="strict")
    return DocumentBatch(
        text=text,
        offsets=offsets,
        records=record + np.array(kept, np.int64),
        positions=np.array([rows[number].position for number in kept], np.int64),
        names=None if header.name is None else pack_texts(names, errors="strict"),
        bad=tuple(bad),
        num_records=len(rows),
        num_bytes=sum(row.num_bytes for row in rows),
    )


def _check_fields(row: Row, header: Header) -> BadDocument | None:
    if not row.fields or len(row.fields) == header.num_fields:
        return None
    excerpt = show_excerpt(",".join(row.fields).encode(ONE_TO_ONE))
    detail = f"{len(row.fields)} fields where the header has {header.num_fields}"
    return BadDocument(0, row.position, "bad_csv", detail, excerpt)
