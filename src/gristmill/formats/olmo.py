"""OLMo, OLMo-core and dolma: ids in a .npy without header, and a .csv.gz with a line per document.

A line is start, end, id, file, place of the record in it. OLMo-core reads lines one by one and splits them
at commas, so a line must never be broken by what an id holds.
"""

from __future__ import annotations

import gzip
import io
import itertools
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.drafts import Draft
from gristmill.engines import Bytes, Offsets
from gristmill.errors import RunError
from gristmill.formats.payload import Payload, PayloadView, check_documents, map_file, view_by_ends
from gristmill.formats.protocol import Documents, with_suffix
from gristmill.layout import Layout
from gristmill.pack.rows import Rows
from gristmill.records import ShardRecord

MAX_NAME_BYTES = 4096
"""Of an id; csv readers refuse very long fields."""
MAX_LINE_BYTES = 1 << 17
COMPRESS_BYTES = 1 << 16
"""Fed to the compressor at a time, always: what it gives may depend on how its input is cut."""
BREAKS = np.isin(np.arange(256), [0, 10, 13])


class OlmoWriter:
    """Writes the lines as documents come; the ids are the payload's."""

    def __init__(self, stem: Path, payload: Payload) -> None:
        self._stem = stem
        self._payload = payload
        self._num_tokens = 0
        self._waiting = bytearray()
        self._compressor = zlib.compressobj(level=1, wbits=31)
        self._csv = Draft(with_suffix(stem, ".csv.gz"), payload.shelf)

    def add_documents(self, documents: Documents) -> None:
        """A line for each."""
        offsets = documents.offsets - (int(documents.offsets[0]) - self._num_tokens)
        self._num_tokens = int(offsets[-1])
        self._waiting += csv_lines(documents, offsets)
        full = len(self._waiting) // COMPRESS_BYTES * COMPRESS_BYTES
        for at in range(0, full, COMPRESS_BYTES):
            self._csv.write(self._compressor.compress(self._waiting[at : at + COMPRESS_BYTES]))
        del self._waiting[:full]

    def add_rows(self, rows: Rows) -> None:
        raise AssertionError("rows in a format of documents")

    def finish(self) -> list[Draft]:
        """Both files of a shard."""
        self._csv.write(self._compressor.compress(self._waiting) + self._compressor.flush())
        return [self._payload.tokens.linked_as(with_suffix(self._stem, ".npy")), self._csv]


def csv_lines(documents: Documents, offsets: Offsets) -> bytes:
    """The lines of documents that lie at these offsets of the shard."""
    import csv  # only where it is needed

    text = io.StringIO(newline="")
    ids = itertools.repeat("") if documents.names is None else _one_line_names(*documents.names)
    source = " ".join(documents.source.splitlines()).replace("\0", " ")
    places = ("" if place < 0 else place for place in documents.positions.tolist())
    bounds = offsets.tolist()
    csv.writer(text).writerows(
        zip(bounds[:-1], bounds[1:], ids, itertools.repeat(source), places, strict=False)
    )
    return text.getvalue().encode("utf-8", "backslashreplace")


def read(stem: Path, layout: Layout) -> PayloadView:
    """The documents of a shard."""
    tokens = map_file(with_suffix(stem, ".npy"), layout.id_type)
    return view_by_ends(tokens, _read_spans(with_suffix(stem, ".csv.gz"), len(tokens))[1])


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    tokens = map_file(with_suffix(stem, ".npy"), layout.id_type)
    starts, ends = _read_spans(with_suffix(stem, ".csv.gz"), len(tokens))
    faults = check_documents(tokens, ends, shard, layout)
    if not np.array_equal(starts[1:], ends[:-1]) or np.any(starts[:1]):
        faults.append("a line of the .csv.gz does not start where the one before it ends")
    return faults


def _one_line_names(text: Bytes, offsets: Offsets) -> list[str]:
    """Ids as text without line breaks, the overlong cut."""
    start, end = int(offsets[0]), int(offsets[-1])
    part = text[start:end]
    clean = np.where(BREAKS[part], np.uint8(32), part).tobytes()
    bounds = (offsets - start).tolist()
    return [
        clean[a : min(b, a + MAX_NAME_BYTES)].decode("utf-8", "replace")
        for a, b in itertools.pairwise(bounds)
    ]


def _read_spans(path: Path, num_tokens: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends; a shard has no more documents than tokens, so a longer file is refused early."""
    found: list[NDArray[np.int64]] = []
    try:
        with gzip.open(path, "rb") as lines:
            limited = itertools.islice(_number_pairs(lines), num_tokens + 1)
            while len(block := list(itertools.islice(limited, 1 << 16))):
                found.append(np.array(block, np.int64))
    except (OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise RunError(f"{path}: is no whole list of documents ({error})") from error
    pairs = np.concatenate([np.empty((0, 2), np.int64), *found])
    return pairs[:, 0], pairs[:, 1]


def _number_pairs(lines: Any) -> Any:
    while line := lines.readline(MAX_LINE_BYTES):
        start, end, _ = line.split(b",", 2)
        yield int(start), int(end)
