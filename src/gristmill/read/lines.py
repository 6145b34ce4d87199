"""Files of records with a separator between them -> blocks of whole records.

Where a block ends depends on how much is read at a time; which records there are, and where, does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from gristmill.engines import Bytes, Offsets
from gristmill.errors import BadFileError
from gristmill.read.blocks import BlockKind, Blocks, RecordBlock
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.sources import Source, open_source
from gristmill.read.storage import read_start, unreadable

NEWLINE = b"\n"
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
TAIL_STEP_BYTES = 1 << 16
"""Read at a time to find the end of a slice's last line."""
SLACK_PART = 8
"""Blocks may be larger by this part of their size, where that makes one fewer."""
SEARCH_BYTES = 1 << 16
END_OF_FILE = 1 << 62


def line_blocks(file: InputFile, part: Slice, blocks: Blocks) -> Iterator[RecordBlock]:
    """Lines that begin in the slice; of a compressed file, all lines."""
    is_whole = file.compression != "none"
    start, stop = (0, END_OF_FILE) if is_whole else (part.start, part.stop)
    if start:
        _check_mark(_read_mark(file.path))
    with open_source(file, blocks, position=max(start - 1, 0), stop=None if is_whole else stop) as source:
        yield from RecordCutter(source, blocks, separator=NEWLINE, start=start, stop=stop).cut()


def separated_blocks(file: InputFile, blocks: Blocks, *, separator: bytes) -> Iterator[RecordBlock]:
    """All records of a file, whatever separates them; separators are found from left to right."""
    with open_source(file, blocks, position=0) as source:
        yield from RecordCutter(source, blocks, separator=separator, start=0, stop=END_OF_FILE).cut()


def whole_block(file: InputFile, blocks: Blocks) -> RecordBlock:
    """All of a file as one record, or how it begins when it is too large."""
    with open_source(file, blocks, position=0) as source:
        content = source.grow(np.empty(0, np.uint8), len(UTF8_MARK))
        mark_bytes = _find_mark(content, source)
        content = content[mark_bytes:]
        num_bytes = -1
        while num_bytes < len(content) <= blocks.max_document_bytes:
            num_bytes = len(content)
            content = source.grow(content, blocks.block_bytes)
        if source.fault is not None:
            raise source.fault
    is_large = len(content) > blocks.max_document_bytes
    return RecordBlock(content, mark_bytes, "too_large" if is_large else "records")


def record_ends(content: Bytes, separator: bytes) -> Offsets:
    """Where each record of a block ends, its separator included; the last may have none."""
    if separator == NEWLINE:
        ends = np.flatnonzero(content == NEWLINE[0]) + 1
    else:
        found = re.finditer(re.escape(separator), content.data)
        ends = np.fromiter((match.end() for match in found), np.int64)
    is_open = len(content) > (ends[-1] if len(ends) else 0)
    return np.append(ends, len(content)) if is_open else ends


def find_line_end(content: Bytes, start: int) -> int:
    """Where the line ends that begins at `start`, its line end included."""
    found = re.compile(NEWLINE).search(content.data, start)
    return found.end() if found else len(content)


class RecordCutter:
    """Cuts a source into blocks of whole records, and steps over records that are too large to hold.

    A slice owns the records that begin in it. One that begins inside a record steps over that record first,
    exactly as over one that is too large.
    """

    def __init__(self, source: Source, blocks: Blocks, *, separator: bytes, start: int, stop: int) -> None:
        self._source = source
        self._blocks = blocks
        self._separator = separator
        self._pattern = re.compile(re.escape(separator))
        self._stop = stop
        self._is_stepping_over = start > 0
        self._is_done = False
        self._pending = np.empty(0, np.uint8)
        self._position = max(start - 1, 0)
        self._num_searched = 0
        """Bytes of `_pending` in which no separator ends."""
        if start == 0:
            self._drop_mark()

    def cut(self) -> Iterator[RecordBlock]:
        """Blocks up to the end of the slice or file; a fault is raised after what precedes it was given."""
        while not self._is_done:
            yield from self._step_over() if self._is_stepping_over else self._cut_pending()
            if not self._is_done and not self._read_more():
                yield from self._finish()
                return

    def _drop_mark(self) -> None:
        self._pending = self._source.grow(self._pending, len(UTF8_MARK))
        mark_bytes = _find_mark(self._pending, self._source)
        self._pending = self._pending[mark_bytes:]
        self._position = mark_bytes

    def _read_more(self) -> bool:
        known = len(self._pending)
        self._pending = self._source.grow(self._pending, self._wanted_bytes(known))
        return len(self._pending) > known

    def _wanted_bytes(self, known: int) -> int:
        """What is left of the slice in equal blocks, the last with some more for its last line; past the end
        of the slice only that line is wanted."""
        most = self._blocks.block_bytes
        left = self._stop - self._position - known
        if left <= 0:
            return min(most, max(TAIL_STEP_BYTES, known // 2))
        slack = most // SLACK_PART if self._stop < END_OF_FILE else 0
        num_blocks = -(-left // (most + slack))
        return -(-left // num_blocks) + (min(most, TAIL_STEP_BYTES) if num_blocks == 1 else 0)

    def _step_over(self) -> Iterator[RecordBlock]:
        end = self._find_end(0)
        self._is_stepping_over = end is None
        # What is kept may be the first bytes of a separator.
        end = max(len(self._pending) - len(self._separator) + 1, 0) if end is None else end
        yield RecordBlock(self._pending[:end], self._position, "rest")
        self._drop(end)
        if not self._is_stepping_over and not self._is_done:
            yield from self._cut_pending()

    def _cut_pending(self) -> Iterator[RecordBlock]:
        keep = len(self._separator) - 1
        first = self._find_end(max(self._num_searched - keep, 0))
        if first is not None:
            end = self._last_end(first)
            yield from self._split_large(self._pending[:end])
            self._drop(end)
        elif len(self._pending) - keep > self._blocks.max_document_bytes:
            end = len(self._pending) - keep
            yield RecordBlock(self._pending[:end], self._position, "too_large")
            self._is_stepping_over = True
            self._drop(end)
        else:
            self._num_searched = len(self._pending)

    def _find_end(self, start: int) -> int | None:
        found = self._pattern.search(self._pending.data, start)
        return found.end() if found else None

    def _last_end(self, first: int) -> int:
        """End of the last record in `_pending` that the slice owns, `first` being that of the first one."""
        if self._separator != NEWLINE:
            ends = [match.end() for match in self._pattern.finditer(self._pending.data)]
            return ends[-1]
        stop = self._stop - self._position
        if len(self._pending) >= stop and (end := self._find_end(max(first, stop) - 1)) is not None:
            return end
        for high in range(len(self._pending), first, -SEARCH_BYTES):
            low = max(high - SEARCH_BYTES, 0)
            hits = np.flatnonzero(self._pending[low:high] == NEWLINE[0])
            if len(hits):
                return low + int(hits[-1]) + 1
        return first

    def _split_large(self, content: Bytes) -> Iterator[RecordBlock]:
        """Records that all have their separator, with those that are too large apart."""
        limit = self._blocks.max_document_bytes
        if len(content) <= limit:
            yield RecordBlock(content, self._position)
            return
        ends = record_ends(content, self._separator)
        large = np.flatnonzero(np.diff(ends, prepend=0) - len(self._separator) > limit)
        large_ends = set(ends[large].tolist())
        starts = ends[large[large > 0] - 1].tolist()
        for start, end in pairwise(sorted({0, len(content), *starts, *large_ends})):
            kind: BlockKind = "too_large" if end in large_ends else "records"
            yield RecordBlock(content[start:end], self._position + start, kind)

    def _drop(self, num_bytes: int) -> None:
        self._pending = self._pending[num_bytes:]
        self._position += num_bytes
        self._num_searched = 0
        self._is_done = self._position >= self._stop

    def _finish(self) -> Iterator[RecordBlock]:
        if self._source.fault is not None:
            raise self._source.fault
        if len(self._pending) and not self._is_stepping_over:
            is_large = len(self._pending) > self._blocks.max_document_bytes
            yield RecordBlock(self._pending, self._position, "too_large" if is_large else "records")


def _read_mark(path: str) -> bytes:
    try:
        return read_start(path, len(UTF8_MARK))
    except Exception as error:
        raise unreadable(error) from error


def _find_mark(head: Bytes, source: Source) -> int:
    if len(head) == 0 and source.fault is None:
        raise BadFileError("empty_file", "the file holds no bytes")
    return _check_mark(head.tobytes())


def _check_mark(head: bytes) -> int:
    """Length of a UTF-8 byte order mark; one of UTF-16 is refused."""
    if head.startswith(UTF16_MARKS):
        raise BadFileError("corrupt", "the text is UTF-16; convert it to UTF-8")
    return len(UTF8_MARK) if head == UTF8_MARK else 0
