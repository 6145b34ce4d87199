"""Plain text -> documents: a file, a line, or what lies between separators."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.batch import DocumentBatch
from gristmill.config import ReadConfig
from gristmill.engines import Bytes, Offsets
from gristmill.errors import ConfigError
from gristmill.read.blocks import Batches, Blocks, RecordBlock
from gristmill.read.documents import NO_OFFSETS, check_documents, keep_documents, too_large
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.lines import NEWLINE, line_blocks, record_ends, separated_blocks, whole_block

BLANKS = b" \t\r\n"
IS_TEXT = np.array([byte not in BLANKS for byte in range(256)])
CARRIAGE_RETURN = 13
MAX_RECORDS = 1 << 16
"""In a batch: a bad line takes far more memory than the two bytes it may stand in."""


def read_text(file: InputFile, part: Slice, config: ReadConfig, blocks: Blocks) -> Batches:
    """Documents of plain text; blank ones between separators or line ends are none."""
    if config.document == "file":
        yield _read_whole(file, blocks)
        return
    separator = NEWLINE if config.document == "line" else config.separator.encode()
    if not separator:
        raise ConfigError("read.separator is empty; give what stands between documents, or set read.document")
    is_lines = config.document == "line"
    found = (
        line_blocks(file, part, blocks) if is_lines else separated_blocks(file, blocks, separator=separator)
    )
    num_records = 0
    for block in found:
        if block.kind == "too_large":
            yield too_large(block, num_records, blocks)
            num_records += 1
        elif block.kind == "records":
            for batch in _split_block(block, separator, num_records, blocks):
                num_records += batch.num_records
                yield batch


def _read_whole(file: InputFile, blocks: Blocks) -> DocumentBatch:
    block = whole_block(file, blocks)
    if block.kind == "too_large":
        return too_large(block, 0, blocks)
    batch = DocumentBatch(
        text=block.content,
        offsets=np.array([0, len(block.content)]),
        records=np.zeros(1, np.int64),
        positions=np.array([block.position]),
        num_records=1,
        num_bytes=len(block.content),
    )
    return check_documents(batch, blocks)


def _split_block(block: RecordBlock, separator: bytes, record: int, blocks: Blocks) -> Batches:
    ends = record_ends(block.content, separator)
    start = 0
    for low in range(0, len(ends), MAX_RECORDS):
        some = ends[low : low + MAX_RECORDS]
        content = block.content[start : some[-1]]
        yield _split_records(content, some - start, separator, block.position + start, record + low, blocks)
        start = int(some[-1])


def _split_records(
    content: Bytes, ends: Offsets, separator: bytes, position: int, record: int, blocks: Blocks
) -> DocumentBatch:
    starts = np.concatenate([NO_OFFSETS, ends[:-1]])
    stops = ends - len(separator)
    if content[-len(separator) :].tobytes() != separator:
        stops[-1] = len(content)
    if separator == NEWLINE:
        stops -= (stops > starts) & (content[stops - 1] == CARRIAGE_RETURN)
    text, offsets = _gather(content, starts, stops)
    is_text = _find_text(text, offsets)
    if not is_text.all():
        text, offsets = keep_documents(text, offsets, is_text)
    batch = DocumentBatch(
        text=text,
        offsets=offsets,
        records=record + np.flatnonzero(is_text),
        positions=position + starts[is_text],
        num_records=len(ends),
        num_bytes=len(content),
    )
    return check_documents(batch, blocks)


def _gather(content: Bytes, starts: Offsets, stops: Offsets) -> tuple[Bytes, Offsets]:
    """What lies between starts and stops, moved together."""
    lengths = np.empty(2 * len(starts), np.int64)
    lengths[0::2] = stops - starts
    lengths[1::2] = np.append(starts[1:], len(content)) - stops
    is_kept = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
    return content[is_kept], np.concatenate([NO_OFFSETS, np.cumsum(lengths[0::2])])


def _find_text(text: Bytes, offsets: Offsets) -> NDArray[np.bool_]:
    """Of each document, whether there is more in it than blanks."""
    is_text = np.diff(offsets) > 0
    is_text[is_text] = IS_TEXT[text[offsets[:-1][is_text]]]
    # Few documents begin with a blank; only those are looked through.
    for document in np.flatnonzero(~is_text).tolist():
        content = text[offsets[document] : offsets[document + 1]]
        is_text[document] = bool(content.tobytes().strip(BLANKS))
    return is_text
