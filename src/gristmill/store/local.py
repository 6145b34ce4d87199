"""A run folder on this machine: files are made in it and get their names by renaming."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gristmill.files import write_whole
from gristmill.records import FileRecord


class LocalFolder:
    """A folder in which every file is where it belongs as soon as it has its name."""

    is_remote = False
    stage = ""
    token = ""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def url(self) -> str:
        """How any process of this machine finds it."""
        return str(self.path.resolve())

    def __str__(self) -> str:
        return str(self.path)

    def new_attempt(self) -> str:
        """Nothing: of two attempts at a unit, the later renames the same bytes to the same names."""
        return ""

    def commit(self, path: str, record: bytes, _files: Iterable[FileRecord], *, is_again: bool) -> bytes:
        """Write the record that commits a unit; its files are there. `is_again` is of no concern here."""
        write_whole(self.path / path, record)
        return record

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
