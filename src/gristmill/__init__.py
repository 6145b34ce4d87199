"""Gristmill turns raw text into token ids: exactly what the reference libraries give, faster."""

from gristmill.batch import TokenBatch
from gristmill.errors import (
    ConfigError,
    GristmillError,
    InputError,
    MissingPackageError,
    TokenizerError,
    TokenizerFormatError,
    UnsupportedTokenizerError,
)
from gristmill.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "ConfigError",
    "GristmillError",
    "InputError",
    "MissingPackageError",
    "TokenBatch",
    "Tokenizer",
    "TokenizerError",
    "TokenizerFormatError",
    "UnsupportedTokenizerError",
    "__version__",
    "load_tokenizer",
]


def __getattr__(name: str) -> str:
    # Looked up when asked for: most programs never do, and a source tree that is not installed has none.
    if name == "__version__":
        from importlib.metadata import version

        return version("gristmill")
    raise AttributeError(f"module 'gristmill' has no attribute {name!r}")
