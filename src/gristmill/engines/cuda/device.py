"""What the driver asks of a device.

Work is given in three lanes that run side by side, each in its own order: "in" copies to the device,
"compute" runs kernels, "out" copies back. Marks order one lane behind another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

LaneName = Literal["in", "compute", "out"]


class Launch(NamedTuple):
    """A kernel, how many blocks of it, and how many threads a block has."""

    kernel: str
    grid: int
    block: int


class Memory(Protocol):
    """Bytes on a device."""

    @property
    def address(self) -> int: ...


class Device(Protocol):
    """A GPU with the kernels compiled for one tokenizer."""

    @property
    def num_processors(self) -> int:
        """How many blocks surely run side by side."""
        ...

    @property
    def free_bytes(self) -> int:
        """Memory that could still be allocated."""
        ...

    def activate(self) -> None:
        """Called by a thread before all that follows."""
        ...

    def allocate(self, num_bytes: int) -> Memory:
        """Memory on the device, of zeros."""
        ...

    def pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        """Memory of the host that copies to and from the device do not have to go around."""
        ...

    def pin(self, memory: NDArray[np.uint8]) -> None:
        """Make memory such that was not allocated here; it must be unpinned before it goes."""
        ...

    def unpin(self, memory: NDArray[np.uint8]) -> None:
        """Make it ordinary again."""
        ...

    def write(self, memory: Memory, at: int, values: NDArray[Any]) -> None:
        """Copy an array to the device, to a byte of the memory (in)."""
        ...

    def run(self, launches: Iterable[Launch], work: NDArray[Any]) -> None:
        """Run kernels one behind the other, each with a copy of this argument (compute)."""
        ...

    def read(self, memory: Memory, into: NDArray[Any], lane: LaneName = "out", *, at: int = 0) -> None:
        """Copy from a byte of the memory on; the array has it when a later mark of the lane is reached."""
        ...

    def mark(self, lane: LaneName) -> Any:
        """A mark behind all that the lane was given."""
        ...

    def wait(self, lane: LaneName, mark: Any) -> None:
        """Whatever the lane is given next begins after the mark is reached."""
        ...

    def reach(self, mark: Any) -> None:
        """Return when the mark is reached."""
        ...

    def as_array(self, memory: Memory, dtype: Any, count: int) -> Any:
        """The beginning of the memory as an array of the device, a copy (compute)."""
        ...

    def array(self, values: NDArray[Any]) -> Any:
        """A copy as an array of the device."""
        ...

    def join(self, arrays: list[Any], dtype: Any) -> Any:
        """Arrays of the device one after the other."""
        ...
