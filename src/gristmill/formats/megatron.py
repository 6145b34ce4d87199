"""Megatron-LM, NeMo and GPT-NeoX: PREFIX.bin with the ids and PREFIX.idx with one sequence per document."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.drafts import Draft
from gristmill.errors import RunError
from gristmill.formats.payload import (
    BLOCK_ITEMS,
    Payload,
    PayloadView,
    Spans,
    blocks_of_spans,
    check_documents,
    map_file,
)
from gristmill.formats.protocol import with_suffix
from gristmill.layout import Layout
from gristmill.records import ShardRecord

MAGIC = b"MMIDIDX\0\0"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
DTYPE_CODES = {"uint16": 8, "uint32": 4}
"""Megatron has no code for uint32; ids are under 2^31, so int32 (4) has the same bits."""


def write_sidecars(payload: Payload, stem: Path) -> list[Draft]:
    """Both files of a shard."""
    index = Draft(with_suffix(stem, ".idx"), payload.shelf)
    count = payload.num_documents
    width = payload.layout.id_type.itemsize
    index.write(HEADER.pack(MAGIC, VERSION, DTYPE_CODES[payload.layout.dtype], count, count + 1))
    for starts, ends in payload.spans():
        index.write((ends - starts).astype("<i4"))
    for starts, _ in payload.spans():
        index.write((starts * width).astype("<i8"))
    for at in range(0, count + 1, BLOCK_ITEMS):
        index.write(np.arange(at, min(at + BLOCK_ITEMS, count + 1), dtype="<i8"))
    return [payload.tokens.linked_as(with_suffix(stem, ".bin")), index]


def read(stem: Path, layout: Layout) -> PayloadView:
    """The documents of a shard."""
    tokens = map_file(with_suffix(stem, ".bin"), layout.id_type)
    lengths, pointers, _ = _read_index(with_suffix(stem, ".idx"), layout)
    width = layout.id_type.itemsize

    def span(item: int) -> tuple[int, int]:
        start = int(pointers[item]) // width
        return start, start + int(lengths[item])

    def spans() -> Spans:
        return blocks_of_spans(np.cumsum(lengths, dtype=np.int64))

    return PayloadView(tokens, len(lengths), span, spans)


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    lengths, pointers, documents = _read_index(with_suffix(stem, ".idx"), layout)
    ends = np.cumsum(lengths, dtype=np.int64)
    faults = check_documents(map_file(with_suffix(stem, ".bin"), layout.id_type), ends, shard, layout)
    if not np.array_equal(pointers, (ends - lengths) * layout.id_type.itemsize):
        faults.append("the offsets in the .idx do not follow from its lengths")
    if not np.array_equal(documents, np.arange(len(lengths) + 1)):
        faults.append("the .idx does not say one sequence per document")
    return faults


def _read_index(path: Path, layout: Layout) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Lengths, byte offsets and document indices."""
    header = map_file(path, np.dtype("u1"), count=HEADER.size).tobytes()
    magic, version, code, count, num_indices = HEADER.unpack(header)
    if magic != MAGIC or version != VERSION:
        raise RunError(f"{path}: is no Megatron index of version {VERSION}")
    if code != DTYPE_CODES[layout.dtype]:
        raise RunError(f"{path}: dtype code {code}, not {DTYPE_CODES[layout.dtype]} for {layout.dtype}")
    if path.stat().st_size != HEADER.size + 12 * count + 8 * num_indices:
        raise RunError(f"{path}: its size does not fit its {count} sequences and {num_indices} indices")
    at = HEADER.size
    return (
        map_file(path, np.dtype("<i4"), offset=at, count=count),
        map_file(path, np.dtype("<i8"), offset=at + 4 * count, count=count),
        map_file(path, np.dtype("<i8"), offset=at + 12 * count, count=num_indices),
    )
