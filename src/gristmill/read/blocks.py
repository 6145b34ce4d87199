"""How much is read at a time, and what a block of records is."""

from __future__ import annotations

from collections.abc import Generator
from typing import Literal, NamedTuple

import msgspec

from gristmill.batch import DocumentBatch
from gristmill.engines import Bytes

Batches = Generator[DocumentBatch, None, None]
BlockKind = Literal["records", "too_large", "rest"]


class Blocks(NamedTuple):
    """Limits of reading; none but `max_document_bytes` changes which documents come out."""

    block_bytes: int
    """Input in a batch, about."""
    max_document_bytes: int
    """A larger record is skipped and counted as bad."""
    memory_map: bool
    """Local plain files are mapped instead of read."""
    read_ahead: bool
    """A thread reads the next batch while this one is used."""
    max_documents: int | None = None
    """In a batch; None is no limit."""


def split_batches(batches: Batches, max_documents: int) -> Batches:
    """The same documents, fewer at a time."""
    for batch in batches:
        for start in range(0, max(len(batch), 1), max_documents):
            yield batch.part(start, start + max_documents)


class RecordBlock(msgspec.Struct, frozen=True):
    """Part of a file, with the separators as they stand there."""

    content: Bytes
    position: int
    kind: BlockKind = "records"
    """Whole records; one that is too large, or how it begins; more of what is stepped over."""
