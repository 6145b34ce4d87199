"""Units done by workers on the nodes of a cluster: bounded in flight, taken as they finish, tried again."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gristmill.config import RunJob, TokenizeConfig
from gristmill.errors import RunError
from gristmill.run.attempts import MAX_ATTEMPTS, TaskQueue, smaller_blocks
from gristmill.run.budget import FULL, RUN_BYTES, Budget, settle_budget
from gristmill.run.folder import grant_lease, revoke_leases
from gristmill.run.messages import Done, Failed, Load, Prepare, Task, as_error
from gristmill.run.nodes import Cluster, Reply, settle_room
from gristmill.run.outcome import Outcome
from gristmill.run.process import check_reachable
from gristmill.run.progress import Progress, WorkerState
from gristmill.run.remote_worker import Answer, Hello, News, check_hello
from gristmill.run.resources import resident_bytes
from gristmill.run.settle import TokenizerFacts
from gristmill.store import LocalFolder, RunFolder

log = logging.getLogger(__name__)

POLL_S = 0.1
MAX_IN_FLIGHT = 2
"""Units of a worker: one is worked at while another waits for the disk."""
LOOK_EVERY_S = 1.0
MAX_ASKED = 200
"""Workers that are asked how far they are, each time."""
TELL_AFTER_S = 10.0
PATIENCE_S = 300.0
"""Until a cluster that could not hold a worker when it was asked for one must have grown."""
LEAVE_S = 5.0
"""In which workers remove what they keep of a folder in a store."""


class ClusterBackend:
    """Workers on a cluster's nodes."""

    def __init__(self, config: RunJob, cluster: Cluster) -> None:
        check_reachable(config)
        self._cluster = cluster
        self._config = settle_room(config, cluster.room())
        self._load = msgspec.json.encode(_load_of(config))
        self._budget = settle_budget(self._config)
        self._facts: TokenizerFacts | None = None
        self._store: RunFolder | None = None
        self._prepare = b""
        self._workers: dict[Any, _Worker] = {}
        self._free: dict[Any, None] = {}
        self._num_in_flight = self._num_idle = self._num_failed_starts = self._num_met = 0
        self._is_one_astray = False
        """Whether an attempt that was given up may still be going on."""
        self._looked_at = 0.0
        # They load the tokenizer while the run is being planned.
        for _ in range(self._budget.num_workers):
            self._start()

    @property
    def budget(self) -> Budget:
        """What the run may use."""
        return self._budget

    def facts(self) -> TokenizerFacts | None:
        """What the first worker to load the tokenizer says of it."""
        first: Hello | None = None
        told_at = time.monotonic() + TELL_AFTER_S
        while first is None:
            if time.monotonic() > told_at:
                told_at += PATIENCE_S
                log.warning("no worker has come yet: the cluster is busy, or is growing; waiting")
            for reply in self._cluster.heard(POLL_S):
                hello = self._meet(reply)
                if first is None and hello is not None:
                    first, self._facts = hello, hello.facts
        self._fit(first.resident_bytes)
        return self._facts

    def _fit(self, worker_bytes: int) -> None:
        """Go on with as many workers as the memory holds, now that it is known what one takes."""
        declared = self._worker_bytes()
        self._budget = settle_budget(self._config, worker_bytes=worker_bytes)
        if self._worker_bytes() != declared:  # what a worker may take is told when it starts
            for worker in list(self._workers):
                self._end(worker)
            for _ in range(self._budget.num_workers):
                self._start()

    def prepare(self, store: RunFolder, *, num_tasks: int) -> None:
        """The plan is in the folder; no more workers than there is work for."""
        self._store = store
        self._renew_lease()
        for worker in list(self._workers)[max(1, num_tasks) :]:
            self._end(worker)

    def _renew_lease(self) -> None:
        """Of a folder in a store the run itself holds one, and attempts do not share names."""
        assert self._store is not None
        is_here = isinstance(self._store, LocalFolder)
        prepare = Prepare(
            folder=self._store.url,
            token=str(grant_lease(Path(self._store.url))) if is_here else self._store.token,
            blocks=self._budget.blocks,
            num_threads=1,
            write_behind=self._budget.write_behind,
            counter_bytes=self._budget.counter_bytes,
            max_resident_bytes=int(self._worker_bytes() * FULL),
        )
        self._prepare = msgspec.json.encode(prepare)

    def run(self, tasks: Sequence[Task], progress: Progress) -> Generator[Outcome, None, None]:
        """Outcomes of tasks, as they come; tasks are started in order."""
        queue = TaskQueue(tasks)
        progress.memory_budget_bytes = self._budget.memory_bytes
        progress.workers = self._states
        if tasks and not self._workers:
            self._start()
        try:
            while queue or self._num_in_flight:
                self._assign(queue)
                for reply in self._cluster.heard(POLL_S):
                    yield from self._hear(reply, queue, progress)
                self._look(progress)
                progress.tick()
        finally:  # the caller may have enough before all is done
            self._look(progress, is_end=True)
            self._leave()

    def close(self) -> None:
        """End every worker; what it had not committed is as if it had never been. Again: nothing."""
        self._dismiss(list(self._workers))
        if self._store is not None:
            revoke_leases(self._store.path)
            self._store = None  # from here on the folder may be another run's
        self._cluster.close()

    def _leave(self) -> None:
        """Nothing of what was begun can be committed any more, wherever it is still going on."""
        busy = [key for key, worker in self._workers.items() if worker.tasks]
        self._dismiss(busy)
        self._is_one_astray |= bool(busy)
        if self._is_one_astray and self._store is not None:
            revoke_leases(self._store.path)
            self._renew_lease()
            self._is_one_astray = False

    def _dismiss(self, keys: list[Any]) -> None:
        """End workers, after they have removed what they keep of a folder in a store."""
        staying = {key for key in keys if self._workers[key].node is not None and self._has_stages()}
        for key in staying:
            self._cluster.call(key, "leave")
        until = time.monotonic() + LEAVE_S
        while staying and time.monotonic() < until:
            for reply in self._cluster.heard(POLL_S):
                if reply.method == "leave":
                    staying.discard(reply.worker)
                elif reply.method == "load" and reply.worker not in keys:
                    self._meet(reply)
        for key in keys:
            self._end(key)

    def _has_stages(self) -> bool:
        return self._store is not None and self._store.is_remote

    def _assign(self, queue: TaskQueue) -> None:
        """Give workers what is waiting; near the end one unit each, so that none waits behind another."""
        # Those that have nothing yet come first, also where they are still on their way.
        is_many = len(queue.waiting) >= len(self._workers) + self._num_idle and not queue.alone
        most = MAX_IN_FLIGHT if is_many else 1
        for key in list(self._free):
            worker = self._workers[key]
            if queue.alone and not worker.tasks:
                worker.is_alone = True
                self._give(worker, queue.alone.popleft())
            while queue.waiting and len(worker.tasks) < most and not worker.is_alone:
                self._give(worker, queue.waiting.popleft())
            if worker.is_alone or len(worker.tasks) >= MAX_IN_FLIGHT:
                del self._free[key]

    def _give(self, worker: _Worker, task: Task) -> None:
        if not worker.tasks:
            worker.since = time.time()
            self._num_idle -= 1
        worker.tasks[task.unit] = task
        self._num_in_flight += 1
        self._cluster.call(worker.key, "run", self._prepare, msgspec.json.encode(task))

    def _hear(self, reply: Reply, queue: TaskQueue, progress: Progress) -> Iterator[Outcome]:
        worker = self._workers.get(reply.worker)
        if worker is None:  # of one that was ended
            return
        if reply.method == "load":
            self._meet(reply)
        elif reply.answer is None:
            is_node = reply.is_out_of_reach or self._cluster.is_lost(worker.node or "")
            yield from self._replace(worker, None, reply.why_lost, queue, progress, is_node_lost=is_node)
        elif reply.method == "tell":
            self._take_news(worker, msgspec.json.decode(reply.answer, type=News), progress)
        else:
            answer = msgspec.json.decode(reply.answer, type=Answer)
            worker.hear(answer.resident_bytes)
            worker.since = worker.seen
            yield from self._take(worker, answer.message, queue, progress)

    def _take(
        self, worker: _Worker, message: Done | Failed, queue: TaskQueue, progress: Progress
    ) -> Iterator[Outcome]:
        if isinstance(message, Done):
            task = worker.tasks.pop(message.record.unit)
            self._num_in_flight -= 1
            self._num_idle += not worker.tasks
            worker.is_alone = False
            self._free[worker.key] = None
            yield Outcome(task, message.record, None)
        elif message.is_users:
            raise as_error(message)
        else:
            yield from self._replace(worker, message, message.message, queue, progress)

    def _replace(
        self,
        worker: _Worker,
        failure: Failed | None,
        why: str,
        queue: TaskQueue,
        progress: Progress,
        *,
        is_node_lost: bool = False,
    ) -> Iterator[Outcome]:
        """Start another in place of a worker that has failed or is lost, and do again what it was doing."""
        is_memory = failure is not None and failure.kind == "MemoryError"
        if is_memory:
            why = f"it needs more than a worker's part of run.memory, {self._worker_bytes() // 10**6} MB"
        lost = list(worker.tasks.values())
        self._end(worker.key)
        self._start()
        self._is_one_astray |= failure is None
        for task in lost:
            progress.lost(task.unit)
            if failure is not None and task.unit != failure.unit:
                queue.put_back(task)
                continue
            progress.retried(task.unit, why, worker=worker.name)
            if is_node_lost:
                is_tried = queue.put_back_lost(task)
            else:  # alone, so that it is known next time whose fault it was
                smaller = smaller_blocks(task, self._budget) if is_memory else None
                is_tried = queue.retry(task, is_alone=True, block_bytes=smaller)
            if not is_tried:
                yield Outcome(task, None, why)

    def _meet(self, reply: Reply) -> Hello | None:
        """Take in a worker that has come, or ask for another in its place."""
        worker = self._workers.get(reply.worker)
        if worker is None:
            return None
        if reply.answer is None:
            self._num_failed_starts += 1
            if self._num_failed_starts >= MAX_ATTEMPTS:
                raise RunError(
                    f"workers do not start: {reply.why_lost}; has every node this version of gristmill, and "
                    "the cluster the RAY_AUTH_MODE of this process?"
                )
            self._end(reply.worker)
            self._start()
            return None
        hello = msgspec.json.decode(reply.answer, type=Hello | Failed)
        if isinstance(hello, Failed):
            raise as_error(hello)
        check_hello(hello, self._facts)
        self._num_failed_starts = 0
        worker.node = hello.node
        self._num_met += 1
        worker.name = f"{self._num_met} on {hello.host}"
        worker.hear(hello.resident_bytes)
        self._free[worker.key] = None
        return hello

    def _look(self, progress: Progress, *, is_end: bool = False) -> None:
        """Now and then: who is there, what they hold, and how far those are that have been silent."""
        now = time.time()
        if now - self._looked_at < LOOK_EVERY_S and not is_end:
            return
        self._looked_at = now
        present = [worker for worker in self._workers.values() if worker.node is not None]
        progress.num_workers = len(present)
        progress.num_nodes = len({worker.node for worker in present})
        progress.saw_memory(resident_bytes() + sum(worker.resident_bytes for worker in present))
        silent = [w for w in present if w.tasks and not w.is_asked and now - w.seen >= LOOK_EVERY_S]
        for worker in sorted(silent, key=lambda worker: worker.seen)[: 0 if is_end else MAX_ASKED]:
            worker.is_asked = True
            self._cluster.call(worker.key, "tell")

    def _take_news(self, worker: _Worker, news: News, progress: Progress) -> None:
        worker.is_asked = False
        worker.hear(news.resident_bytes)
        for unit, block in news.blocks.items():
            if unit in worker.tasks:
                progress.worked(unit, block)

    def _states(self) -> list[WorkerState]:
        return [
            WorkerState(
                name=worker.name,
                unit=next(iter(worker.tasks), None),
                since=round(worker.since, 3),
                seen=round(worker.seen, 3),
                memory_bytes=worker.resident_bytes,
            )
            for worker in self._workers.values()
            if worker.node is not None
        ]

    def _worker_bytes(self) -> int:
        """What a worker may hold, all in all."""
        return (self._budget.memory_bytes - RUN_BYTES) // self._budget.num_workers

    def _start(self) -> None:
        key = self._cluster.start(memory_bytes=self._worker_bytes())
        self._workers[key] = _Worker(key)
        self._num_idle += 1
        self._cluster.call(key, "load", self._load)

    def _end(self, key: Any) -> None:
        worker = self._workers.pop(key)
        self._free.pop(key, None)
        self._num_in_flight -= len(worker.tasks)
        self._num_idle -= not worker.tasks
        self._cluster.end(key)


class _Worker:
    """A worker, where it is, and the units it has been given."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.node: str | None = None
        """Known once it has come."""
        self.tasks: dict[int, Task] = {}
        self.is_alone = self.is_asked = False
        self.name = ""
        self.resident_bytes = 0
        self.since = self.seen = 0.0
        """When it took up its unit, and when it was last heard of: seconds since 1970."""

    def hear(self, resident_bytes: int) -> None:
        """It has said something, and what it holds."""
        self.resident_bytes = resident_bytes
        self.seen = time.time()


def _load_of(config: RunJob) -> Load:
    """The tokenizer as every node finds it, under the name by which the job calls it."""
    if not isinstance(config, TokenizeConfig):
        return Load(None)
    source = config.tokenizer.source
    path = os.path.abspath(source) if os.path.exists(source) else source
    return Load(msgspec.structs.replace(config.tokenizer, source=path), name=source)
