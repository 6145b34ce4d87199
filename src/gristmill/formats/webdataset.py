"""WebDataset: a plain .tar a shard, whose neighbouring files of one name up to the first dot are a sample.

A column of a row, or the ids of a document, is a .npy in it: `00012-000-00000017.input_ids.npy`. The key is
that of the shard and the item's number there, so that no two samples of a run share one.
"""

from __future__ import annotations

import re
from array import array
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.config import Column, WriteConfig
from gristmill.drafts import Draft
from gristmill.errors import RunError
from gristmill.formats.lists import (
    DTYPES,
    Batch,
    Lists,
    ListWriter,
    TableView,
    check_columns,
    chosen_columns,
    cut_groups,
)
from gristmill.formats.npy import HEAD_BYTES, head_of
from gristmill.formats.payload import map_file
from gristmill.formats.protocol import with_suffix
from gristmill.layout import Layout
from gristmill.pack.rows import offsets_of
from gristmill.records import ShardRecord

BLOCK_BYTES = 512
RECORD_BYTES = 20 * BLOCK_BYTES
"""An archive is a multiple of this, with two empty blocks at its end at least."""
SIZE = slice(124, 135)
GROUP_BYTES = 1 << 24
"""Of samples that are decoded at a time."""


class WebDatasetWriter(ListWriter):
    """Writes samples as they come."""

    def __init__(self, stem: Path, config: WriteConfig, layout: Layout, shelf: list[Draft]) -> None:
        names = chosen_columns(config, layout)
        super().__init__(names, layout, id_type=np.dtype(DTYPES["input_ids"]))
        self._key = _key_of(stem)
        self._num_items = 0
        self._draft = Draft(with_suffix(stem, ".tar"), shelf)

    def write(self, batch: Batch) -> None:
        """A sample an item."""
        columns = [(name, lists.values.data, lists.offsets.tolist()) for name, lists in batch.items()]
        for item in range(len(batch["input_ids"].offsets) - 1):
            parts: list[bytes | memoryview] = []
            for name, values, offsets in columns:
                content = values[offsets[item] : offsets[item + 1]].cast("B")
                size = HEAD_BYTES + len(content)
                parts += [
                    member_head(f"{self._key}-{self._num_items:08d}.{name}.npy", size),
                    _array_head(self.dtypes[name].str, offsets[item + 1] - offsets[item]),
                    content,
                    bytes(-size % BLOCK_BYTES),
                ]
            self._draft.write(b"".join(parts))
            self._num_items += 1

    def finish(self) -> list[Draft]:
        """The file of a shard."""
        end = self._draft.num_bytes + 2 * BLOCK_BYTES
        self._draft.write(bytes(2 * BLOCK_BYTES + -end % RECORD_BYTES))
        return [self._draft]


def member_head(name: str, num_bytes: int) -> bytes:
    """The block before a file of an archive (ustar): nobody's, of 1970, readable by all."""
    owner, times = b"0000644\0" + b"0000000\0" * 2, b"%011o\0" % num_bytes + b"00000000000\0"
    before = name.encode().ljust(100, b"\0") + owner + times
    after = b"0".ljust(101, b"\0") + b"ustar\x0000"
    # The sum of all bytes of the block, its own eight taken for blanks.
    total = sum(before) + sum(after) + 8 * 32
    return (before + b"%06o\0 " % total + after).ljust(BLOCK_BYTES, b"\0")


def read(stem: Path, layout: Layout) -> TableView:
    """The rows or documents of a shard."""
    path = with_suffix(stem, ".tar")
    content = map_file(path, np.dtype("u1"))
    names, places, sizes = _read_heads(path, content, _key_of(stem))
    starts = cut_groups(offsets_of(sizes.sum(axis=1)), max_size=GROUP_BYTES)

    def group(number: int) -> dict[str, Lists]:
        chosen = slice(starts[number], starts[number + 1])
        return {
            name: _decode(path, content, np.dtype(DTYPES[name]), places[chosen, i], sizes[chosen, i])
            for i, name in enumerate(names)
        }

    return TableView(path, layout, starts, group)


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    return check_columns(read(stem, layout), shard, layout)


def _key_of(stem: Path) -> str:
    # Whose attempt at a unit made a file is told by its name alone.
    return re.sub(r"(\d+-\d+)-[0-9a-f]{8}", r"\1", stem.name.removeprefix("shard-"))


@lru_cache(maxsize=1 << 12)
def _array_head(dtype: str, length: int) -> bytes:
    return head_of(np.dtype(dtype), (length,))


def _read_heads(
    path: Path, content: NDArray[Any], key: str
) -> tuple[list[Column], NDArray[np.int64], NDArray[np.int64]]:
    """The columns, and where the file of each column of each item begins and how large it is."""
    names: list[Column] = []
    places, sizes = array("q"), array("q")
    at = 0
    while at + BLOCK_BYTES <= len(content) and content[at]:
        head = content[at : at + BLOCK_BYTES].tobytes()
        name = head[:100].rstrip(b"\0").decode("ascii", "replace")
        column = name.removesuffix(".npy").rpartition(".")[2]
        if not places or (column != names[0] and len(places) == len(names)):
            names += [known for known in DTYPES if known == column and known not in names]
        item, number = divmod(len(places), len(names) or 1)
        size = int(head[SIZE], 8) if head[SIZE].isdigit() else 0
        expected = f"{key}-{item:08d}.{names[number] if names else ''}.npy"
        if name != expected or head != member_head(expected, size) or at + BLOCK_BYTES + size > len(content):
            raise RunError(f"{path}: byte {at}: is not the beginning of {expected}, or that goes on too long")
        places.append(at + BLOCK_BYTES)
        sizes.append(size)
        stop, at = at + BLOCK_BYTES + size, at + BLOCK_BYTES + size + -size % BLOCK_BYTES
        if np.any(content[stop:at]):
            raise RunError(f"{path}: byte {stop}: the rest of a block is not empty")
    end = at + 2 * BLOCK_BYTES
    if len(content) != end + -end % RECORD_BYTES or np.any(content[at:]):
        raise RunError(f"{path}: does not end after the file that ends at byte {at}")
    if "input_ids" not in names or len(places) % len(names):
        raise RunError(f"{path}: a sample lacks a column")
    shape = (-1, len(names))
    return names, np.array(places, np.int64).reshape(shape), np.array(sizes, np.int64).reshape(shape)


def _decode(
    path: Path,
    content: NDArray[Any],
    dtype: np.dtype[Any],
    places: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> Lists:
    """A column of neighbouring samples."""
    found = []
    for at, size in zip(places.tolist(), sizes.tolist(), strict=True):
        length = (size - HEAD_BYTES) // dtype.itemsize
        head = content[at : at + HEAD_BYTES].tobytes()
        if size != HEAD_BYTES + length * dtype.itemsize or head != _array_head(dtype.str, length):
            raise RunError(f"{path}: byte {at}: is no array of {dtype.name}")
        found.append(np.frombuffer(content[at + HEAD_BYTES : at + size], dtype))
    lengths = np.array([len(values) for values in found], np.int64)
    return Lists(np.concatenate(found), offsets_of(lengths).astype(np.int32))
