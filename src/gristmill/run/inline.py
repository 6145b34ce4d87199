"""The inline backend: units are processed in this process, on as many threads as there are workers."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gristmill.config import RunJob, TokenizeConfig
from gristmill.errors import RunError
from gristmill.limits import Block
from gristmill.plan import CountPlan
from gristmill.records import UnitRecord
from gristmill.run.budget import settle_budget
from gristmill.run.early import Early
from gristmill.run.loading import load_measured
from gristmill.run.messages import Prepare, Task
from gristmill.run.outcome import Outcome
from gristmill.run.process import encodes_on_gpu, is_frugal, tokenizer_to_load
from gristmill.run.progress import Progress, WorkerState
from gristmill.run.resources import (
    give_back_memory,
    keep_blocks,
    keep_few_blocks,
    keep_memory,
    resident_bytes,
)
from gristmill.run.settle import TokenizerFacts, facts_of
from gristmill.run.worker import MAX_COMMITTING, Commit, make_job_of, run_task
from gristmill.store import RunFolder

if TYPE_CHECKING:
    from gristmill.count_pipeline import CountJob
    from gristmill.engines.cuda.late import LateEngine
    from gristmill.pipeline import Job
    from gristmill.training.counting import OnPieces

LOOK_EVERY_S = 0.1
SWITCH_S = 0.0005
"""With a GPU, threads are seldom long outside the interpreter: they must not wait long for one another."""
PARALLEL_ENGINES = ("native", "cuda")
"""That threads use side by side."""


class InlineBackend:
    """No other process: nothing to start, one tokenizer in memory, and the simplest to debug."""

    def __init__(self, config: RunJob, early: Early) -> None:
        named = tokenizer_to_load(config) if isinstance(config, TokenizeConfig) else None
        self._tokenizer, held_bytes = None, 0
        if named:
            self._tokenizer, held_bytes = load_measured(named, early.recalling)
        self._late: LateEngine | None = None
        if self._tokenizer and encodes_on_gpu(config):
            from gristmill.tokenizer import move_to_gpu

            keep_memory()
            sys.setswitchinterval(SWITCH_S)
            self._tokenizer, self._late = move_to_gpu(self._tokenizer)
        self._facts = facts_of(self._tokenizer, named.source) if self._tokenizer and named else None
        self.budget = settle_budget(config, worker_bytes=held_bytes)
        self._is_frugal = is_frugal(config.run)
        self._num_unit_threads = 1
        self._job: Job | CountJob | None = None
        self._head_start = early.head_start

    def facts(self) -> TokenizerFacts | None:
        """What the run must know of the tokenizer, if the job has one."""
        return self._facts

    def prepare(self, store: RunFolder, *, num_tasks: int) -> None:
        """The plan is in the folder."""
        # Other engines would hold one another up, or use all cores for one unit, as counting does.
        is_parallel = self._facts is not None and self._facts.engine in PARALLEL_ENGINES
        num_workers = self.budget.num_workers
        self._num_unit_threads = max(1, min(num_workers, num_tasks)) if is_parallel else 1
        if self._is_frugal:
            keep_few_blocks()
        else:
            keep_blocks(self._num_unit_threads, self.budget.blocks.block_bytes)
        prepare = Prepare(
            folder=store.url,
            stage=store.stage,
            token=store.token,
            blocks=self.budget.blocks,
            num_threads=max(1, num_workers // self._num_unit_threads),
            write_behind=self.budget.write_behind,
            counter_bytes=self.budget.counter_bytes,
        )
        self._job = make_job_of(prepare, self._tokenizer)
        if self._head_start is not None:
            self._job = replace(self._job, head_start=self._head_start)

    def tell_pieces(self, on_pieces: OnPieces) -> None:
        """Let a count, which is prepared and has one unit, tell what it has counted before it is written; not
        where memory is short, as what is told comes on top."""
        assert self._job is not None
        if isinstance(self._job.plan, CountPlan) and not self._is_frugal:
            self._job = replace(self._job, on_pieces=on_pieces)

    def run(self, tasks: Sequence[Task], progress: Progress) -> Generator[Outcome, None, None]:
        """Outcomes of tasks, as they come; tasks are started in order."""
        assert self._job is not None
        num_threads = min(self._num_unit_threads, len(tasks))
        progress.num_workers = max(1, num_threads, progress.num_workers)  # the tails need but one
        progress.memory_budget_bytes = self.budget.memory_bytes
        threads = _UnitThreads(self._job, tasks, num_threads, most=self.budget.num_workers)
        progress.workers = threads.states
        num_left = len(tasks)
        try:
            while num_left:
                for heard in threads.heard():
                    if isinstance(heard, _Worked):
                        progress.worked(heard.unit, heard.block)
                    else:
                        num_left -= 1
                        if self._is_frugal:
                            give_back_memory()
                        yield _outcome(heard)
                progress.saw_memory(resident_bytes())
                progress.tick()
        finally:  # the caller may have enough before all is done
            threads.stop()

    def close(self) -> None:
        """Nothing runs on."""
        if self._late is not None:
            self._late.wait()


class _Worked(Struct, frozen=True):
    unit: int
    block: Block


class _Ended(Struct, frozen=True):
    task: Task
    result: UnitRecord | BaseException


class _Stopped(BaseException):
    """Nobody waits for the unit any more; raised where it reports, so that it leaves nothing behind."""


class _UnitThreads:
    """Threads that take tasks until there are none, and what they have to tell."""

    def __init__(
        self, job: Job | CountJob, tasks: Sequence[Task], num_threads: int, *, most: int
    ) -> None:
        self._job = job if isinstance(job.plan, CountPlan) else replace(job, num_threads=self._threads_each)
        self._most = most
        """Threads that may be at work at once."""
        self._num_busy = num_threads
        self._waiting = deque(tasks)
        self._inbox: queue.SimpleQueue[_Worked | _Ended] = queue.SimpleQueue()
        self._is_stopped = threading.Event()
        self._turn = threading.Lock()
        self._commits: queue.SimpleQueue[tuple[Task, Commit] | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(MAX_COMMITTING * max(1, num_threads))
        self._states: dict[int, WorkerState] = {}
        self._threads: list[threading.Thread] = []
        # First, as without them nothing that was begun could end.
        self._committers = _started(self._commit_what_comes for _ in range(max(1, num_threads)))
        try:
            self._threads = _started(partial(self._work, number) for number in range(num_threads))
        except RunError:
            self.stop()
            raise
        with self._turn:
            self._num_busy -= num_threads - len(self._threads)

    def heard(self) -> list[_Worked | _Ended]:
        """What has come in, after a moment of waiting at most."""
        try:
            heard = [self._inbox.get(timeout=LOOK_EVERY_S)]
        except queue.Empty:
            return []
        while not self._inbox.empty():
            heard.append(self._inbox.get())
        return heard

    def states(self) -> list[WorkerState]:
        """What each thread is at."""
        return [state for _, state in sorted(self._states.copy().items())]

    def stop(self) -> None:
        """Let every thread end at its next block, and wait for it and for what is being committed."""
        self._is_stopped.set()
        self._waiting.clear()
        for thread in self._threads:
            thread.join()
        for _ in self._committers:
            self._commits.put(None)
        for thread in self._committers:
            thread.join()

    def _threads_each(self) -> int:
        """For a block of each unit that is worked at: those that have nothing left to do help the others."""
        return max(1, self._most // max(1, self._num_busy))

    def _work(self, number: int) -> None:
        try:
            self._take_tasks(number)
        finally:
            with self._turn:
                self._num_busy -= 1

    def _take_tasks(self, number: int) -> None:
        while True:
            now = round(time.time(), 3)
            try:
                task = self._waiting.popleft()
            except IndexError:
                self._states[number] = WorkerState(f"thread {number}", None, now, now)
                return
            self._states[number] = WorkerState(f"thread {number}", task.unit, now, now)
            try:
                commit = run_task(self._job, task, self._reporter(number, task.unit))
            except _Stopped:
                return
            except BaseException as error:
                self._inbox.put(_Ended(task, error))
                if not isinstance(error, MemoryError | OSError):
                    return
                continue
            self._room.acquire()  # the disk may be slower than all the rest
            self._commits.put((task, commit))

    def _commit_what_comes(self) -> None:
        while (written := self._commits.get()) is not None:
            task, commit = written
            try:
                self._inbox.put(_Ended(task, commit()))
            except BaseException as error:
                self._inbox.put(_Ended(task, error))
            finally:
                self._room.release()

    def _reporter(self, number: int, unit: int) -> Callable[[Block], None]:
        since = self._states[number].since

        def report(block: Block) -> None:
            if self._is_stopped.is_set():
                raise _Stopped
            self._states[number] = WorkerState(f"thread {number}", unit, since, round(time.time(), 3))
            self._inbox.put(_Worked(unit, block))

        return report


def _started(works: Iterable[Callable[[], None]]) -> list[threading.Thread]:
    """A thread for each work, or as many as are to be had."""
    threads: list[threading.Thread] = []
    for work in works:
        thread = threading.Thread(target=work, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if threads:
                break
            remedy = "raise the limits on processes and memory (ulimit -u, -v)"
            raise RunError(f"no unit can be worked at: {error}; {remedy}") from error
        threads.append(thread)
    return threads


def _outcome(ended: _Ended) -> Outcome:
    task, result = ended.task, ended.result
    if isinstance(result, MemoryError | OSError):
        return Outcome(task, None, str(result) or type(result).__name__)
    if isinstance(result, BaseException):
        raise result
    return Outcome(task, result, None)
