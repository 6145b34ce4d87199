"""The driver: documents in batches through slots, and to the CPU what the kernels leave to it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill import _native
from gristmill.engines import Bytes, EngineName, Ids, Offsets, SpecialTokens
from gristmill.engines.cuda.batch import max_documents
from gristmill.engines.cuda.copies import Copies, IdPart
from gristmill.engines.cuda.device import Device, Memory
from gristmill.engines.cuda.slots import POLICIES, Added, AnySlot, AnySlots, OnDevice, Slots
from gristmill.engines.cuda.tables import Tables, added_token_tables, build_tables
from gristmill.engines.native import NativeEngine, as_looked_for
from gristmill.spec import TokenizerSpec

log = logging.getLogger(__name__)

SEEN_BYTES = 1 << 20
NUM_SPARED = 8
"""Stretches that the CPU does after one of which it had to do most: text of a kind comes together."""


class Stretch(NamedTuple):
    """Documents first..last of a call, some of them perhaps empty, that go through the device together."""

    first: int
    last: int


class Call(NamedTuple):
    """What a call is about."""

    buffer: Bytes
    offsets: Offsets
    special_tokens: SpecialTokens
    num_threads: int
    stays: bool = False
    """Ids stay on the device."""


class Encoded(NamedTuple):
    """Ids of a stretch in order, with where every document's begin and where the last one's end."""

    parts: list[Any]
    """Of `IdPart`, or arrays of the device."""
    offsets: Offsets


class CudaEngine:
    """Encodes on a GPU; the ids are the native engine's, which does what the kernels cannot.

    Pieces that are in no table are learned for later batches, which changes their speed and nothing else.
    Calls of several threads go through the device one behind the other, and overlap in all the rest."""

    name: EngineName = "cuda"

    def __init__(
        self,
        native: NativeEngine,
        slots: AnySlots,
        device: Device | None = None,
        *,
        num_spared: int = NUM_SPARED,
    ) -> None:
        """Where another process has the device, `slots` lead there."""
        self._spares = num_spared
        self._native = native
        self._slots = slots
        self._device = device
        self._counting = threading.Lock()
        self._copies = Copies()
        self._num_spared = 0
        self.num_documents = 0
        self.num_fallbacks = 0

    def encode_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Ids, Offsets]:
        """Ids and offsets of documents in one flat buffer."""
        call = Call(buffer, offsets, special_tokens, num_threads)
        stretches = list(self._stretches(offsets))
        # No document has more ids than bytes; memory that is not written to is not taken. Of a single stretch
        # it is known how many there are before any is copied, and memory of that size is used again.
        room = np.empty(int(offsets[-1] - offsets[0]) if len(stretches) != 1 else 0, np.uint32)
        ends, at = [], 0
        for found in self._stream(call, stretches):
            num_ids = int(found.offsets[-1])
            if len(stretches) == 1:
                room = _native.empty_ids(num_ids)
            self._copies.join(found.parts, room[at : at + num_ids], num_threads)
            ends.append(found.offsets)
            at += num_ids
        return room[:at], _joined_offsets(ends)

    def encode_on_device(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Any, Any]:
        """The same as arrays of the device, which have DLPack; ids are as wide as the vocabulary needs."""
        call = Call(buffer, offsets, special_tokens, num_threads, stays=True)
        assert self._device is not None
        found = list(self._stream(call, self._stretches(offsets)))
        ids = self._device.join([part for stretch in found for part in stretch.parts], self._slots.id_type)
        return ids, self._device.array(_joined_offsets([stretch.offsets for stretch in found]))

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
    def fallback_rate(self) -> float:
        """Share of the documents so far that the CPU encoded."""
        return self.num_fallbacks / self.num_documents if self.num_documents else 0.0

    def _stream(self, call: Call, stretches: Iterable[Stretch]) -> Iterator[Encoded]:
        """The documents' ids, a stretch at a time, while the device works on the next ones; what is yielded
        is there until the next is asked for."""
        if self._device is not None:
            self._device.activate()
        size = self._slots.size_for(int(call.offsets[-1] - call.offsets[0]))
        waiting: deque[tuple[Stretch, AnySlot]] = deque()
        try:
            for stretch in stretches:
                if self._is_for_cpu(call, stretch):
                    while waiting:
                        yield from self._finish(call, waiting)
                    yield self._on_cpu(call, np.arange(stretch.first, stretch.last))
                    continue
                while (slot := self._slots.take(size, is_patient=not waiting)) is None:
                    yield from self._finish(call, waiting)
                waiting.append((stretch, slot))
                self._submit(call, stretch, slot)
            while waiting:
                yield from self._finish(call, waiting)
        finally:
            for _, slot in waiting:
                self._slots.give(slot)
        if self.num_fallbacks:
            log.info("the CPU encoded %.4f%% of the documents", 100 * self.fallback_rate)

    def _is_for_cpu(self, call: Call, stretch: Stretch) -> bool:
        """Too large for the device, or likely to come back from it undone."""
        if call.offsets[stretch.last] - call.offsets[stretch.first] > self._slots.batch_bytes:
            return True
        with self._counting:
            is_spared = self._num_spared > 0
            self._num_spared -= is_spared
        return is_spared

    def _stretches(self, offsets: Offsets) -> Iterator[Stretch]:
        """Documents in order, as many as a batch takes at a time; what is larger than a batch stands
        alone."""
        first, num_docs, batch_bytes = 0, len(offsets) - 1, self._slots.batch_bytes
        most = max_documents(self._slots.size_for(int(offsets[-1] - offsets[0])))
        while first < num_docs:
            last = int(np.searchsorted(offsets, offsets[first] + batch_bytes, side="right")) - 1
            last = min(max(last, first + 1), first + most, num_docs)
            yield Stretch(first, last)
            first = last

    def _submit(self, call: Call, stretch: Stretch, slot: AnySlot) -> None:
        begin, end = int(call.offsets[stretch.first]), int(call.offsets[stretch.last])
        self._copies.copy(call.buffer[begin:end], slot.room.text[: end - begin], call.num_threads)
        starts, _ = _not_empty(call.offsets, stretch)
        slot.room.begins[: len(starts)] = starts
        slot.submit(end - begin, len(starts), call.special_tokens, stays=call.stays)

    def _finish(self, call: Call, waiting: deque[tuple[Stretch, AnySlot]]) -> Iterator[Encoded]:
        """What the oldest has become, which keeps its slot as long as it is looked at."""
        stretch, slot = waiting[0]
        yield self._finished(call, stretch, slot)
        waiting.popleft()
        self._slots.give(slot)

    def _finished(self, call: Call, stretch: Stretch, slot: AnySlot) -> Encoded:
        result = slot.fetch(stays=call.stays)
        _, places = _not_empty(call.offsets, stretch)
        ends = np.append(result.starts.astype(np.int64), result.num_ids)[places]
        flagged = flagged_documents(call.offsets, stretch, result.flagged)
        begins = call.offsets[stretch.first : stretch.last + 1]
        is_mostly_flagged = 2 * int(np.diff(begins)[flagged].sum()) > begins[-1] - begins[0]
        with self._counting:
            self.num_documents += stretch.last - stretch.first - len(flagged)
            if is_mostly_flagged:
                self._num_spared = self._spares
        found = slot.copy_ids() if call.stays else IdPart(result.ids, result.high)
        if not len(flagged):
            return Encoded([found], ends)
        return self._spliced(found, ends, flagged, self._on_cpu(call, stretch.first + flagged))

    def _spliced(self, ids: Any, ends: Offsets, flagged: NDArray[np.int64], own: Encoded) -> Encoded:
        """The flagged documents' ids replaced by the CPU's."""
        counts = np.diff(ends)
        counts[flagged] = np.diff(own.offsets)
        parts, done, at = [], 0, 0
        for run in np.split(flagged, np.flatnonzero(np.diff(flagged) > 1) + 1):
            first, last = int(run[0]), int(run[-1]) + 1
            parts.append(ids[int(ends[done]) : int(ends[first])])
            parts.append(own.parts[0][int(own.offsets[at]) : int(own.offsets[at + len(run)])])
            done, at = last, at + len(run)
        parts.append(ids[int(ends[done]) : int(ends[-1])])
        return Encoded(parts, np.concatenate([[0], np.cumsum(counts)]))

    def _on_cpu(self, call: Call, documents: NDArray[np.int64]) -> Encoded:
        ids, ends = self._native.encode_some(
            call.buffer,
            call.offsets,
            documents,
            special_tokens=call.special_tokens,
            num_threads=call.num_threads,
        )
        with self._counting:
            self.num_documents += len(documents)
            self.num_fallbacks += len(documents)
        if not call.stays:
            return Encoded([IdPart(ids)], ends)
        assert self._device is not None
        return Encoded([self._device.array(ids.astype(self._slots.id_type))], ends)


def open_cuda(spec: TokenizerSpec, native: NativeEngine) -> CudaEngine:
    """The engine on this machine's GPU."""
    return engine_on(build_on_gpu(spec, native), native)


def engine_on(
    on: OnDevice, native: NativeEngine, *, batch_bytes: int | None = None, num_spared: int = NUM_SPARED
) -> CudaEngine:
    """The engine, for calls of this process."""
    return CudaEngine(native, Slots(on, batch_bytes), on.device, num_spared=num_spared)


def build_on_gpu(spec: TokenizerSpec, native: NativeEngine) -> OnDevice:
    """The tables of a tokenizer, built and put on this machine's GPU."""
    from gristmill.engines.cuda.cupy_device import CupyDevice

    tables = build_tables(spec, native.model)
    return put_on_device(spec, tables, CupyDevice(tables))


def put_on_device(spec: TokenizerSpec, tables: Tables, device: Device) -> OnDevice:
    """All that the kernels need to know of a tokenizer."""
    known = {name: _uploaded(device, array) for name, array in tables.arrays.items()}
    known["seen"] = device.allocate(SEEN_BYTES)
    known["learned"] = device.allocate(64)
    added: dict[SpecialTokens, Added] = {}
    for policy in POLICIES:
        looked_for = [
            as_looked_for(token.content, spec) if token.normalized else token.content
            for token in spec.added_tokens
            if policy == "parse" or not token.special
        ]
        byte_class, prefixes = added_token_tables(looked_for, tables)
        memory = _uploaded(device, byte_class), _uploaded(device, prefixes)
        addresses = {"byte_class": memory[0].address, "prefixes": memory[1].address}
        added[policy] = Added(memory, {**addresses, "num_prefixes": len(prefixes)})
    return OnDevice(device, tables, known, added, threading.Lock())


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
    if not len(places):
        return np.zeros(0, np.int64)
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
