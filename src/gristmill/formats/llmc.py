"""llm.c and modded-nanogpt: a header of 256 int32, then ids; EOT stands before each document.

Documents that end in EOS become documents that begin with it: the stream is moved by one token, the same
length, so that document i lies where it lies in the payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gristmill.config import WriteConfig
from gristmill.drafts import Draft
from gristmill.errors import RunError
from gristmill.formats.payload import END_TYPE, Payload, PayloadView, check_documents, map_file, view_by_ends
from gristmill.formats.protocol import ItemBlock, with_suffix
from gristmill.layout import Layout
from gristmill.records import ShardRecord

HEADER_ITEMS = 256
HEADER_TYPE = np.dtype("<i4")
HEADER_BYTES = HEADER_ITEMS * HEADER_TYPE.itemsize
MAGIC = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
"""Magic and version: gpt-2 and llama-3."""
MAX_SHARD_BYTES = (1 << 31) - 1 - HEADER_BYTES
"""Of ids: llm.c seeks with an int."""


class MovedView(PayloadView, frozen=True, eq=False):
    """Documents whose EOS was moved to their front, given back with it at their end."""

    def ids(self, item: int) -> NDArray[Any]:
        """Ids of a document."""
        return np.roll(super().ids(item), -1)

    def stream(self, start: int, stop: int) -> NDArray[Any]:
        """What follows a document's last token is its EOS, the next one's first."""
        ids = self.tokens[start + 1 : stop + 1]
        return ids if len(ids) == stop - start else np.append(ids, self.tokens[:1])

    def blocks(self) -> Iterator[ItemBlock]:
        """All documents in order."""
        stop = 0
        for block in super().blocks():
            start, stop = stop, stop + len(block.ids)
            yield replace(block, ids=self.stream(start, stop))


def write_sidecars(payload: Payload, stem: Path) -> list[Draft]:
    """Both files of a shard."""
    draft = Draft(with_suffix(stem, ".bin"), payload.shelf)
    draft.write(_header(payload.layout, payload.num_tokens))
    left = payload.num_tokens
    if _is_moved(payload.layout):
        draft.write(np.array([payload.layout.eos_id], payload.layout.id_type))
        left -= 1
    for block in payload.blocks():
        draft.write(block[:left])
        left -= len(block)
    return [draft, payload.ends.linked_as(with_suffix(stem, ".ends"))]


def read(stem: Path, layout: Layout) -> PayloadView:
    """The documents of a shard."""
    path = with_suffix(stem, ".bin")
    tokens = map_file(path, layout.id_type, offset=HEADER_BYTES)
    if map_file(path, np.dtype("u1"), count=HEADER_BYTES).tobytes() != _header(layout, len(tokens)):
        raise RunError(f"{path}: the header is not that of {len(tokens)} tokens of {layout.dtype}")
    view = view_by_ends(tokens, map_file(with_suffix(stem, ".ends"), END_TYPE))
    return MovedView(view.tokens, view.num_items, view.span, view.spans) if _is_moved(layout) else view


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    tokens = read(stem, layout).tokens
    ends = map_file(with_suffix(stem, ".ends"), END_TYPE)
    return check_documents(tokens, ends, shard, layout, eos_at="start" if _is_moved(layout) else "end")


def max_ids(_: WriteConfig, layout: Layout) -> int:
    """Ids that a shard can hold."""
    return MAX_SHARD_BYTES // layout.id_type.itemsize


def _is_moved(layout: Layout) -> bool:
    return layout.eos_id is not None and layout.bos_id is None


def _header(layout: Layout, num_tokens: int) -> bytes:
    header = np.zeros(HEADER_ITEMS, HEADER_TYPE)
    header[:2] = MAGIC[layout.dtype]
    header[2] = num_tokens
    return header.tobytes()
