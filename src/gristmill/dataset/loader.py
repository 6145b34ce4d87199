"""Batches of a dataset for one rank of many: every item once an epoch, saved and taken up anywhere.

The order of an epoch is one permutation of all items. A step takes the next `world_size * batch_size` places
of it, and each rank its own stretch of them. So what was given out is the first `position` places, whatever
the ranks were; that number is all a saved state needs, and any world size can go on from it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gristmill.dataset.order import shuffled
from gristmill.engines import Offsets
from gristmill.errors import ConfigError

if TYPE_CHECKING:
    from gristmill.dataset.token_dataset import TokenDataset

STATE_VERSION = 1
BLOCK_ITEMS = 4096
"""Places of the order that are computed at a time."""


class Loader:
    """Iterates over the batches of one rank, to the end of the epoch; iterating again goes on with the next
    one, or where a loop was left. All ranks make the same number of steps. When fewer items are left than a
    step takes, they are dealt out as evenly as can be: the last batch is smaller, and empty on some ranks
    where fewer items than ranks are left. `drop_last` leaves that step out."""

    def __init__(
        self,
        dataset: TokenDataset,
        *,
        seed: int | None,
        epoch: int,
        rank: int,
        world_size: int,
        batch_size: int,
        drop_last: bool,
    ) -> None:
        numbers = (batch_size, world_size, rank, epoch, *(() if seed is None else (seed,)))
        if not all(isinstance(number, int | np.integer) for number in numbers):
            raise ConfigError(
                f"loader: batch_size {batch_size!r}, world_size {world_size!r}, rank {rank!r}, "
                f"epoch {epoch!r}, seed {seed!r}: they are whole numbers (seed None is the order of the run)"
            )
        if batch_size < 1 or world_size < 1 or not 0 <= rank < world_size or epoch < 0:
            raise ConfigError(
                f"loader: batch_size {batch_size}, world_size {world_size}, rank {rank}, epoch {epoch}: "
                "sizes are at least 1, ranks and epochs count from 0, and a rank is under world_size"
            )
        self._dataset = dataset
        # As Python's own numbers, which JSON takes: a state holds them.
        self._seed = None if seed is None else int(seed)
        self._epoch = int(epoch)
        self._position = 0
        self._rank = int(rank)
        self._world_size = int(world_size)
        self._batch_size = int(batch_size)
        self._drop_last = drop_last

    @property
    def epoch(self) -> int:
        """The epoch that the next batch is of."""
        return self._epoch

    def __repr__(self) -> str:
        rank = f"rank {self._rank} of {self._world_size}"
        return f"<loader of {self._dataset!r}: {len(self):,} batches left in epoch {self._epoch}, {rank}>"

    def __len__(self) -> int:
        """Batches that are left in this epoch."""
        left, step = len(self._dataset) - self._position, self._world_size * self._batch_size
        return left // step if self._drop_last else -(-left // step)

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        dataset = self._dataset.at_epoch(self._epoch)
        for items in self.batches():
            yield dataset[items]

    def batches(self) -> Iterator[Offsets]:
        """The numbers of the items of each batch, for whoever fetches them in another way."""
        epoch, position, num_items = self._epoch, self._position, len(self._dataset)
        name = f"seed {self._seed}, epoch {epoch}"
        while steps := list(itertools.islice(self._steps(position), max(1, BLOCK_ITEMS // self._batch_size))):
            places = np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop, _ in steps])
            items = places if self._seed is None else shuffled(places, num_items, name=name)
            at = 0
            for start, stop, position in steps:
                is_last = position == num_items or (self._drop_last and not self._fits(position))
                # What is being given out now is no more to be given: a state saved in the loop counts it.
                self._epoch, self._position = (epoch + 1, 0) if is_last else (epoch, position)
                yield items[at : at + stop - start]
                at += stop - start
        if self._epoch == epoch:  # there was not a single step
            self._epoch, self._position = epoch + 1, 0

    def state(self) -> dict[str, Any]:
        """Where the loader is, to be kept as JSON: the same on all ranks, between two steps."""
        return {
            "version": STATE_VERSION,
            "dataset": self._dataset.identity,
            "num_items": len(self._dataset),
            "seed": self._seed,
            "epoch": self._epoch,
            "position": self._position,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state of the same dataset: its seed, epoch and place; ranks and batch size are
        this loader's own."""
        known = self.state()
        is_state = isinstance(state, Mapping) and set(state) == set(known)
        if not is_state or state["version"] != STATE_VERSION:
            raise ConfigError(f"this is no state of a loader of version {STATE_VERSION}: {state!r:.200}")
        for name, what in (("num_items", "items"), ("dataset", "as its mark")):
            if state[name] != known[name]:
                raise ConfigError(
                    f"the state is of another dataset: that has {state[name]} {what}, this one "
                    f"{known[name]}; open the same runs with the same options"
                )
        seed, epoch, position = state["seed"], state["epoch"], state["position"]
        are_numbers = all(type(n) is int for n in (epoch, position)) and (seed is None or type(seed) is int)
        if not are_numbers or epoch < 0 or not 0 <= position <= len(self._dataset):
            raise ConfigError(f"the state is damaged: seed {seed!r}, epoch {epoch!r}, position {position!r}")
        self._seed, self._epoch, self._position = seed, epoch, position

    def _steps(self, position: int) -> Iterator[tuple[int, int, int]]:
        """From a place on: where this rank's batch of each step begins and ends, and where the step ends."""
        num_items, rank, ranks = len(self._dataset), self._rank, self._world_size
        while self._fits(position):
            begin = position + rank * self._batch_size
            position += ranks * self._batch_size
            yield begin, begin + self._batch_size, position
        left = num_items - position
        if left and not self._drop_last:
            yield position + left * rank // ranks, position + left * (rank + 1) // ranks, num_items

    def _fits(self, position: int) -> bool:
        return position + self._world_size * self._batch_size <= len(self._dataset)
