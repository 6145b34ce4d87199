"""Memory of this process for batches that arrive, kept and used again.

The C library gives large pieces back to the system when they are freed, and to touch new pages costs several
times what it takes to widen a batch into them."""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGN_BYTES = 64
MAX_KEPT = 4
"""Pieces that nobody uses: a reader has a batch in hand when the next one arrives."""
LESSON_BYTES = 31 << 20
"""Just under the largest piece that the C library of GNU learns from."""

_kept: deque[mmap.mmap] = deque(maxlen=MAX_KEPT)
"""The oldest goes when one too many comes. Arrays end in any thread at any moment: only what a deque does in
one step is done to it."""


def empty_arrays(wanted: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[NDArray[Any]]:
    """New arrays of these shapes and kinds, in one piece that is used again when all of them are gone."""
    sizes = [-(-math.prod(shape) * kind.itemsize // ALIGN_BYTES) * ALIGN_BYTES for shape, kind in wanted]
    begins = [0, *accumulate(sizes)]
    piece = _piece(begins[-1])
    return [np.ndarray(shape, kind, piece, at) for (shape, kind), at in zip(wanted, begins, strict=False)]


def teach_allocator() -> None:
    """Let this process keep what it frees, up to some tens of megabytes: the C library takes the largest
    piece that was freed for what will be needed again. Nothing is touched, so that nothing is used."""
    np.empty(LESSON_BYTES, np.uint8)


def _piece(num_bytes: int) -> NDArray[np.uint8]:
    # A map, because an array over an array would be held by nothing: NumPy looks through to the last one.
    memory = _take_kept(num_bytes) or _new_memory(max(num_bytes, 1))
    piece = np.frombuffer(memory, np.uint8)
    weakref.finalize(piece, _kept.append, memory).atexit = False
    return piece


def _new_memory(num_bytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE)
    # A tenth less work for who receives batches of 256 rows; other systems have none.
    with contextlib.suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _take_kept(num_bytes: int) -> mmap.mmap | None:
    """The piece that was used last; if it is too small, or far too large, that is the end of it."""
    try:
        memory = _kept.pop()
    except IndexError:
        return None
    return memory if num_bytes <= len(memory) <= 2 * num_bytes else None
