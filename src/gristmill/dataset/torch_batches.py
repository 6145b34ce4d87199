"""Batches as tensors, for the DataLoader of torch: the only module here that imports it.

torch lets a type say how it is collated by default, and so a plain `DataLoader(ds, ...)` comes here. A batch
is one array a column already: nothing is stacked. A worker process hands it over in memory that both
processes map, and that is used again once the receiver has let go of it. New shared memory for every batch,
as torch takes it, costs more in page faults than all the rest."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate as torch_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from gristmill.dataset.batch_rows import BatchRow, BatchRows, Row
from gristmill.errors import RunError

HEAD_BYTES = 64
"""Of a block: each byte that is not 0 stands for somebody who holds it, the first for the process it is of.
Columns begin at multiples of this."""
MAX_BLOCKS = 32
"""Of a worker; a reader who holds more batches than this gets the others as torch sends them."""
CAN_SHARE = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


class Place(NamedTuple):
    """Where a column lies in a block."""

    at: int
    dtype: str
    shape: tuple[int, ...]


class Block:
    """Memory that other processes may map too; it is gone when none does any more."""

    def __init__(self, file: int, num_bytes: int) -> None:
        self.file = file
        self.num_bytes = num_bytes
        self.content = mmap.mmap(file, num_bytes)

    @property
    def is_free(self) -> bool:
        """Nobody holds it."""
        return not any(self.content[:HEAD_BYTES])

    def hold(self) -> int:
        """Note one more holder; returns its number."""
        slot = self.content.find(b"\0", 0, HEAD_BYTES)
        if slot < 0:
            raise RunError(f"a batch was pickled {HEAD_BYTES} times and not received; make a copy of it")
        self.content[slot] = 1
        return slot

    def whole(self, slot: int) -> NDArray[np.uint8]:
        """All of it; when this and all that stands on it is gone, the holder is."""
        content = np.frombuffer(self.content, np.uint8)
        # A forked child drops its copies of the same arrays, which must not count.
        weakref.finalize(content, _let_go, self.content, slot, os.getpid()).atexit = False
        return content


class Room:
    """A block of this process that a batch is laid into."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._whole = block.whole(block.hold())
        self._begin = self._whole.ctypes.data
        self._used = HEAD_BYTES

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array in the block, or elsewhere where it is full."""
        place = Place(self._used, np.dtype(dtype).str, shape)
        num_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if place.at + num_bytes > self.block.num_bytes:
            return np.empty(shape, dtype)
        self._used += -(-num_bytes // HEAD_BYTES) * HEAD_BYTES
        return _array(self._whole, place)

    def place_of(self, array: NDArray[Any]) -> Place | None:
        """Where an array lies in the block; None where it lies elsewhere."""
        at = array.ctypes.data - self._begin
        is_inside = (
            at >= HEAD_BYTES and at + array.nbytes <= self.block.num_bytes and array.flags.c_contiguous
        )
        return Place(at, array.dtype.str, array.shape) if is_inside else None


_own: dict[int, list[Block]] = {}
"""Blocks of this process, by its id: a forked child may not lend those of its parent."""
_known: dict[tuple[int, int, int], Block] = {}
"""Blocks of other processes: by process, file and inode."""


def register() -> None:
    """Let torch collate our rows with `collate`, in this process."""
    default_collate_fn_map.setdefault(BatchRow, collate)


def find_room(num_bytes: int) -> Room | None:
    """Where a worker may lay a batch of this size; None in any other process, or where too many are held."""
    if not CAN_SHARE or get_worker_info() is None:
        return None
    block = _find_block(HEAD_BYTES + num_bytes)
    return None if block is None else Room(block)


def collate(rows: Any, *, collate_fn_map: Any = None) -> dict[str, Any]:
    """Rows as tensors, a batch a column; what differs in length is laid one after the other."""
    if not isinstance(rows, BatchRows):
        collated: dict[str, Any] = torch_collate([dict(row) for row in rows], collate_fn_map=collate_fn_map)
        return collated
    if isinstance(rows.room, Room):
        return SharedBatch(rows.room, rows.joined())
    return {name: torch.from_numpy(column) for name, column in rows.joined().items()}


class SharedBatch(dict[str, Any]):
    """Tensors in a block of this process; whoever it is sent to gets the same tensors, not a copy."""

    def __init__(self, room: Room, columns: Row) -> None:
        self._block = room.block
        self._places: dict[str, Place] = {}
        for name, column in columns.items():
            if room.place_of(column) is None:
                copied = room.empty(column.shape, column.dtype)
                copied[...] = column
                column = copied
            self[name] = torch.from_numpy(column)
            place = room.place_of(column)
            if place is not None:
                self._places[name] = place
        self._tensors = dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tensors that lie elsewhere, or were put in before it is sent, go as torch sends them."""
        kept = {name: place for name, place in self._places.items() if self.get(name) is self._tensors[name]}
        others = {name: value for name, value in self.items() if name not in kept}
        block = self._block
        sender = (os.getpid(), block.file, os.fstat(block.file).st_ino)
        return receive, (sender, block.num_bytes, block.hold(), kept, others, list(self))


def receive(
    sender: tuple[int, int, int],
    num_bytes: int,
    slot: int,
    places: Mapping[str, Place],
    others: Mapping[str, Any],
    names: list[str],
) -> dict[str, Any]:
    """The batch that another process has sent."""
    if sender not in _known:
        _forget_ended()
        _known[sender] = _attach(*sender, num_bytes)
    whole = _known[sender].whole(slot)
    return {
        name: torch.from_numpy(_array(whole, places[name])) if name in places else others[name]
        for name in names
    }


def _attach(pid: int, file: int, inode: int, num_bytes: int) -> Block:
    try:
        opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise RunError(f"worker process {pid} ended before its batch was read ({error.strerror})") from error
    try:
        if os.fstat(opened).st_ino != inode:
            raise RunError(f"worker process {pid} ended before its batch was read (its memory is gone)")
        return Block(opened, num_bytes)
    finally:
        os.close(opened)  # the map keeps it


def _forget_ended() -> None:
    """Let go of the blocks of processes that are gone; tensors that are left keep theirs."""
    for key in [key for key in _known if not os.path.isdir(f"/proc/{key[0]}")]:
        del _known[key]


def _find_block(num_bytes: int) -> Block | None:
    """A free block of this process that is large enough; None where too many are held."""
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


def _array(whole: NDArray[np.uint8], place: Place) -> NDArray[Any]:
    dtype = np.dtype(place.dtype)
    num_bytes = int(np.prod(place.shape, dtype=np.int64)) * dtype.itemsize
    return whole[place.at : place.at + num_bytes].view(dtype).reshape(place.shape)


def _let_go(content: mmap.mmap, slot: int, pid: int) -> None:
    if os.getpid() == pid:
        content[slot] = 0
