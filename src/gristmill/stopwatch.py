"""Where the time goes, by stage: every moment counts for one stage, the innermost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")


class Stopwatch:
    """Adds up the seconds spent in each stage; used by one thread."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._inner_s = 0.0
        """Spent in stages that began and ended within the present one."""

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start, outer_s, self._inner_s = time.perf_counter(), self._inner_s, 0.0
        token = _WATCH.set(self)
        try:
            yield
        finally:
            _WATCH.reset(token)
            spent = time.perf_counter() - start
            self._seconds[stage] += spent - self._inner_s  # type: ignore[assignment]
            self._inner_s = outer_s + spent

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

    def split(self, stage: str, seconds: float, parts: dict[str, float]) -> None:
        """Seconds of a stage were spent waiting for a thread that did the parts: they are theirs, in
        proportion."""
        total = sum(parts.values())
        if total <= 0:
            return
        self._seconds[stage] -= seconds  # type: ignore[assignment]
        for part, part_s in parts.items():
            self._seconds[part] += seconds * part_s / total  # type: ignore[assignment]

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage."""
        return {
            stage: round(max(float(seconds), 0.0), 6) for stage, seconds in sorted(self._seconds.items())
        }


_WATCH: ContextVar[Stopwatch | None] = ContextVar("watch", default=None)


def present_watch() -> Stopwatch | None:
    """The watch of the stage this thread is in, if it is in one."""
    return _WATCH.get()


@contextmanager
def within(stage: str) -> Iterator[None]:
    """A part of whatever stage this thread is in, to be counted by itself; nothing where it is in none."""
    watch = _WATCH.get()
    if watch is None:
        yield
        return
    with watch(stage):
        yield
