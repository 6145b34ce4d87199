"""START HERE for the run: one unit is read, encoded, packed, written, and committed as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from gristmill.batch import DocumentBatch, TokenBatch
from gristmill.config import TokenizeConfig
from gristmill.encode import encode_documents, lay_out
from gristmill.head_start import Begun, Encoded, EncodedStart
from gristmill.ledger import check_balance
from gristmill.limits import Block, Limit, OnBlock
from gristmill.measure import Measurements
from gristmill.pack import Packer, make_packer
from gristmill.pack.rows import Rows, Segments, take_rows
from gristmill.pack.windows import split_segments
from gristmill.plan import Plan, Unit
from gristmill.read import Blocks
from gristmill.records import Ledger, UnitRecord
from gristmill.sidecars import FOLDER, Sidecars, find_sidecar, read_segments
from gristmill.stopwatch import Stopwatch
from gristmill.store import RunFolder
from gristmill.tokenizer import Tokenizer
from gristmill.unit_input import UnitInput
from gristmill.write import ShardWriter
from gristmill.write_behind import WriteBehind


class Job(Struct, frozen=True):
    """What every unit of a run needs."""

    config: TokenizeConfig
    plan: Plan
    store: RunFolder
    tokenizer: Tokenizer | None
    """Absent where only tails are packed."""
    blocks: Blocks
    num_threads: Callable[[], int]
    """That may encode a block now: more once there are fewer units left than threads."""
    write_behind: bool
    head_start: EncodedStart | None = None
    """What has begun with the first unit."""

    @property
    def folder(self) -> Path:
        """Where files are made on this machine."""
        return self.store.path

    def with_blocks(self, block_bytes: int | None) -> Job:
        """The same job in smaller blocks, where a size is given."""
        if block_bytes is None:
            return self
        return replace(self, blocks=self.blocks._replace(block_bytes=block_bytes))


MAX_ROWS_BYTES = 16 << 20
"""Of rows made at a time."""


def process_unit(job: Job, unit: Unit, *, limit: Limit, on_block: OnBlock) -> UnitOutput:
    """Read, encode, pack and write a unit; its `commit` checks that it balances and lets it be seen."""
    begun = _begun(job, unit)
    output = UnitOutput(job, unit.index, limit, begun.read if begun else None)
    try:
        _take_blocks(job, unit, output, begun.tokens if begun else [], on_block)
        output.finish_packing(is_last=False)
        return output
    except BaseException:
        output.abandon()
        raise


def pack_tails(job: Job, records: Iterable[UnitRecord], *, limit: Limit) -> UnitOutput:
    """Pack together what the units carried over, as a last unit of its own, to be committed."""
    output = UnitOutput(job, len(job.plan.units), limit)
    try:
        for record in records:
            tail = find_sidecar(record.sidecars, "tail")
            if record.ledger.tokens_carried and tail is not None:
                job.store.fetch([tail])
                output.receive(read_segments(job.folder / tail.path))
        output.finish_packing(is_last=True)
        return output
    except BaseException:
        output.abandon()
        raise


def _take_blocks(
    job: Job, unit: Unit, output: UnitOutput, encoded: list[TokenBatch], on_block: OnBlock
) -> None:
    """Read and encode all blocks of a unit, less the first ones that are `encoded`; none is held when this is
    done."""
    for index, path, documents in output.watch.each("parse", output.input.batches(unit)):
        with output.watch("encode"):
            kept, tokens = _encode(job, documents, encoded.pop(0) if encoded else None)
        output.add(kept, tokens, path, slice_index=index)
        on_block(Block(kept.num_bytes, len(kept), len(kept.bad), len(tokens.ids)))
        del kept, tokens  # ids are not held while the next block is read


def _begun(job: Job, unit: Unit) -> Encoded | None:
    """What was encoded of the unit before, if anything."""
    if job.head_start is None or unit.index != 0:
        return None
    part = unit.slices[0]
    return job.head_start.take(job.plan.files[part.file], part, job.blocks)


def _encode(
    job: Job, documents: DocumentBatch, encoded: TokenBatch | None
) -> tuple[DocumentBatch, TokenBatch]:
    assert job.tokenizer is not None
    if encoded is not None:
        return documents, lay_out(encoded, job.plan.layout)
    return encode_documents(
        documents,
        job.tokenizer,
        job.plan.layout,
        special_tokens=job.config.encode.special_tokens,
        num_threads=job.num_threads(),
    )


class UnitOutput:
    """What a unit writes, and the counts that must balance before it is committed."""

    def __init__(self, job: Job, index: int, limit: Limit, begun: Begun | None = None) -> None:
        """`begun`: what was read of the first slice, which is one of lines."""
        self.watch = Stopwatch()
        self._job = job
        self._index = index
        self._rows_left, self._tokens_left = limit
        self._is_again = limit != Limit()
        """Limits are of units that may have been done before without them."""
        self._is_limited = False
        self._counts: Counter[str] = Counter()
        self._documents_dropped: Counter[str] = Counter()
        self._tokens_dropped: Counter[str] = Counter()
        name = job.plan.unit_name(index)
        attempt = job.store.new_attempt()
        writer = ShardWriter(job.folder, name, job.config.write, job.plan.layout, attempt=attempt)
        self._writer = WriteBehind(writer) if job.write_behind else writer
        self._sidecars = Sidecars(job.folder, name, attempt)
        self.input = UnitInput(job.plan.files, job.config.read, job.blocks, self._sidecars, begun)
        self._measurements = Measurements(job.config.pack.sequence_length)
        self._packer = _make_packer(job)
        self._row_bytes = (job.plan.layout.sequence_length or 0) * job.plan.layout.id_type.itemsize

    def add(self, documents: DocumentBatch, tokens: TokenBatch, path: str, *, slice_index: int) -> None:
        """Take encoded documents and the bad ones beside them."""
        self.input.take_bad(documents, path, slice_index=slice_index)
        if self._packer is None:
            documents, tokens = self._limit_documents(documents, tokens)
        first = self._counts["documents_encoded"]
        self._counts["documents_encoded"] += len(documents)
        self._counts["bytes_encoded"] += int(documents.offsets[-1] - documents.offsets[0])
        self._counts["tokens_encoded"] += len(tokens.ids)
        self._sidecars.add_documents(documents, np.diff(tokens.offsets), slice_index=slice_index)
        self._measurements.add(documents, tokens, first=first, slice_index=slice_index)
        if self._packer is None:
            self._write_documents(documents, tokens, path)
        else:
            keys = (self._index << 32) + np.arange(first, first + len(documents), dtype=np.int64)
            starts = np.zeros(len(documents), dtype=np.int64)
            self._pack(Segments(tokens.ids, tokens.offsets, keys, starts))

    def receive(self, tail: Segments) -> None:
        """Take what a unit carried over."""
        self._counts["tokens_received"] += len(tail.ids)
        self._pack(tail)

    def finish_packing(self, *, is_last: bool) -> None:
        """Pack what is left."""
        if self._packer is not None:
            self._finish_packing(self._packer, is_last=is_last)

    def commit(self) -> UnitRecord:
        """Check the balance, and let the unit be seen; its record comes last. What fails leaves nothing.

        Most of it is waiting for the disk, so that another unit can be worked at meanwhile."""
        try:
            return self._commit()
        except BaseException:
            self.abandon()
            raise

    def _commit(self) -> UnitRecord:
        ledger = self._ledger()
        check_balance(ledger, what=f"unit {self._index}")
        with self.watch("write"):
            shards = tuple(self._writer.finish())
            assert sum(shard.num_tokens for shard in shards) == ledger.tokens_written + ledger.tokens_repeated
            sidecars = self._sidecars.finish()
        record = UnitRecord(
            unit=self._index,
            ledger=ledger,
            slice_records=tuple(self.input.slice_records),
            shards=shards,
            sidecars=sidecars,
            is_limited=self._is_limited,
            measured=self._measurements.measured(len(self.input.slice_records)),
            stage_s=self.watch.seconds(),
        )
        path = f"{FOLDER}/{self._job.plan.unit_name(self._index)}.json"
        files = [file for shard in shards for files in shard.files.values() for file in files]
        content = msgspec.json.encode(record)
        there = self._job.store.commit(
            path, content, [*files, *sidecars], give_names=self._give_names, is_again=self._is_again
        )
        return record if there == content else msgspec.json.decode(there, type=UnitRecord)

    def _give_names(self) -> None:
        self._writer.commit()
        self._sidecars.commit()

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._writer.abandon()
        self._sidecars.abandon()

    def _limit_documents(
        self, documents: DocumentBatch, tokens: TokenBatch
    ) -> tuple[DocumentBatch, TokenBatch]:
        """As many documents as may still be written; once one is left out, so are all that follow."""
        allowed = self._allowed(len(documents), tokens.offsets)
        if allowed == len(documents):
            return documents, tokens
        self._documents_dropped["limit"] += len(documents) - allowed
        return documents.head(allowed), tokens[:allowed]

    def _allowed(self, num_items: int, offsets: np.ndarray) -> int:
        """How many items may be written; `offsets` are their ends in tokens."""
        allowed = 0 if self._is_limited else num_items
        if self._rows_left is not None:
            allowed = min(allowed, self._rows_left)
            self._rows_left -= allowed
        if self._tokens_left is not None:
            allowed = min(allowed, int(np.searchsorted(offsets, self._tokens_left, side="right")) - 1)
            self._tokens_left -= int(offsets[allowed])
        self._is_limited |= allowed < num_items
        return allowed

    def _write_documents(self, documents: DocumentBatch, tokens: TokenBatch, path: str) -> None:
        with self.watch("write"):
            self._writer.write_documents(
                tokens.ids, tokens.offsets, source=path, positions=documents.positions, names=documents.names
            )
        self._counts["tokens_written"] += len(tokens.ids)
        self._counts["rows"] += len(tokens)

    def _pack(self, segments: Segments) -> None:
        assert self._packer is not None
        # A block of tiny documents may become far more rows than it has bytes.
        max_rows = max(1, MAX_ROWS_BYTES // self._row_bytes)
        for part in split_segments(segments, self._job.config.pack, max_rows=max_rows):
            with self.watch("pack"):
                rows = self._packer.add(part)
            self._write_rows(rows)

    def _finish_packing(self, packer: Packer, *, is_last: bool) -> None:
        with self.watch("pack"):
            rows, tail = packer.finish(is_last=is_last)
        self._write_rows(rows)
        if self._is_limited:
            self._tokens_dropped["limit"] += len(tail.ids)
        elif is_last:
            self._tokens_dropped["tail"] += len(tail.ids)
        else:
            self._counts["tokens_carried"] += len(tail.ids)
            self._sidecars.add_tail(tail)

    def _write_rows(self, rows: Rows) -> None:
        num_rows, length = rows.ids.shape
        allowed = self._allowed(num_rows, np.arange(num_rows + 1, dtype=np.int64) * length)
        new = int(rows.lengths.sum()) - rows.num_repeated
        if allowed < num_rows:
            rows = take_rows(rows, allowed)
            kept = int(rows.lengths.sum()) - rows.num_repeated
            self._tokens_dropped["limit"] += new - kept
            new = kept
        with self.watch("write"):
            self._writer.write_rows(rows)
        self._sidecars.add_rows(rows)
        self._counts["tokens_written"] += new
        self._counts["tokens_repeated"] += rows.num_repeated
        self._counts["padding"] += rows.ids.size - new - rows.num_repeated
        self._counts["rows"] += len(rows.ids)
        self._counts["documents_cut"] += int(np.count_nonzero(rows.starts))

    def _ledger(self) -> Ledger:
        return Ledger(
            **self._counts,
            documents_read=self.input.documents_read,
            bytes_read=self.input.bytes_read,
            documents_dropped=dict(sorted((self._documents_dropped + self.input.documents_dropped).items())),
            tokens_dropped={reason: n for reason, n in sorted(self._tokens_dropped.items()) if n},
            bad_files=dict(sorted(self.input.bad_files.items())),
        )


def _make_packer(job: Job) -> Packer | None:
    layout = job.plan.layout
    if layout.mode == "documents":
        return None
    assert layout.pad_id is not None
    config = msgspec.structs.replace(job.config.pack, mode=layout.mode)
    return make_packer(config, pad_id=layout.pad_id, dtype=layout.id_type)
