"""A finished run in a store, read through copies on this machine.

The copies of a run lie in a folder named after its manifest's checksum, so that a run that was made anew is
never mixed with what was kept of the old one. A file is fetched when it is first needed and kept once its
BLAKE3 is that of its record. Any number of processes may share the cache: files appear whole, and one
that is removed to make room stays where it is mapped."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from gristmill.drafts import reported
from gristmill.engine_cache import cache_folder
from gristmill.errors import RunError
from gristmill.records import FileRecord
from gristmill.store.objects import Objects
from gristmill.store.remote import SMALL

FOLDER = "runs"
MANIFEST = "manifest.json"
KEY_LENGTH = 32
GRACE_S = 10.0
"""A file that was used so shortly ago may be about to be opened, by any process."""


class CachedFolder:
    """A finished run, and the folder of this machine that holds copies of what was read of it."""

    is_remote = True

    def __init__(
        self, url: str, *, cache_dir: str | os.PathLike[str] | None = None, cache_bytes: int | None = None
    ) -> None:
        self.objects = Objects(url)
        self.url = self.objects.url
        self.cache_dir = os.fspath(cache_dir) if cache_dir else None
        self.cache_bytes = cache_bytes
        manifest = self.objects.get(MANIFEST)
        if manifest is None:
            is_begun = self.objects.get("plan.json") is not None
            state = "its run is not finished; give its command again" if is_begun else "no run"
            raise RunError(f"{self.url}: has no {MANIFEST} ({state})")
        self._cache = (Path(cache_dir) if cache_dir else cache_folder()) / FOLDER
        self.path = self._cache / blake3(manifest).hexdigest()[:KEY_LENGTH]
        with reported(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._max_bytes = cache_bytes or _half_of_disk(self._cache)
        self.objects.bring([MANIFEST], self.path)

    def __str__(self) -> str:
        return self.url

    def pull(self) -> None:
        """Bring the small files here: plan, records, quarantine."""
        self.objects.bring([name for name in self.objects.sizes() if SMALL.fullmatch(name)], self.path)

    def fetch(self, files: Iterable[FileRecord]) -> None:
        """Bring files here, unless they are; what was longest not looked at makes room."""
        wanted = list(files)
        missing = [file for file in wanted if not self._is_here(file)]
        if missing:
            with reported(self.path):
                self._make_room(sum(file.num_bytes for file in missing), {file.path for file in wanted})
            try:
                self.objects.each(lambda file: self.objects.download(file, self.path / file.path), missing)
            except FileNotFoundError as error:
                raise RunError(f"{self.url}: a file of the run is missing ({error})") from error

    def names(self, folder: str) -> list[str] | None:
        """What one of the run's folders holds in the store."""
        found = [name for name in self.objects.sizes() if name.startswith(f"{folder}/")]
        return [name.removeprefix(f"{folder}/") for name in found] or None

    def _is_here(self, file: FileRecord) -> bool:
        path = self.path / file.path
        try:
            if path.stat().st_size != file.num_bytes:
                return False
            os.utime(path)  # the least recently used go first
        except FileNotFoundError:
            return False
        return True

    def _make_room(self, num_bytes: int, wanted: set[str]) -> None:
        """Remove the oldest files of any run until there is room for so many bytes."""
        kept = _files(self._cache)
        total = sum(size for _, size, _ in kept) + num_bytes
        for used, size, path in kept:
            if total <= self._max_bytes:
                return
            if path.parents[1] == self.path and path.relative_to(self.path).as_posix() in wanted:
                continue
            if path.suffix != ".json" and time.time() - used >= GRACE_S:
                path.unlink(missing_ok=True)
                total -= size


def _half_of_disk(folder: Path) -> int:
    """What the cache may hold where nobody says: half of what the disk has left for it."""
    import shutil

    folder.mkdir(parents=True, exist_ok=True)
    held = sum(size for _, size, _ in _files(folder))
    return (held + shutil.disk_usage(folder).free) // 2


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """Every file that is kept: when it was last used, its size, and where it is; others may remove some."""
    found = []
    for path in folder.glob("*/*/*"):
        with suppress(FileNotFoundError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    return sorted(found)
