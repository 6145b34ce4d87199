"""Counters in threads: batches go to whichever is free, and what all have counted is one inventory.

Counts are added up, so neither how many threads there are nor which of them takes a batch changes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Full, Queue

from gristmill.engines import Bytes, Offsets
from gristmill.training.counting import OnPieces, PieceCounter
from gristmill.training.inventory import Summary

Batch = tuple[Bytes, Offsets, int]


class CounterTeam:
    """Counts with so many threads: the caller's reads for the others, and counts when they have enough."""

    def __init__(self, counter: PieceCounter, *, num_threads: int) -> None:
        self._counters = [counter, *(counter.twin(number) for number in range(1, num_threads))]
        self._batches: Queue[Batch | None] = Queue(maxsize=max(1, num_threads - 1))
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._count, args=(each,), name="count", daemon=True)
            for each in self._counters[1:]
        ]
        for thread in self._threads:
            thread.start()

    def add(self, text: Bytes, offsets: Offsets, *, weight: int) -> None:
        """Count documents of one flat buffer, now or soon; nobody may change it any more."""
        self._raise_failure()
        try:
            if self._threads:
                self._batches.put_nowait((text, offsets, weight))
                return
        except Full:
            pass
        self._counters[0].add(text, offsets, weight=weight)

    def finish(self, path: Path, *, on_pieces: OnPieces | None = None) -> Summary:
        """Write everything counted as one inventory; `on_pieces` is told first, if all of it is in memory."""
        for text, offsets, weight in self._waiting():
            self._counters[0].add(text, offsets, weight=weight)
        self._stop()
        self._raise_failure()
        first, *twins = self._counters
        return first.finish(path, twins, on_pieces=on_pieces)

    def abandon(self) -> None:
        """Let the threads end; what waits is not counted."""
        for _ in self._waiting():
            pass
        self._stop()

    def _waiting(self) -> Iterator[Batch]:
        """Batches that no thread has begun with."""
        try:
            while (batch := self._batches.get_nowait()) is not None:
                yield batch
        except Empty:
            pass

    def _stop(self) -> None:
        for _ in self._threads:
            self._batches.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _count(self, counter: PieceCounter) -> None:
        while (batch := self._batches.get()) is not None:
            if self._failure is not None:
                continue  # it is over, and whoever adds must not wait for room
            text, offsets, weight = batch
            try:
                counter.add(text, offsets, weight=weight)
            except BaseException as error:
                self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
