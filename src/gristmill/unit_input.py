"""1. What a unit reads: its documents, and what becomes of those that are bad and of files that end early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from gristmill.batch import BadDocument, DocumentBatch
from gristmill.config import ReadConfig
from gristmill.errors import BadDocumentError, BadFileError, RunError
from gristmill.head_start import Begun
from gristmill.plan import Unit
from gristmill.read import (
    Blocks,
    InputFile,
    Slice,
    describe_file,
    is_pinned,
    is_remote,
    read_slice,
    unreadable,
)
from gristmill.retry import UnreachableError
from gristmill.sidecars import Quarantined, Sidecars


class UnitInput:
    """Reads the slices of a unit, and counts what it read and what was bad."""

    def __init__(
        self,
        files: Sequence[InputFile],
        config: ReadConfig,
        blocks: Blocks,
        sidecars: Sidecars,
        begun: Begun | None = None,
    ) -> None:
        """`begun`: what was read of the first slice, which is one of lines."""
        self.slice_records: list[int] = []
        self.documents_read = 0
        self.bytes_read = 0
        self.documents_dropped: Counter[str] = Counter()
        self.bad_files: Counter[str] = Counter()
        self._files = files
        self._config = config
        self._blocks = blocks
        self._sidecars = sidecars
        self._begun = begun
        self._starts: list[int] = []

    def batches(self, unit: Unit) -> Iterator[tuple[int, str, DocumentBatch]]:
        """Slice, file and documents; `take_bad` must be told of each batch once it is clear what is bad."""
        self._starts = [part.start for part in unit.slices]
        for index, part in enumerate(unit.slices):
            for documents in self._read(unit, index):
                yield index, self._files[part.file].path, documents

    def take_bad(self, documents: DocumentBatch, path: str, *, slice_index: int) -> None:
        """Count documents and deal with the bad ones as the job says."""
        self.documents_read += len(documents) + len(documents.bad)
        self.bytes_read += documents.num_bytes
        policy = self._config.on_bad_document
        if documents.bad and policy == "fail":
            bad = documents.bad[0]
            raise BadDocumentError(
                f"{path}, {self._place(bad, slice_index)}: {bad.reason} ({bad.detail}); "
                "mend the record, or set read.on_bad_document: quarantine"
            )
        self.documents_dropped.update(bad.reason for bad in documents.bad)
        if policy == "quarantine":
            self._sidecars.add_bad(path, documents.bad, slice_index=slice_index)

    def _place(self, bad: BadDocument, slice_index: int) -> str:
        """Where a bad record is; how many come before the slice is known only where it is the first."""
        record = self._record(bad.record, slice_index)
        return f"{record}, byte {bad.position}" if bad.position >= 0 else record

    def _record(self, number: int, slice_index: int) -> str:
        start = self._starts[slice_index]
        return f"record {number}" + (f" of the part that begins at {start}" if start else "")

    def _read(self, unit: Unit, index: int) -> Iterator[DocumentBatch]:
        """The batches of a slice; a file that cannot be read to its end is noted and left there."""
        part = unit.slices[index]
        file = self._files[part.file]
        num_records = 0
        try:
            _check_unchanged(file)
            for documents in self._documents(file, part, is_first=index == 0):
                num_records += documents.num_records
                yield documents
            if not is_remote(file.path):  # to ask a store again would cost as much as a small file
                _check_unchanged(file)
        except BadFileError as error:
            if error.reason == "unreadable" and is_remote(file.path):
                # The store or the network, not the file: what comes next time may be whole.
                said = f"{file.path}: {error.detail}; run the same command again to go on"
                raise (UnreachableError(said) if error.is_passing else RunError(said)) from error
            if self._begun is not None and self._begun.batches and index == 0:  # already counted or encoded
                raise RunError(f"{file.path}: {error.detail}; run the same command again") from error
            if self._config.on_bad_file == "fail":
                raise RunError(
                    f"{file.path}, {self._record(num_records, index)}: {error}; "
                    "mend the file, or set read.on_bad_file: continue"
                ) from error
            self._add_bad_file(file.path, index, num_records, error)
        finally:
            self.slice_records.append(num_records)

    def _documents(self, file: InputFile, part: Slice, *, is_first: bool) -> Iterator[DocumentBatch]:
        num_records = 0
        if self._begun is not None and is_first:
            batches = self._begun.batches
            num_records = sum(batch.num_records for batch in batches)
            while batches:  # none is held longer than it is needed
                yield batches.pop(0)
            part = msgspec.structs.replace(part, start=self._begun.stop)
        for documents in read_slice(file, part, self._config, self._blocks):
            yield documents.after(num_records)

    def _add_bad_file(self, path: str, slice_index: int, num_records: int, error: BadFileError) -> None:
        self.bad_files[error.reason] += 1
        entry = Quarantined(
            file=path,
            slice=slice_index,
            record=num_records,
            offset=None,
            reason=error.reason,
            detail=error.detail,
            excerpt="",
            is_file=True,
        )
        self._sidecars.add_quarantined(entry)


def _check_unchanged(file: InputFile) -> None:
    """Refuse a file that is not the one the plan was made for: what was read of it belongs to no run."""
    if is_pinned(file.path):
        return  # a commit does not change, and a copy of it is checked
    try:
        is_same = describe_file(file.path) == (file.num_bytes, file.version)
    except FileNotFoundError as error:
        raise RunError(f"{file.path}: is gone since the run was planned; put it back, or --force") from error
    except OSError as error:
        raise unreadable(error) from error
    if not is_same:
        raise RunError(f"{file.path}: has changed since the run was planned; use --force to start over")
