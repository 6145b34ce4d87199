"""How much the shards of a run take on disk, from counts alone."""

from __future__ import annotations

import math
from typing import NamedTuple

from gristmill.config import Column, OutputFormat, WriteConfig
from gristmill.formats import FORMATS, PayloadFormat
from gristmill.formats.lists import BATCH_ROWS, BATCH_TOKENS, DTYPES, chosen_columns
from gristmill.layout import Layout
from gristmill.sidecars import DOCUMENT, SEGMENT

END_BYTES = 8
SIDECAR_BYTES: dict[OutputFormat, int] = {"megatron": 20, "olmo": 11, "llmc": 8, "nanogpt": 8, "datatrove": 8}
"""For each document, beside its ids; of olmo about, since it is compressed."""
ITEM_BYTES: dict[OutputFormat, int] = {"mds": 4, "litdata": 4}
"""For each row or document, whatever its columns."""
CELL_BYTES: dict[OutputFormat, int] = {"arrow": 4, "mds": 7, "webdataset": 512 + 128 + 256}
"""For each column of each row or document; of webdataset its blocks are half empty at the end."""
SHARING_ENDS = ("llmc", "nanogpt", "datatrove")
"""Formats whose file of document ends is one file under several names."""


class Counts(NamedTuple):
    """What is written."""

    num_documents: float
    num_tokens: float
    num_rows: float
    num_segments: float
    """Of rows."""
    num_units: int


class Disk(NamedTuple):
    """Bytes on disk."""

    formats: dict[OutputFormat, int]
    """Of each format alone."""
    total_bytes: int
    """All together: what formats share counts once."""


def estimate_disk(counts: Counts, config: WriteConfig, layout: Layout) -> Disk:
    """What the shards and the files beside the unit records will take, before any compression."""
    sizes = {name: round(_format_bytes(name, counts, config, layout)) for name in layout.formats}
    units = counts.num_documents * DOCUMENT.itemsize + counts.num_segments * SEGMENT.itemsize
    shared = _shared_bytes(counts, layout)
    return Disk(sizes, round(sum(sizes.values()) + units - shared))


def _shared_bytes(counts: Counts, layout: Layout) -> float:
    """Counted once too often for each further name of the same file; llm.c has its ids behind a header."""
    payload = [name for name in layout.formats if isinstance(FORMATS[name], PayloadFormat)]
    num_ids = sum(name != "llmc" for name in payload)
    num_ends = sum(name in SHARING_ENDS for name in payload)
    return (
        max(num_ids - 1, 0) * counts.num_tokens * layout.id_type.itemsize
        + max(num_ends - 1, 0) * counts.num_documents * END_BYTES
    )


def _format_bytes(name: OutputFormat, counts: Counts, config: WriteConfig, layout: Layout) -> float:
    if isinstance(FORMATS[name], PayloadFormat):
        ids = counts.num_tokens * layout.id_type.itemsize
        return ids + counts.num_documents * SIDECAR_BYTES[name]
    return _table_bytes(name, counts, config, layout)


def _table_bytes(name: OutputFormat, counts: Counts, config: WriteConfig, layout: Layout) -> float:
    num_items = counts.num_rows if layout.sequence_length else counts.num_documents
    num_cells = counts.num_rows * (layout.sequence_length or 0) or counts.num_tokens
    columns: tuple[Column, ...] = chosen_columns(config, layout) if name != "litdata" else ("input_ids",)
    total = num_items * ITEM_BYTES.get(name, 0)
    for column in columns:
        num_values = counts.num_segments + num_items if column == "cu_seqlens" else num_cells
        width = 1 if DTYPES[column] == "int8" else 4
        total += num_items * CELL_BYTES.get(name, 0)
        if name in ("pt", "npy") and (column == "cu_seqlens" or not layout.sequence_length):
            total += num_items * END_BYTES
        if column == "input_ids" and layout.dtype == "uint16" and name == "parquet":
            total += num_values * 2 + _dictionary_bytes(counts, num_items, num_cells, layout)
        elif column == "input_ids" and name in ("litdata", "npy"):
            total += num_values * layout.id_type.itemsize
        else:
            total += num_values / 8 if width == 1 and name == "parquet" else num_values * width
    return total


def _dictionary_bytes(counts: Counts, num_items: float, num_cells: float, layout: Layout) -> float:
    """Of the ids, in every row group that is large enough to gain by one."""
    num_groups = max(num_items / BATCH_ROWS, num_cells / BATCH_TOKENS, counts.num_units)
    is_gain = num_cells > 2 * layout.vocab_size * num_groups
    return math.ceil(num_groups) * layout.vocab_size * 4 if is_gain else num_cells * 2
