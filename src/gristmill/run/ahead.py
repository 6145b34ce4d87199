"""Learning that begins while what was counted is still being written."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from pathlib import Path
from threading import Event

from gristmill.config import TrainConfig
from gristmill.run.cutting import settle_cut
from gristmill.run.folder import CHECKPOINT
from gristmill.run.learn import Begun, begin_learning, num_learners
from gristmill.training.inventory import Pieces

STEP_S = 0.005
"""Learned before the thread looks whether somebody waits for it."""


class Ahead:
    """Takes the pieces of a count, where it has them in memory, and lets a thread learn from them until the
    count is over."""

    def __init__(self, config: TrainConfig, folder: Path, executor: Executor) -> None:
        self._config = config
        # Rare pieces are left out by way of the file; what was learned before belongs to a file too.
        self._is_wanted = config.learn.min_count == 1 and not (folder / CHECKPOINT).exists()
        self._executor = executor
        self._is_alone = num_learners(config) == 1
        """One core would go to and fro between learning and writing, and both want its caches."""
        self._pieces: Pieces | None = None
        self._begun: Future[Begun] | None = None
        self._is_asked_for = Event()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        """Let the thread end: the count may have failed."""
        self._is_asked_for.set()

    def offer(self, pieces: Pieces) -> None:
        """All that was counted; returns at once."""
        if not self._is_wanted or not len(pieces.counts):
            return
        if self._is_alone:
            self._pieces = pieces
        else:
            self._begun = self._executor.submit(self._begin, pieces)

    def begun(self) -> Begun | None:
        """Take over from the thread; None where no pieces were offered. What was refused is raised here."""
        self._is_asked_for.set()
        if self._pieces is not None:
            pieces, self._pieces = self._pieces, None
            return self._begin(pieces)
        return self._begun.result() if self._begun is not None else None

    def _begin(self, pieces: Pieces) -> Begun:
        begun = begin_learning(self._config, pieces, is_marked=settle_cut(self._config).marks)
        del pieces  # learning has its own copy
        while not self._is_asked_for.is_set() and not begun.learning.advance(STEP_S):
            pass
        return begun
