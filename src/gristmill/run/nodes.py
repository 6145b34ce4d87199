"""What a cluster is to a run: room for workers, calls to them, and what is heard of those."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from gristmill.config import RunConfig, RunJob
from gristmill.run.budget import RUN_BYTES


class Room(NamedTuple):
    """What a cluster has for workers of one processor each."""

    num_workers: int
    worker_bytes: int
    """That each of them can have, on every node."""


class Reply(NamedTuple):
    """What came of a call: an answer, or why there is none."""

    worker: Any
    method: str
    answer: bytes | None
    why_lost: str
    is_out_of_reach: bool = False
    """The connection broke, and whether the worker or its node is gone is not known."""


class Cluster(Protocol):
    """Starts workers somewhere and passes calls on; a worker is whatever `start` returns."""

    def room(self) -> Room:
        """What there is now."""
        ...

    def start(self, *, memory_bytes: int) -> Any:
        """Ask for a worker; it may come later, or never."""
        ...

    def call(self, worker: Any, method: str, *arguments: bytes) -> None:
        """Call a method of `RemoteWorker`; the reply will be heard."""
        ...

    def heard(self, timeout_s: float) -> list[Reply]:
        """Replies that have come, after so much waiting at most."""
        ...

    def is_lost(self, node: str) -> bool:
        """Whether a node is no longer there."""
        ...

    def end(self, worker: Any) -> None:
        """Let a worker end now, as far as it can be reached."""
        ...

    def close(self) -> None:
        """Let go of the cluster."""
        ...


def settle_room(config: RunJob, room: Room) -> RunJob:
    """The job with as many workers and as much memory as it says, or as the cluster has."""
    num_workers = config.run.workers or room.num_workers
    memory = config.run.memory or RUN_BYTES + num_workers * (room.worker_bytes // 2)
    run: RunConfig = msgspec.structs.replace(config.run, workers=num_workers, memory=memory)
    return msgspec.structs.replace(config, run=run)
