"""What is new in `events.jsonl`: read as it grows, a part at a time, and never trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

READ_BYTES = 1 << 20
MAX_LINE_BYTES = 4 << 20
"""A longer line is no event, and is stepped over."""


class Tail:
    """Whole lines of a file, each given once, from its start on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""
        self._is_stepping_over = False

    def lines(self) -> Iterator[bytes]:
        """The lines that were ended since the last call; none where there is no file."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return
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


def file_key(path: Path) -> tuple[int, int] | None:
    """What tells a file from another that took its name; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
