"""What became of a task."""

from __future__ import annotations

import msgspec

from gristmill.records import UnitRecord
from gristmill.run.messages import Task


class Outcome(msgspec.Struct, frozen=True):
    """A task with its record, or with why there is none."""

    task: Task
    record: UnitRecord | None
    why_failed: str | None
