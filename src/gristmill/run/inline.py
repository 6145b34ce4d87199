"""The inline backend: units are processed one after the other in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill.config import RunJob, TokenizeConfig
from gristmill.limits import Block
from gristmill.run.budget import settle_budget
from gristmill.run.messages import Prepare, Task
from gristmill.run.outcome import Outcome
from gristmill.run.process import WorkerProcess
from gristmill.run.progress import Progress
from gristmill.run.resources import resident_bytes
from gristmill.run.settle import TokenizerFacts, facts_of
from gristmill.run.worker import load_configured, make_job_of, run_task

if TYPE_CHECKING:
    from gristmill.count_pipeline import CountJob
    from gristmill.pipeline import Job

LOOK_EVERY_S = 0.1


class InlineBackend:
    """No other process: the simplest to debug, and all that a small machine may have memory for."""

    def __init__(self, config: RunJob, _processes: Sequence[WorkerProcess]) -> None:
        before = resident_bytes()  # of whatever program this is
        named = config.tokenizer if isinstance(config, TokenizeConfig) else None
        self._tokenizer = load_configured(named) if named else None
        self._facts = facts_of(self._tokenizer, named.source) if self._tokenizer and named else None
        self.budget = settle_budget(config, worker_bytes=max(resident_bytes() - before, 0))
        self._job: Job | CountJob | None = None

    def facts(self) -> TokenizerFacts | None:
        """What the run must know of the tokenizer, if the job has one."""
        return self._facts

    def prepare(self, folder: Path, *, num_tasks: int) -> None:
        """The plan is in the folder."""
        prepare = Prepare(
            folder=str(folder),
            blocks=self.budget.blocks,
            num_threads=self.budget.num_workers,
            write_behind=self.budget.write_behind,
            counter_bytes=self.budget.counter_bytes,
        )
        self._job = make_job_of(prepare, self._tokenizer)

    def run(self, tasks: Sequence[Task], progress: Progress) -> Generator[Outcome, None, None]:
        """Outcomes of tasks, in order."""
        assert self._job is not None
        progress.num_workers = 1
        for task in tasks:
            try:
                yield Outcome(task, run_task(self._job, task, _watcher(task.unit, progress)), None)
            except (MemoryError, OSError) as error:
                yield Outcome(task, None, str(error) or type(error).__name__)
            progress.saw_memory(resident_bytes())

    def close(self) -> None:
        """Nothing runs on."""


def _watcher(unit: int, progress: Progress) -> Callable[[Block], None]:
    looked = 0.0

    def watch(block: Block) -> None:
        nonlocal looked
        progress.worked(unit, block)
        if time.monotonic() - looked >= LOOK_EVERY_S:
            looked = time.monotonic()
            progress.saw_memory(resident_bytes())
            progress.tick()

    return watch
