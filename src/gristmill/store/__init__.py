"""Where a run folder lies: a folder of this machine, or a place in an object store.

A folder of this machine gets files by renaming (`local`). A store has no renaming: files are made in a stage,
a folder of this machine, and uploaded under names that no other attempt at the unit has; the unit's record,
put last, names them and is the commit (`remote`). A finished run in a store is read through a cache
(`cached`), and any is watched through copies of its small files (`mirror`). Everything above works at `path`,
a folder of this machine, in all cases.
"""

from __future__ import annotations

import os
from pathlib import Path

from gristmill.errors import ConfigError
from gristmill.read.storage import is_remote, local_path
from gristmill.store.cached import CachedFolder
from gristmill.store.local import LocalFolder
from gristmill.store.mirror import Mirror
from gristmill.store.remote import RemoteFolder

RunFolder = LocalFolder | RemoteFolder
FinishedFolder = LocalFolder | CachedFolder

__all__ = [
    "CachedFolder",
    "FinishedFolder",
    "LocalFolder",
    "Mirror",
    "RemoteFolder",
    "RunFolder",
    "open_finished",
    "open_folder",
    "refuse_remote",
]


def open_folder(where: str, *, stage: str = "", token: str = "") -> RunFolder:
    """The folder of a run, to be written to; files for a store are made in the stage, or in one of its own,
    and committed under the lease of the token."""
    where = local_path(where)
    if is_remote(where):
        return RemoteFolder(where, stage=stage, token=token)
    return LocalFolder(Path(where), token=token)


def open_finished(
    where: str | os.PathLike[str],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
) -> FinishedFolder:
    """The folder of a finished run, to be read; of one in a store, copies are kept in the cache."""
    named = local_path(os.fspath(where))
    if is_remote(named):
        return CachedFolder(named, cache_dir=cache_dir, cache_bytes=cache_bytes)
    return LocalFolder(Path(named))


def refuse_remote(where: str, what: str) -> None:
    """Refuse a URL where only a folder or file of this machine will do."""
    if is_remote(local_path(where)):
        raise ConfigError(f"{where}: {what} is written to this machine only; name a local path, then copy it")
