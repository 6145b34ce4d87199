"""The backends by name: who does the units of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gristmill.config import RunJob, TokenizeConfig
from gristmill.run.inline import PARALLEL_ENGINES, InlineBackend
from gristmill.run.local import LocalBackend
from gristmill.run.process import WorkerProcess, choose_backend, is_small
from gristmill.run.work import Backend


def open_backend(config: RunJob, processes: Sequence[WorkerProcess]) -> Backend:
    """The backend of a job; `processes` are workers that were started before."""
    backend = BACKENDS[choose_backend(config)](config, processes)
    is_threads = isinstance(backend, InlineBackend) and isinstance(config, TokenizeConfig)
    if is_threads and is_small(config):
        facts = backend.facts()
        assert facts is not None
        if facts.engine not in PARALLEL_ENGINES:  # slow enough for processes to pay
            run = msgspec.structs.replace(config.run, backend="local")
            return LocalBackend(msgspec.structs.replace(config, run=run), processes)
    return backend


def _open_ray(config: RunJob, _processes: Sequence[WorkerProcess]) -> Backend:
    from gristmill.run.cluster import ClusterBackend
    from gristmill.run.ray import RayCluster

    return ClusterBackend(config, RayCluster(config.run))


BACKENDS: dict[str, Callable[[RunJob, Sequence[WorkerProcess]], Backend]] = {
    "inline": InlineBackend,
    "local": LocalBackend,
    "ray": _open_ray,
}
