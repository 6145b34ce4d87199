"""Memory that a worker lays batches into and that their receiver maps too, used again when nobody holds it.

New shared memory for every batch costs more in page faults than all the rest. A block has no name: it is
gone with the processes that map it, however they end."""

from __future__ import annotations

import math
import mmap
import os
import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gristmill.dataset.kept_memory import teach_allocator
from gristmill.errors import RunError

HEAD_BYTES = 64
"""Of a block: each byte that is not 0 stands for somebody who holds it, the first for the process it is of.
Columns begin at multiples of this."""
NOBODY = bytes(HEAD_BYTES)
MAX_BLOCKS = 32
"""Of a worker; a reader who holds more batches than this gets the others as torch sends them."""
CAN_SHARE = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


class Place(NamedTuple):
    """Where a column lies in a block."""

    at: int
    dtype: str
    shape: tuple[int, ...]


Sender = tuple[int, int, int, int]
"""Names a block for another process: the process it is of, its file there, inode and bytes. A bare tuple,
which is pickled quicker than a kind of its own."""


class Block:
    """Memory that other processes may map too; it is gone when none does any more."""

    def __init__(self, file: int, num_bytes: int) -> None:
        self.file = file
        self.num_bytes = num_bytes
        self.inode = os.fstat(file).st_ino
        self._content = mmap.mmap(file, num_bytes)

    @property
    def is_free(self) -> bool:
        """Nobody holds it."""
        return self._content[:HEAD_BYTES] == NOBODY

    def hold(self) -> int:
        """Note one more holder; returns its number."""
        slot = self._content.find(b"\0", 0, HEAD_BYTES)
        if slot < 0:
            raise RunError(f"a batch was pickled {HEAD_BYTES} times and not received; make a copy of it")
        self._content[slot] = 1
        return slot

    def let_go(self, slot: int) -> None:
        """That holder is gone."""
        self._content[slot] = 0

    def whole(self) -> NDArray[np.uint8]:
        """All of it, for as long as the caller holds it."""
        return np.frombuffer(self._content, np.uint8)

    def held(self, slot: int) -> NDArray[np.uint8]:
        """All of it; when this and all that stands on it is gone, the holder is."""
        content = self.whole()
        # A forked child drops its copies of the same arrays, which must not count.
        weakref.finalize(content, _let_go_of, self, slot, os.getpid()).atexit = False
        return content


class Room:
    """A block of this process that a batch is laid into."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._whole = block.held(block.hold())
        self._used = HEAD_BYTES
        self._laid: list[tuple[NDArray[Any], Place]] = []

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array in the block, or elsewhere where it is full."""
        place = Place(self._used, np.dtype(dtype).str, shape)
        num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        if place.at + num_bytes > self.block.num_bytes:
            return np.empty(shape, dtype)
        self._used += -(-num_bytes // HEAD_BYTES) * HEAD_BYTES
        array = array_at(self._whole, place)
        self._laid.append((array, place))
        return array

    def place_of(self, array: NDArray[Any]) -> Place | None:
        """Where an array that `empty` has made lies in the block, or a part of one; None where it lies
        elsewhere."""
        for own, place in self._laid:
            if own is array:
                return place
        at = array.__array_interface__["data"][0] - self._whole.__array_interface__["data"][0]
        is_inside = (
            at >= HEAD_BYTES and at + array.nbytes <= self.block.num_bytes and array.flags.c_contiguous
        )
        return Place(at, array.dtype.str, array.shape) if is_inside else None

    def lay(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array where it lies in the block already, or a copy there if there is room."""
        if self.place_of(array) is not None:
            return array
        copied = self.empty(array.shape, array.dtype)
        copied[...] = array
        return copied


_own: dict[int, list[Block]] = {}
"""Blocks of this process, by its id: a forked child may not lend those of its parent."""
_known: dict[Sender, Block] = {}
"""Blocks of other processes."""


def find_room(num_bytes: int) -> Room | None:
    """Where this process may lay so much; None where too many blocks are held, or memory cannot be shared."""
    block = _find_block(HEAD_BYTES + num_bytes) if CAN_SHARE else None
    return None if block is None else Room(block)


def sender_of(block: Block) -> Sender:
    """What another process attaches a block of this one by."""
    return os.getpid(), block.file, block.inode, block.num_bytes


def attach(sender: Sender) -> Block:
    """A block of another process, as long as that lives or has been attached before."""
    block = _known.get(sender)
    if block is None:
        _forget_ended()
        block = _known[sender] = _open(sender)
    return block


def array_at(whole: NDArray[np.uint8], place: Place) -> NDArray[Any]:
    """A column that lies in a block."""
    return np.ndarray(place.shape, place.dtype, whole, place.at)


def _open(sender: Sender) -> Block:
    pid, file, inode, num_bytes = sender
    lost = f"worker process {pid} ended before its batch was read"
    try:
        opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise RunError(f"{lost} ({error.strerror})") from error
    try:
        if os.fstat(opened).st_ino != inode:
            raise RunError(f"{lost} (its memory is gone)")
        return Block(opened, num_bytes)
    finally:
        os.close(opened)  # the map keeps it


def _forget_ended() -> None:
    """Let go of the blocks of processes that are gone; tensors that are left keep theirs."""
    for key in [key for key in _known if not os.path.isdir(f"/proc/{key[0]}")]:
        del _known[key]


def _find_block(num_bytes: int) -> Block | None:
    """A free block of this process that is large enough; None where too many are held."""
    if os.getpid() not in _own:
        teach_allocator()
    blocks = _own.setdefault(os.getpid(), [])
    free = [block for block in blocks if block.is_free]
    for block in free:
        if block.num_bytes >= num_bytes:
            return block
    for block in free:
        blocks.remove(block)
        os.close(block.file)
    if len(blocks) >= MAX_BLOCKS:
        return None
    file = os.memfd_create("gristmill batch")
    os.ftruncate(file, num_bytes)
    blocks.append(Block(file, num_bytes))
    return blocks[-1]


def _let_go_of(block: Block, slot: int, pid: int) -> None:
    if os.getpid() == pid:
        block.let_go(slot)
