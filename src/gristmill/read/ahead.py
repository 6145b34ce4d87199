"""One batch ahead: a thread reads the next while this one is used."""

from __future__ import annotations

from collections.abc import Generator
from queue import Empty, Queue
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """The same items and the same error at their end; the thread ends when this generator does."""
    slots: Queue[tuple[Item] | BaseException | None] = Queue(maxsize=1)
    is_closed = Event()
    thread = Thread(target=_produce, args=(items, slots, is_closed), name="read ahead", daemon=True)
    thread.start()
    try:
        while (slot := slots.get()) is not None:
            if isinstance(slot, BaseException):
                raise slot
            yield slot[0]
    finally:
        # The thread looks at the event before it puts; it puts once more at most, for which there is room.
        is_closed.set()
        _empty(slots)
        thread.join()


def _produce(
    items: Generator[Item, None, None],
    slots: Queue[tuple[Item] | BaseException | None],
    is_closed: Event,
) -> None:
    last: BaseException | None = None
    try:
        for item in items:
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
