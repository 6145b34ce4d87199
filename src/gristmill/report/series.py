"""A run over time in a bounded number of points."""

from __future__ import annotations

from typing import NamedTuple

MAX_POINTS = 480


class Point(NamedTuple):
    """A run at a moment."""

    time: float
    process: int
    """How often the run had been taken up: rates do not reach across."""
    bytes_done: int
    tokens: int
    memory_bytes: int


class Series:
    """Points, evenly spread; when there are too many, every second one is forgotten."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.epoch = 0
        """Changes when points were forgotten, or nothing may be added to what was shown."""
        self._every = 1
        self._num_seen = 0
        self._last: Point | None = None

    def add(self, point: Point) -> None:
        """The run has come so far."""
        is_first = self._last is None or point.process != self._last.process
        if is_first and self._last is not None and self.points[-1] != self._last:
            self.points.append(self._last)  # where the process before stopped
        if is_first or self._num_seen % self._every == 0:
            self.points.append(point)
        self._num_seen += 1
        self._last = point
        if len(self.points) >= MAX_POINTS:
            self._thin()

    def shown(self) -> list[Point]:
        """The points, and the last moment there is."""
        has_last = self._last is None or (bool(self.points) and self.points[-1] == self._last)
        return [*self.points] if has_last or self._last is None else [*self.points, self._last]

    def _thin(self) -> None:
        kept = []
        for index, point in enumerate(self.points):
            is_border = index == 0 or self.points[index - 1].process != point.process
            if is_border or index % 2 == 0:
                kept.append(point)
        # Of a run that was taken up very often, the borders alone would be too many.
        self.points = kept if len(kept) < MAX_POINTS * 3 // 4 else self.points[::2]
        self._every *= 2
        self.epoch += 1
