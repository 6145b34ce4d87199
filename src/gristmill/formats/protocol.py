"""What all formats agree on: what comes in, and what a reader gives back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from blake3 import blake3
from msgspec import Struct
from numpy.typing import NDArray

from gristmill.drafts import Draft
from gristmill.engines import Bytes, Offsets
from gristmill.files import write_whole
from gristmill.pack.rows import Rows
from gristmill.records import FileRecord

MAX_DOCUMENT_TOKENS = (1 << 29) - 256
"""Four-byte ids of one document stay under 2^31 bytes: what llm.c seeks in and a Parquet page holds."""


class Documents(Struct, frozen=True, eq=False):
    """Ids of whole documents, BOS and EOS included, and where they came from."""

    ids: NDArray[Any]
    offsets: Offsets
    """Ids of document i are `ids[offsets[i]:offsets[i + 1]]`."""
    source: str
    """The file they were read from."""
    positions: Offsets
    """Of each: the byte its record begins at, or -1."""
    names: tuple[Bytes, Offsets] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1


class FormatWriter(Protocol):
    """Writes one shard in one format; its files stay under hidden names."""

    def add_documents(self, documents: Documents) -> None: ...

    def add_rows(self, rows: Rows) -> None: ...

    def finish(self) -> list[Draft]: ...


class ItemBlock(Struct, frozen=True):
    """Neighbouring documents or rows of a shard."""

    ids: NDArray[Any]
    """Those of item i are `ids[offsets[i]:offsets[i + 1]]`, as `ShardView.ids` gives them."""
    offsets: Offsets
    """From 0 to the number of ids."""
    borders: tuple[NDArray[np.int32], Offsets] | None
    """Of rows: what `ShardView.borders` gives of each, flat, and where that of each begins."""


class ShardView(Protocol):
    """A shard on disk, read where it lies."""

    @property
    def num_items(self) -> int:
        """Documents or rows."""
        ...

    def ids(self, item: int) -> NDArray[Any]:
        """Ids of a document or row as they came from packing, padding included."""
        ...

    def borders(self, item: int) -> NDArray[np.int32] | None:
        """Of a row: 0, then where each of its segments ends; absent where the format does not keep them."""
        ...

    def blocks(self) -> Iterator[ItemBlock]:
        """All items in order, some at a time."""
        ...


def cut_documents(documents: Documents, start: int, stop: int) -> Documents:
    """Some of them, as views."""
    names = documents.names
    return Documents(
        ids=documents.ids,
        offsets=documents.offsets[start : stop + 1],
        source=documents.source,
        positions=documents.positions[start:stop],
        names=None if names is None else (names[0], names[1][start : stop + 1]),
    )


def count_fitting(offsets: Offsets, start: int, *, max_tokens: int, max_items: int) -> int:
    """How many items from `start` on have at most so many tokens together."""
    stop = int(np.searchsorted(offsets, int(offsets[start]) + max_tokens, side="right")) - 1
    return max(0, min(stop - start, max_items, len(offsets) - 1 - start))


def with_suffix(stem: Path, suffix: str) -> Path:
    """The file of a shard; its stem may hold dots."""
    return stem.with_name(stem.name + suffix)


def write_run_file(folder: Path, path: str, content: bytes) -> FileRecord:
    """Write a file that a format has once a run, at a path of the run folder."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(folder / path, content)
    return FileRecord(path=path, num_bytes=len(content), blake3=blake3(content).hexdigest())
