"""One batch ahead: a thread reads the next while this one is used."""

from __future__ import annotations

import time
from collections.abc import Generator
from queue import Empty, Queue
from threading import Event, Thread
from typing import TypeVar

from gristmill.stopwatch import Stopwatch, present_watch

Item = TypeVar("Item")


def read_ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """The same items and the same error at their end; the thread ends when this generator does."""
    slots: Queue[tuple[Item] | BaseException | None] = Queue(maxsize=1)
    is_closed = Event()
    watch, waited_s = Stopwatch(), 0.0
    thread = Thread(target=_produce, args=(items, slots, is_closed, watch), name="read ahead", daemon=True)
    thread.start()
    try:
        while True:
            start = time.perf_counter()
            slot = slots.get()
            waited_s += time.perf_counter() - start
            if slot is None:
                return
            if isinstance(slot, BaseException):
                raise slot
            yield slot[0]
    finally:
        # The thread looks at the event before it puts; it puts once more at most, for which there is room.
        is_closed.set()
        _empty(slots)
        thread.join()
        if (outer := present_watch()) is not None:
            outer.split("parse", waited_s, watch.seconds())


def _produce(
    items: Generator[Item, None, None],
    slots: Queue[tuple[Item] | BaseException | None],
    is_closed: Event,
    watch: Stopwatch,
) -> None:
    last: BaseException | None = None
    try:
        for item in watch.each("parse", items):
            if is_closed.is_set():
                break
            slots.put((item,))
    except BaseException as error:
        last = error
    finally:
        items.close()
    if not is_closed.is_set():
        slots.put(last)


def _empty(slots: Queue[tuple[Item] | BaseException | None]) -> None:
    try:
        while True:
            slots.get_nowait()
    except Empty:
        return
