"""Where the documents of a run came from: its inputs in few groups, each with what it gave."""

from __future__ import annotations

import os
from array import array
from pathlib import Path

from gristmill.plan import UnitPlan
from gristmill.records import Measured

MAX_SOURCES = 40


class Sources:
    """What groups of input files have given; a unit's time is shared out by the bytes of its slices."""

    def __init__(self, plan: UnitPlan) -> None:
        groups = group_paths([file.path for file in plan.files])
        self._names = sorted(set(groups))
        numbers = {name: number for number, name in enumerate(self._names)}
        self._group_of_file = array("q", (numbers[group] for group in groups))
        self._paths = [file.path for file in plan.files] if len(plan.files) <= 1000 else None
        # Slices of all units one after the other, each as the number of its file.
        self._files = array("q", (part.file for unit in plan.units for part in unit.slices))
        ends = [0]
        for unit in plan.units:
            ends.append(ends[-1] + len(unit.slices))
        self._ends = array("q", ends)
        self._totals = [[0, 0, 0.0] for _ in self._names]

    def add(self, unit: int, measured: Measured, seconds: float) -> None:
        """A unit is done: text bytes and tokens of its slices, and the time it took."""
        total = sum(measured.slice_bytes)
        for place, text_bytes in enumerate(measured.slice_bytes):
            sums = self._totals[self._group(unit, place)]
            sums[0] += text_bytes
            sums[1] += measured.slice_tokens[place] if place < len(measured.slice_tokens) else 0
            sums[2] += seconds * text_bytes / total if total else 0.0

    def first_file(self, unit: int) -> str:
        """Where a unit begins, for people."""
        if unit + 1 >= len(self._ends) or self._ends[unit] == self._ends[unit + 1]:
            return ""
        file = self._files[self._ends[unit]]
        return self._paths[file] if self._paths is not None else self._names[self._group_of_file[file]]

    def listed(self) -> list[dict[str, object]]:
        """Every group that gave something, the largest first."""
        found: list[dict[str, object]] = [
            {"name": name, "text_bytes": int(size), "tokens": int(tokens), "seconds": round(seconds, 3)}
            for name, (size, tokens, seconds) in zip(self._names, self._totals, strict=True)
            if size
        ]
        return sorted(found, key=lambda source: (-int(str(source["text_bytes"])), str(source["name"])))

    def _group(self, unit: int, place: int) -> int:
        at = self._ends[unit] + place
        return self._group_of_file[self._files[at]] if at < len(self._files) else 0


def group_paths(paths: list[str]) -> list[str]:
    """A name for each path, the same for those that belong together: few names in all."""
    groups = paths
    while len(set(groups)) > MAX_SOURCES:
        shorter = [group.rpartition("/")[0] or group for group in groups]
        if shorter == groups:
            return ["all inputs"] * len(paths)
        groups = shorter
    shared = min(groups).rpartition("/")[0] if groups else ""
    while shared and any(not group.startswith(f"{shared}/") for group in groups):
        shared = shared.rpartition("/")[0]
    return [group[len(shared) + 1 :] if shared and group != shared else group for group in groups]


def read_own(path: Path, max_bytes: int) -> bytes | None:
    """A file of a run folder, or how it begins; never one elsewhere that a link names, and no pipe."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        with open(os.open(path, flags), "rb", buffering=0) as file:
            return file.read(min(max_bytes, os.fstat(file.fileno()).st_size))
    except OSError:
        return None
