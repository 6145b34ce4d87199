"""The backends by name: who does the units of a job."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gristmill.config import RunJob, TokenizeConfig
from gristmill.run.early import Early
from gristmill.run.inline import PARALLEL_ENGINES, InlineBackend
from gristmill.run.process import choose_backend, is_small
from gristmill.run.work import Backend


def open_backend(config: RunJob, early: Early) -> Backend:
    """The backend of a job, with what was started of it before."""
    backend = early.backend or BACKENDS[choose_backend(config)](config, early)
    is_threads = isinstance(backend, InlineBackend) and isinstance(config, TokenizeConfig)
    if is_threads and is_small(config):
        facts = backend.facts()
        assert facts is not None
        if facts.engine not in PARALLEL_ENGINES:  # slow enough for processes to pay
            run = msgspec.structs.replace(config.run, backend="local")
            return _open_local(msgspec.structs.replace(config, run=run), early)
    return backend


def _open_local(config: RunJob, early: Early) -> Backend:
    from gristmill.run.local import LocalBackend

    return LocalBackend(config, early)


def _open_ray(config: RunJob, _early: Early) -> Backend:
    from gristmill.run.ray import open_ray

    return open_ray(config)


BACKENDS: dict[str, Callable[[RunJob, Early], Backend]] = {
    "inline": InlineBackend,
    "local": _open_local,
    "ray": _open_ray,
}
