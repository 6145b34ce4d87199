"""The tokenizer of a job, loaded: where other things can be done meanwhile, by a thread."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

from gristmill.config import TokenizerConfig
from gristmill.run.resources import resident_bytes

if TYPE_CHECKING:
    from gristmill.tokenizer import Tokenizer


def load_configured(config: TokenizerConfig) -> Tokenizer:
    """The tokenizer a job names."""
    from gristmill.tokenizer import load_tokenizer

    gc.disable()  # a vocabulary is a million objects, and none of them is garbage
    try:
        return load_tokenizer(
            config.source,
            engine=config.engine,
            encoding=config.encoding,
            pattern=config.pattern,
            revision=config.revision,
        )
    finally:
        gc.enable()


def load_measured(config: TokenizerConfig) -> tuple[Tokenizer, int]:
    """The tokenizer a job names, and about how much memory it holds."""
    before = resident_bytes()  # of whatever program this is
    tokenizer = load_configured(config)
    return tokenizer, max(resident_bytes() - before, 0)


class LoadingTokenizer:
    """A tokenizer that a thread loads; most of that is native, so that modules are imported meanwhile."""

    def __init__(self, config: TokenizerConfig) -> None:
        self._config = config
        self._loaded: tuple[Tokenizer, int] | BaseException | None = None
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def result(self) -> tuple[Tokenizer, int]:
        """The tokenizer, and about how much memory it holds; raises what kept it from loading."""
        self._thread.join()
        if isinstance(self._loaded, BaseException):
            raise self._loaded
        assert self._loaded is not None
        return self._loaded

    def _load(self) -> None:
        try:
            self._loaded = load_measured(self._config)
        except BaseException as error:
            self._loaded = error
