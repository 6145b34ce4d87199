"""What a dataset for training is: items by number, one or several at once, and a loader over them."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from gristmill.dataset.batch_rows import BatchRows, Empty, Kinds, Row, Taken
from gristmill.dataset.loader import Loader
from gristmill.engines import Offsets
from gristmill.errors import ConfigError

DatasetColumn = Literal["input_ids", "labels", "attention_mask", "position_ids", "segment_ids", "cu_seqlens"]
COLUMNS: tuple[DatasetColumn, ...] = get_args(DatasetColumn)

WIDTHS = {"input_ids": 8, "labels": 8, "attention_mask": 1, "position_ids": 4, "segment_ids": 4}
"""Bytes of a value, at most."""
ALIGN_BYTES = 512
Self = TypeVar("Self", bound="TokenDataset")


class TokenDataset(ABC):
    """Items by number, map-style: rows of one length, or documents."""

    columns: tuple[DatasetColumn, ...]
    row_length: int | None
    """Ids in each item; absent where they differ."""
    identity: str
    """Changes when the items or their order do; saved states are held to it."""
    fingerprint: str
    """Of the tokenizer."""
    vocab_size: int
    """Of the tokenizer: every id is smaller."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, items: Offsets, empty: Empty = np.empty) -> Taken:
        """Columns of some items, by numbers that are known to be there; large arrays are made by `empty`."""

    def take_narrow(self, items: Offsets, empty: Empty) -> tuple[Taken, Kinds]:
        """The same in fewer bytes where there is a way to, and what becomes of them what `take` gives."""
        return self.take(items, empty), {}

    def at_epoch(self: Self, epoch: int) -> Self:
        """The same dataset in another epoch; only mixtures differ from one to the next."""
        return self

    def __getitem__(self, index: int | slice | Sequence[int] | NDArray[Any]) -> Row:
        if isinstance(index, int | np.integer):
            return dict(BatchRows(self.take(np.array([self._place(int(index))])), self._joined)[0])
        return self._joined(self.take(self._places(index)))

    def __getitems__(self, indices: Sequence[int]) -> BatchRows:
        """Several items at once, as the DataLoader of torch asks for them."""
        places = self._places(indices)
        if "torch.utils.data" not in sys.modules:
            return BatchRows(self.take(places), self._joined)
        from gristmill.dataset import torch_batches

        torch_batches.register()
        # Twice: narrow, and wide if somebody looks. Memory that nobody writes to is not there.
        room = torch_batches.find_room(2 * len(places) * self._row_bytes) if self.row_length else None
        if room is None:
            return BatchRows(self.take(places), self._joined)
        taken, kinds = self.take_narrow(places, room.empty)
        return BatchRows(taken, self._joined, room, kinds)

    @property
    def _row_bytes(self) -> int:
        """At least what the columns of a row take, where rows have one length."""
        return (self.row_length or 0) * sum(WIDTHS.get(name, 0) for name in self.columns) + ALIGN_BYTES

    def loader(
        self,
        *,
        seed: int | None = 0,
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 1,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> Loader:
        """Batches of one rank, all ranks together in the order that seed and epoch give; None keeps the order
        of the run. See `Loader`."""
        return Loader(
            self,
            seed=seed,
            epoch=epoch,
            rank=rank,
            world_size=world_size,
            batch_size=batch_size,
            drop_last=drop_last,
        )

    def _place(self, index: int) -> int:
        size = len(self)
        place = index + size if index < 0 else index
        if not 0 <= place < size:
            raise IndexError(f"item {index} of {size}")
        return place

    def _places(self, index: slice | Sequence[int] | NDArray[Any]) -> Offsets:
        size = len(self)
        if isinstance(index, slice):
            return np.arange(*index.indices(size), dtype=np.int64)
        wanted = np.asarray(index)
        if wanted.dtype == np.bool_ and wanted.shape == (size,):
            return np.flatnonzero(wanted)
        if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
            raise TypeError(
                f"an index is a number, a slice or a list of numbers, not {wanted.dtype}{wanted.shape}"
            )
        if wanted.dtype == np.int64 and int(wanted.view(np.uint64).max(initial=0)) < size:
            return wanted  # a number under 0 is a very large one there
        places = wanted.astype(np.int64)
        places[places < 0] += size
        outside = np.flatnonzero((places < 0) | (places >= size))
        if len(outside):
            raise IndexError(f"item {wanted[outside[0]]} of {size}")
        return places

    def _joined(self, taken: Taken) -> Row:
        """Lists become one array: documents one after the other, and the borders of all of it."""
        if self.row_length is not None:
            rows, length = len(np.asarray(taken["input_ids"])), self.row_length
            return {
                name: column if isinstance(column, np.ndarray) else join_borders(column, [length] * rows)
                for name, column in taken.items()
            }
        lengths = [len(ids) for ids in taken["input_ids"]]
        flat = {
            name: np.concatenate(column) if lengths else np.empty(0, np.int64)
            for name, column in taken.items()
        }
        return flat | {"cu_seqlens": np.append(0, np.cumsum(lengths)).astype(np.int32)}


def join_borders(borders: Sequence[NDArray[Any]], lengths: Sequence[int]) -> NDArray[np.int32]:
    """Borders of items that stand one after the other; padding counts as one more segment, so that they end
    where the items do."""
    found, begin = [np.zeros(1, np.int32)], 0
    for own, length in zip(borders, lengths, strict=True):
        found.append(own[1:] + begin)
        begin += length
        if int(own[-1]) < length:
            found.append(np.array([begin]))
    return np.concatenate(found).astype(np.int32)


def choose_columns(
    wanted: Sequence[str] | None, default: Sequence[DatasetColumn], *, what: str
) -> tuple[DatasetColumn, ...]:
    """The columns asked for, checked."""
    names = tuple(default if wanted is None else wanted)
    unknown = [name for name in names if name not in COLUMNS]
    if isinstance(wanted, str) or unknown or "input_ids" not in names or len(set(names)) != len(names):
        shown = wanted if isinstance(wanted, str) else ", ".join(map(str, names)) or "empty"
        raise ConfigError(
            f"{what}: columns are {shown}; give a list with input_ids and any of {', '.join(COLUMNS[1:])}, "
            "each once"
        )
    return tuple(name for name in COLUMNS if name in names)
