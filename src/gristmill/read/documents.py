"""Texts that were found -> DocumentBatch: what is no document is set apart, with the reason."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.batch import BadDocument, DocumentBatch, find_invalid_utf8
from gristmill.engines import Bytes, Offsets
from gristmill.read.blocks import Blocks, RecordBlock

EXCERPT_CHARACTERS = 100
EXCERPT_BYTES = 4 * EXCERPT_CHARACTERS
SEARCHED_DOCUMENTS = 256
NO_OFFSETS = np.zeros(1, np.int64)


def show_excerpt(record: Bytes | bytes) -> str:
    """How a record begins, printable; bytes that are not UTF-8 as \\xNN."""
    text = bytes(record[:EXCERPT_BYTES]).decode("utf-8", "backslashreplace")[:EXCERPT_CHARACTERS]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def bad_batch(bad: BadDocument, *, num_bytes: int) -> DocumentBatch:
    """A batch of one record, which is no document."""
    none = np.empty(0, np.int64)
    return DocumentBatch(
        text=np.empty(0, np.uint8),
        offsets=NO_OFFSETS,
        records=none,
        positions=none,
        bad=(bad,),
        num_records=1,
        num_bytes=num_bytes,
    )


def too_large(block: RecordBlock, record: int, blocks: Blocks) -> DocumentBatch:
    """The batch that stands for a record which is too large to hold."""
    # How much of it was read by now is chance; that much is certain.
    excerpt = show_excerpt(block.content[: blocks.max_document_bytes])
    bad = BadDocument(record, block.position, "too_large", explain_too_large(blocks), excerpt)
    return bad_batch(bad, num_bytes=len(block.content))


def explain_too_large(blocks: Blocks) -> str:
    """What is said of a record that is too large."""
    return f"more than {blocks.max_document_bytes} bytes; raise read.max_document_bytes"


def check_documents(batch: DocumentBatch, blocks: Blocks) -> DocumentBatch:
    """The batch without documents that are empty, too large or not UTF-8; those are bad, in their order."""
    lengths = np.diff(batch.offsets)
    faults: dict[int, tuple[str, str]] = {}
    for document in np.flatnonzero(lengths > blocks.max_document_bytes).tolist():
        faults[document] = ("too_large", explain_too_large(blocks))
    for document, offset in find_all_invalid(batch.text, batch.offsets):
        faults.setdefault(document, ("bad_utf8", f"byte {offset} of the text is not UTF-8"))
    if batch.names is not None:
        for document, offset in find_all_invalid(*batch.names):
            faults.setdefault(document, ("bad_utf8", f"byte {offset} of the id is not UTF-8"))
    for document in np.flatnonzero(lengths == 0).tolist():
        faults[document] = ("empty", "the text is empty")
    return set_apart(batch, faults)


def find_all_invalid(buffer: Bytes, offsets: Offsets) -> list[tuple[int, int]]:
    """Every document that is not UTF-8, and the byte in it where that shows."""
    found: list[tuple[int, int]] = []
    if find_invalid_utf8(buffer, offsets) is None:
        return found
    # A search costs as much as it has documents before it, so that it is given few of them at a time.
    for low in range(0, len(offsets) - 1, SEARCHED_DOCUMENTS):
        part = offsets[low : low + SEARCHED_DOCUMENTS + 1]
        first = 0
        while (fault := find_invalid_utf8(buffer, part[first:])) is not None:
            found.append((low + first + fault[0], fault[1]))
            first += fault[0] + 1
    return found


def keep_documents(buffer: Bytes, offsets: Offsets, keep: NDArray[np.bool_]) -> tuple[Bytes, Offsets]:
    """The documents that are kept, moved together."""
    lengths = np.diff(offsets)
    return buffer[np.repeat(keep, lengths)], np.concatenate([NO_OFFSETS, np.cumsum(lengths[keep])])


def set_apart(batch: DocumentBatch, faults: dict[int, tuple[str, str]]) -> DocumentBatch:
    """The batch without the documents that have a fault, a reason and its detail; those are bad, in the order
    of records."""
    if not faults:
        return batch
    keep = np.ones(len(batch), np.bool_)
    keep[list(faults)] = False
    bad = list(batch.bad)
    for document, (reason, detail) in faults.items():
        start = int(batch.offsets[document])
        excerpt = show_excerpt(
            batch.text[start : min(start + EXCERPT_BYTES, int(batch.offsets[document + 1]))]
        )
        record, position = int(batch.records[document]), int(batch.positions[document])
        bad.append(BadDocument(record, position, reason, detail, excerpt))
    text, offsets = keep_documents(batch.text, batch.offsets, keep)
    return DocumentBatch(
        text=text,
        offsets=offsets,
        records=batch.records[keep],
        positions=batch.positions[keep],
        names=None if batch.names is None else keep_documents(*batch.names, keep),
        bad=tuple(sorted(bad)),
        num_records=batch.num_records,
        num_bytes=batch.num_bytes,
    )
