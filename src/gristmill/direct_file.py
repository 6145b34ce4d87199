"""Large files written past the page cache, by threads, where they lie on a disk of this machine.

What goes through the cache is copied into fresh memory, which the system must find and clear first; a virtual
machine may have to ask its host for it. The next reader finds nothing in the cache, but neither is anything
else driven out of it."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import queue
import threading
from collections import deque
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

ALIGNED_BYTES = 4096
"""Such writes begin and end at a multiple of it, in the file and in memory."""
BUFFER_BYTES = 512 << 10
MAX_WAITING = 8
"""Buffers of a file that may wait for the disk."""
MAX_IDLE = 16
"""Buffers kept for the next files."""
MAX_THREADS = 4
"""That wait for the disk."""
O_DIRECT: int = getattr(os, "O_DIRECT", 0)

Buffer = NDArray[np.uint8]


class DirectFile:
    """Appends to an open file; what the system refuses is raised by a later call."""

    def __init__(self, handle: int, position: int) -> None:
        self._handle = handle
        self._position = position
        """Of the buffer that is being filled."""
        self._buffer = _take_buffer()
        self._used = 0
        self._writing: deque[_Writing] = deque()

    def write(self, content: memoryview) -> None:
        """Take a copy of the bytes."""
        left = np.frombuffer(content, np.uint8)
        while len(left):
            part = left[: BUFFER_BYTES - self._used]
            self._buffer[self._used : self._used + len(part)] = part
            self._used += len(part)
            left = left[len(part) :]
            if self._used == BUFFER_BYTES:
                self._hand_over()

    def finish(self) -> None:
        """All of it is the system's; the open file is an ordinary one again, and stands at its end."""
        self._wait()
        whole = self._used - self._used % ALIGNED_BYTES
        _write_all(self._handle, self._buffer[:whole], self._position)
        _set_direct(self._handle, is_on=False)
        _write_all(self._handle, self._buffer[whole : self._used], self._position + whole)
        os.lseek(self._handle, self._position + self._used, os.SEEK_SET)
        _give_back(self._buffer)

    def abandon(self) -> None:
        """Nothing is written any more once this returns."""
        for writing in self._writing:
            writing.wait()

    def _hand_over(self) -> None:
        if len(self._writing) == MAX_WAITING:
            if error := self._writing[0].wait():
                raise error  # one that failed stays, and fails whatever is asked next
            self._writing.popleft()
        if not _have_threads():
            _write_all(self._handle, self._buffer, self._position)
            self._position += BUFFER_BYTES
            self._used = 0
            return
        writing = _Writing(self._handle, self._buffer, self._position)
        try:
            self._writing.append(writing)
            _waiting.put(writing)
        except BaseException:  # interrupted, perhaps before anybody has it
            writing.give_up()
            raise
        self._position += BUFFER_BYTES
        self._buffer, self._used = _take_buffer(), 0

    def _wait(self) -> None:
        errors = [writing.wait() for writing in self._writing]  # all of them end first
        for error in filter(None, errors):
            raise error
        self._writing.clear()


def open_direct(handle: int) -> DirectFile | None:
    """For an open file that stands at an aligned place; None where it is better left to the page cache."""
    position = os.lseek(handle, 0, os.SEEK_CUR)
    # File systems in memory or across a network have no device; some of the latter would wait for each write.
    is_on_disk = O_DIRECT and position % ALIGNED_BYTES == 0 and os.major(os.fstat(handle).st_dev) != 0
    return DirectFile(handle, position) if is_on_disk and _set_direct(handle, is_on=True) else None


def _set_direct(handle: int, *, is_on: bool) -> bool:
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags | O_DIRECT if is_on else flags & ~O_DIRECT)
    except OSError:
        return False
    return True


def _write_all(handle: int, content: Buffer, position: int) -> None:
    done, is_refused = 0, False
    while done < len(content):
        try:
            done += os.pwrite(handle, content[done:].data, position + done)
        except OSError as error:
            # Larger blocks than we know of, or a disk so full that it took a part of one.
            if error.errno != errno.EINVAL or is_refused:
                raise
            is_refused = True
            _set_direct(handle, is_on=False)


class _Writing:
    """A buffer on its way to the disk."""

    def __init__(self, handle: int, buffer: Buffer, position: int) -> None:
        self._handle, self._buffer, self._position = handle, buffer, position
        self._error: BaseException | None = None
        self._is_begun = threading.Lock()
        self._is_over = threading.Lock()
        """Free once it is."""
        self._is_over.acquire()

    def do(self) -> None:
        """Unless it was given up."""
        if not self._is_begun.acquire(blocking=False):
            return
        try:
            _write_all(self._handle, self._buffer, self._position)
            _give_back(self._buffer)
        except BaseException as error:
            self._error = error
        finally:
            self._is_over.release()

    def give_up(self) -> None:
        """Unless it has begun, it never will."""
        if self._is_begun.acquire(blocking=False):
            self._error = InterruptedError(errno.EINTR, "never written")
            self._is_over.release()

    def wait(self) -> BaseException | None:
        """Until it is done; what went wrong."""
        with self._is_over:
            return self._error


_idle: list[Buffer] = []
_turn = threading.Lock()
_waiting: queue.SimpleQueue[_Writing] = queue.SimpleQueue()
_num_threads = 0


def _have_threads() -> bool:
    """One that waits for the disk is started while there are few; there may be none to be had."""
    global _num_threads
    with _turn:
        if _num_threads < MAX_THREADS:
            with suppress(RuntimeError):
                threading.Thread(target=_write_what_comes, args=(_waiting,), daemon=True).start()
                _num_threads += 1
        return _num_threads > 0


def _write_what_comes(waiting: queue.SimpleQueue[_Writing]) -> None:
    while True:
        waiting.get().do()


def _begin_anew() -> None:
    """A process that was forked has none of its parent's threads, and may have its lock as it was held."""
    global _turn, _waiting, _num_threads
    _idle.clear()
    _turn, _waiting, _num_threads = threading.Lock(), queue.SimpleQueue(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _take_buffer() -> Buffer:
    with _turn:
        if _idle:
            return _idle.pop()
    return np.frombuffer(mmap.mmap(-1, BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def _give_back(buffer: Buffer) -> None:
    with _turn:
        if len(_idle) < MAX_IDLE:
            _idle.append(buffer)
