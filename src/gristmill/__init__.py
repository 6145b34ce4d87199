"""Gristmill turns raw text into token shards for training, with exactly the reference libraries' ids."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill.batch import TokenBatch
    from gristmill.call import tokenize, train
    from gristmill.causal.causal_lm import CausalLMTokenizer
    from gristmill.config import (
        CausalLMConfig,
        CountConfig,
        EncodeConfig,
        LearnConfig,
        PackConfig,
        ReadConfig,
        RunConfig,
        TokenizeConfig,
        TokenizerConfig,
        TrainConfig,
        WriteConfig,
    )
    from gristmill.dataset import TokenDataset, mix, open
    from gristmill.errors import (
        BadDocumentError,
        BadFileError,
        ConfigError,
        GristmillError,
        InputError,
        LedgerError,
        MissingPackageError,
        ResumeError,
        RunError,
        TokenizerError,
        TokenizerFormatError,
        UnsupportedTokenizerError,
    )
    from gristmill.run.tokenize import RunResult
    from gristmill.run.train import TrainResult
    from gristmill.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "BadDocumentError",
    "BadFileError",
    "CausalLMConfig",
    "CausalLMTokenizer",
    "ConfigError",
    "CountConfig",
    "EncodeConfig",
    "GristmillError",
    "InputError",
    "LearnConfig",
    "LedgerError",
    "MissingPackageError",
    "PackConfig",
    "ReadConfig",
    "ResumeError",
    "RunConfig",
    "RunError",
    "RunResult",
    "TokenBatch",
    "TokenDataset",
    "TokenizeConfig",
    "Tokenizer",
    "TokenizerConfig",
    "TokenizerError",
    "TokenizerFormatError",
    "TrainConfig",
    "TrainResult",
    "UnsupportedTokenizerError",
    "WriteConfig",
    "__version__",
    "load_tokenizer",
    "mix",
    "open",
    "tokenize",
    "train",
]

HOMES = {
    "CausalLMTokenizer": "causal.causal_lm",
    "TokenBatch": "batch",
    "Tokenizer": "tokenizer",
    "load_tokenizer": "tokenizer",
    "TokenDataset": "dataset",
    "mix": "dataset",
    "open": "dataset",
    "tokenize": "call",
    "RunResult": "run.tokenize",
    "train": "call",
    "TrainResult": "run.train",
}
"""Modules of the public names; errors and sections of the config are found by how they end."""


def __getattr__(name: str) -> Any:
    # Looked up when asked for: the command line and its workers start in a third of the time.
    if name == "__version__":
        from gristmill.versions import version_of

        return version_of("gristmill")
    if name not in __all__:
        raise AttributeError(f"module 'gristmill' has no attribute {name!r}")
    home = HOMES.get(name, "errors" if name.endswith("Error") else "config")
    return getattr(import_module(f"gristmill.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
