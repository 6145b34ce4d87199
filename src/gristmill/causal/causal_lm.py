"""START HERE for datasets: `CausalLMTokenizer` turns a dataset of text into rows for a causal model."""

from __future__ import annotations

import logging
from typing import Any

from gristmill.causal.encoding import Encoder
from gristmill.causal.settings import CausalSource, as_causal
from gristmill.causal.stream import tokenize_stream
from gristmill.causal.table import load_datasets, tokenize_table
from gristmill.config import CausalLMConfig
from gristmill.errors import InputError

LOGGER = "gristmill.causal"


class CausalLMTokenizer:
    """Turns datasets of text into datasets of rows with `input_ids`, `attention_mask` and `labels`.

    The config is a CausalLMConfig, a dict or the path of a YAML file, its keys bare or under `tokenizer`. The
    tokenizer is loaded at once, so that a wrong name is known before any work."""

    def __init__(self, config: CausalSource) -> None:
        self._config = as_causal(config)
        _show_logs(self._config.verbose_level)
        self._encoder = Encoder(self._config)

    def __repr__(self) -> str:
        config = self._config
        return f"<gristmill.CausalLMTokenizer {config.tokenizer_name}: rows of {config.context_length}>"

    @property
    def config(self) -> CausalLMConfig:
        """What it was told, checked, with every default."""
        return self._config

    def tokenize(self, dataset: Any) -> Any:
        """The rows of a Dataset, IterableDataset, DatasetDict or IterableDatasetDict, as the same kind.

        Every document is cut into windows of `context_length`, of which neighbours share `overlap` tokens;
        the last is padded. A document without tokens gives no row."""
        datasets = load_datasets()
        try:
            if isinstance(dataset, datasets.Dataset):
                split = None if dataset.split is None else str(dataset.split)
                return tokenize_table(dataset, self._encoder, name=split)
            if isinstance(dataset, datasets.DatasetDict):
                made = {name: tokenize_table(one, self._encoder, name=name) for name, one in dataset.items()}
                return datasets.DatasetDict(made)
        finally:
            self._encoder.rest()
        if isinstance(dataset, datasets.IterableDataset):
            return tokenize_stream(dataset, self._encoder)
        if isinstance(dataset, datasets.IterableDatasetDict):
            streams = {name: tokenize_stream(one, self._encoder) for name, one in dataset.items()}
            return datasets.IterableDatasetDict(streams)
        raise InputError(
            f"dataset is a {type(dataset).__name__}; it needs a Dataset, DatasetDict, IterableDataset or "
            "IterableDatasetDict of the package datasets (Dataset.from_list makes one of dicts)"
        )


def _show_logs(level: str) -> None:
    """Log from this level on; where nobody listens, to standard error, because the config asks to see it."""
    log = logging.getLogger(LOGGER)
    log.setLevel(level)
    if not log.hasHandlers():
        log.addHandler(logging.StreamHandler())
