"""Files of a shard while they are written: hidden names beside the final ones, hashed on the way.

A draft becomes a file by one rename; what a killed process leaves is hidden.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from gristmill.direct_file import ALIGNED_BYTES, DirectFile, open_direct
from gristmill.errors import RunError
from gristmill.records import FileRecord

COPY_BYTES = 1 << 20
LARGE_BYTES = 256 << 10
"""From a write of this size on, a file goes past the page cache."""
NO_LINKS = {errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space or raise the quota",
    errno.EACCES: "make the folder writable",
    errno.EPERM: "make the folder writable",
    errno.EROFS: "make the folder writable",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit on open files",
    errno.ENOMEM: "free some memory, or lower run.memory or run.workers",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
}


_uploads: list[bool] = []
"""Not empty: this process sends what it writes to a store."""


def expect_uploads() -> None:
    """Leave what is written from now on in the page cache, as it will be read and sent at once."""
    _uploads[:] = [True]


class Draft:
    """A file being written: under a hidden name until `commit`; on the shelf, where whoever must clean up
    finds it."""

    _direct: DirectFile | None = None
    """Where the file is written past the page cache; then it alone writes."""

    def __init__(self, path: Path, shelf: list[Draft], *, is_hashed: bool = True) -> None:
        self.path = path
        self.shelf = shelf
        self.temporary = _hidden_name(path)
        self.num_bytes = 0
        self._hash = blake3() if is_hashed else None
        self._digest: str | None = None
        self._is_safe = False
        with reported(path):
            self._file = os.fdopen(_create(self.temporary), "wb")
        shelf.append(self)

    @property
    def closed(self) -> bool:
        """As pyarrow asks files."""
        return self._file.closed

    def write(self, content: Any) -> int:
        """Append any buffer; returns its size."""
        view = memoryview(content)
        if not view.nbytes:
            return 0
        view = view.cast("B")
        before = self.num_bytes
        with reported(self.path):
            if len(view) >= LARGE_BYTES and self._direct is None and self._is_left_alone():
                head = -before % ALIGNED_BYTES
                self._append(view[:head])
                view = view[head:]
                self._file.flush()
                self._direct = open_direct(self._file.fileno())
            # One part is hashed while the disk has the one before.
            for start in range(0, len(view), COPY_BYTES):
                self._append(view[start : start + COPY_BYTES])
        return self.num_bytes - before

    def flush(self) -> None:
        """What was written can be read under the hidden name."""
        if not self._file.closed:
            with reported(self.path):
                self._flush()

    def finish(self) -> None:
        """All of it is on the disk; nothing more can be written."""
        with reported(self.path):
            if not self._file.closed:
                self._flush()
                if not self._is_safe:
                    os.fsync(self._file.fileno())
                    self._is_safe = True
                self._file.close()

    def linked_as(self, path: Path) -> Draft:
        """The same content under another name too: the same file, or a copy where links do not work."""
        self.finish()
        twin = object.__new__(Draft)
        twin.__dict__.update(self.__dict__, path=path, temporary=_hidden_name(path))
        with reported(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.shelf.append(twin)
            _link_or_copy(self.temporary, twin.temporary)
        return twin

    @classmethod
    def of_file(cls, source: Path, known: FileRecord, path: Path, shelf: list[Draft]) -> Draft:
        """A finished draft with the content of a file that is there, whose record is known to be right: the
        same file, or a copy where links do not work."""
        draft = object.__new__(cls)
        with reported(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = source.open("rb")
            file.close()
            draft.__dict__.update(path=path, shelf=shelf, temporary=_hidden_name(path))
            draft.__dict__.update(num_bytes=known.num_bytes, _digest=known.blake3, _file=file)
            shelf.append(draft)
            _link_or_copy(source, draft.temporary)
        return draft

    def record(self, folder: Path) -> FileRecord:
        """What the run folder is told about it."""
        path = self.path.relative_to(folder).as_posix()
        if self._digest is not None:
            return FileRecord(path=path, num_bytes=self.num_bytes, blake3=self._digest)
        assert self._hash is not None, "a draft that is not hashed has no record"
        return FileRecord(path=path, num_bytes=self.num_bytes, blake3=self._hash.hexdigest())

    def commit(self) -> None:
        """Give a finished draft its name; the folder is synced by the caller."""
        with reported(self.path):
            os.replace(self.temporary, self.path)

    def discard(self) -> None:
        """Leave nothing behind; a second time does nothing."""
        if self._direct is not None:
            self._direct.abandon()
            self._direct = None
        with suppress(OSError):  # what cannot be flushed is thrown away anyway
            self._file.close()
        self.temporary.unlink(missing_ok=True)

    def _is_left_alone(self) -> bool:
        """Whether nobody is about to read what is written: what is not hashed is read back."""
        return self._hash is not None and not _uploads

    def _append(self, view: memoryview) -> None:
        if self._hash is not None:
            self._hash.update(view)
        if self._direct is not None:
            self._direct.write(view)
        else:
            self._file.write(view)
        self.num_bytes += len(view)

    def _flush(self) -> None:
        if self._direct is not None:
            self._direct.finish()
            self._direct = None
        self._file.flush()


class Scratch(Draft):
    """A file that is read back to make others, and never gets a name of its own; it is not hashed."""

    def write(self, content: Any) -> int:
        """Append any buffer; returns its size."""
        size = memoryview(content).nbytes
        with reported(self.path):
            self._file.write(content)
        self.num_bytes += size
        return size

    def map(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """What was written so far, read where it lies."""
        self.flush()
        return np.memmap(self.temporary, dtype, mode="r") if self.num_bytes else np.empty(0, dtype)

    def blocks(self) -> Iterator[bytes]:
        """The same as bytes, a part at a time; not mapped, since a large file would count as memory."""
        self.flush()
        with reported(self.path), self.temporary.open("rb") as file:
            while block := file.read(COPY_BYTES):
                yield block


def sync_folder(folder: Path) -> None:
    """Make renames in it last."""
    with reported(folder):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_lease(lease: str) -> None:
    """Refuse to commit once the run has gone on without this attempt; all of it is in drafts by then.

    Whoever takes a lease away removes the file first and hidden names after it. So an attempt that finds it
    later has no drafts left to commit, however late it goes on: nothing depends on how fast it is."""
    if not lease:
        return
    try:
        os.close(os.open(lease, os.O_RDONLY | os.O_CLOEXEC))  # opened: a network file system asks its server
    except OSError as error:
        raise RunError(f"{lease}: is gone; the run went on without this attempt at the unit") from error


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """What the system refuses becomes an error that names the file and what to do."""
    try:
        yield
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "see to that")
        raise RunError(
            f"{path}: cannot be written ({error.strerror or error}); {remedy}, then run the same command "
            "again: it goes on where it stopped"
        ) from error


def _hidden_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def _create(path: Path) -> int:
    """A new file, open for writing; its folder is there as a rule, but for the first one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
        return
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    import shutil

    with source.open("rb") as original, target.open("xb") as copy:
        shutil.copyfileobj(original, copy, COPY_BYTES)
        copy.flush()
        os.fsync(copy.fileno())
