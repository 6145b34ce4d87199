"""START HERE for counting: one unit is read, its pieces counted, and the counts committed as a whole."""

from __future__ import annotations

import shutil
import tempfile
from fnmatch import fnmatch
from pathlib import Path

import msgspec
import numpy as np
from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from gristmill import _native
from gristmill.batch import DocumentBatch
from gristmill.config import CountConfig
from gristmill.engines import Bytes, Offsets
from gristmill.head_start import Counted, CountedStart
from gristmill.ledger import check_balance
from gristmill.limits import Block, Limit, OnBlock
from gristmill.plan import CountPlan, Unit
from gristmill.read import Blocks, Slice
from gristmill.read.documents import keep_documents
from gristmill.records import FileRecord, Ledger, UnitRecord
from gristmill.sidecars import FOLDER, Sidecars
from gristmill.stopwatch import Stopwatch
from gristmill.store import LocalFolder
from gristmill.text_sample import SampleWriter
from gristmill.training.count_team import CounterTeam
from gristmill.training.counting import OnPieces, PieceCounter
from gristmill.training.cut import decode_cut
from gristmill.unit_input import UnitInput

SUFFIX = "pieces"
COPY_BYTES = 1 << 20
SAMPLE_BYTES = 2 << 20
"""Of documents that are kept for the report, about."""
REPORT_SEED = 0x5EED
"""So that the report's sample is not the first part of `count.sample`."""


class CountJob(Struct, frozen=True):
    """What every unit of a count needs."""

    plan: CountPlan
    folder: Path
    blocks: Blocks
    counter_bytes: int
    """Of the pieces that a thread counts."""
    num_threads: int = 1
    lease: str = ""
    """Without this file nothing may be committed; absent: none is asked for."""
    on_pieces: OnPieces | None = None
    """Told what a unit has counted before it is written, where all of it is in memory."""
    head_start: CountedStart | None = None
    """Of the first unit, all of whose documents count once."""

    def with_blocks(self, block_bytes: int | None) -> CountJob:
        """The same job in smaller blocks, where a size is given."""
        if block_bytes is None:
            return self
        return replace(self, blocks=self.blocks._replace(block_bytes=block_bytes))


def count_unit(job: CountJob, unit: Unit, *, limit: Limit, on_block: OnBlock) -> UnitRecord:
    """Count the pieces of a unit's documents, and commit their inventory."""
    name = job.plan.unit_name(unit.index)
    spills = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=job.folder / FOLDER))
    sidecars = Sidecars(job.folder, name)
    begun = _begun(job, unit)
    counter = make_counter(job, spills, text_bytes=unit.num_bytes, begun=begun.counter if begun else None)
    try:
        work = _UnitCount(job, unit, sidecars, counter, limit, begun)
        work.read(on_block)
        return work.commit(spills / f"all.{SUFFIX}")
    except BaseException:
        counter.abandon()
        sidecars.abandon()
        raise
    finally:
        shutil.rmtree(spills, ignore_errors=True)


def _begun(job: CountJob, unit: Unit) -> Counted | None:
    """What was counted of the unit before, if anything."""
    if job.head_start is None or unit.index != 0:
        return None
    part = unit.slices[0]
    return job.head_start.take(job.plan.files[part.file], part, job.blocks)


def make_counter(
    job: CountJob, folder: Path, *, text_bytes: int, begun: _native.PieceCounter | None = None
) -> CounterTeam:
    """What counts the pieces of a unit; `begun` has counted some of it."""
    config = job.plan.config.count
    cut = decode_cut(job.plan.cut.encode())
    counter = PieceCounter(
        cut,
        folder,
        max_bytes=job.counter_bytes,
        when_full=config.when_full,
        text_bytes=text_bytes,
        begun=begun,
    )
    # What is forgotten depends on who counted what: one thread alone always forgets the same.
    return CounterTeam(counter, num_threads=1 if config.when_full == "forget" else job.num_threads)


class _UnitCount:
    """The counter of a unit, and the figures of its record."""

    def __init__(
        self,
        job: CountJob,
        unit: Unit,
        sidecars: Sidecars,
        counter: CounterTeam,
        limit: Limit,
        begun: Counted | None,
    ) -> None:
        config = job.plan.config
        self._job = job
        self._unit = unit
        self._sidecars = sidecars
        self._documents_left = limit.rows
        self._input = UnitInput(
            job.plan.files, config.read, job.blocks, sidecars, begun.read if begun else None
        )
        self._counted = iter(begun.documents if begun else ())
        """Of the next batches: documents, the first ones, that are counted already."""
        self._counter = counter
        self._watch = Stopwatch()
        self._sample = SampleWriter()
        self._num_documents = self._num_bytes = self._num_left_out = self._num_limited = 0
        self._num_held_out = 0

    def read(self, on_block: OnBlock) -> None:
        """Count every document that the job takes."""
        for index, path, documents in self._watch.each("parse", self._input.batches(self._unit)):
            self._input.take_bad(documents, path, slice_index=index)
            text, offsets = self._take(documents, self._unit.slices[index])
            weight = weight_of(path, self._job.plan.config.count)
            uncounted = offsets[next(self._counted, 0) :]
            with self._watch("count"):
                if weight and len(uncounted) > 1:
                    self._counter.add(text, uncounted, weight=weight)
            self._num_documents += len(offsets) - 1
            self._num_bytes += int(offsets[-1])
            on_block(Block(documents.num_bytes, len(offsets) - 1, len(documents.bad), 0))

    def commit(self, inventory: Path) -> UnitRecord:
        """Write the inventory, under a passing name first, then the record that says the unit is done."""
        ledger = self._ledger()
        check_balance(ledger, what=f"unit {self._unit.index}")
        stem = f"{FOLDER}/{self._job.plan.unit_name(self._unit.index)}"
        with self._watch("write"):
            self._counter.finish(inventory, on_pieces=self._job.on_pieces)
            self._sidecars.add_sample(self._sample.arrays())
            counted = describe(inventory, f"{stem}.{SUFFIX}")
            sidecars = (*self._sidecars.finish(), counted)
            self._sidecars.add_file(SUFFIX, inventory, counted)
        record = UnitRecord(
            unit=self._unit.index,
            ledger=ledger,
            slice_records=tuple(self._input.slice_records),
            shards=(),
            sidecars=sidecars,
            is_limited=self._num_limited > 0,
            stage_s=self._watch.seconds(),
        )
        folder = LocalFolder(self._job.folder, token=self._job.lease)
        content = msgspec.json.encode(record)
        folder.commit(f"{stem}.json", content, sidecars, give_names=self._sidecars.commit, is_again=False)
        return record

    def _take(self, documents: DocumentBatch, part: Slice) -> tuple[Bytes, Offsets]:
        """The documents to count: those that are sampled and not held out, as many as the limit leaves."""
        config = self._job.plan.config.count
        seed = config.seed + REPORT_SEED
        drawn = is_chosen(documents, part, share=sample_share(self._job.plan), seed=seed)
        taken = is_chosen(documents, part, share=config.sample, seed=config.seed)
        self._num_left_out += len(documents) - count_true(taken)
        if config.held_out:
            held_out = taken & is_chosen(documents, part, share=config.held_out, seed=seed)
            self._num_held_out += count_true(held_out)
            self._sample.add(documents, drawn & held_out, file=part.file)
            taken &= ~held_out
        if self._documents_left is not None:
            self._num_limited += max(count_true(taken) - self._documents_left, 0)
            taken &= np.cumsum(taken) <= self._documents_left
            self._documents_left -= count_true(taken)
        if not config.held_out:
            self._sample.add(documents, drawn & taken, file=part.file)
        if taken.all():
            return documents.text, documents.offsets
        return keep_documents(documents.text, documents.offsets, taken)

    def _ledger(self) -> Ledger:
        dropped = self._input.documents_dropped.copy()
        dropped["not sampled"] = self._num_left_out
        dropped["held out"] = self._num_held_out
        dropped["limit"] = self._num_limited
        return Ledger(
            documents_read=self._input.documents_read,
            documents_encoded=self._num_documents,
            documents_dropped={reason: count for reason, count in sorted(dropped.items()) if count},
            bytes_read=self._input.bytes_read,
            bytes_encoded=self._num_bytes,
            rows=self._num_documents,
            bad_files=dict(sorted(self._input.bad_files.items())),
        )


def count_true(flags: NDArray[np.bool_]) -> int:
    """How many are set."""
    return int(np.count_nonzero(flags))


def sample_share(plan: CountPlan) -> float:
    """Of the documents, for the report: enough to tell, few enough to keep."""
    share = min(1.0, SAMPLE_BYTES / max(plan.num_bytes, 1))
    return min(share, plan.config.count.held_out) if plan.config.count.held_out else share


def weight_of(path: str, config: CountConfig) -> int:
    """How many times the documents of a file count."""
    return next((weight for pattern, weight in config.weights.items() if is_called(path, pattern)), 1)


def is_called(path: str, pattern: str) -> bool:
    """Whether a pattern means a file: paths are absolute, and people write patterns as they write inputs."""
    return fnmatch(path, pattern) or fnmatch(path, f"*/{pattern}")


def is_chosen(documents: DocumentBatch, part: Slice, *, share: float, seed: int) -> NDArray[np.bool_]:
    """About this share of the documents: decided by where each stands, so that nothing else can change it.

    With the same seed, a larger share chooses all that a smaller one does."""
    if share >= 1:
        return np.ones(len(documents), np.bool_)
    by_record = np.uint64((part.start << 32) % 2**64) + documents.records.astype(np.uint64)
    place = np.where(documents.positions >= 0, documents.positions.astype(np.uint64), by_record)
    salt = ((part.file << 48) ^ (seed * 0x9E3779B97F4A7C15)) % 2**64
    mixed = place + np.uint64(salt)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    chosen: NDArray[np.bool_] = mixed < np.uint64(int(share * 2**64))
    return chosen


def describe(path: Path, name: str) -> FileRecord:
    """The record of a file that is there."""
    digest = blake3()
    with path.open("rb") as file:
        while content := file.read(COPY_BYTES):
            digest.update(content)
    return FileRecord(path=name, num_bytes=path.stat().st_size, blake3=digest.hexdigest())
