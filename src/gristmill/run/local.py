"""The local backend: units are given to worker processes; a worker that dies is noticed at once."""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress

import msgspec

from gristmill.config import RunJob, TokenizeConfig
from gristmill.errors import RunError
from gristmill.run.attempts import MAX_ATTEMPTS, TaskQueue, smaller_blocks
from gristmill.run.budget import FULL, RUN_BYTES, Budget, settle_budget
from gristmill.run.early import Early
from gristmill.run.gpu import GpuProcess
from gristmill.run.messages import (
    Done,
    Failed,
    FromWorker,
    Gpu,
    Load,
    Loaded,
    Prepare,
    Task,
    Worked,
    Written,
    as_error,
)
from gristmill.run.outcome import Outcome
from gristmill.run.process import WorkerProcess, is_frugal, start_gpus, start_worker, tokenizer_to_load
from gristmill.run.progress import Progress, WorkerState
from gristmill.run.resources import resident_bytes
from gristmill.run.settle import TokenizerFacts
from gristmill.store import RunFolder

log = logging.getLogger(__name__)

POLL_S = 0.1


class LocalBackend:
    """Worker processes on this machine."""

    def __init__(self, config: RunJob, early: Early) -> None:
        self._config = config
        self._budget = settle_budget(config)
        # What the program round a run holds is not the run's.
        self._foreign_bytes = max(resident_bytes() - RUN_BYTES, 0)
        self._workers: list[_Worker] = []
        self._num_started = 0
        self._selector = selectors.DefaultSelector()
        self._prepare: Prepare | None = None
        self._tokenizer = tokenizer_to_load(config) if isinstance(config, TokenizeConfig) else None
        self._num_gpus_lost = 0
        self._gpus = self._open_gpus(early)
        # They load the tokenizer while the run is being planned.
        for process in early.processes:
            self._start(process)
        for _ in range(len(early.processes), self._budget.num_workers):
            self._start()

    def facts(self) -> TokenizerFacts | None:
        """What the first worker to load the tokenizer says of it."""
        num_lost = 0
        while True:
            for worker in self._ready(None):
                for message in worker.receive():
                    if isinstance(message, Loaded):
                        self._fit(message.resident_bytes)
                        return message.facts
                    if isinstance(message, Failed):
                        raise as_error(message)
                    num_lost += 1
                    if num_lost == MAX_ATTEMPTS:
                        raise RunError(f"{worker.process.last_words()} while it loaded the tokenizer")
                    self._end(worker)
                    self._start()

    @property
    def budget(self) -> Budget:
        """What the run may use."""
        return self._budget

    def _fit(self, worker_bytes: int) -> None:
        """Go on with as many workers as the memory holds, now that it is known what one takes."""
        self._budget = settle_budget(self._config, worker_bytes=worker_bytes)
        for worker in self._workers[self._budget.num_workers :]:
            self._end(worker)

    def prepare(self, store: RunFolder, *, num_tasks: int) -> None:
        """The plan is in the folder: tell the workers; no more of them than there is work for."""
        self._prepare = Prepare(
            folder=store.url,
            stage=store.stage,
            token=store.token,
            blocks=self._budget.blocks,
            num_threads=1,
            write_behind=self._budget.write_behind,
            counter_bytes=self._budget.counter_bytes,
            is_frugal=is_frugal(self._config.run),
        )
        for worker in self._workers[max(1, num_tasks) :]:
            self._end(worker)
        for worker in self._workers:
            worker.send(self._prepare)

    def run(self, tasks: Sequence[Task], progress: Progress) -> Generator[Outcome, None, None]:
        """Outcomes of tasks, as they come; tasks are started in order."""
        queue = TaskQueue(tasks)
        progress.memory_budget_bytes = self._budget.memory_bytes
        progress.workers = self._states
        if tasks and not self._workers:
            self._start()
        try:
            while queue or self._busy():
                self._assign(queue, progress)
                for worker in self._ready(POLL_S):
                    for message in sorted(worker.receive(), key=_is_end):
                        if worker in self._workers:  # one that failed twice is replaced once
                            yield from self._hear(worker, message, queue, progress)
                self._watch_memory(progress)
                self._watch_gpus()
                progress.tick()
        finally:  # the caller may have enough before all is done
            for worker in self._busy():
                self._end(worker)

    def close(self) -> None:
        """End every worker, whatever it is doing; what it had not committed is as if it had never been."""
        for worker in list(self._workers):
            self._end(worker)
        for gpu in self._gpus:
            gpu.end()
        self._selector.close()

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.tasks()]

    def _assign(self, queue: TaskQueue, progress: Progress) -> None:
        """Give idle workers what is waiting; what needs much memory comes last, with nobody beside it."""
        if not queue.waiting and queue.alone and not self._busy():
            for worker in self._workers[1:]:
                self._end(worker)
            queue.waiting.append(queue.alone.popleft())
        for worker in self._workers:
            if worker.task is None and queue.waiting:
                worker.task = queue.waiting.popleft()
                worker.since = worker.seen = time.time()
                worker.send(worker.task)
        progress.num_workers = len(self._workers)

    def _hear(
        self, worker: _Worker, message: FromWorker | None, queue: TaskQueue, progress: Progress
    ) -> Iterator[Outcome]:
        task = worker.task
        worker.seen = time.time()
        if isinstance(message, Worked) and task is not None:
            progress.worked(task.unit, message.block)
        elif isinstance(message, Written) and task is not None:
            worker.committing[task.unit] = task
            worker.task = None
        elif isinstance(message, Done):
            yield Outcome(worker.committing.pop(message.record.unit), message.record, None)
        elif isinstance(message, Failed) and message.is_users:
            raise as_error(message)
        elif message is None or isinstance(message, Failed):
            yield from self._replace(worker, message, queue, progress)

    def _replace(
        self, worker: _Worker, failure: Failed | None, queue: TaskQueue, progress: Progress
    ) -> Iterator[Outcome]:
        """Start another in place of a worker that has failed or died, and do what it was doing again."""
        is_memory = worker.is_too_large or (failure is not None and failure.kind == "MemoryError")
        why = failure.message if failure else worker.process.last_words()
        if is_memory:
            why = f"it needs more than run.memory, {self._budget.memory_bytes // 10**6} MB, allows"
        lost, at_fault = worker.tasks(), worker.at_fault(failure)
        self._end(worker)
        self._start()
        for task in lost:
            progress.lost(task.unit)
            if task is not at_fault:
                queue.put_back(task)
                continue
            progress.retried(task.unit, why, worker=str(worker.process.pid))
            block_bytes = smaller_blocks(task, self._budget) if is_memory else None
            if not queue.retry(task, is_alone=is_memory, block_bytes=block_bytes):
                yield Outcome(task, None, why)

    def _watch_gpus(self) -> None:
        """Go on with those there are; where there is none left, the user should know before it is done."""
        failures = [failure for gpu in self._gpus if (failure := gpu.failure())]
        if failures and len(failures) == len(self._gpus):
            raise failures[0]
        for failure in failures[self._num_gpus_lost :]:
            log.warning("the run goes on with the other GPUs: %s", failure)
        self._num_gpus_lost = len(failures)

    def _watch_memory(self, progress: Progress) -> None:
        """End the largest worker at work where the budget is about to be exceeded."""
        for worker in self._workers:
            worker.resident_bytes = resident_bytes(worker.process.pid)
        own = max(resident_bytes() - self._foreign_bytes, 0)
        own += sum(gpu.private_bytes for gpu in self._gpus)
        total = own + sum(worker.resident_bytes for worker in self._workers)
        progress.saw_memory(total)
        busy = self._busy()
        if any(worker.is_too_large for worker in busy):
            return  # it is going, and takes its memory with it
        if total > self._budget.memory_bytes * FULL and busy:
            largest = max(busy, key=lambda worker: worker.resident_bytes)
            largest.is_too_large = True
            largest.process.kill()

    def _states(self) -> list[WorkerState]:
        return [
            WorkerState(
                name=str(worker.process.pid),
                unit=worker.task.unit if worker.task else None,
                since=round(worker.since, 3),
                seen=round(worker.seen, 3),
                memory_bytes=worker.resident_bytes,
            )
            for worker in self._workers
        ]

    def _ready(self, timeout: float | None) -> list[_Worker]:
        return [key.data for key, _ in self._selector.select(timeout)]

    def _start(self, process: WorkerProcess | None = None) -> None:
        worker = _Worker(process or start_worker(self._config))
        self._workers.append(worker)
        self._selector.register(worker.process.answers, selectors.EVENT_READ, worker)
        self._num_started += 1
        worker.send(Load(self._tokenizer, _one_of(self._gpus, self._num_started)))
        if self._prepare is not None:
            worker.send(self._prepare)

    def _open_gpus(self, early: Early) -> list[GpuProcess]:
        if self._tokenizer is None:
            return []
        processes = early.gpus or start_gpus(self._config, self._budget.num_workers)
        batch_bytes = self._budget.blocks.block_bytes
        return [GpuProcess(process, self._tokenizer, batch_bytes) for process in processes]

    def _end(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._selector.unregister(worker.process.answers)
        worker.process.end()


def _is_end(message: FromWorker | None) -> bool:
    """Of the worker; what else it has said in the same breath, such as that a unit is done, comes first."""
    return message is None or isinstance(message, Failed)


def _one_of(gpus: list[GpuProcess], number: int) -> Gpu | None:
    """In turn: several take units side by side."""
    return gpus[number % len(gpus)].gpu if gpus else None


class _Worker:
    """A worker, the unit it is at, and those that wait for the disk."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.task: Task | None = None
        self.committing: dict[int, Task] = {}
        self.since = self.seen = time.time()
        self.resident_bytes = 0
        self.is_too_large = False
        self._decoder = msgspec.json.Decoder(FromWorker)
        self._rest = b""

    def tasks(self) -> list[Task]:
        """All that would be lost with it."""
        return [*self.committing.values(), *([self.task] if self.task else [])]

    def at_fault(self, failure: Failed | None) -> Task | None:
        """The task that failed; of a worker that died, the one it was at."""
        tasks = self.tasks()
        if failure is not None and failure.unit is not None:
            return next((task for task in tasks if task.unit == failure.unit), None)
        return tasks[-1] if tasks else None

    def send(self, message: Load | Prepare | Task) -> None:
        """Tell the worker; one that has died is noticed when its answers end."""
        with suppress(BrokenPipeError):
            self.process.orders.write(msgspec.json.encode(message) + b"\n")

    def receive(self) -> list[FromWorker | None]:
        """The messages that have come; the last is None where the worker is gone."""
        content = os.read(self.process.answers.fileno(), 1 << 20)
        *lines, self._rest = (self._rest + content).split(b"\n")
        messages: list[FromWorker | None] = [self._decoder.decode(line) for line in lines]
        return messages if content else [*messages, None]
