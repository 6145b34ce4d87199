"""Memory of this process for batches that arrive, kept and used again.

The C library gives large pieces back to the system when they are freed, and to touch new pages costs several
times what it takes to widen a batch into them."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGN_BYTES = 64
MAX_KEPT = 4
"""Pieces that nobody uses: a reader has a batch in hand when the next one arrives."""

_kept: list[NDArray[np.uint8]] = []


def empty_arrays(wanted: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[NDArray[Any]]:
    """New arrays of these shapes and kinds, in one piece that is used again when all of them are gone."""
    sizes = [-(-math.prod(shape) * kind.itemsize // ALIGN_BYTES) * ALIGN_BYTES for shape, kind in wanted]
    begins = [0, *accumulate(sizes)]
    piece = _piece(begins[-1])
    return [np.ndarray(shape, kind, piece, at) for (shape, kind), at in zip(wanted, begins, strict=False)]


def _piece(num_bytes: int) -> NDArray[np.uint8]:
    memory = _take_kept(num_bytes)
    if memory is None:
        memory = np.empty(num_bytes, np.uint8)
    piece = np.frombuffer(memory, np.uint8)
    weakref.finalize(piece, _keep, memory).atexit = False
    return piece


def _take_kept(num_bytes: int) -> NDArray[np.uint8] | None:
    """A piece of this size, or not much larger."""
    for at in reversed(range(len(_kept))):
        if num_bytes <= _kept[at].nbytes <= 2 * num_bytes:
            return _kept.pop(at)
    return None


def _keep(memory: NDArray[np.uint8]) -> None:
    _kept.append(memory)
    if len(_kept) > MAX_KEPT:
        _kept.pop(0)
