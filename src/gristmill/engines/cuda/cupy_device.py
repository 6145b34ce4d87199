"""A GPU through CuPy: the only module that imports it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill import _native
from gristmill.engines.cuda.device import LaneName, Launch, Memory
from gristmill.engines.cuda.tables import Tables
from gristmill.errors import MissingPackageError

try:
    import cupy

    # With the interpreter's lock held: a launch takes microseconds, and to get the lock back from other
    # threads takes many times as long.
    DRIVER = ctypes.PyDLL("libcuda.so.1")
except (ImportError, OSError) as error:
    raise MissingPackageError(
        f"engine 'cuda' needs an NVIDIA GPU and CuPy: pip install 'gristmill[gpu]' ({error})"
    ) from error

SOURCE = Path(__file__).parent
FILES = ("work.h", "boundaries.h", "words.h", "merges.h", "states.h", "tiles.h", "longer.h", "kernels.cu")
TO_DEVICE, TO_HOST = 1, 2
LAUNCH = ctypes.cast(DRIVER.cuLaunchKernel, ctypes.c_void_p).value or 0
DRIVER.cuMemcpyAsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
DRIVER.cuStreamWaitEvent.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
SMALL_BYTES = 32 << 20
"""Of a copy from pinned memory, which returns at once; from other memory it takes milliseconds."""


class CupyMemory:
    """Bytes on the GPU."""

    def __init__(self, num_bytes: int) -> None:
        self.array = cupy.zeros(num_bytes, cupy.uint8)
        self.address = int(self.array.data.ptr)


class CupyDevice:
    """The GPU with the most free memory; kernels are compiled by NVRTC at first use and kept in CuPy's
    cache."""

    def __init__(self, tables: Tables, *, defines: Iterable[str] = ()) -> None:
        self._device = _emptiest()
        self.activate()
        self.num_processors = int(self._device.attributes["MultiProcessorCount"])
        options = [f"-D{name.upper()}={size}" for name, size in tables.sizes._asdict().items()]
        options += [f"-DNARROW={int(tables.is_narrow)}", "--std=c++17", *(f"-D{name}" for name in defines)]
        self._module = cupy.RawModule(code=kernel_source(), options=tuple(options))
        self._kernels: dict[str, int] = {}
        self._streams = {name: cupy.cuda.Stream(non_blocking=True) for name in ("in", "compute", "out")}

    def activate(self) -> None:
        self._device.use()

    @property
    def free_bytes(self) -> int:
        return int(self._device.mem_info[0]) + int(cupy.get_default_memory_pool().free_bytes())

    def allocate(self, num_bytes: int) -> CupyMemory:
        memory = CupyMemory(num_bytes)
        cupy.cuda.get_current_stream().synchronize()
        return memory

    def pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        owner = cupy.cuda.alloc_pinned_memory(max(num_bytes, 1))
        return np.frombuffer(owner, np.uint8, num_bytes)

    def pin(self, memory: NDArray[np.uint8]) -> None:
        cupy.cuda.runtime.hostRegister(memory.ctypes.data, memory.nbytes, 0)

    def unpin(self, memory: NDArray[np.uint8]) -> None:
        cupy.cuda.runtime.hostUnregister(memory.ctypes.data)

    def write(self, memory: Memory, at: int, values: NDArray[Any]) -> None:
        self._copy(memory.address + at, values.ctypes.data, values.nbytes, TO_DEVICE, "in")

    def read(self, memory: Memory, into: NDArray[Any], lane: LaneName = "out", *, at: int = 0) -> None:
        self._copy(into.ctypes.data, memory.address + at, into.nbytes, TO_HOST, lane)

    def run(self, launches: Iterable[Launch], work: NDArray[Any]) -> None:
        # By one call: from here each launch would take longer than most kernels do with a small batch.
        rows = [(self._function(kernel), grid, block) for kernel, grid, block in launches]
        table = np.array(rows, np.uint64)
        _require_done(_native.launch(LAUNCH, table, self._streams["compute"].ptr, work.ctypes.data))

    def _function(self, kernel: str) -> int:
        if kernel not in self._kernels:
            self._kernels[kernel] = self._module.get_function(kernel).kernel.ptr
        return self._kernels[kernel]

    def mark(self, lane: LaneName) -> Any:
        event = cupy.cuda.Event(disable_timing=True)
        event.record(self._streams[lane])
        return event

    def wait(self, lane: LaneName, mark: Any) -> None:
        _require_done(DRIVER.cuStreamWaitEvent(self._streams[lane].ptr, mark.ptr, 0))

    def reach(self, mark: Any) -> None:
        mark.synchronize()

    def as_array(self, memory: Memory, dtype: Any, count: int) -> Any:
        assert isinstance(memory, CupyMemory)
        with self._streams["compute"]:
            found = memory.array[: count * np.dtype(dtype).itemsize].view(dtype).copy()
        self._streams["compute"].synchronize()
        return found

    def array(self, values: NDArray[Any]) -> Any:
        return cupy.asarray(values)

    def join(self, arrays: list[Any], dtype: Any) -> Any:
        return cupy.concatenate(arrays) if arrays else cupy.empty(0, dtype)

    def _copy(self, to: int, from_: int, num_bytes: int, kind: int, lane: LaneName) -> None:
        stream = self._streams[lane].ptr
        if num_bytes > SMALL_BYTES:
            cupy.cuda.runtime.memcpyAsync(to, from_, num_bytes, kind, stream)
        elif num_bytes:
            _require_done(DRIVER.cuMemcpyAsync(to, from_, num_bytes, stream))


def wake() -> None:
    """Let the driver begin with what it needs a third of a second for."""
    _emptiest().use()
    cupy.zeros(1)


def _emptiest() -> Any:
    """The GPU with the most free memory, of those this process may see."""
    try:
        devices = [cupy.cuda.Device(i) for i in range(cupy.cuda.runtime.getDeviceCount())]
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MissingPackageError(f"engine 'cuda' finds no NVIDIA GPU: {error}") from error
    return max(devices, key=lambda device: device.mem_info[0])


def _require_done(status: int) -> None:
    if status:
        raise RuntimeError(f"the CUDA driver reports error {status}")


def kernel_source() -> str:
    """All files as one: CuPy's cache does not see a change in a file that is included."""
    texts = [(SOURCE / name).read_text(encoding="utf-8") for name in FILES]
    return re.sub(r'^#(include ".*"|pragma once)$', "", "\n".join(texts), flags=re.M)
