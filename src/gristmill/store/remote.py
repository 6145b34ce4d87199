"""A run folder in an object store, worked at through a stage: a folder of this machine.

The stage holds the small files of the run and what is being made. Files of a unit are uploaded under names
of this attempt, then removed from the stage; the record that names them is put last."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from glob import escape, glob
from pathlib import Path

from blake3 import blake3

from gristmill.drafts import expect_uploads, reported
from gristmill.errors import RunError
from gristmill.records import FileRecord
from gristmill.store.lease import LEASE, Lease, here, holds, is_process_alive
from gristmill.store.objects import Objects

SMALL = re.compile(r"[\w-][\w.-]*\.(json|jsonl|yaml)|units/[0-9]+\.json", re.ASCII)
"""What a run needs at hand: its own files, and the records of its units."""


class RemoteFolder:
    """A run folder in a store, and the stage it is worked at through."""

    is_remote = True

    def __init__(self, url: str, *, stage: str = "", token: str = "") -> None:
        expect_uploads()
        self.objects = Objects(url)
        self.url = self.objects.url
        self._has_own_stage = not stage
        self.path = Path(stage) if stage else _make_stage(self.url)
        self.stage = str(self.path)
        self.token = token
        """Of the lease that this run holds; without it no unit can be committed."""
        self._lease: Lease | None = None
        self._sizes: dict[str, int] | None = None

    def __str__(self) -> str:
        return self.url

    def new_attempt(self) -> str:
        """What tells the files of one attempt at a unit from those of any other."""
        return f"-{os.urandom(4).hex()}"

    def acquire(self) -> None:
        """Be the only run at work here, until `release`."""
        self._lease = Lease(self.objects)
        self._lease.acquire()
        self.token = self._lease.token

    def release(self) -> None:
        """Let others in."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def check_lease(self) -> None:
        """Refuse to go on where another run has taken the folder."""
        if self._lease is not None:
            self._lease.check()

    def sizes(self) -> dict[str, int]:
        """Every object of the folder and its size, but for the lease."""
        return {name: size for name, size in self.objects.sizes().items() if name != LEASE}

    def pull(self) -> None:
        """Bring the small files here, and forget those that are gone."""
        self._sizes = self.sizes()
        wanted = [name for name in self._sizes if SMALL.fullmatch(name)]
        for path in (*self.path.glob("*"), *self.path.glob("units/*.json")):
            if path.is_file() and path.relative_to(self.path).as_posix() not in wanted:
                path.unlink()
        self.objects.bring(wanted, self.path)

    def pull_plan(self) -> None:
        """Bring the plan here."""
        self.objects.bring(["plan.json"], self.path)

    def pull_records(self) -> None:
        """Bring the records of all units here."""
        names = [name for name in self.sizes() if re.fullmatch(r"units/[0-9]+\.json", name)]
        self.objects.bring(names, self.path)

    def put(self, *paths: str) -> None:
        """Upload files of the stage that belong to the run as a whole, in order; one that is not there is
        removed from the store."""
        self.check_lease()
        for path in paths:
            source = self.path / path
            if not source.exists():
                self.objects.remove([path])
            elif source.stat().st_size <= 1 << 20:
                self.objects.put(path, source.read_bytes())
            else:
                self.objects.upload(source, path)

    def commit(
        self,
        path: str,
        record: bytes,
        files: Iterable[FileRecord],
        *,
        give_names: Callable[[], None],
        is_again: bool,
    ) -> bytes:
        """Upload the files of a unit, then its record, unless another attempt has committed the unit
        meanwhile; one that is done again with another limit replaces it. Returns the record that counts."""
        give_names()
        names = [file.path for file in files]
        try:
            self.objects.each(lambda name: self.objects.upload(self.path / name, name), names)
            if not holds(self.objects, self.token):
                raise RunError(f"{self.url}: the run went on without this attempt at {path}")
        except BaseException:
            self._discard(names)
            raise
        # An error does not tell whether the record is there, or will be: what it names in the store stays.
        try:
            if is_again:
                self.objects.put(path, record)
                there = record
            else:
                there = self.objects.create(path, record)
        finally:
            self._discard_here(names)
        if there != record:
            self._discard(names)
        return there

    def keep(self, path: str, record: bytes) -> None:
        """Have a record at hand that a worker has put into the store."""
        with reported(self.path / path):
            (self.path / path).write_bytes(record)

    def _discard(self, names: list[str]) -> None:
        with suppress(Exception):  # what cannot be removed now is found by `gristmill clean`
            self.objects.remove(names)
        self._discard_here(names)

    def _discard_here(self, names: list[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def fetch(self, files: Iterable[FileRecord]) -> None:
        """Bring files of units into the stage."""
        missing = [file for file in files if not (self.path / file.path).exists()]
        with reported(self.path):
            self.objects.each(lambda file: self.objects.download(file, self.path / file.path), missing)

    def has(self, file: FileRecord) -> bool:
        """Whether a file is there in its size, as of the last `pull`."""
        if self._sizes is None:
            self._sizes = self.sizes()
        return self._sizes.get(file.path) == file.num_bytes

    def close(self) -> None:
        """The stage is not needed any more."""
        if self._has_own_stage:
            import shutil

            shutil.rmtree(self.path, ignore_errors=True)


def _make_stage(url: str) -> Path:
    """A folder of its own in the folder for temporary files; those that killed runs left are removed."""
    import shutil
    import tempfile

    # Others may share the folder: processes of theirs are not known by their numbers here.
    start = f"gristmill-{_short_hash(url)}-{_short_hash(' '.join(here()))}"
    for left in glob(os.path.join(escape(tempfile.gettempdir()), f"{start}-*-*")):
        pid = left.rsplit("-", 2)[1]
        if pid.isdecimal() and not is_process_alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    with reported(Path(tempfile.gettempdir())):
        return Path(tempfile.mkdtemp(prefix=f"{start}-{os.getpid()}-"))


def _short_hash(text: str) -> str:
    return blake3(text.encode()).hexdigest()[:12]
