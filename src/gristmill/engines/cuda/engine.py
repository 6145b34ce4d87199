"""The driver: documents in batches through a ring of slots, and to the CPU what the kernels leave to it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.engines import Bytes, EngineName, Ids, Offsets, SpecialTokens
from gristmill.engines.cuda.batch import Batch, scratch_bytes
from gristmill.engines.cuda.device import Device, Memory
from gristmill.engines.cuda.tables import Tables, added_token_tables, build_tables
from gristmill.engines.native import NativeEngine, as_looked_for, compile_model
from gristmill.spec import AddedToken, TokenizerSpec

log = logging.getLogger(__name__)

BATCH_BYTES = 96 << 20
LEAST_BYTES = 1 << 16
BYTES_A_BYTE = 70
"""Of the device's memory, for a byte of batch: about that many in all slots together."""
NUM_SLOTS = 3
SEEN_BYTES = 1 << 20
COPY_ITEMS = 2 << 20


class Stretch(NamedTuple):
    """Documents first..last of a call, some of them perhaps empty, that go through the device together."""

    first: int
    last: int


class Slot(NamedTuple):
    """A batch on the device with the host memory it is copied from and to."""

    batch: Batch
    text: NDArray[np.uint8]
    ids: NDArray[np.uint8]
    starts: NDArray[np.uint8]


class Added(NamedTuple):
    """With what the kernels find added tokens in text."""

    memory: tuple[Memory, Memory]
    work: dict[str, int]


class Call(NamedTuple):
    """What a call is about."""

    buffer: Bytes
    offsets: Offsets
    special_tokens: SpecialTokens
    num_threads: int
    into: Ids | None = None
    """Where ids go, one stretch after the other; None: they stay on the device."""


class Encoded(NamedTuple):
    """Ids of a stretch, with where every document's begin and where the last one's end."""

    ids: NDArray[Any]
    offsets: Offsets


class CudaEngine:
    """Encodes on a GPU; the ids are the native engine's, which does what the kernels cannot.

    Pieces that are in no table are learned for later batches, which changes their speed and nothing else."""

    name: EngineName = "cuda"

    def __init__(
        self,
        spec: TokenizerSpec,
        native: NativeEngine,
        tables: Tables,
        device: Device,
        *,
        batch_bytes: int | None = None,
    ) -> None:
        self._native = native
        self._device = device
        self._tables = tables
        self._batch_bytes = batch_bytes or _fitting_bytes(device.free_bytes)
        self._guard = threading.Lock()
        known = {name: _uploaded(device, array) for name, array in tables.arrays.items()}
        known["seen"] = device.allocate(SEEN_BYTES)
        known["learned"] = device.allocate(64)
        self._known = known
        self._added = {
            "text": self._added_tables([t for t in spec.added_tokens if not t.special], spec),
            "parse": self._added_tables(spec.added_tokens, spec),
        }
        self._slots: list[Slot] = []
        self.num_documents = 0
        self.num_fallbacks = 0

    def encode_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Ids, Offsets]:
        """Ids and offsets of documents in one flat buffer."""
        # No document has more ids than bytes; memory that is not written to is not taken.
        ids = np.empty(int(offsets[-1] - offsets[0]), np.uint32)
        ends, at = [], 0
        with self._guard:
            for part in self._stream(Call(buffer, offsets, special_tokens, num_threads, into=ids)):
                ends.append(part.offsets)
                at += int(part.offsets[-1])
        return ids[:at], _joined_offsets(ends)

    def encode_on_device(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Any, Any]:
        """The same as arrays of the device, which have DLPack; ids are as wide as the vocabulary needs."""
        with self._guard:
            parts = list(self._stream(Call(buffer, offsets, special_tokens, num_threads)))
            ids = self._device.join([part.ids for part in parts], self.id_type)
            return ids, self._device.array(_joined_offsets([part.offsets for part in parts]))

    def count_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> Offsets:
        """Number of ids of each document."""
        _, ends = self.encode_batch(buffer, offsets, special_tokens=special_tokens, num_threads=num_threads)
        counts: Offsets = np.diff(ends)
        return counts

    def decode(self, ids: Ids) -> bytes:
        """The bytes of the tokens, one after the other."""
        return self._native.decode(ids)

    @property
    def id_type(self) -> np.dtype[Any]:
        """What ids are stored as on the device."""
        return np.dtype(np.uint16 if self._tables.is_narrow else np.uint32)

    @property
    def fallback_rate(self) -> float:
        """Share of the documents so far that the CPU encoded."""
        return self.num_fallbacks / self.num_documents if self.num_documents else 0.0

    def _stream(self, call: Call) -> Iterator[Encoded]:
        """The documents' ids, a stretch at a time, while the device works on the next ones."""
        self._device.activate()
        offsets = call.offsets
        waiting: deque[tuple[Stretch, Slot]] = deque()
        free = deque(self._ring(int(offsets[-1] - offsets[0])))
        most, num_done = free[0].batch.max_documents, 0

        def place(found: Encoded) -> Encoded:
            nonlocal num_done
            if call.into is None:
                return found
            num_ids = int(found.offsets[-1])
            _copy_all(pool, call.into[num_done : num_done + num_ids], found.ids)
            num_done += num_ids
            return found

        def finish() -> Encoded:
            stretch, slot = waiting.popleft()
            found = place(self._finished(call, stretch, slot))
            free.append(slot)
            return found

        with ThreadPoolExecutor(max(1, min(call.num_threads, 16))) as pool:
            for stretch in self._stretches(offsets, most):
                if offsets[stretch.last] - offsets[stretch.first] > self._batch_bytes:
                    while waiting:
                        yield finish()
                    yield place(self._on_cpu(call, stretch))
                    continue
                if not free:
                    yield finish()
                slot = free.popleft()
                self._submit(call, stretch, slot, pool)
                waiting.append((stretch, slot))
            while waiting:
                yield finish()
        if self.num_fallbacks:
            log.info("the CPU encoded %.4f%% of the documents", 100 * self.fallback_rate)

    def _added_tables(self, tokens: Iterable[AddedToken], spec: TokenizerSpec) -> Added:
        contents = [
            as_looked_for(token.content, spec) if token.normalized else token.content for token in tokens
        ]
        byte_class, prefixes = added_token_tables(contents, self._tables)
        memory = _uploaded(self._device, byte_class), _uploaded(self._device, prefixes)
        addresses = {"byte_class": memory[0].address, "prefixes": memory[1].address}
        return Added(memory, {**addresses, "num_prefixes": len(prefixes)})

    def _ring(self, num_bytes: int) -> list[Slot]:
        """Slots for a call of so many bytes: as large as it needs, kept for the calls that follow."""
        size = min(1 << max(num_bytes - 1, LEAST_BYTES - 1).bit_length(), self._batch_bytes)
        if self._slots and self._slots[0].batch.max_bytes < size:
            self._slots.clear()
        if not self._slots:
            self._known["scratch"] = self._device.allocate(scratch_bytes(self._tables, size))
        num_slots = 1 if num_bytes <= self._batch_bytes else NUM_SLOTS
        while len(self._slots) < num_slots:
            self._slots.append(self._new_slot(self._slots[0].batch.max_bytes if self._slots else size))
        return self._slots[:num_slots]

    def _new_slot(self, size: int) -> Slot:
        batch = Batch(self._device, self._tables, self._known, num_bytes=size)
        pinned = self._device.pinned
        return Slot(
            batch, pinned(size), pinned(size * batch.id_type.itemsize), pinned(4 * batch.max_documents)
        )

    def _stretches(self, offsets: Offsets, most: int) -> Iterator[Stretch]:
        """Documents in order, as many as a batch takes at a time; what is larger than a batch stands
        alone."""
        first, num_docs = 0, len(offsets) - 1
        while first < num_docs:
            last = int(np.searchsorted(offsets, offsets[first] + self._batch_bytes, side="right")) - 1
            last = min(max(last, first + 1), first + most, num_docs)
            yield Stretch(first, last)
            first = last

    def _submit(self, call: Call, stretch: Stretch, slot: Slot, pool: ThreadPoolExecutor) -> None:
        begin, end = int(call.offsets[stretch.first]), int(call.offsets[stretch.last])
        text = slot.text[: end - begin]
        _copy_all(pool, text, call.buffer[begin:end])
        starts, _ = _not_empty(call.offsets, stretch)
        slot.batch.submit(text, starts, self._added[call.special_tokens].work, is_learning=True)

    def _finished(self, call: Call, stretch: Stretch, slot: Slot) -> Encoded:
        result = slot.batch.fetch(slot.ids, slot.starts, with_ids=call.into is not None)
        slot.batch.complete()
        self.num_documents += stretch.last - stretch.first
        _, places = _not_empty(call.offsets, stretch)
        ends = np.append(result.starts.astype(np.int64), result.num_ids)[places]
        flagged = flagged_documents(call.offsets, stretch, result.flagged)
        found = Encoded(slot.batch.copy_ids() if call.into is None else result.ids, ends)
        return self._spliced(call, stretch, found, flagged) if len(flagged) else found

    def _spliced(self, call: Call, stretch: Stretch, found: Encoded, flagged: NDArray[np.int64]) -> Encoded:
        """The flagged documents' ids replaced by the CPU's."""
        ids, ends = found
        parts, counts, done = [], np.diff(ends), 0
        for run in np.split(flagged, np.flatnonzero(np.diff(flagged) > 1) + 1):
            first, last = int(run[0]), int(run[-1]) + 1
            own = self._on_cpu(call, Stretch(stretch.first + first, stretch.first + last))
            self.num_documents -= last - first  # counted before
            parts += [ids[int(ends[done]) : int(ends[first])], own.ids]
            counts[first:last] = np.diff(own.offsets)
            done = last
        parts.append(ids[int(ends[done]) :])
        joined = self._device.join(parts, self.id_type) if call.into is None else np.concatenate(parts)
        return Encoded(joined, np.concatenate([[0], np.cumsum(counts)]))

    def _on_cpu(self, call: Call, stretch: Stretch) -> Encoded:
        first, last = stretch
        ids, ends = self._native.encode_part(
            call.buffer,
            call.offsets,
            first,
            last,
            special_tokens=call.special_tokens,
            num_threads=call.num_threads,
        )
        self.num_documents += last - first
        self.num_fallbacks += last - first
        return Encoded(self._device.array(ids.astype(self.id_type)) if call.into is None else ids, ends)


def open_cuda(spec: TokenizerSpec, native: NativeEngine) -> CudaEngine:
    """The engine on this machine's GPU."""
    from gristmill.engines.cuda.cupy_device import CupyDevice

    tables = build_tables(spec, compile_model(spec))
    return CudaEngine(spec, native, tables, CupyDevice(tables))


def _fitting_bytes(free_bytes: int) -> int:
    """Batches that leave most of the memory to others: workers of a run share a GPU."""
    return max(4 << 20, min(BATCH_BYTES, free_bytes // 4 // BYTES_A_BYTE))


def _copy_all(pool: ThreadPoolExecutor, to: NDArray[Any], from_: NDArray[Any]) -> None:
    """Copy an array on all threads, widening where it must."""
    parts = [slice(at, at + COPY_ITEMS) for at in range(0, len(to), COPY_ITEMS)]
    for copy in [pool.submit(np.copyto, to[part], from_[part]) for part in parts]:
        copy.result()


def _uploaded(device: Device, array: NDArray[Any]) -> Memory:
    memory = device.allocate(max(array.nbytes, 16))
    device.write(memory, 0, np.ascontiguousarray(array).reshape(-1))
    device.reach(device.mark("in"))
    return memory


def _not_empty(offsets: Offsets, stretch: Stretch) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Starts of the documents that are not empty; and for every document, and the end, which of those comes
    first from it on."""
    own = offsets[stretch.first : stretch.last + 1]
    has_text = own[1:] > own[:-1]
    starts = (own[:-1][has_text] - own[0]).astype(np.uint32)
    places = np.concatenate([[0], np.cumsum(has_text)])
    return starts, places


def flagged_documents(offsets: Offsets, stretch: Stretch, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Documents that have a byte in one of the parts, or in a character that reaches into it."""
    own = offsets[stretch.first : stretch.last + 1] - offsets[stretch.first]
    first = np.maximum(np.searchsorted(own, places - 4, side="right") - 1, 0)
    last = np.searchsorted(own, places + 36, side="left")
    change = np.zeros(len(own), np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, np.minimum(last, len(own) - 1), -1)
    return np.flatnonzero(np.cumsum(change)[:-1] > 0)


def _joined_offsets(parts: list[Offsets]) -> Offsets:
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(part) for part in parts)])
    return np.concatenate([[0], np.cumsum(counts)])
