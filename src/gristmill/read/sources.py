"""Bytes of a file in order, as arrays that grow: from plain or compressed files, or mapped into memory."""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

import numpy as np

from gristmill import _native
from gristmill.engines import Bytes
from gristmill.errors import BadFileError, GristmillError
from gristmill.read.blocks import Blocks
from gristmill.read.inputs import InputFile
from gristmill.read.storage import is_remote, open_input, open_stream, unreadable
from gristmill.stopwatch import within

Fill = Callable[[memoryview], int]
"""Puts bytes at the start of a view, and says how many; 0 at the end."""


class Source(Protocol):
    """Gives the bytes of a file from a position on; a fault ends them early, and is kept."""

    fault: BadFileError | None

    def grow(self, pending: Bytes, num_bytes: int) -> Bytes:
        """`pending`, the bytes given last, followed by as many new ones, or fewer at the end; `pending` must
        not be used after that."""
        ...


class StreamSource:
    """Reads a file or a decoder from where it stands."""

    def __init__(self, fill: Fill) -> None:
        self.fault: BadFileError | None = None
        self._fill = fill

    def grow(self, pending: Bytes, num_bytes: int) -> Bytes:
        used = len(pending)
        if pending.base is None:
            # A record that grows over many blocks is not copied each time.
            block = pending
            block.resize(used + num_bytes, refcheck=False)
        else:
            size = used + num_bytes
            block = _empty_block(size) if used < num_bytes else np.empty(size, np.uint8)
            block[:used] = pending
        view = block.data
        while used < len(block) and (added := self._add(view[used:])):
            used += added
        del view
        return block if used == len(block) else block[:used]

    def _add(self, view: memoryview) -> int:
        if self.fault is not None:
            return 0
        try:
            return self._fill(view)
        except BadFileError as error:
            self.fault = error
        except Exception as error:  # stores raise what they like
            self.fault = unreadable(error)
        return 0


def _empty_block(num_bytes: int) -> Bytes:
    """Memory that other blocks have used, where there is some."""
    return _native.empty_ids(-(-num_bytes // 4)).view(np.uint8)[:num_bytes]


class MappedSource:
    """Maps windows of a local file; each lives as long as an array that shows it, so few are mapped.

    A file that shrinks meanwhile ends the process; that is why mapping is asked for and not the default.
    """

    def __init__(self, file: BinaryIO, position: int) -> None:
        self.fault: BadFileError | None = None
        self._file = file.fileno()
        self._position = position
        self._file_bytes = os.fstat(self._file).st_size

    def grow(self, pending: Bytes, num_bytes: int) -> Bytes:
        start = self._position - len(pending)
        stop = min(self._position + num_bytes, self._file_bytes)
        if stop <= self._position:
            return pending
        self._position = stop
        aligned = start - start % mmap.ALLOCATIONGRANULARITY
        try:
            window = mmap.mmap(self._file, stop - aligned, access=mmap.ACCESS_READ, offset=aligned)
        except (ValueError, OSError) as error:  # it has shrunk, or cannot be mapped
            raise BadFileError("unreadable", f"cannot be mapped ({error})") from error
        return np.frombuffer(window, np.uint8, offset=start - aligned)


@contextmanager
def open_source(
    file: InputFile, blocks: Blocks, *, position: int, stop: int | None = None
) -> Iterator[Source]:
    """The content of a file from a position on, decompressed where it is compressed; little is read past
    the place where it should stop, if there is one."""
    is_compressed = file.compression != "none"
    with open_checked(file.path, is_stream=is_compressed, stop=stop) as opened:
        if is_compressed:
            yield StreamSource(_fill_from_decoder(opened, file.compression))
        elif blocks.memory_map and not is_remote(file.path):
            yield MappedSource(opened, position)
        else:
            if position:
                _seek(opened, position)
            yield StreamSource(_fill_from_file(opened))


@contextmanager
def open_checked(path: str, *, is_stream: bool = False, stop: int | None = None) -> Iterator[BinaryIO]:
    """An open file; one that cannot be opened is a bad file."""
    try:
        opened = open_stream(path) if is_stream else open_input(path, stop=stop)
    except GristmillError:
        raise
    except Exception as error:
        raise unreadable(error) from error
    with opened:
        yield opened


def _seek(file: BinaryIO, position: int) -> None:
    try:
        file.seek(position)
    except Exception as error:
        raise unreadable(error) from error


def _fill_from_file(file: Any) -> Fill:
    def fill(view: memoryview) -> int:
        with within("wait"):
            return file.readinto(view) or 0

    return fill


def _fill_from_decoder(file: BinaryIO, compression: str) -> Fill:
    from gristmill.read.codecs import FED_BYTES, decode_file

    # zstd is read a block at a time, of which many are small.
    buffered: Any = io.BufferedReader(_Awaited(file), FED_BYTES)
    pieces = decode_file(buffered, compression)
    rest = memoryview(b"")

    def fill(view: memoryview) -> int:
        nonlocal rest
        while not rest:
            with within("decompress"):
                piece = next(pieces, None)
            if piece is None:
                return 0
            rest = memoryview(piece)
        num_bytes = min(len(rest), len(view))
        view[:num_bytes] = rest[:num_bytes]
        rest = rest[num_bytes:]
        return num_bytes

    return fill


class _Awaited(io.RawIOBase):
    """A file whose reads count as waiting for it."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        with within("wait"):
            return self._file.readinto(view) or 0
