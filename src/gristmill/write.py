"""The last stage: the documents or rows of one unit become shards, in every format asked for.

Nothing has its final name before `commit`; a unit that fails leaves nothing behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.config import WriteConfig
from gristmill.drafts import Draft, sync_folder
from gristmill.engines import Bytes, Offsets
from gristmill.errors import RunError
from gristmill.formats import FORMATS, PayloadFormat, formats_of, max_shard_ids, stem_of
from gristmill.formats.payload import Payload
from gristmill.formats.protocol import (
    MAX_DOCUMENT_TOKENS,
    Documents,
    FormatWriter,
    count_fitting,
    cut_documents,
)
from gristmill.layout import Layout
from gristmill.pack.rows import Rows, slice_rows
from gristmill.records import ShardRecord

UNLIMITED = 1 << 62


class ShardWriter:
    """Writes the shards of one unit; which item goes into which shard does not depend on how they come."""

    def __init__(
        self, folder: Path, name: str, config: WriteConfig, layout: Layout, *, attempt: str = ""
    ) -> None:
        self._folder = folder
        self._name = name
        self._attempt = attempt
        self._config = config
        self._layout = layout
        self._max_tokens = max_shard_tokens(config, layout)
        self._max_items = config.rows_per_shard or UNLIMITED
        self._open: OpenShard | None = None
        self._drafts: list[Draft] = []
        self._records: list[ShardRecord] = []

    def write_documents(
        self,
        ids: NDArray[Any],
        offsets: Offsets,
        *,
        source: str,
        positions: Offsets,
        names: tuple[Bytes, Offsets] | None = None,
    ) -> None:
        """Append whole documents of one file; ids have the layout's dtype, BOS and EOS included."""
        assert self._layout.sequence_length is None
        assert ids.dtype == self._layout.id_type
        documents = Documents(ids, offsets, source, positions, names)
        self._check_lengths(documents)
        with self._abandoned_on_error():
            for shard, start, stop in self._cuts(offsets):
                shard.add_documents(cut_documents(documents, start, stop))

    def write_rows(self, rows: Rows) -> None:
        """Append rows."""
        assert rows.ids.shape[1] == self._layout.sequence_length
        assert rows.ids.dtype == self._layout.id_type
        offsets = np.arange(len(rows.ids) + 1, dtype=np.int64) * rows.ids.shape[1]
        with self._abandoned_on_error():
            for shard, start, stop in self._cuts(offsets):
                shard.add_rows(slice_rows(rows, start, stop))

    def finish(self) -> list[ShardRecord]:
        """Everything is on the disk, under hidden names; returns what the shards hold."""
        with self._abandoned_on_error():
            self._close()
        return self._records

    def commit(self) -> None:
        """Give every file its name, for good."""
        assert self._open is None, "finish() comes first"
        with self._abandoned_on_error():
            for draft in self._drafts:
                draft.commit()
            for folder in sorted({draft.path.parent for draft in self._drafts}):
                sync_folder(folder)
        self._drafts = []

    def abandon(self) -> None:
        """Remove what has no final name yet; a second time does nothing."""
        if self._open is not None:
            self._open.discard()
            self._open = None
        for draft in self._drafts:
            draft.discard()
        self._drafts = []

    def _cuts(self, offsets: Offsets) -> Iterator[tuple[OpenShard, int, int]]:
        """The shard that each range of items goes into, opened when it is needed."""
        start, count = 0, len(offsets) - 1
        while start < count:
            shard = self._open
            used, items = (shard.num_ids, shard.num_items) if shard else (0, 0)
            fitting = count_fitting(
                offsets, start, max_tokens=self._max_tokens - used, max_items=self._max_items - items
            )
            if shard is not None and not fitting:
                self._close()
                continue
            if shard is None:
                name = f"{self._name}-{len(self._records):03d}"
                shard = self._open = OpenShard(
                    self._folder, name, self._config, self._layout, attempt=self._attempt
                )
            # A shard has at least one item, however large.
            stop = start + max(fitting, 1)
            yield shard, start, stop
            start = stop

    def _close(self) -> None:
        if self._open is not None:
            record, drafts = self._open.finish()
            self._drafts += drafts
            self._records.append(record)
            self._open = None

    def _check_lengths(self, documents: Documents) -> None:
        lengths = np.diff(documents.offsets)
        if len(lengths) and int(lengths.max()) > MAX_DOCUMENT_TOKENS:
            place = int(documents.positions[int(lengths.argmax())])
            raise RunError(
                f"{documents.source}: the document at byte {place} has {lengths.max()} tokens, more than the "
                f"{MAX_DOCUMENT_TOKENS} that formats hold; set read.max_document_bytes"
            )

    @contextlib.contextmanager
    def _abandoned_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abandon()
            raise


MakePayload = Callable[[Path, Layout, list[Draft]], Payload]


class OpenShard:
    """One shard while it is written, in every format asked for."""

    def __init__(
        self,
        folder: Path,
        name: str,
        config: WriteConfig,
        layout: Layout,
        *,
        make_payload: MakePayload = Payload,
        attempt: str = "",
    ) -> None:
        self._folder = folder
        self._name = name
        self._attempt = attempt
        self._make_payload = make_payload
        self._payload: Payload | None = None
        self._writers: dict[str, FormatWriter] = {}
        self._shelf: list[Draft] = []
        self.num_documents = 0
        self.num_rows = 0
        self.num_ids = 0
        self._num_padding = 0
        try:
            self._open_formats(config, layout)
        except BaseException:
            self.discard()
            raise

    @property
    def num_items(self) -> int:
        """Documents or rows."""
        return self.num_documents + self.num_rows

    def add_documents(self, documents: Documents) -> None:
        """Append documents, which fit."""
        if self._payload is not None:
            self._payload.add(documents)
        for writer in self._writers.values():
            writer.add_documents(documents)
        self.num_documents += len(documents)
        self.num_ids += int(documents.offsets[-1] - documents.offsets[0])

    def add_rows(self, rows: Rows) -> None:
        """Append rows, which fit."""
        for writer in self._writers.values():
            writer.add_rows(rows)
        self.num_rows += len(rows.ids)
        self.num_ids += rows.ids.size
        self._num_padding += rows.num_padding

    def finish(self) -> tuple[ShardRecord, list[Draft]]:
        """All files on the disk under hidden names, and what they hold."""
        drafts = {name: writer.finish() for name, writer in self._writers.items()}
        kept = [draft for group in drafts.values() for draft in group]
        for draft in kept:
            draft.finish()
        if self._payload is not None:
            self._payload.discard()
        files = {name: [draft.record(self._folder) for draft in group] for name, group in drafts.items()}
        return self._record(files), kept

    def discard(self) -> None:
        """Leave nothing behind."""
        for draft in self._shelf:
            draft.discard()

    def _open_formats(self, config: WriteConfig, layout: Layout) -> None:
        for name in formats_of(config):
            chosen = FORMATS[name]
            stem = stem_of(self._folder, name, f"{self._name}{self._attempt}")
            if isinstance(chosen, PayloadFormat):
                self._payload = self._payload or self._make_payload(stem, layout, self._shelf)
                self._writers[name] = chosen.open(stem, self._payload)
            else:
                self._writers[name] = chosen.open(stem, config, layout, self._shelf)

    def _record(self, files: dict[str, Any]) -> ShardRecord:
        return ShardRecord(
            name=self._name,
            num_documents=self.num_documents,
            num_rows=self.num_rows,
            num_tokens=self.num_ids - self._num_padding,
            num_padding=self._num_padding,
            files=files,
        )


def max_shard_tokens(config: WriteConfig, layout: Layout) -> int:
    """Ids that a shard holds at most, unless one document alone has more."""
    assert isinstance(config.shard_bytes, int), "sizes are numbers when the run starts"
    limit = config.shard_bytes // layout.id_type.itemsize
    most = max_shard_ids(config, layout)
    return limit if most is None else min(limit, most)
