"""The rows of a batch as torch's DataLoader gets them: one by one if asked for, but already side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, overload

from numpy.typing import DTypeLike, NDArray

Row = dict[str, NDArray[Any]]
"""Columns of an item, or of several."""
Taken = dict[str, NDArray[Any] | list[NDArray[Any]]]
"""Columns of several items: an array with a row for each, or a list where they differ in length."""


class Empty(Protocol):
    """Makes an array, as `numpy.empty` does."""

    def __call__(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]: ...


class BatchRow(Row):
    """A row of a batch; torch finds by its type how to collate it."""


class BatchRows(Sequence[BatchRow]):
    """The rows of a batch, each made when it is asked for."""

    def __init__(self, taken: Taken, join: Callable[[Taken], Row], room: object = None) -> None:
        self._taken = taken
        self._join = join
        self.room = room
        """What it is laid into, where that is not this process's own memory."""

    def __len__(self) -> int:
        return len(self._taken["input_ids"])

    @overload
    def __getitem__(self, index: int) -> BatchRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[BatchRow]: ...
    def __getitem__(self, index: int | slice) -> BatchRow | list[BatchRow]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        return BatchRow({name: column[index] for name, column in self._taken.items()})

    def joined(self) -> Row:
        """All of them as one array a column."""
        return self._join(self._taken)
