"""The engine of a run: natively at once, and on the GPU as soon as it is open."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import numpy as np

from gristmill.engines import Bytes, Engine, EngineName, Ids, Offsets, SpecialTokens
from gristmill.engines.cuda import RUN_BATCH_BYTES

log = logging.getLogger(__name__)


class LateEngine:
    """Opens a GPU in a thread, which takes seconds, and leaves the work to another engine meanwhile; both
    give the same ids."""

    name: EngineName = "cuda"

    def __init__(self, first: Engine, open_gpu: Callable[[], Engine]) -> None:
        self._engine = first
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._open, args=(open_gpu,), daemon=True)
        self._thread.start()

    def _open(self, open_gpu: Callable[[], Engine]) -> None:
        try:
            engine = open_gpu()
            _warm_up(engine)
            self._engine = engine
        except Exception as error:
            log.warning("no GPU was opened: %s", error)
            self._error = error

    def _ready(self) -> Engine:
        if self._error is not None:
            raise self._error
        return self._engine

    def wait(self) -> None:
        """Return when the GPU is open, or has failed to be."""
        self._thread.join()

    def encode_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Ids, Offsets]:
        """Ids and offsets of documents in one flat buffer."""
        return self._ready().encode_batch(
            buffer, offsets, special_tokens=special_tokens, num_threads=num_threads
        )

    def count_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> Offsets:
        """Number of ids of each document."""
        return self._ready().count_batch(
            buffer, offsets, special_tokens=special_tokens, num_threads=num_threads
        )

    def decode(self, ids: Ids) -> bytes:
        """The bytes of the tokens, one after the other."""
        return self._ready().decode(ids)


def _warm_up(engine: Engine) -> None:
    """Let kernels be compiled and memory be taken for blocks of a usual size, while nobody waits."""
    text = np.full(RUN_BATCH_BYTES, ord("a"), np.uint8)
    text[::8] = ord(" ")
    engine.encode_batch(text, np.array([0, len(text)]), special_tokens="text", num_threads=1)
