"""Copies between the memory of a call and pinned memory, on as many threads as the call may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill import _native
from gristmill.engines import Ids

MAX_THREADS = 16
LEAST_ITEMS = 1 << 19
"""That are worth a thread."""


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
        shares = _shares(len(to), num_threads)
        self._do(np.copyto, [(to[share], from_[share]) for share in shares], num_threads)

    def join(self, parts: Iterable[IdPart], to: Ids, num_threads: int) -> None:
        """Ids one behind the other."""
        calls, at = [], 0
        for part in parts:
            own = to[at : at + len(part)]
            calls += [(own[share], part[share]) for share in _shares(len(own), num_threads)]
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
    """Write ids as 32 bits; one call each, since threads that come and go for the interpreter wait for it."""
    if part.high is None:
        np.copyto(to, part.low)
    else:
        _native.widen_ids(part.low, part.high, to)


def _shares(num_items: int, num_threads: int) -> Iterator[slice]:
    size = max(LEAST_ITEMS, -(-num_items // num_threads))
    return (slice(at, at + size) for at in range(0, num_items, size))
