"""Gristmill turns raw text into token shards for training, with exactly the reference libraries' ids."""

from typing import TYPE_CHECKING, Any

from gristmill.batch import TokenBatch
from gristmill.config import (
    EncodeConfig,
    PackConfig,
    ReadConfig,
    RunConfig,
    TokenizeConfig,
    TokenizerConfig,
    WriteConfig,
)
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
from gristmill.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from gristmill.run.call import tokenize
    from gristmill.run.tokenize import RunResult

__all__ = [
    "BadDocumentError",
    "BadFileError",
    "ConfigError",
    "EncodeConfig",
    "GristmillError",
    "InputError",
    "LedgerError",
    "MissingPackageError",
    "PackConfig",
    "ReadConfig",
    "ResumeError",
    "RunConfig",
    "RunError",
    "RunResult",
    "TokenBatch",
    "TokenizeConfig",
    "Tokenizer",
    "TokenizerConfig",
    "TokenizerError",
    "TokenizerFormatError",
    "UnsupportedTokenizerError",
    "WriteConfig",
    "__version__",
    "load_tokenizer",
    "tokenize",
]


def __getattr__(name: str) -> Any:
    # Looked up when asked for: most programs never do, and a source tree that is not installed has none.
    if name == "__version__":
        from importlib.metadata import version

        return version("gristmill")
    # A run brings pyarrow and more with it, which encoding alone does not need.
    if name in ("tokenize", "RunResult"):
        from gristmill.run import call

        return getattr(call, name)
    raise AttributeError(f"module 'gristmill' has no attribute {name!r}")
