"""Tasks that wait to be done, and how often each was tried."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import msgspec

from gristmill.run.budget import MIN_BLOCK_BYTES, Budget
from gristmill.run.messages import Task

MAX_ATTEMPTS = 3
MAX_LOSSES = 10
"""Of what nobody can be blamed for: a node that goes, a connection that breaks."""


class TaskQueue:
    """Tasks to be done, those to be done with no other beside them, and how often tasks have failed."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.waiting = deque(tasks)
        self.alone: deque[Task] = deque()
        self._failures: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self.waiting or self.alone)

    def put_back(self, task: Task) -> None:
        """As if it had not been tried: something else went wrong beside it."""
        self.waiting.appendleft(task)

    def put_back_lost(self, task: Task) -> bool:
        """Once more, after it went down with its node, as far as is known; False when it is hopeless."""
        self._losses[task.unit] += 1
        if self._losses[task.unit] < MAX_LOSSES:
            self.put_back(task)
            return True
        return False

    def retry(self, task: Task, *, is_alone: bool, block_bytes: int | None = None) -> bool:
        """Once more, in smaller blocks where a size is given; False when it is hopeless."""
        self._failures[task.unit] += 1
        if self._failures[task.unit] >= MAX_ATTEMPTS:
            return False
        if block_bytes is not None:
            task = msgspec.structs.replace(task, block_bytes=block_bytes)
        if is_alone:
            self.alone.append(task)
        else:
            self.waiting.appendleft(task)
        return True


def smaller_blocks(task: Task, budget: Budget) -> int:
    """Bytes of a block of a task that took too much memory, when it is tried again."""
    return max((task.block_bytes or budget.blocks.block_bytes) // 4, MIN_BLOCK_BYTES)
