"""Small files appear whole; those of a run are drafts (`drafts.py`). How files of others are opened."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gristmill.errors import InputError


def open_without_waiting(path: Path) -> BinaryIO:
    """A file to be read; a pipe in its place, which nobody may ever write to, is not waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return open(handle, "rb")
    except OSError:  # it is a folder
        os.close(handle)
        raise


def check_writable(path: Path) -> None:
    """Refuse a path that `write_whole` could not write, before work is done for it."""
    handle, temporary = _open_beside(path)
    os.close(handle)
    os.unlink(temporary)


def make_folders(path: Path) -> None:
    """Make a folder and those above it, where they are missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be made ({error.strerror})") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or all of the new, never a part."""
    handle, temporary = _open_beside(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(FileNotFoundError):  # told to end just after it had its name
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise InputError(f"{path}: cannot be written ({error.strerror})") from error
        raise


def _open_beside(path: Path) -> tuple[int, str]:
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no plain file, and would be replaced by one; name another")
    temporary = f"{path.parent}/.{path.name}.{os.urandom(4).hex()}"
    try:
        return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), temporary
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be written ({reason})") from error
