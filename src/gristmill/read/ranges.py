"""A file of a store, read in order by ranges of bytes, the next of which are on their way."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gristmill.retry import retried

if TYPE_CHECKING:
    from concurrent.futures import Future

PART_BYTES = 4 << 20
"""Of one request; larger ones hardly go faster."""
PAST_BYTES = 256 << 10
"""The same past the place where reading should stop: the rest of a line."""
NUM_AHEAD = 4
"""Requests under way: enough to hide the time a store takes to answer."""

ReadRange = Callable[[int, int], bytes]
"""The bytes from one place of a file to another."""


class RangeReader(io.RawIOBase):
    """Reads from where it stands; nothing past `stop` is asked for before somebody reads that far."""

    def __init__(self, read_range: ReadRange, num_bytes: int, stop: int | None = None) -> None:
        # It brings `logging`, which runs over local files do without.
        from concurrent.futures import ThreadPoolExecutor

        super().__init__()
        self._read_range = read_range
        self._num_bytes = num_bytes
        self._stop = num_bytes if stop is None else min(stop, num_bytes)
        self._position = 0
        self._part = memoryview(b"")
        self._part_start = 0
        self._asked = 0
        """Where what was not asked for begins."""
        self._coming: deque[tuple[int, Future[bytes]]] = deque()
        self._threads = ThreadPoolExecutor(NUM_AHEAD, "ranges")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """What is on its way from elsewhere is forgotten at the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._num_bytes}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """As many bytes as are at hand, at least one unless the file has ended."""
        view = memoryview(buffer).cast("B")
        if not view or self._position >= self._num_bytes:
            return 0
        if not self._part_start <= self._position < self._part_start + len(self._part):
            self._next_part()
        at = self._position - self._part_start
        found = self._part[at : at + len(view)]
        view[: len(found)] = found
        self._position += len(found)
        return len(found)

    def close(self) -> None:
        """What is on its way is not waited for."""
        if not self.closed:
            self._forget()
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._part = memoryview(b"")
        super().close()

    def _next_part(self) -> None:
        if not self._coming or self._coming[0][0] != self._position:
            self._forget()
            self._asked = self._position
        while len(self._coming) < NUM_AHEAD and (not self._coming or self._asked < self._stop):
            is_past = self._asked >= self._stop
            limit = self._asked + PAST_BYTES if is_past else min(self._asked + PART_BYTES, self._stop)
            start, end = self._asked, min(limit, self._num_bytes)
            self._coming.append((start, self._threads.submit(self._fetch, start, end)))
            self._asked = end
        self._part_start, coming = self._coming.popleft()
        self._part = memoryview(coming.result())

    def _fetch(self, start: int, end: int) -> bytes:
        def ask() -> bytes:
            content = self._read_range(start, end)
            if len(content) != end - start:
                raise OSError(f"bytes {start} to {end} were asked for, and {len(content)} came")
            return content

        return retried(ask)

    def _forget(self) -> None:
        for _, coming in self._coming:
            coming.cancel()
        self._coming.clear()
