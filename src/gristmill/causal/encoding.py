"""Documents to ids, by whatever is fastest for the kind of tokenizer, with the ids that go round each."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import zip_longest
from typing import Any

import msgspec

from gristmill import _native
from gristmill.batch import TokenBatch
from gristmill.causal.opening import Kind, open_tokenizer, settle_round
from gristmill.causal.pool import Pool
from gristmill.causal.rows import RowShape
from gristmill.config import CausalLMConfig
from gristmill.engines import Bytes, Offsets
from gristmill.errors import RunError, TokenizerError
from gristmill.run.resources import num_cores

log = logging.getLogger(__name__)

MAX_PROCESSES = 32
PARALLELISM: dict[Kind, str] = {
    "native": "native_threads",
    "reference": "fast_tokenizer_internal",
    "library": "library_threads",
    "python": "python_multiprocessing",
}


class Encoder:
    """A tokenizer at work for a config; one that arrives in another process opens its tokenizer there."""

    def __init__(self, config: CausalLMConfig) -> None:
        self.config = config
        self._opened = open_tokenizer(config.tokenizer_name)
        self._round = settle_round(self._opened, config)
        self._pool: Pool | None = None
        self._pool_owner = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process may run in another folder.
        config = msgspec.structs.replace(self.config, tokenizer_name=self._opened.source)
        return _open_again, (config, self.identity)

    @property
    def shape(self) -> RowShape:
        """What rows look like."""
        config = self.config
        return RowShape(
            config.context_length, config.overlap, config.mask_overlap, self._round.pad_id, config.dtype
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """All that decides the rows of a text."""
        config = self.config
        return (self._opened.tokenizer.fingerprint, *self._round, config.special_tokens, *self.shape)

    @property
    def num_proc(self) -> int | None:
        """Processes it encodes in, where it is a Python tokenizer."""
        if self._opened.kind != "python":
            return None
        return self.config.num_proc or min(MAX_PROCESSES, max(1, num_cores() // 2))

    @property
    def parallelism(self) -> str:
        """How the work is shared, in a word for the log."""
        return "single_process" if self.num_proc == 1 else PARALLELISM[self._opened.kind]

    def announce(self, batch_size: int) -> None:
        """Log the strategy in one line, and what about it may surprise."""
        parts = {"batch_size": batch_size, "num_proc": self.num_proc, "parallelism": self.parallelism}
        told = ", ".join(f"{key}={value}" for key, value in parts.items() if value is not None)
        log.info("Performance configuration: %s", told)
        if self.num_proc is None and self.config.num_proc is not None:
            log.info(
                "num_proc=%d is ignored: %s is a fast tokenizer, which uses threads of its own",
                self.config.num_proc,
                self._opened.source,
            )
        if self._opened.fast_version is not None:
            log.warning(
                "%s is a slow Python tokenizer, and transformers has a fast version of it: %s; save that one "
                "(it writes tokenizer.json) and name its folder in tokenizer_name",
                self._opened.source,
                self._opened.fast_version,
            )
        elif why := self._opened.tokenizer.why_not_native:
            log.debug("%s: not native: %s", self._opened.source, why)

    def encode(self, text: Bytes, offsets: Offsets) -> TokenBatch:
        """Ids of documents in one buffer, with what goes round each."""
        with rust_threads() if self._opened.kind == "reference" else nullcontext():
            tokens = self._encode_bare(text, offsets)
        ids, ends = tokens.ids, tokens.offsets
        for before, after in zip_longest(reversed(self._round.prefix), self._round.suffix, fillvalue=-1):
            ids, ends = _native.lay_out(ids, ends, before, after, 4)
        return TokenBatch(ids, ends)

    def _encode_bare(self, text: Bytes, offsets: Offsets) -> TokenBatch:
        policy = self.config.special_tokens
        # The policy `error` looks at all documents itself before any of them is encoded.
        if (self.num_proc or 1) == 1 or policy == "error":
            return self._opened.tokenizer.encode_batch((text, offsets), special_tokens=policy)
        if self._pool is None or self._pool_owner != os.getpid():
            source, class_name = self._opened.source, self._opened.class_name
            assert class_name is not None
            fingerprint = self._opened.tokenizer.fingerprint
            self._pool = Pool(source, class_name, fingerprint, num_processes=self.num_proc or 1)
            self._pool_owner = os.getpid()
            weakref.finalize(self, self._pool.end)
        try:
            return self._pool.encode(text, offsets, special_tokens=policy)
        except RunError:  # of a process that is gone: who tries again gets others
            self.rest()
            raise

    def rest(self) -> None:
        """Let go of processes; they are started again when needed."""
        if self._pool is not None and self._pool_owner == os.getpid():
            self._pool.end()
        self._pool = None


def _open_again(config: CausalLMConfig, identity: tuple[object, ...]) -> Encoder:
    encoder = Encoder(config)
    if encoder.identity != identity:
        raise TokenizerError(f"{config.tokenizer_name}: is another tokenizer than before; start again")
    return encoder


@contextmanager
def rust_threads() -> Iterator[None]:
    """The tokenizers library uses all cores; what was set before is set again after."""
    wanted = {"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": str(num_cores())}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
