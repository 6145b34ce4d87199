"""Several runs drawn from in given shares, always in the same way.

An epoch of a mixture has `num_rows` rows, dealt to its sources by weight. A source gives its rows in an order
of its own, pass after pass: the next epoch goes on where this one stopped, so that no row comes again before
all rows of its source have come. Which place of the epoch belongs to which source is one more seeded
order."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.dataset.batch_rows import Empty, Kinds, Taken, narrower
from gristmill.dataset.order import shuffled
from gristmill.dataset.run_dataset import open_dataset
from gristmill.dataset.token_dataset import TokenDataset
from gristmill.engines import Offsets
from gristmill.errors import ConfigError

MAX_ROWS = 1 << 48
"""Of an epoch; draws are counted over all epochs, in 64 bits."""
Source = str | os.PathLike[str] | TokenDataset


def mix(sources: Mapping[Any, float], *, seed: int = 0, num_rows: int | None = None) -> MixedDataset:
    """Runs, by path or opened, mixed by weight: of `num_rows` rows in an epoch, by default as many as they
    have together, each gives its share."""
    if not isinstance(sources, Mapping):
        kind = type(sources).__name__
        raise ConfigError(f"mix: it is given a {kind}; it takes a dict of runs and their weights")
    opened = [source if isinstance(source, TokenDataset) else open_dataset(source) for source in sources]
    if not opened:
        raise ConfigError("mix: there is nothing to mix; give a run and its weight, at least once")
    for source, weight in zip(opened, sources.values(), strict=True):
        _check(source, weight, opened[0])
    total = sum(map(len, opened)) if num_rows is None else num_rows
    if not isinstance(total, int) or not 1 <= total <= MAX_ROWS:
        raise ConfigError(f"mix: num_rows is {total!r:.40}; it is a whole number from 1 to {MAX_ROWS}")
    return MixedDataset(opened, shares(list(sources.values()), total), seed=seed, epoch=0)


def shares(weights: Sequence[float], total: int) -> list[int]:
    """A number dealt out by weight, exactly; what rounding leaves goes to the largest remainders, the first
    of equals first."""
    exact = [Fraction(weight) for weight in weights]
    parts = [total * weight / sum(exact) for weight in exact]
    whole = [math.floor(part) for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda at: (whole[at] - parts[at], at))
    for at in by_rest[: total - sum(whole)]:
        whole[at] += 1
    return whole


class MixedDataset(TokenDataset):
    """Rows of several datasets, mixed; places in order are mixed already."""

    def __init__(
        self, sources: Sequence[TokenDataset], counts: Sequence[int], *, seed: int, epoch: int
    ) -> None:
        self._sources = sources
        self._counts = counts
        self._starts = np.array([0, *itertools.accumulate(counts)], np.int64)
        self._seed = seed
        self._epoch = epoch
        self.columns = sources[0].columns
        self.row_length = sources[0].row_length
        self.fingerprint = sources[0].fingerprint
        self.vocab_size = sources[0].vocab_size
        mark = "\n".join([*(source.identity for source in sources), *map(str, counts), str(seed)])
        self.identity = hashlib.sha256(mark.encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{count:,} of {source!r}" for source, count in zip(self._sources, self._counts, strict=True)
        )
        return f"<gristmill.mix, epoch {self._epoch}: {parts}>"

    def at_epoch(self, epoch: int) -> MixedDataset:
        """The same mixture in another epoch, with other rows of sources that are larger than their share."""
        if epoch == self._epoch:
            return self
        return MixedDataset(self._sources, self._counts, seed=self._seed, epoch=epoch)

    def take(self, items: Offsets, empty: Empty = np.empty) -> Taken:
        """Columns of some places, each from its source."""
        parts = [(where, self._sources[number].take(rows)) for number, where, rows in self._drawn(items)]
        return _merge(parts, len(items), empty) if parts else self._sources[0].take(items)

    def take_narrow(self, items: Offsets, empty: Empty) -> tuple[Taken, Kinds]:
        """As narrow as the widest of the sources; labels that are the ids share their memory."""
        parts: list[tuple[Offsets, Taken]] = []
        wanted: dict[str, list[np.dtype[Any]]] = {name: [] for name in self.columns}
        for number, where, rows in self._drawn(items):
            taken, kinds = self._sources[number].take_narrow(rows, np.empty)
            parts.append((where, taken))
            for name, column in taken.items():
                if isinstance(column, np.ndarray):
                    wanted[name].append(kinds.get(name, column.dtype))
        if not parts:
            return self.take(items, empty), {}
        merged = _merge(parts, len(items), empty)
        return merged, narrower(merged, {name: np.result_type(*own) for name, own in wanted.items() if own})

    def _drawn(self, items: Offsets) -> Iterator[tuple[int, Offsets, Offsets]]:
        """Of each source that is drawn from: its number, which of the places are its, and its rows there."""
        places = shuffled(items, len(self), name=f"mix {self._seed}, epoch {self._epoch}")
        source_of = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(source_of).tolist():
            where = np.flatnonzero(source_of == number)
            yield number, where, self._rows(number, places[where] - self._starts[number])

    def _rows(self, number: int, drawn: Offsets) -> Offsets:
        """The rows of a source that are drawn in this epoch, by number of the draw."""
        size = len(self._sources[number])
        draws = drawn + self._epoch * self._counts[number]
        passes, places = draws // size, draws % size
        rows = np.empty_like(places)
        for turn in np.unique(passes).tolist():
            name = f"mix {self._seed}, source {number}, pass {turn}"
            rows[passes == turn] = shuffled(places[passes == turn], size, name=name)
        return rows


def _merge(parts: Sequence[tuple[Offsets, Taken]], num_items: int, empty: Empty) -> Taken:
    """Columns of all items, each at its place."""
    merged: Taken = {}
    for name, first in parts[0][1].items():
        if name == "labels" and all(taken[name] is taken["input_ids"] for _, taken in parts):
            merged[name] = merged["input_ids"]
        elif isinstance(first, np.ndarray):
            kinds = {own.dtype for _, taken in parts if isinstance(own := taken[name], np.ndarray)}
            column = empty((num_items, *first.shape[1:]), np.result_type(*kinds))
            for where, taken in parts:
                column[where] = taken[name]
            merged[name] = column
        else:
            lists: list[NDArray[Any]] = [first[0]] * num_items
            for where, taken in parts:
                for at, own in zip(where.tolist(), taken[name], strict=True):
                    lists[at] = own
            merged[name] = lists
    return merged


def _check(source: TokenDataset, weight: float, first: TokenDataset) -> None:
    """Refuse what cannot be mixed with the first source."""
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise ConfigError(f"mix: the weight of {source!r} is {weight!r}; it is a number over 0")
    if len(source) == 0:
        raise ConfigError(f"mix: {source!r} has no rows")
    for what in ("columns", "row_length", "fingerprint"):
        own, other = getattr(source, what), getattr(first, what)
        if own != other:
            name = {"fingerprint": "tokenizers", "row_length": "row lengths"}.get(what, what)
            raise ConfigError(f"mix: {source!r} and {first!r} have different {name} ({own} and {other})")
