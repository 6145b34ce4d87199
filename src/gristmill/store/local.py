"""A run folder on this machine: files are made in it and get their names by renaming."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from gristmill.drafts import Draft, check_lease, sync_folder
from gristmill.records import FileRecord


class LocalFolder:
    """A folder in which every file is where it belongs as soon as it has its name."""

    is_remote = False
    stage = ""

    def __init__(self, path: Path, *, token: str = "") -> None:
        self.path = path
        self.token = token
        """A file without which no unit can be committed; absent: none is asked for."""

    @property
    def url(self) -> str:
        """How any process of this machine finds it."""
        return str(self.path.resolve())

    def __str__(self) -> str:
        return str(self.path)

    def new_attempt(self) -> str:
        """Nothing: of two attempts at a unit, the later renames the same bytes to the same names."""
        return ""

    def commit(
        self,
        path: str,
        record: bytes,
        _files: Iterable[FileRecord],
        *,
        give_names: Callable[[], None],
        is_again: bool,
    ) -> bytes:
        """Give the files of a unit their names, then the record that commits it; `is_again` is of no concern
        here. All of it is in drafts when the lease is looked for: see `check_lease`."""
        draft = Draft(self.path / path, [])
        try:
            draft.write(record)
            draft.finish()
            check_lease(self.token)
            give_names()
            draft.commit()
            sync_folder(draft.path.parent)
        except BaseException:
            draft.discard()
            raise
        return record

    def keep(self, _path: str, _record: bytes) -> None:
        """A record that was committed is here."""

    def put(self, *_paths: str) -> None:
        """Files written here are there."""

    def fetch(self, _files: Iterable[FileRecord]) -> None:
        """Files are here."""

    def names(self, folder: str) -> list[str] | None:
        """What one of its folders holds; None where it is missing."""
        path = self.path / folder
        return sorted(os.listdir(path)) if path.is_dir() else None

    def has(self, file: FileRecord) -> bool:
        """Whether a file is there in its size."""
        try:
            return (self.path / file.path).stat().st_size == file.num_bytes
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """Nothing is left to do."""
