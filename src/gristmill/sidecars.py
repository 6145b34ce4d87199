"""Beside each unit's record: where its documents and rows came from, what it carried over, what was bad.

Every file grows under a hidden name, and gets its own when the unit is committed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gristmill.batch import BadDocument, DocumentBatch
from gristmill.drafts import Draft
from gristmill.engines import Offsets
from gristmill.errors import RunError
from gristmill.pack.rows import Rows, Segments
from gristmill.plain_arrays import read_array
from gristmill.records import FileRecord
from gristmill.text_sample import TextSample, write_sample

FOLDER = "units"
DOCUMENT = np.dtype(
    [("slice", "<i8"), ("record", "<i8"), ("position", "<i8"), ("num_tokens", "<i8"), ("name_end", "<i8")]
)
"""Of each document of a unit: its slice in the unit, its record in the slice, the byte it begins at, its
tokens, and where its name ends in the file of names."""
SEGMENT = np.dtype([("row", "<i8"), ("document", "<i8"), ("start", "<i8"), ("length", "<i8")])
"""Of each segment of a unit's rows: the row, the key of the document, its place in it, its tokens."""


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A record that gave no document, or a file that could not be read to its end."""

    file: str
    slice: int | msgspec.UnsetType = msgspec.UNSET
    """In the unit; absent once `record` counts from the start of the file."""
    record: int
    """From 0; in the unit's own file it counts from the start of the slice."""
    offset: int | None
    """Byte of the decompressed file the record begins at."""
    reason: str
    detail: str
    excerpt: str
    is_file: bool = False
    """The file could not be read any further."""


class Sidecars:
    """Writes a unit's sidecars."""

    def __init__(self, folder: Path, name: str, attempt: str = "") -> None:
        self._folder = folder
        self._name = f"{name}{attempt}"
        self._files: dict[str, Draft] = {}
        self._shelf: list[Draft] = []
        self._num_rows = 0
        self._name_end = 0

    def add_documents(self, documents: DocumentBatch, num_tokens: Offsets, *, slice_index: int) -> None:
        """Note where documents came from."""
        if len(documents) == 0:
            return
        table = np.zeros(len(documents), dtype=DOCUMENT)
        table["slice"] = slice_index
        table["record"] = documents.records
        table["position"] = documents.positions
        table["num_tokens"] = num_tokens
        if documents.names is not None:
            flat, ends = documents.names
            table["name_end"] = self._name_end + ends[1:]
            self._name_end += len(flat)
            self._file("names").write(flat.tobytes())
        self._file("documents").write(table.tobytes())

    def add_rows(self, rows: Rows) -> None:
        """Note what rows were made of."""
        num_rows = len(rows.row_offsets) - 1
        table = np.zeros(len(rows.lengths), dtype=SEGMENT)
        table["row"] = self._num_rows + np.repeat(np.arange(num_rows), np.diff(rows.row_offsets))
        table["document"] = rows.documents
        table["start"] = rows.starts
        table["length"] = rows.lengths
        self._num_rows += num_rows
        if num_rows:
            self._file("segments").write(table.tobytes())

    def add_bad(self, file: str, bad: tuple[BadDocument, ...], *, slice_index: int) -> None:
        """Put bad documents into quarantine."""
        for document in bad:
            entry = Quarantined(
                file=file,
                slice=slice_index,
                record=document.record,
                offset=document.position if document.position >= 0 else None,
                reason=document.reason,
                detail=document.detail,
                excerpt=document.excerpt,
            )
            self.add_quarantined(entry)

    def add_quarantined(self, entry: Quarantined) -> None:
        """Put one entry into quarantine."""
        self._file("quarantine").write(msgspec.json.encode(entry) + b"\n")

    def add_tail(self, tail: Segments) -> None:
        """Put aside what is packed at the end of the run."""
        if len(tail.documents):
            write_segments(self._file("tail"), tail)

    def add_sample(self, sample: TextSample) -> None:
        """Keep documents that a trained tokenizer is measured on."""
        if len(sample.files):
            write_sample(self._file("sample"), sample)

    def add_file(self, kind: str, source: Path, known: FileRecord) -> None:
        """Take a finished file that was written elsewhere in the run folder."""
        path = self._folder / FOLDER / f"{self._name}.{kind}"
        self._files[kind] = Draft.of_file(source, known, path, self._shelf)

    def finish(self) -> tuple[FileRecord, ...]:
        """All of it safe on disk, not yet under its names."""
        for file in self._shelf:
            file.finish()
        return tuple(file.record(self._folder) for _, file in sorted(self._files.items()))

    def commit(self) -> None:
        """Give every file its name."""
        for file in self._shelf:
            file.commit()

    def abandon(self) -> None:
        """Leave nothing behind."""
        for file in self._shelf:
            file.discard()

    def _file(self, kind: str) -> Draft:
        if kind not in self._files:
            path = self._folder / FOLDER / f"{self._name}.{kind}"
            self._files[kind] = Draft(path, self._shelf)
        return self._files[kind]


def write_segments(file: Draft, segments: Segments) -> None:
    """Four NumPy arrays, one after the other."""
    for array in (segments.ids, segments.offsets, segments.documents, segments.starts):
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)


def read_segments(path: Path) -> Segments:
    """What `write_segments` wrote."""
    with path.open("rb") as file:
        arrays = [read_array(file) for _ in range(4)]
    return Segments(*arrays)


def find_sidecar(files: Iterable[FileRecord], kind: str) -> FileRecord | None:
    """The file of one kind among those beside a unit's record."""
    name = re.compile(rf"{FOLDER}/[0-9]+(-[0-9a-f]{{8}})?\.{kind}")
    return next((file for file in files if name.fullmatch(file.path)), None)


def read_table(path: Path, kind: np.dtype[Any]) -> NDArray[Any]:
    """Documents or segments of a unit, mapped; none where the unit has no such file."""
    try:
        if not path.exists() or path.stat().st_size == 0:
            return np.zeros(0, dtype=kind)
        return np.memmap(path, dtype=kind, mode="r")
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read ({error}); gristmill verify says more") from error
