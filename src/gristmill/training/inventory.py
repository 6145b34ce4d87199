"""Inventories: files of pieces in order of their bytes, each once, with its count (native/inventory.hpp)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gristmill import _native
from gristmill.drafts import Draft, sync_folder
from gristmill.engines import Bytes, Offsets
from gristmill.errors import InputError
from gristmill.training.cut import Cut, decode_cut

Counts = NDArray[np.uint64]
T = TypeVar("T")
CHUNK_BYTES = 1 << 20
MAX_OPEN = 256
"""Inventories merged at once: each needs a file handle and a block of memory."""


class Summary(NamedTuple):
    """What the footer of an inventory tells."""

    num_pieces: int
    total_count: int
    total_bytes: int
    longest_piece: int
    dropped_count: int
    """Of pieces that were left out; what was counted is `total_count` and this."""
    max_undercount: int
    """No piece was there more often than its count and this; 0: the counts are exact."""


class MergeReport(NamedTuple):
    """What a merge wrote, and what it left out for the sake of `min_count`."""

    summary: Summary
    num_dropped: int
    dropped_count: int
    dropped_bytes: int


class Pieces(NamedTuple):
    """Pieces in order: piece i is `text[offsets[i]:offsets[i + 1]]`, there `counts[i]` times."""

    text: Bytes
    offsets: Offsets
    counts: Counts

    def piece(self, index: int) -> bytes:
        """The bytes of one."""
        return self.text[self.offsets[index] : self.offsets[index + 1]].tobytes()


class Inventory:
    """An inventory that is read from a file as often as asked; damage is an InputError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        reader = _open(path)
        self.summary = Summary(*reader.summary)
        self.about = reader.about

    @property
    def cut(self) -> Cut:
        """How the pieces were cut."""
        return decode_cut(self.about)

    def chunks(self, *, max_bytes: int = CHUNK_BYTES) -> Iterator[Pieces]:
        """All pieces in order, about so many bytes of them at a time."""
        reader = _open(self.path)
        while True:
            pieces = _read(reader, max_bytes)
            if not len(pieces.counts):
                return
            yield pieces

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        for chunk in self.chunks():
            counts = chunk.counts.tolist()
            for i, count in enumerate(counts):
                yield chunk.piece(i), count

    def load(self) -> Pieces:
        """All pieces in memory: their bytes, and 16 more a piece."""
        reader = _open(self.path)
        pieces = _read(reader, max(self.summary.total_bytes, 1))
        _read(reader, 1)  # the end is checked when it is reached
        return pieces


def _open(path: Path) -> _native.InventoryReader:
    try:
        return _native.InventoryReader(_name_of(path))
    except _native.InventoryError as error:
        raise InputError(str(error)) from error


def _name_of(path: Path) -> str:
    """As the native core takes names."""
    try:
        return str(path).encode().decode()
    except UnicodeEncodeError as error:
        raise InputError(f"{path}: its name is not UTF-8; rename it") from error


def _read(reader: _native.InventoryReader, max_bytes: int) -> Pieces:
    try:
        return Pieces(*reader.read(max_bytes))
    except _native.InventoryError as error:
        raise InputError(str(error)) from error


def write_draft(path: Path, write: Callable[[Draft], T]) -> T:
    """Let a function write a file that appears whole, or not at all."""
    draft = Draft(path, [], is_hashed=False)
    try:
        result = write(draft)
        draft.finish()
        draft.commit()
    except BaseException:
        draft.discard()
        raise
    sync_folder(path.parent)
    return result


def merge_inventories(paths: Sequence[Path], out: Path, *, min_count: int = 1) -> MergeReport:
    """One inventory of many, cut alike: counts are added, pieces below `min_count` left out.

    The result depends on neither their order nor how the counts were spread over them."""
    if not paths:
        raise InputError("there is no inventory to merge; name one or more")
    stages: list[Path] = []
    try:
        level = list(paths)
        while len(level) > MAX_OPEN:
            groups = [level[start : start + MAX_OPEN] for start in range(0, len(level), MAX_OPEN)]
            level = [out.with_name(f".{out.name}.{len(stages) + i}.stage") for i in range(len(groups))]
            for group, stage in zip(groups, level, strict=True):
                stages.append(stage)
                _merge(group, stage, 1)
        return _merge(level, out, min_count)
    finally:
        for stage in stages:
            stage.unlink(missing_ok=True)


def _merge(paths: Sequence[Path], out: Path, min_count: int) -> MergeReport:
    def write(draft: Draft) -> MergeReport:
        names = [_name_of(path) for path in paths]
        summary, *dropped = _native.merge_inventories(names, min_count, draft.write)
        return MergeReport(Summary(*summary), *dropped)

    try:
        return write_draft(out, write)
    except _native.InventoryError as error:
        raise InputError(str(error)) from error
