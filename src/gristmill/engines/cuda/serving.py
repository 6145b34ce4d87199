"""Drives a GPU for other processes: a thread for each that connects, and all batches one behind the other."""

from __future__ import annotations

import logging
import mmap
import os
import socket
import threading

import numpy as np
from numpy.typing import NDArray

from gristmill.engines.cuda.batch import max_documents, scratch_bytes
from gristmill.engines.cuda.device import Memory
from gristmill.engines.cuda.shared import (
    ANSWER,
    GREETING,
    OFFER,
    READY,
    REQUEST,
    receive,
    room_bytes,
    room_in,
)
from gristmill.engines.cuda.slots import POLICIES, OnDevice, Slot, new_batch, new_slot

log = logging.getLogger(__name__)

FIRST_BYTES = 1 << 12
"""Of a batch for which the kernels are compiled."""


def serve(on: OnDevice, address: str, *, max_bytes: int) -> None:
    """Serve whoever connects, in batches of up to so many bytes; the address is there once that can begin."""
    scratch = on.device.allocate(scratch_bytes(on.tables, max(max_bytes, FIRST_BYTES)))
    _warm_up(on, scratch)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen(1024)
        os.rename(f"{address}.new", address)
        while True:
            arguments = listener.accept()[0], on, scratch, max_bytes
            threading.Thread(target=_serve_one, args=arguments, daemon=True).start()


def _warm_up(on: OnDevice, scratch: Memory) -> None:
    """Let kernels be compiled while nobody waits."""
    slot = new_slot(on, FIRST_BYTES, scratch)
    slot.room.text[:] = ord(" ")
    slot.room.begins[0] = 0
    slot.submit(FIRST_BYTES, 1, "text", stays=False)
    slot.fetch(stays=False)


def _serve_one(connection: socket.socket, on: OnDevice, scratch: Memory, max_bytes: int) -> None:
    """Until the other side is gone; what fails here closes the connection, and it encodes by itself."""
    with connection:
        try:
            on.device.activate()
            connection.sendall(GREETING.pack(max_bytes, on.id_bytes))
            batch_bytes, memory = _accept_offer(connection, on, max_bytes)
            on.device.pin(memory)
            try:
                batch = new_batch(on, batch_bytes, scratch)
                slot = Slot(on, batch, room_in(memory, batch_bytes, on.id_bytes))
                connection.sendall(READY)
                while True:
                    _do_one(connection, slot)
            finally:
                on.device.unpin(memory)
        except ConnectionError:
            return
        except Exception:
            log.exception("a worker goes on without the GPU")


def _accept_offer(connection: socket.socket, on: OnDevice, max_bytes: int) -> tuple[int, NDArray[np.uint8]]:
    message, files, _, _ = socket.recv_fds(connection, OFFER.size, 1)
    try:
        if len(message) < OFFER.size or not files:
            raise ConnectionResetError("no memory was offered")
        (batch_bytes,) = OFFER.unpack(message)
        if not 0 < batch_bytes <= max_bytes:
            raise ValueError(f"a batch of {batch_bytes} bytes")
        size = room_bytes(batch_bytes, on.id_bytes)
        return batch_bytes, np.frombuffer(mmap.mmap(files[0], size), np.uint8)
    finally:
        for file in files:
            os.close(file)


def _do_one(connection: socket.socket, slot: Slot) -> None:
    num_bytes, num_docs, policy = REQUEST.unpack(receive(connection, REQUEST.size))
    most = len(slot.room.text)
    if num_bytes > most or num_docs > max_documents(most) or policy >= len(POLICIES):
        raise ValueError(f"{num_bytes} bytes, {num_docs} documents, policy {policy}")
    slot.submit(num_bytes, num_docs, POLICIES[policy], stays=False)
    found = slot.fetch(stays=False)
    places = found.flagged.astype(np.int64).tobytes()
    connection.sendall(ANSWER.pack(found.num_ids, len(found.flagged)) + places)
