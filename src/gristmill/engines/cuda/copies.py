"""Copies between the memory of a call and pinned memory, on as many threads as the call may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.engines import Ids

MAX_THREADS = 16
SHARE_ITEMS = 1 << 20
"""That a thread copies at a time."""
NEAR_ITEMS = 1 << 16
"""That stay in the cache while several passes go over them."""


@dataclass(frozen=True)
class IdPart:
    """Ids of 16 or 32 bits, or the lower 16 bits of ids and the rest of them beside."""

    low: NDArray[Any]
    high: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, which: slice) -> IdPart:
        return IdPart(self.low[which], None if self.high is None else self.high[which])


class Copies:
    """Threads that copy, started when a call first has use for them."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def copy(self, from_: NDArray[Any], to: NDArray[Any], num_threads: int) -> None:
        """Copy bytes."""
        self._do(np.copyto, [(to[share], from_[share]) for share in _shares(len(to))], num_threads)

    def join(self, parts: Iterable[IdPart], to: Ids, num_threads: int) -> None:
        """Ids one behind the other."""
        calls, at = [], 0
        for part in parts:
            own = to[at : at + len(part)]
            calls += [(own[share], part[share]) for share in _shares(len(own))]
            at += len(part)
        self._do(widen, calls, num_threads)

    def _do(self, call: Callable[..., None], arguments: list[tuple[Any, ...]], num_threads: int) -> None:
        if num_threads == 1 or len(arguments) == 1:
            for each in arguments:
                call(*each)
            return
        self._pool = self._pool or ThreadPoolExecutor(MAX_THREADS)
        for done in [self._pool.submit(call, *each) for each in arguments]:
            done.result()


def widen(to: Ids, part: IdPart) -> None:
    """Write ids as 32 bits."""
    low, high = part.low, part.high
    if high is None:
        np.copyto(to, low)
        return
    for at in range(0, len(to), NEAR_ITEMS):
        near = slice(at, at + NEAR_ITEMS)
        own = to[near]
        np.copyto(own, high[near])
        np.left_shift(own, 16, out=own)
        np.bitwise_or(own, low[near], out=own)


def _shares(num_items: int) -> Iterator[slice]:
    return (slice(at, at + SHARE_ITEMS) for at in range(0, num_items, SHARE_ITEMS))
