"""Shards written by a thread of their own, so that a worker encodes while its disk is at work."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from gristmill.engines import Bytes, Offsets
from gristmill.pack.rows import Rows
from gristmill.records import ShardRecord
from gristmill.write import ShardWriter

MAX_WAITING = 2
"""Batches that may wait to be written; more would only cost memory."""


class WriteBehind:
    """A ShardWriter whose writes happen later, in order; an error comes up at the next call."""

    def __init__(self, writer: ShardWriter) -> None:
        self._writer = writer
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_WAITING)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def write_documents(
        self,
        ids: Any,
        offsets: Offsets,
        *,
        source: str,
        positions: Offsets,
        names: tuple[Bytes, Offsets] | None,
    ) -> None:
        """As ShardWriter's."""
        self._put(
            lambda: self._writer.write_documents(
                ids, offsets, source=source, positions=positions, names=names
            )
        )

    def write_rows(self, rows: Rows) -> None:
        """As ShardWriter's."""
        self._put(lambda: self._writer.write_rows(rows))

    def finish(self) -> list[ShardRecord]:
        """Wait for all of it."""
        self._stop()
        if self._error is not None:
            raise self._error
        return self._writer.finish()

    def commit(self) -> None:
        """As ShardWriter's."""
        self._writer.commit()

    def abandon(self) -> None:
        """Write no more, and leave nothing behind."""
        self._error = self._error or RuntimeError("abandoned")
        self._stop()
        self._writer.abandon()

    def _put(self, write: Callable[[], None]) -> None:
        if self._error is not None:
            raise self._error
        self._waiting.put(write)

    def _stop(self) -> None:
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def _work(self) -> None:
        """After an error the rest is taken and thrown away, so that nobody waits for room."""
        while (write := self._waiting.get()) is not None:
            if self._error is None:
                try:
                    write()
                except BaseException as error:
                    self._error = error
