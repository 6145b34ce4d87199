"""A worker on some node of a cluster: keeps its tokenizer between units, and answers with records alone.

Calls come several at a time: one unit is worked at, those before it wait for the disk, those after it for
their turn. Whatever a call takes or gives is JSON."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gristmill.errors import ConfigError, GristmillError, RunError
from gristmill.limits import Block
from gristmill.read import is_remote
from gristmill.run.folder import PLAN
from gristmill.run.loading import load_configured
from gristmill.run.messages import Done, Failed, Load, Prepare, Task
from gristmill.run.process import ONE_THREAD
from gristmill.run.resources import keep_few_blocks, resident_bytes
from gristmill.run.settle import TokenizerFacts, facts_of
from gristmill.run.worker import failure_of, make_job_of, run_task
from gristmill.store import RemoteFolder
from gristmill.versions import version_of

if TYPE_CHECKING:
    from gristmill.count_pipeline import CountJob
    from gristmill.pipeline import Job
    from gristmill.tokenizer import Tokenizer


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The tokenizer is there, and so is the worker."""

    facts: TokenizerFacts | None
    resident_bytes: int
    node: str
    host: str
    gristmill: str
    """The version that is installed there."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a unit."""

    message: Done | Failed
    resident_bytes: int


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What was done of units that are not finished, since the last time."""

    blocks: dict[int, Block]
    resident_bytes: int


class RemoteWorker:
    """Does units one after the other for whoever calls."""

    def __init__(self) -> None:
        os.environ.update(ONE_THREAD)
        keep_few_blocks()
        self._turn = threading.Lock()
        self._tokenizer: Tokenizer | None = None
        self._prepared: tuple[bytes, Job | CountJob] | None = None
        self._blocks: dict[int, Block] = {}
        """Done since somebody asked, by unit."""
        self._counting = threading.Lock()

    def load(self, message: bytes, node: str = "") -> bytes:
        """Load the tokenizer; says what it is, and who answers."""
        load = msgspec.json.decode(message, type=Load)
        facts = None
        try:
            if load.tokenizer is not None:
                with self._turn:
                    self._tokenizer = load_configured(load.tokenizer)
                    gc.freeze()
                facts = facts_of(self._tokenizer, load.name or load.tokenizer.source)
        except (GristmillError, MemoryError, OSError) as error:
            return msgspec.json.encode(failure_of(error))
        hello = Hello(
            facts=facts,
            resident_bytes=resident_bytes(),
            node=node,
            host=os.uname().nodename,
            gristmill=version_of("gristmill") or "",
        )
        return msgspec.json.encode(hello)

    def run(self, prepare: bytes, task: bytes) -> bytes:
        """Do a unit; several may be asked for, and are worked at one at a time."""
        wanted = msgspec.json.decode(task, type=Task)
        message: Done | Failed
        try:
            with self._turn:
                job, limit = self._job_of(prepare)
                commit = run_task(job, wanted, self._reporter(wanted.unit, limit))
            message = Done(commit())
        except (GristmillError, MemoryError, OSError) as error:
            message = failure_of(error, wanted.unit)
        finally:
            with self._counting:
                self._blocks.pop(wanted.unit, None)
        return msgspec.json.encode(Answer(message=message, resident_bytes=resident_bytes()))

    def tell(self) -> bytes:
        """How far the unit is that is being worked at."""
        with self._counting:
            blocks, self._blocks = self._blocks, {}
        return msgspec.json.encode(News(blocks=blocks, resident_bytes=resident_bytes()))

    def leave(self) -> bytes:
        """Remove what is kept on this machine: nothing more will be asked."""
        store = getattr(self._prepared[1], "store", None) if self._prepared else None
        if isinstance(store, RemoteFolder):
            store.close()
        return b""

    def _job_of(self, prepare: bytes) -> tuple[Job | CountJob, int | None]:
        wanted = msgspec.json.decode(prepare, type=Prepare)
        if self._prepared is None or self._prepared[0] != prepare:
            check_shared(wanted)
            self._prepared = prepare, make_job_of(wanted, self._tokenizer)
        return self._prepared[1], wanted.max_resident_bytes

    def _reporter(self, unit: int, limit: int | None) -> Callable[[Block], None]:
        def report(block: Block) -> None:
            with self._counting:
                before = self._blocks.get(unit, Block(0, 0, 0, 0))
                self._blocks[unit] = Block(*map(sum, zip(before, block, strict=True)))
            if limit is not None and resident_bytes() > limit:
                raise MemoryError(f"more than {limit} bytes")

        return report


def check_shared(prepare: Prepare) -> None:
    """Refuse a run folder that is not the one the run was planned in."""
    if not is_remote(prepare.folder) and not Path(prepare.token).exists():
        if Path(prepare.folder).exists() and not Path(prepare.folder, PLAN).exists():
            detail = "there is a folder of that name, but not that of the run"
        else:
            detail = "it is not there"
        raise RunError(
            f"a worker on {os.uname().nodename} does not see the run folder {prepare.folder} ({detail}); "
            "it must be on storage that every node has under that path"
        )


def check_hello(hello: Hello, first: TokenizerFacts | None) -> None:
    """Refuse a worker that would not write the same bytes as the others."""
    own = version_of("gristmill") or ""
    if hello.gristmill != own:
        raise RunError(
            f"a worker has gristmill {hello.gristmill}, this process {own}; install one version on all nodes"
        )
    if first is not None and hello.facts is not None and hello.facts.fingerprint != first.fingerprint:
        raise ConfigError(
            f"the tokenizer {first.name} is not the same on all nodes; put it on storage that they share"
        )
