"""What a command starts of a run before it imports the rest of it: its workers take longest to come."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from gristmill.config import RunJob, TokenizeConfig
from gristmill.run.loading import Recalling
from gristmill.run.process import (
    WORKER_BYTES,
    WorkerProcess,
    choose_backend,
    memory_of,
    start_gpus,
    start_worker,
    tokenizer_to_load,
)
from gristmill.run.resources import num_cores

if TYPE_CHECKING:
    from gristmill.run.work import Backend


class Early(NamedTuple):
    """Workers that are on their way: processes, what drives a cluster, or the tokenizer of this one."""

    processes: tuple[WorkerProcess, ...] = ()
    gpus: tuple[WorkerProcess, ...] = ()
    backend: Backend | None = None
    recalling: Recalling | None = None
    since: float | None = None
    """When it was begun, by the clock that never goes back."""

    def end(self) -> None:
        """Whatever of it is still there ends now."""
        for process in (*self.processes, *self.gpus):
            process.end()
        if self.backend is not None:
            self.backend.close()


NOTHING = Early()


def start_early(config: RunJob) -> Early:
    """Workers that a job will need, if it needs any; a run that looks finished may need none."""
    folder = config.write.output if isinstance(config, TokenizeConfig) else ""
    is_finished = bool(folder) and "://" not in folder and os.path.exists(f"{folder}/manifest.json")
    backend, since = choose_backend(config), time.monotonic()
    if is_finished or (backend == "inline" and not isinstance(config, TokenizeConfig)):
        return NOTHING
    if backend == "inline":
        assert isinstance(config, TokenizeConfig)
        return Early(recalling=Recalling(tokenizer_to_load(config)), since=since)
    if backend == "ray":
        from gristmill.run.ray import open_ray

        return Early(backend=open_ray(config, is_last=True), since=since)
    fitting = max(1, memory_of(config.run) // WORKER_BYTES)
    num_workers = min(config.run.workers or num_cores(), fitting)
    gpus = start_gpus(config, num_workers)
    workers = tuple(start_worker(config) for _ in range(num_workers))
    return Early(processes=workers, gpus=gpus, since=since)
