"""The batches of an engine with the host memory they are copied from and to: all calls share them."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.engines.cuda.batch import Batch, max_documents, scratch_bytes
from gristmill.engines.cuda.device import Device, Memory
from gristmill.engines.cuda.tables import Tables

BATCH_BYTES = 96 << 20
LEAST_BYTES = 1 << 16
BYTES_A_BYTE = 90
"""Of the device's memory, for a byte of the largest batch: about that many in all slots together."""
MAX_SLOTS = 4
"""Enough for 16 threads; pinned memory takes long to get."""


class Slot(NamedTuple):
    """A batch on the device, and pinned memory for what goes in and what comes out."""

    batch: Batch
    text: NDArray[np.uint8]
    begins: NDArray[np.uint32]
    ids: NDArray[np.uint8]
    starts: NDArray[np.uint8]


class Slots:
    """Slots of one size, which grows as calls need it, and never back."""

    def __init__(
        self, device: Device, tables: Tables, known: dict[str, Memory], batch_bytes: int | None
    ) -> None:
        self.batch_bytes = batch_bytes or _fitting_bytes(device.free_bytes)
        self._device = device
        self._tables = tables
        self._known = known
        self._changed = threading.Condition()
        self._free: list[Slot] = []
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
            return self._new()  # takes long, and the size cannot change meanwhile
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
        self._known.pop("scratch", None)
        self._size = self._wanted
        self._known["scratch"] = self._device.allocate(scratch_bytes(self._tables, self._size))

    def _new(self) -> Slot:
        size, pinned = self._size, self._device.pinned
        batch = Batch(self._device, self._tables, self._known, num_bytes=size)
        num_docs = max_documents(size)
        width = 2 if self._tables.is_narrow else 3
        return Slot(
            batch,
            pinned(size),
            pinned(4 * num_docs).view(np.uint32),
            pinned(width * size),
            pinned(4 * num_docs),
        )


def _fitting_bytes(free_bytes: int) -> int:
    """Batches that leave most of the memory to others."""
    return max(4 << 20, min(BATCH_BYTES, free_bytes // 4 // BYTES_A_BYTE))
