"""The engine of a worker whose GPU another process drives: text and ids go through memory that both have.

The worker connects, is greeted, and offers memory for its batches. Of each batch it then sends a request; the
answer is followed by the places of what is for the CPU. Whoever is gone, closes the connection.
"""

from __future__ import annotations

import logging
import mmap
import os
import select
import socket
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.engines import Bytes, Engine, EngineName, Ids, Offsets, SpecialTokens
from gristmill.engines.cuda.batch import Result
from gristmill.engines.cuda.engine import CudaEngine
from gristmill.engines.cuda.slots import POLICIES, Room
from gristmill.engines.native import NativeEngine

GREETING = struct.Struct("<QQ")
"""The most bytes a batch may have, and how many an id has on its way back."""
OFFER = struct.Struct("<Q")
"""Bytes of a batch; the memory's file comes with it."""
READY = b"!"
REQUEST = struct.Struct("<QQQ")
"""Bytes of text, documents that are not empty, and the number of the policy."""
ANSWER = struct.Struct("<QQ")
"""Ids, and places."""
log = logging.getLogger(__name__)

PAGE_BYTES = mmap.PAGESIZE
ANSWER_S = 60
"""A batch takes milliseconds, and workers wait for one another's: then something hangs."""


def room_bytes(batch_bytes: int, id_bytes: int) -> int:
    """Of memory that a `Room` has its place in."""
    return sum(map(_whole_pages, Room.sizes(batch_bytes, id_bytes)))


def room_in(memory: NDArray[np.uint8], batch_bytes: int, id_bytes: int) -> Room:
    """A room that begins where the memory does."""
    parts, at = [], 0
    for size in Room.sizes(batch_bytes, id_bytes):
        parts.append(memory[at : at + size])
        at += _whole_pages(size)
    text, begins, ids, starts = parts
    return Room(text, begins.view(np.uint32), ids, starts)


def _whole_pages(num_bytes: int) -> int:
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


def receive(connection: socket.socket, num_bytes: int) -> bytes:
    """So many bytes; `ConnectionError` where the other side is gone."""
    found = bytearray()
    while len(found) < num_bytes:
        part = connection.recv(num_bytes - len(found))
        if not part:
            raise ConnectionResetError("the other side is gone")
        found += part
    return bytes(found)


class SharedSlot:
    """Takes batches of one worker, one after the other; it is the only one of `take`'s."""

    id_type = np.dtype(np.uint32)

    def __init__(self, address: str, batch_bytes: int) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(ANSWER_S)
        try:
            self._connection.connect(address)
            most, id_bytes = GREETING.unpack(receive(self._connection, GREETING.size))
            self.batch_bytes, self._id_bytes = min(batch_bytes, int(most)), int(id_bytes)
            self.room = self._offer()
            self._is_ready = False
        except BaseException:
            self._connection.close()
            raise
        self._num_docs = 0

    def _offer(self) -> Room:
        size = room_bytes(self.batch_bytes, self._id_bytes)
        file = os.memfd_create("gristmill")
        try:
            os.ftruncate(file, size)
            memory = np.frombuffer(mmap.mmap(file, size), np.uint8)
            socket.send_fds(self._connection, [OFFER.pack(self.batch_bytes)], [file])
        finally:
            os.close(file)
        return room_in(memory, self.batch_bytes, self._id_bytes)

    def is_ready(self) -> bool:
        """Whether the other side has got ready for batches by now."""
        if not self._is_ready and select.select([self._connection], [], [], 0)[0]:
            receive(self._connection, len(READY))
            self._is_ready = True
        return self._is_ready

    def size_for(self, num_bytes: int) -> int:
        return self.batch_bytes

    def take(self, size: int, *, is_patient: bool) -> SharedSlot | None:
        return self if is_patient else None  # who holds none: a worker encodes one block at a time

    def give(self, slot: SharedSlot) -> None:
        pass

    def submit(self, num_bytes: int, num_docs: int, special_tokens: SpecialTokens, *, stays: bool) -> None:
        self._num_docs = num_docs
        self._connection.sendall(REQUEST.pack(num_bytes, num_docs, POLICIES.index(special_tokens)))

    def fetch(self, *, stays: bool) -> Result:
        num_ids, num_places = ANSWER.unpack(receive(self._connection, ANSWER.size))
        flagged = np.frombuffer(receive(self._connection, 8 * num_places), np.int64)
        ids = self.room.ids
        high = ids[2 * num_ids : 3 * num_ids] if self._id_bytes == 3 else None
        starts = self.room.starts.view(np.uint32)[: self._num_docs]
        return Result(num_ids, ids[: 2 * num_ids].view(np.uint16), high, starts, flagged, 0)

    def copy_ids(self) -> Any:
        raise NotImplementedError("the device is another process's")


class SharedEngine:
    """Leaves the work to the native engine until a GPU is open, and if it is lost; both give the same ids.

    For one thread."""

    name: EngineName = "cuda"

    def __init__(self, native: NativeEngine, address: str, batch_bytes: int) -> None:
        self._native = native
        self._address = address
        self._batch_bytes = batch_bytes
        self._is_lost = False
        self._slot: SharedSlot | None = None
        self._shared: CudaEngine | None = None

    @property
    def state_bytes(self) -> int:
        """Memory held by the pieces that the native engine remembers."""
        return self._native.state_bytes

    def encode_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Ids, Offsets]:
        """Ids and offsets of documents in one flat buffer."""
        try:
            return self._engine().encode_batch(
                buffer, offsets, special_tokens=special_tokens, num_threads=num_threads
            )
        except OSError as error:
            # Where its process has ended, the run says how.
            log.warning("the GPU is lost, native goes on: %s", error)
            self._is_lost, self._shared, self._slot = True, None, None
            return self._native.encode_batch(
                buffer, offsets, special_tokens=special_tokens, num_threads=num_threads
            )

    def count_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> Offsets:
        """Number of ids of each document."""
        return self._native.count_batch(
            buffer, offsets, special_tokens=special_tokens, num_threads=num_threads
        )

    def decode(self, ids: Ids) -> bytes:
        """The bytes of the tokens, one after the other."""
        return self._native.decode(ids)

    def _engine(self) -> Engine:
        if self._shared is not None:
            return self._shared
        if self._slot is None and not self._is_lost and os.path.exists(self._address):
            self._slot = SharedSlot(self._address, self._batch_bytes)
        if self._slot is not None and self._slot.is_ready():
            self._shared = CudaEngine(self._native, self._slot)
        return self._shared or self._native
