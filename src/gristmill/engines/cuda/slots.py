"""The batches of an engine with the host memory they are copied from and to: all calls share them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.engines import SpecialTokens
from gristmill.engines.cuda.batch import Batch, Result, max_documents, scratch_bytes
from gristmill.engines.cuda.device import Device, Memory
from gristmill.engines.cuda.tables import Tables

BATCH_BYTES = 96 << 20
LEAST_BYTES = 1 << 16
BYTES_A_BYTE = 90
"""Of the device's memory, for a byte of the largest batch: about that many in all slots together."""
POLICIES: tuple[SpecialTokens, ...] = ("text", "parse")
MAX_SLOTS = 4
"""Enough for 16 threads; pinned memory takes long to get."""


class Room(NamedTuple):
    """Memory of the host for what goes into a batch and what comes out of it."""

    text: NDArray[np.uint8]
    begins: NDArray[np.uint32]
    """Of documents that are not empty."""
    ids: NDArray[np.uint8]
    starts: NDArray[np.uint8]

    @staticmethod
    def sizes(batch_bytes: int, id_bytes: int) -> tuple[int, int, int, int]:
        """Bytes of each part, for ids that come back as so many bytes."""
        num_docs = max_documents(batch_bytes)
        return batch_bytes, 4 * num_docs, id_bytes * batch_bytes, 4 * num_docs


class AnySlot(Protocol):
    """Where a batch goes through a device: it is put into the room, submitted and fetched."""

    @property
    def room(self) -> Room: ...

    def submit(self, num_bytes: int, num_docs: int, special_tokens: SpecialTokens, *, stays: bool) -> None:
        """Begin with what is in the room; ids may stay on the device."""
        ...

    def fetch(self, *, stays: bool) -> Result:
        """Wait for what it has become."""
        ...

    def copy_ids(self) -> Any:
        """The ids that stay, as an array of the device."""
        ...


class AnySlots(Protocol):
    """Slots that calls share."""

    @property
    def batch_bytes(self) -> int:
        """The most that goes through the device at a time."""
        ...

    @property
    def id_type(self) -> np.dtype[Any]:
        """Of ids that stay on the device."""
        ...

    def size_for(self, num_bytes: int) -> int:
        """How large a slot a call of so many bytes gets, at least."""
        ...

    def take(self, size: int, *, is_patient: bool) -> AnySlot | None:
        """A slot of this size or more; None where there is none now. Only who holds none may be patient."""
        ...

    def give(self, slot: Any) -> None:
        """A slot back, for the next call."""
        ...


class Added(NamedTuple):
    """With what the kernels find added tokens in text."""

    memory: tuple[Memory, Memory]
    work: dict[str, int]


class OnDevice(NamedTuple):
    """What all batches of an engine have in common."""

    device: Device
    tables: Tables
    known: dict[str, Memory]
    """Of the tokenizer."""
    added: dict[SpecialTokens, Added]
    turn: threading.Lock
    """Batches are submitted one behind the other."""

    @property
    def id_bytes(self) -> int:
        """That an id has on its way back."""
        return 2 if self.tables.is_narrow else 3


@dataclass
class Slot:
    """A batch on the device, and pinned memory for it."""

    on: OnDevice
    batch: Batch
    room: Room

    def submit(self, num_bytes: int, num_docs: int, special_tokens: SpecialTokens, *, stays: bool) -> None:
        text, begins = self.room.text[:num_bytes], self.room.begins[:num_docs]
        with self.on.turn:
            self.batch.submit(
                text, begins, self.on.added[special_tokens].work, is_learning=True, is_split=not stays
            )

    def fetch(self, *, stays: bool) -> Result:
        result = self.batch.fetch(self.room.ids, self.room.starts, with_ids=not stays)
        self.batch.complete()
        return result

    def copy_ids(self) -> Any:
        return self.batch.copy_ids()


def new_batch(on: OnDevice, batch_bytes: int, scratch: Memory) -> Batch:
    """Memory on the device for batches of so many bytes; scratch is shared with others."""
    return Batch(on.device, on.tables, on.known | {"scratch": scratch}, num_bytes=batch_bytes)


def new_slot(on: OnDevice, batch_bytes: int, scratch: Memory) -> Slot:
    """A slot, and memory for it."""
    batch = new_batch(on, batch_bytes, scratch)
    text, begins, ids, starts = map(on.device.pinned, Room.sizes(batch_bytes, on.id_bytes))
    return Slot(on, batch, Room(text, begins.view(np.uint32), ids, starts))


class Slots:
    """Slots of one size, which grows as calls need it, and never back."""

    def __init__(self, on: OnDevice, batch_bytes: int | None) -> None:
        self.batch_bytes = batch_bytes or _fitting_bytes(on.device.free_bytes)
        self.id_type = np.dtype(np.uint16 if on.tables.is_narrow else np.uint32)
        self._on = on
        self._changed = threading.Condition()
        self._free: list[Slot] = []
        self._scratch: Memory | None = None
        self._size = self._wanted = 0
        self._num_out = 0

    def size_for(self, num_bytes: int) -> int:
        """How large a slot a call of so many bytes gets, at least; in steps, since a change costs much."""
        step = 1 << max(num_bytes - 1, LEAST_BYTES - 1).bit_length() - 3
        return min(-(-max(num_bytes, LEAST_BYTES) // step) * step, self.batch_bytes)

    def take(self, size: int, *, is_patient: bool) -> Slot | None:
        """A slot of this size or more; None where there is none now. Only who holds none may be patient."""
        with self._changed:
            self._wanted = max(self._wanted, size)
            while True:
                if self._size < self._wanted and not self._num_out:
                    self._grow()
                if self._size == self._wanted and (self._free or self._num_out < self._most()):
                    self._num_out += 1
                    if self._free:
                        return self._free.pop()
                    break
                if not is_patient:
                    return None
                self._changed.wait()
        try:
            assert self._scratch is not None
            # Takes long, and the size cannot change meanwhile.
            return new_slot(self._on, self._size, self._scratch)
        except BaseException:
            with self._changed:
                self._num_out -= 1
                self._changed.notify_all()
            raise

    def give(self, slot: Slot) -> None:
        """A slot back, for the next call."""
        with self._changed:
            self._free.append(slot)
            self._num_out -= 1
            self._changed.notify_all()

    def _most(self) -> int:
        return min(MAX_SLOTS, 4 * self.batch_bytes // self._size)

    def _grow(self) -> None:
        self._free.clear()
        self._scratch = None  # first, to make room
        self._size = self._wanted
        self._scratch = self._on.device.allocate(scratch_bytes(self._on.tables, self._size))



def _fitting_bytes(free_bytes: int) -> int:
    """Batches that leave most of the memory to others."""
    return max(4 << 20, min(BATCH_BYTES, free_bytes // 4 // BYTES_A_BYTE))
