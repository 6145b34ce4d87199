"""What a run and its workers say to one another: JSON, a line each, over pipes."""

from __future__ import annotations

import msgspec

from gristmill import errors
from gristmill.config import TokenizerConfig
from gristmill.errors import GristmillError, RunError
from gristmill.limits import Block, Limit
from gristmill.read import Blocks
from gristmill.records import UnitRecord
from gristmill.run.settle import TokenizerFacts


class Gpu(msgspec.Struct, frozen=True):
    """A process that drives a GPU: where it is reached, and in batches of how many bytes."""

    address: str
    batch_bytes: int


class Load(msgspec.Struct, frozen=True, tag="load"):
    """To a worker, first: load this tokenizer, if the job has one."""

    tokenizer: TokenizerConfig | None
    gpu: Gpu | None = None
    """That encodes, once it is there."""
    name: str | None = None
    """By which the job calls it, where that is not its source."""


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """To a worker: the plan is written, get ready for its units."""

    folder: str
    """A path, or a URL of a store."""
    blocks: Blocks
    num_threads: int
    write_behind: bool
    counter_bytes: int
    stage: str = ""
    """Of a folder in a store: where its files are made on this machine; absent: a place of its own."""
    token: str = ""
    """Of the lease under which units are committed: of a folder of this machine a file in it, and absent
    where workers cannot outlive the run."""
    is_frugal: bool = False
    """Memory matters more than the last per cent of speed."""
    max_resident_bytes: int | None = None
    """That the worker may hold; absent where the run watches."""


class Task(msgspec.Struct, frozen=True, tag="task", gc=False):
    """To a worker: process a unit; the one past the last is the tails'."""

    unit: int
    limit: Limit = Limit()
    block_bytes: int | None = None
    """Smaller than usual, after a worker needed too much memory."""


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """From a worker: the tokenizer is there."""

    facts: TokenizerFacts | None
    resident_bytes: int
    """What the worker holds now."""


class Worked(msgspec.Struct, frozen=True, tag="worked"):
    """From a worker: some more of the unit is done."""

    block: Block


class Written(msgspec.Struct, frozen=True, tag="written"):
    """From a worker: the unit waits for the disk, and the worker for another."""

    unit: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """From a worker: the unit is committed."""

    record: UnitRecord


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """From a worker: it could not be done."""

    kind: str
    """Name of the exception's class."""
    message: str
    is_users: bool
    """A GristmillError: trying again would not help."""
    unit: int | None = None
    """Whose fault it is, where it is a unit's."""


ToWorker = Load | Prepare | Task
FromWorker = Loaded | Worked | Written | Done | Failed


def as_error(failure: Failed) -> GristmillError:
    """The error a worker met, as if it had been met here."""
    kind = getattr(errors, failure.kind, RunError)
    is_plain = isinstance(kind, type) and issubclass(kind, GristmillError) and kind is not errors.BadFileError
    return kind(failure.message) if is_plain and failure.is_users else RunError(failure.message)
