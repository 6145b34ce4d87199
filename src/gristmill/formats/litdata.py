"""LitData (litgpt): a .bin of items a shard, and an index.json that names all of them.

`TokensLoader` takes the ids of a file for one stream and cuts it into blocks: documents for a reader that
cuts its own windows, or rows, which come back whole where `block_size` is their length. There are no other
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gristmill.config import WriteConfig
from gristmill.drafts import Draft, Scratch
from gristmill.errors import RunError
from gristmill.formats.lists import Batch, Lists, ListWriter, TableView, check_columns, cut_groups
from gristmill.formats.payload import BLOCK_ITEMS, map_file
from gristmill.formats.protocol import with_suffix, write_run_file
from gristmill.layout import Layout
from gristmill.records import FileRecord, ShardRecord

PLACE_TYPE = np.dtype("<u4")
MAX_FILE_BYTES = (1 << 32) - 1
"""Places in a shard are of 32 bits."""
DTYPE_CODES = {"uint16": 20, "uint32": 16}
"""LitData has no code for uint32; ids are under 2^31, so int32 (16) has the same bits."""


class LitDataWriter(ListWriter):
    """Writes ids aside, since the places of items come before them."""

    def __init__(self, stem: Path, _: WriteConfig, layout: Layout, shelf: list[Draft]) -> None:
        super().__init__(("input_ids",), layout, id_type=layout.id_type)
        self._path = with_suffix(stem, ".bin")
        self._shelf = shelf
        self._ids = Scratch(self._path, shelf)
        self._ends = Scratch(self._path, shelf)

    def write(self, batch: Batch) -> None:
        """An item after the other."""
        ids, offsets = batch["input_ids"]
        ends = self._ids.num_bytes + offsets[1:].astype(np.uint64) * ids.itemsize
        self._ends.write(ends.astype("<u8"))
        self._ids.write(ids)

    def finish(self) -> list[Draft]:
        """The file of a shard."""
        ends = self._ends.map(np.dtype("<u8"))
        first = 4 + 4 * (len(ends) + 1)
        assert first + self._ids.num_bytes <= MAX_FILE_BYTES, "max_ids() keeps shards smaller"
        draft = Draft(self._path, self._shelf)
        draft.write(np.array([len(ends), first], PLACE_TYPE))
        for at in range(0, len(ends), BLOCK_ITEMS):
            draft.write((ends[at : at + BLOCK_ITEMS] + first).astype(PLACE_TYPE))
        for block in self._ids.blocks():
            draft.write(block)
        self._ids.discard()
        self._ends.discard()
        return [draft]


def max_ids(_: WriteConfig, layout: Layout) -> int:
    """Ids that fit into a shard, were each an item of its own."""
    return (MAX_FILE_BYTES - 8) // (4 + layout.id_type.itemsize)


def read(stem: Path, layout: Layout) -> TableView:
    """The rows or documents of a shard."""
    path = with_suffix(stem, ".bin")
    (count,) = map_file(path, PLACE_TYPE, count=1).tolist()
    first, width = 4 + 4 * (count + 1), layout.id_type.itemsize
    places = map_file(path, PLACE_TYPE, offset=4, count=count + 1).astype(np.int64) - first
    ids = map_file(path, layout.id_type, offset=first)
    if places[0] or np.any(places[1:] <= places[:-1]) or np.any(places % width) or places[-1] != ids.nbytes:
        raise RunError(f"{path}: its items do not follow one another to the end of the file")
    places //= width
    starts = cut_groups(places)

    def group(number: int) -> dict[str, Lists]:
        part = places[starts[number] : starts[number + 1] + 1]
        return {"input_ids": Lists(np.asarray(ids[part[0] : part[-1]]), (part - part[0]).astype(np.int32))}

    return TableView(path, layout, starts, group)


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    return check_columns(read(stem, layout), shard, layout)


def finish_run(
    folder: Path, shards: Sequence[ShardRecord], _: WriteConfig, layout: Layout
) -> list[FileRecord]:
    """Write what LitData's `StreamingDataset` looks for first."""
    import json  # here and in other formats: milliseconds that runs of any format would spend

    chunks = []
    for shard in shards:
        (file,) = shard.files["litdata"]
        chunk = {
            "chunk_bytes": file.num_bytes,
            "chunk_size": shard.num_rows + shard.num_documents,
            "dim": shard.num_tokens + shard.num_padding,
            "filename": Path(file.path).name,
        }
        chunks.append(chunk)
    config = {
        "chunk_bytes": None,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{DTYPE_CODES[layout.dtype]}"],
        "data_spec": json.dumps([1, {"type": None, "context": None, "children_spec": []}]),
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    text = json.dumps({"chunks": chunks, "config": config, "updated_at": "0"}, sort_keys=True)
    return [write_run_file(folder, "litdata/index.json", text.encode())]
