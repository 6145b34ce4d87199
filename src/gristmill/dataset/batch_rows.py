"""The rows of a batch as torch's DataLoader gets them: one by one if asked for, but already side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gristmill.dataset.late_dict import LateDict

Row = dict[str, NDArray[Any]]
"""Columns of an item, or of several."""
Taken = dict[str, NDArray[Any] | list[NDArray[Any]]]
"""Columns of several items: an array with a row for each, or a list where they differ in length."""

Kinds = dict[str, np.dtype[Any]]
"""Of columns that are given narrower than was asked for, or in memory that another has too: what each is to
become, in memory of its own."""


class Empty(Protocol):
    """Makes an array, as `numpy.empty` does."""

    def __call__(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]: ...


def narrower(taken: Taken, wanted: Kinds) -> Kinds:
    """Of the columns wanted: those that are not so yet, or are labels in the memory of the ids."""
    return {
        name: kind
        for name, kind in wanted.items()
        if isinstance(column := taken[name], np.ndarray)
        and (column.dtype != kind or (name == "labels" and column is taken["input_ids"]))
    }


def narrow_labels(ids: NDArray[Any], wanted: np.dtype[Any]) -> np.dtype[Any]:
    """The narrowest kind that holds any label made of these ids."""
    int32 = np.dtype(np.int32)
    fits = np.can_cast(ids.dtype, int32) or int(ids.max(initial=0)) <= np.iinfo(np.int32).max
    return int32 if fits else wanted


class Room(Protocol):
    """Where a batch is laid."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array there."""
        ...


class BatchRow(LateDict):
    """A row of a batch; torch finds by its type how to collate it, and has no need to look into it."""

    def __init__(self, rows: BatchRows, index: int) -> None:
        super().__init__()
        self._rows = rows
        self._index = index

    def content(self) -> Row:
        """Its columns, in the memory of the batch."""
        return self._rows.columns_of(self._index)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class BatchRows(Sequence[BatchRow]):
    """The rows of a batch, each made when it is asked for."""

    def __init__(
        self, taken: Taken, join: Callable[[Taken], Row], room: Room | None = None, kinds: Kinds | None = None
    ) -> None:
        self._taken = taken
        self._join = join
        self.room = room
        """What it is laid into, where that is not this process's own memory."""
        self.kinds = kinds or {}
        """Of columns that `joined` gives; what rows hold is so already."""

    def __len__(self) -> int:
        return len(self._taken["input_ids"])

    @overload
    def __getitem__(self, index: int) -> BatchRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[BatchRow]: ...
    def __getitem__(self, index: int | slice) -> BatchRow | list[BatchRow]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return BatchRow(self, index)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def joined(self) -> Row:
        """All of them as one array a column."""
        return self._join(self._taken)

    def columns_of(self, index: int) -> Row:
        """A row as it was asked for; it may be written to."""
        self._widen()
        return {name: column[index] for name, column in self._taken.items()}

    def _widen(self) -> None:
        empty = np.empty if self.room is None else self.room.empty
        for name, kind in self.kinds.items():
            column = self._taken[name]
            assert isinstance(column, np.ndarray)
            wide = empty(column.shape, kind)
            wide[...] = column
            self._taken[name] = wide
        self.kinds = {}
