"""What is new in `events.jsonl`: read as it grows, a part at a time, and never trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

READ_BYTES = 1 << 20
STEP_BYTES = 16 << 20
LAST_BYTES = 1 << 17
MAX_LINE_BYTES = 4 << 20
"""A longer line is no event, and is stepped over."""


class Tail:
    """Whole lines of a file, each given once, from its start on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_behind = False
        """There was more than was asked for."""
        self._position = 0
        self._rest = b""
        self._is_stepping_over = False

    def is_another(self) -> bool:
        """Whether the file is shorter than what was read of it: it cannot be the same."""
        try:
            return self._path.stat().st_size < self._position
        except OSError:
            return self._position > 0

    def last_lines(self) -> list[bytes]:
        """The lines at the end of the file, as it is now; `lines` gives them again."""
        if (descriptor := self._open()) is None:
            return []
        with open(descriptor, "rb", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            file.seek(max(size - LAST_BYTES, 0))
            return file.read(LAST_BYTES).split(b"\n")[1 if size > LAST_BYTES else 0 : -1]

    def lines(self, *, max_bytes: int = STEP_BYTES) -> Iterator[bytes]:
        """The lines that were ended since the last call, about so many bytes of them; none where there is no
        file."""
        self.is_behind = False
        if (descriptor := self._open()) is None:
            return
        stop = self._position + max_bytes
        with open(descriptor, "rb", buffering=0) as file:
            file.seek(self._position)
            while content := file.read(READ_BYTES):
                self._position += len(content)
                *lines, self._rest = (self._rest + content).split(b"\n")
                if lines and self._is_stepping_over:
                    lines, self._is_stepping_over = lines[1:], False
                yield from lines
                if len(self._rest) > MAX_LINE_BYTES:
                    self._rest, self._is_stepping_over = b"", True
                if self._position >= stop:
                    self.is_behind = True
                    return

    def _open(self) -> int | None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return None
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None


def file_key(path: Path) -> tuple[int, int, int] | None:
    """What tells a file that is written once from another that took its name; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
