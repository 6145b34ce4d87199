"""What became of a task."""

from __future__ import annotations

from typing import NamedTuple

from gristmill.records import UnitRecord
from gristmill.run.messages import Task


class Outcome(NamedTuple):
    """A task with its record, or with why there is none."""

    task: Task
    record: UnitRecord | None
    why_failed: str | None
