"""Rows read where they lie, any of them at once: what `gristmill.open` stands on.

A format that can be mapped has a function `map_rows` that says where its columns lie in the file; of any
other format rows are read through its view. """

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import RunError
from gristmill.formats.protocol import ShardView

BORDERS = "cu_seqlens"
"""The one column whose rows differ in length: each begins with 0, and no other of its numbers is 0."""
MAX_KNOWN_GROUPS = 64
"""Groups of a shard of which it is remembered where the borders of each row begin: 4 bytes a row."""


class RowShard(Protocol):
    """Rows of a shard on disk."""

    columns: frozenset[str]
    """Those that `row` gives; input_ids is among them."""
    num_rows: int

    def row(self, name: str, item: int) -> NDArray[Any]:
        """A column of a row, as it is stored; valid as long as it is held, never to be written to."""
        ...


class Stretch(NamedTuple):
    """Where the values of a column of neighbouring rows lie in a file, one row after the other."""

    at: int
    """First byte."""
    num_values: int
    dtype: np.dtype[Any]


Group = dict[str, Stretch]
"""Columns of neighbouring rows."""


class Column(NamedTuple):
    """Where the values of a column of all rows of a shard lie: those of rows `starts[g]` to `starts[g + 1]`
    one after the other from byte `begins[g]` of `content` on."""

    content: NDArray[np.uint8]
    starts: NDArray[np.int64]
    begins: NDArray[np.int64]
    dtype: np.dtype[Any]


class MappedRows:
    """Rows in mapped files, one for all columns or one for each."""

    def __init__(
        self,
        path: Path,
        contents: Mapping[str, NDArray[np.uint8]],
        starts: list[int],
        groups: Sequence[Group],
        length: int,
    ) -> None:
        self._path = path
        self._contents = contents
        self._starts = starts
        self._groups = groups
        self._length = length
        self._known: dict[int, NDArray[np.int64]] = {}
        self.num_rows = starts[-1]
        self.columns = frozenset.intersection(*map(frozenset, groups)) if groups else frozenset(["input_ids"])
        for number, group in enumerate(groups):
            self._check(group, starts[number + 1] - starts[number])

    def row(self, name: str, item: int) -> NDArray[Any]:
        """A column of a row, read where it lies; it need not be aligned."""
        number = bisect_right(self._starts, item) - 1
        at, _, dtype = self._groups[number][name]
        if name == BORDERS:
            return self._borders(number, item - self._starts[number])
        size = self._length * dtype.itemsize
        begin = at + (item - self._starts[number]) * size
        return self._contents[name][begin : begin + size].view(dtype)

    def column(self, name: str) -> Column | None:
        """A column whose rows have one length, where it lies; None where not all of it is of one kind."""
        stretches = [group[name] for group in self._groups]
        if len({stretch.dtype for stretch in stretches}) != 1:
            return None
        begins = np.array([stretch.at for stretch in stretches], np.int64)
        return Column(self._contents[name], np.array(self._starts, np.int64), begins, stretches[0].dtype)

    def _borders(self, number: int, row: int) -> NDArray[Any]:
        at, num_values, dtype = self._groups[number][BORDERS]
        values = self._contents[BORDERS][at : at + num_values * dtype.itemsize].view(dtype)
        begins = self._known.get(number)
        if begins is None:
            begins = np.append(np.flatnonzero(values == 0), num_values)
            if len(begins) - 1 != self._starts[number + 1] - self._starts[number] or begins[0]:
                raise RunError(
                    f"{self._path}: borders of rows do not each begin with 0; gristmill verify says more"
                )
            if len(self._known) >= MAX_KNOWN_GROUPS:
                self._known.pop(next(iter(self._known)), None)
            self._known[number] = begins
        return values[begins[row] : begins[row + 1]]

    def _check(self, group: Group, num_rows: int) -> None:
        """The columns lie inside the file, and are as long as the rows make them."""
        for name, (at, num_values, dtype) in group.items():
            if name != BORDERS and num_values != num_rows * self._length:
                raise RunError(f"{self._path}: column {name} has rows that are not {self._length} long")
            if at < 0 or at + num_values * dtype.itemsize > len(self._contents[name]):
                raise RunError(f"{self._path}: column {name} goes on past the end of the file")


class ViewRows:
    """Rows of a format that is not mapped, through its view."""

    def __init__(self, view: ShardView) -> None:
        self._view = view
        self.num_rows = view.num_items
        has_borders = self.num_rows > 0 and view.borders(0) is not None
        self.columns = frozenset(["input_ids", BORDERS] if has_borders else ["input_ids"])

    def row(self, name: str, item: int) -> NDArray[Any]:
        """Ids or borders of a row."""
        found = self._view.borders(item) if name == BORDERS else self._view.ids(item)
        assert found is not None
        return found


def map_content(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file, mapped; the file itself is closed, so that any number may be mapped."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as file:
            return np.frombuffer(file.read_buffer(), np.uint8)
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from error
