"""Files appear whole: the one place that opens a final path for writing."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gristmill.errors import InputError


def check_writable(path: Path) -> None:
    """Refuse a path that `write_whole` could not write, before work is done for it."""
    handle, temporary = _open_beside(path)
    os.close(handle)
    os.unlink(temporary)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or all of the new, never a part."""
    handle, temporary = _open_beside(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):
            raise InputError(f"{path}: cannot be written ({error.strerror})") from error
        raise


def _open_beside(path: Path) -> tuple[int, str]:
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file")
    try:
        return tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be written ({reason})") from error


class PendingFile:
    """A file being written under a temporary name, hashed as it grows; `commit` gives it its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = hashlib.sha256()
        self._num_bytes = 0
        self._temporary: str | None = None
        handle, self._temporary = _open_beside(path)
        self._file = os.fdopen(handle, "wb", buffering=0)

    def write(self, content: bytes | bytearray | memoryview) -> int:
        """Add to the file."""
        view = memoryview(content).cast("B")
        self._digest.update(view)
        self._num_bytes += len(view)
        left = view
        while left:
            left = left[self._file.write(left) or 0 :]
        return len(view)

    def finish(self) -> tuple[int, str]:
        """Bytes and SHA-256 of what is now safe on disk."""
        os.fsync(self._file.fileno())
        self._file.close()
        return self._num_bytes, self._digest.hexdigest()

    def commit(self) -> None:
        """Let readers see it."""
        assert self._temporary is not None
        os.chmod(self._temporary, 0o644)
        os.replace(self._temporary, self.path)
        self._temporary = None

    def abandon(self) -> None:
        """Remove it, if it was not committed."""
        self._file.close()
        if self._temporary is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._temporary)
            self._temporary = None
