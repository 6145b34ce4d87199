"""Batches as tensors, for the DataLoader of torch: the only module here that imports it.

torch lets a type say how it is collated by default, and so a plain `DataLoader(ds, ...)` comes here. A batch
is one array a column already: nothing is stacked. A worker process hands it over in memory that both
processes map, as narrow as it is stored; it becomes what was asked for where it arrives, or in the worker if
somebody looks at it there. A quarter of the bytes or less go from one core to another."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate as torch_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from gristmill.dataset import shared_blocks
from gristmill.dataset.batch_rows import BatchRow, BatchRows, Kinds, Row
from gristmill.dataset.kept_memory import empty_arrays
from gristmill.dataset.late_dict import LateDict
from gristmill.dataset.shared_blocks import Place, Room, Sender, array_at, attach, sender_of

Sent = tuple[str, int, str, tuple[int, ...], str]
"""A column in a block: name, place, and what it becomes ("" is as it is)."""


def register() -> None:
    """Let torch collate our rows with `collate`, in this process."""
    default_collate_fn_map.setdefault(BatchRow, collate)


def find_room(num_bytes: int) -> Room | None:
    """Where a worker may lay a batch of this size; None in any other process, or where too many are held."""
    return None if get_worker_info() is None else shared_blocks.find_room(num_bytes)


def collate(rows: Any, *, collate_fn_map: Any = None) -> dict[str, Any]:
    """Rows as tensors, a batch a column; what differs in length is laid one after the other."""
    if not isinstance(rows, BatchRows):
        collated: dict[str, Any] = torch_collate([dict(row) for row in rows], collate_fn_map=collate_fn_map)
        return collated
    if isinstance(rows.room, Room):
        return SharedBatch(rows.room, rows.joined(), rows.kinds)
    return {name: torch.from_numpy(column) for name, column in rows.joined().items()}


class SharedBatch(LateDict):
    """A batch in a block of this process, as narrow as it came. Until somebody here looks at it there are no
    tensors, and whoever it is sent to makes them; then the receiver gets the same tensors, not a copy."""

    def __init__(self, room: Room, columns: Row, kinds: Kinds) -> None:
        super().__init__()
        self._room = room
        self._columns = {name: room.lay(column) for name, column in columns.items()}
        self._kinds = kinds
        self._tensors: dict[str, Any] = {}

    def content(self) -> dict[str, Any]:
        """Tensors of what was asked for, in the block too."""
        for name, kind in self._kinds.items():
            wide = self._room.empty(self._columns[name].shape, kind)
            wide[...] = self._columns[name]
            self._columns[name] = wide
        self._kinds = {}
        self._tensors = {name: torch.from_numpy(column) for name, column in self._columns.items()}
        return self._tensors

    def __reduce__(self) -> tuple[Any, ...]:
        """Columns that lie elsewhere, or were put in before it is sent, go as torch sends them."""
        sent = self._sent()
        if not self.is_filled and len(sent) < len(self._columns):
            self.fill()
            sent = self._sent()
        names = list(self) if self.is_filled else list(self._columns)
        inside = {name for name, *_ in sent}
        others = {name: self[name] for name in names if name not in inside}
        block = self._room.block
        return receive, (sender_of(block), block.hold(), sent, others, names)

    def _sent(self) -> list[Sent]:
        """The columns that lie in the block and are what the batch has by their name."""
        sent: list[Sent] = []
        for name, column in self._columns.items():
            place = self._room.place_of(column)
            if place is not None and (not self.is_filled or self.get(name) is self._tensors[name]):
                sent.append((name, *place, self._kinds[name].str if name in self._kinds else ""))
        return sent


def receive(
    sender: Sender, slot: int, sent: list[Sent], others: dict[str, Any], names: list[str]
) -> dict[str, Any]:
    """The batch that another process has sent."""
    block = attach(sender)
    made = [(shape, np.dtype(kind)) for *_, shape, kind in sent if kind]
    # What stands on the block holds it; where nothing does, it is free at the end of this.
    is_all_made = len(made) == len(sent)
    whole = block.whole() if is_all_made else block.held(slot)
    found, rooms = dict(others), iter(empty_arrays(made))
    for name, at, dtype, shape, kind in sent:
        column = array_at(whole, Place(at, dtype, shape))
        if kind:
            wide = next(rooms)
            wide[...] = column
            column = wide
        found[name] = torch.from_numpy(column)
    if is_all_made:
        block.let_go(slot)
    return {name: found[name] for name in names}
