"""A finished run as a dataset for training: `gristmill.open` and `gristmill.mix`.

`items` and `documents` find what lies where, `run_dataset` makes columns of it, `mixture` draws from several
runs; `loader` walks any of them in the order that `order` gives."""

from gristmill.dataset.mixture import mix
from gristmill.dataset.run_dataset import open_dataset
from gristmill.dataset.token_dataset import TokenDataset

open = open_dataset

__all__ = ["TokenDataset", "mix", "open"]
