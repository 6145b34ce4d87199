"""Where the time goes, by stage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Stopwatch:
    """Adds up the seconds spent in each stage."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] += time.perf_counter() - start  # type: ignore[assignment]

    def each(self, stage: str, items: Iterable[Item]) -> Iterator[Item]:
        """The items; the time it takes to get each one is the stage's."""
        iterator = iter(items)
        while True:
            with self(stage):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage."""
        return {stage: round(float(seconds), 6) for stage, seconds in sorted(self._seconds.items())}
