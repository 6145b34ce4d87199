"""Files of a dataset are fetched by a few threads while units of earlier files are being encoded.

Whoever needs a file fetches it, or waits for the thread that does; so what is here changes only how long that
takes, and a thread that fails leaves it to the worker to say why.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gristmill.config import ReadConfig, RunConfig
from gristmill.errors import GristmillError, InputError
from gristmill.plan import UnitPlan
from gristmill.read import InputFile
from gristmill.run.progress import Progress

if TYPE_CHECKING:
    from gristmill.hub.fetch import OnBytes

NUM_THREADS = 4
LOOK_EVERY_S = 0.1


@contextmanager
def fetching_ahead(plan: UnitPlan, run: RunConfig, pending: list[int], progress: Progress) -> Iterator[None]:
    """Fetch the files of units that are to be done, in order, until the block ends.

    Where a limit may be reached before the end, none is fetched before it is needed."""
    read: ReadConfig = plan.config.read  # type: ignore[attr-defined]
    has_limit = run.max_rows is not None or run.max_tokens is not None
    is_elsewhere = run.backend == "ray"  # then nodes fetch what they need
    if not plan.commit or read.streaming or has_limit or is_elsewhere:
        yield
        return
    indices = dict.fromkeys(part.file for unit in pending for part in plan.units[unit].slices)
    files = [plan.files[index] for index in indices]
    _check_room(files, read)
    ahead = _FetchAhead(files, read)
    progress.fetching = ahead.so_far
    try:
        ahead.wait_for_first(progress)
        yield
    finally:
        ahead.is_ended = True


def _check_room(files: list[InputFile], read: ReadConfig) -> None:
    """Refuse before starting what would fill the disk."""
    import shutil

    from gristmill.hub.cache import cache_root, to_fetch

    needed = to_fetch([(file.path, file.num_bytes, file.version) for file in files], read.cache_dir)
    root = cache_root(read.cache_dir)
    folder = root
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{root}: has room for {free // 10**6:,} MB, and the dataset needs {needed // 10**6:,} MB; "
            "choose another read.cache_dir (--cache-dir), read without a copy (--streaming), or set a limit "
            "(--max-chunks)"
        )


class _FetchAhead:
    """Threads that fetch files in order. They end with the process: a download cannot be interrupted, and
    what is there of it is kept."""

    def __init__(self, files: list[InputFile], read: ReadConfig) -> None:
        self.is_ended = False
        self._read = read
        self._files = iter(files)
        self._num_bytes = sum(file.num_bytes for file in files)
        self._fetched: dict[str, int] = {}
        self._first_done = threading.Event()
        self._lock = threading.Lock()
        for _ in range(min(NUM_THREADS, len(files))):
            threading.Thread(target=self._work, daemon=True).start()

    def so_far(self) -> tuple[int, int]:
        """Bytes that are here, and bytes of all files."""
        with self._lock:
            return sum(self._fetched.values()), self._num_bytes

    def wait_for_first(self, progress: Progress) -> None:
        """Show how far it is until there is something to encode."""
        while self._num_bytes and not self._first_done.wait(LOOK_EVERY_S):
            progress.tick()

    def _work(self) -> None:
        from gristmill.hub.fetch import fetch

        with suppress(GristmillError, OSError):  # who needs the file meets the error too
            while (file := self._next()) is not None:
                wanted = (file.path, file.num_bytes, file.version, self._read.cache_dir)
                fetch(*wanted, on_bytes=self._counter(file))
                with self._lock:
                    self._fetched[file.path] = file.num_bytes
                self._first_done.set()
        self._first_done.set()

    def _next(self) -> InputFile | None:
        with self._lock:
            return None if self.is_ended else next(self._files, None)

    def _counter(self, file: InputFile) -> OnBytes:
        def count(num_bytes: int) -> None:
            with self._lock:
                self._fetched[file.path] = self._fetched.get(file.path, 0) + num_bytes

        return count
