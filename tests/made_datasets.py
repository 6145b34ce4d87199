"""A dataset whose rows are their own numbers, for tests of order."""

import numpy as np

from gristmill.dataset.token_dataset import TokenDataset


class Numbers(TokenDataset):
    """Row i holds i, twice."""

    columns = ("input_ids",)
    row_length = 2
    vocab_size = 1 << 30

    def __init__(self, size, *, first=0, fingerprint="made"):
        self._size = size
        self._first = first
        self.identity = f"numbers {first} {size}"
        self.fingerprint = fingerprint

    def __len__(self):
        return self._size

    def take(self, items, empty=np.empty):
        ids = empty((len(items), 2), np.int64)
        ids[:] = (items + self._first)[:, None]
        return {"input_ids": ids}


def numbers_in(batch):
    return batch["input_ids"][:, 0].tolist()
