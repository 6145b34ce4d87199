"""The tokenizer of a job, loaded; where modules are to be imported meanwhile, by a thread."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

from gristmill.config import TokenizerConfig
from gristmill.engine_cache import Known, program_state, recall
from gristmill.head_start import EncodedStart
from gristmill.load import LoadOptions, find_local_file
from gristmill.run.resources import resident_bytes

if TYPE_CHECKING:
    from gristmill.tokenizer import Tokenizer


def load_configured(config: TokenizerConfig, *, known: Known | None = None) -> Tokenizer:
    """The tokenizer a job names; `known` is what was recalled of it already, if it was."""
    from gristmill.tokenizer import load_from

    is_collecting = gc.isenabled()
    gc.disable()  # a vocabulary is a million objects, and none of them is garbage
    try:
        return load_from(config.source, _options(config), config.engine, known=known)
    finally:
        if is_collecting:
            gc.enable()


def load_measured(config: TokenizerConfig, recalling: Recalling | None = None) -> tuple[Tokenizer, int]:
    """The tokenizer a job names, and about how much memory it holds."""
    before = recalling.resident_bytes if recalling else resident_bytes()
    tokenizer = load_configured(config, known=recalling.result() if recalling else None)
    return tokenizer, max(resident_bytes() - before, 0)


class Recalling:
    """What is kept of a compiled tokenizer on its way into memory.

    A thread takes it there, by a few long native calls: one that ran Python code, or imported something,
    would take turns with the thread that imports everything else, and both would be slower than one."""

    def __init__(self, config: TokenizerConfig, head_start: EncodedStart | None = None) -> None:
        """`head_start` is run with it, once it is there."""
        self.resident_bytes = resident_bytes()
        """Of this process before it began."""
        self._known: Known | None = None
        self._is_over = threading.Event()
        options = _options(config)
        path = find_local_file(config.source, options) if config.engine in ("auto", "native") else None
        if path is not None:
            state = program_state()

            def take() -> None:
                try:
                    self._known = recall(path, options, state=state)
                finally:
                    self._is_over.set()
                if head_start is not None and self._known is not None:
                    head_start.run(self._known.native)

            threading.Thread(target=take, name="recall", daemon=True).start()
        else:
            self._is_over.set()

    def result(self) -> Known | None:
        """Wait for it; None where nothing was kept."""
        self._is_over.wait()
        return self._known


def _options(config: TokenizerConfig) -> LoadOptions:
    return LoadOptions(encoding=config.encoding, pattern=config.pattern, revision=config.revision)
