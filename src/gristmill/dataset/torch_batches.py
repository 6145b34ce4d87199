"""Batches as tensors, for the DataLoader of torch: the only module here that imports it.

torch lets a type say how it is collated by default, and so a plain `DataLoader(ds, ...)` comes here. A batch
is one array a column already: nothing is stacked. A worker process hands it over in memory that both
processes map, as narrow as it is stored; it becomes what was asked for where it arrives, or in the worker if
somebody looks at it there. A quarter of the bytes or less go from one core to another."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate as torch_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from gristmill.dataset import shared_blocks
from gristmill.dataset.batch_rows import BatchRow, BatchRows, Kinds, Row
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


class SharedBatch(dict[str, Any]):
    """Tensors in a block of this process. They are made when somebody looks; until then the columns are as
    narrow as they came, and whoever the batch is sent to makes the tensors. Of a batch that was looked at,
    the receiver gets the same tensors, not a copy."""

    def __init__(self, room: Room, columns: Row, kinds: Kinds) -> None:
        super().__init__()
        self._room = room
        self._columns: Row | None = columns
        self._kinds = kinds
        self._places: dict[str, Place] = {}
        self._tensors: dict[str, Any] = {}

    def make_tensors(self) -> None:
        """Be the dict that a process without workers would have."""
        if self._columns is None:
            return
        columns, self._columns = self._columns, None
        for name, column in columns.items():
            if name in self._kinds:
                wide = self._room.empty(column.shape, self._kinds[name])
                wide[...] = column
                column = wide
            column = self._room.lay(column)
            place = self._room.place_of(column)
            self._tensors[name] = torch.from_numpy(column)
            if place is not None:
                self._places[name] = place
        super().update(self._tensors)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tensors that lie elsewhere, or were put in before it is sent, go as torch sends them."""
        sent, others = self._as_they_came() if self._columns is not None else self._as_tensors()
        block = self._room.block
        return receive, (tuple(sender_of(block)), block.hold(), sent, others, list(self._names()))

    def _names(self) -> list[str]:
        return list(self._columns) if self._columns is not None else list(dict.keys(self))

    def _as_they_came(self) -> tuple[list[Sent], dict[str, Any]]:
        assert self._columns is not None
        sent: list[Sent] = []
        for name, column in self._columns.items():
            place = self._room.place_of(self._room.lay(column))
            if place is None:
                self.make_tensors()
                return self._as_tensors()
            kind = self._kinds.get(name)
            sent.append((name, *place, "" if kind is None else kind.str))
        return sent, {}

    def _as_tensors(self) -> tuple[list[Sent], dict[str, Any]]:
        now = dict(dict.items(self))
        kept = {name: place for name, place in self._places.items() if now.get(name) is self._tensors[name]}
        others = {name: value for name, value in now.items() if name not in kept}
        return [(name, *place, "") for name, place in kept.items()], others


def _after_tensors(name: str) -> Callable[..., Any]:
    """A method of dict that finds the tensors made."""
    method: Callable[..., Any] = getattr(dict, name)

    def call(self: SharedBatch, *arguments: Any, **named: Any) -> Any:
        self.make_tensors()
        return method(self, *arguments, **named)

    return call


# All that reads or writes a dict. With an `__iter__` of its own, `dict(batch)` and `**batch` come here too.
for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__"),
    *("__or__", "__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy", "get", "items", "keys"),
    *("pop", "popitem", "setdefault", "update", "values"),
):
    setattr(SharedBatch, _name, _after_tensors(_name))


def receive(
    sender: tuple[int, int, int, int], slot: int, sent: list[Sent], others: dict[str, Any], names: list[str]
) -> dict[str, Any]:
    """The batch that another process has sent."""
    block = attach(Sender(*sender))
    made = [(shape, np.dtype(kind)) for *_, shape, kind in sent if kind]
    is_all_made = len(made) == len(sent)
    whole = block.whole() if is_all_made else block.held(slot)
    found, rooms = dict(others), iter(_in_one_piece(made))
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


def _in_one_piece(arrays: list[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[NDArray[Any]]:
    """New arrays. The C library gives several large pieces back to the system each time, but keeps one."""
    ends = list(accumulate(-(-math.prod(shape) * kind.itemsize // 64) * 64 for shape, kind in arrays))
    piece = np.empty(ends[-1] if ends else 0, np.uint8)
    begins = [0, *ends]
    return [np.ndarray(shape, kind, piece, at) for (shape, kind), at in zip(arrays, begins, strict=False)]
