"""A device of `gristmill.engines.cuda` on the processor: the same kernels, run by the emulator."""

import ctypes
import threading
import weakref

import numpy as np

from gristmill import _cuda_emulator

GUARD = 4096


class HostMemory:
    """Bytes between two guards that no kernel may touch."""

    def __init__(self, num_bytes):
        whole = np.zeros(num_bytes + 2 * GUARD + 16, np.uint8)
        skipped = -whole.ctypes.data % 16
        self.guards = whole[skipped : skipped + GUARD], whole[skipped + GUARD + num_bytes :]
        self.bytes = whole[skipped + GUARD : skipped + GUARD + num_bytes]
        self.address = self.bytes.ctypes.data
        for guard in self.guards:
            guard[:] = 0xA5


class EmulatedDevice:
    """Does at once what it is asked; what has not been written yet is poison."""

    num_processors = 2
    free_bytes = 1 << 34

    def __init__(self, tables):
        self._variant = tables.is_narrow, tables.sizes.class_bits
        self.kernels = []
        self.num_unjoined = 0
        self._memories = weakref.WeakSet()
        self._turn = threading.Lock()

    def activate(self):
        pass

    def allocate(self, num_bytes):
        memory = HostMemory(num_bytes)
        with self._turn:
            self._memories.add(memory)
        return memory

    def pinned(self, num_bytes):
        return np.full(num_bytes, 0xEE, np.uint8)

    def pin(self, memory):
        pass

    def unpin(self, memory):
        pass

    def write(self, memory, at, values):
        raw = np.ascontiguousarray(values).view(np.uint8)
        memory.bytes[at : at + len(raw)] = raw

    def run(self, launches, work):
        for launch in launches:
            self._launch(*launch, work)

    def _launch(self, kernel, grid, block, work):
        self.kernels.append(kernel)
        _cuda_emulator.run(kernel, grid, block, work.tobytes(), *self._variant)
        with self._turn:
            memories = list(self._memories)
        for memory in memories:
            assert all((guard == 0xA5).all() for guard in memory.guards), f"{kernel} writes past its memory"
        if kernel == "join_sections":
            num_longer = _values(work, "counters", np.uint32, 3)[2]
            self.num_unjoined += int((_values(work, "longer_bytes", np.uint32, num_longer) >> 31).sum())

    def read(self, memory, into, lane="out", *, at=0):
        into[...] = memory.bytes[at : at + into.nbytes].view(into.dtype)

    def mark(self, lane):
        return lane

    def wait(self, lane, mark):
        pass

    def reach(self, mark):
        pass

    def as_array(self, memory, dtype, count):
        return memory.bytes.view(np.uint8)[: count * np.dtype(dtype).itemsize].view(dtype).copy()

    def array(self, values):
        return np.array(values)

    def join(self, arrays, dtype):
        return np.concatenate([np.empty(0, dtype), *arrays])


def _values(work, name, dtype, count):
    """What the kernels see under a name."""
    size = int(count) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(int(work[name])), dtype)
