"""What lost attempts left in a run folder: found, and removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import get_args

import msgspec

from gristmill.config import OutputFormat
from gristmill.errors import RunError
from gristmill.formats import FORMATS
from gristmill.plan import Plan
from gristmill.run.folder import (
    PLAN,
    files_of,
    held,
    is_passing,
    read_any_plan,
    read_manifest,
    read_records,
)
from gristmill.sidecars import FOLDER
from gristmill.store import RemoteFolder, RunFolder, open_folder

FOLDERS = (FOLDER, *get_args(OutputFormat))


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Something that no record names."""

    path: str
    """In the run folder."""
    num_bytes: int
    """0 where the store does not tell, as of an upload that was never ended."""


def clean(where: str, *, is_dry: bool = False) -> list[Leftover]:
    """Remove from a run folder what no record of it names, or only find it; a run at work there is a reason
    to refuse. A run can be taken up again as before."""
    store = open_folder(where)
    if not store.is_remote and not (store.path / PLAN).exists():
        raise RunError(f"{where}: is no run folder (it has no {PLAN})")
    try:
        with held(store):
            named = _named(store)
            if isinstance(store, RemoteFolder):
                return _clean_remote(store, named, is_dry=is_dry)
            return _clean_local(store.path, named, is_dry=is_dry)
    finally:
        store.close()


def _named(store: RunFolder) -> set[str]:
    """Every path of a file of the run's folders that a record, or the run as a whole, has."""
    plan = read_any_plan(store.path)
    if plan is None:
        raise RunError(f"{store}: is no run folder (it has no {PLAN})")
    records = read_records(store.path, plan)
    named = {file.path for record in records.values() for file in files_of(record)}
    named |= {f"{FOLDER}/{plan.unit_name(unit)}.json" for unit in records}
    if isinstance(plan, Plan) and read_manifest(store.path) is not None:
        named |= {f"{name}/{file}" for name in plan.layout.formats for file in FORMATS[name].run_files}
    return named


def _clean_local(folder: Path, named: set[str], *, is_dry: bool) -> list[Leftover]:
    entries = [entry for entry in os.scandir(folder) if is_passing(entry.name) and entry.name != ".lock"]
    for name in FOLDERS:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            entries += [entry for entry in os.scandir(folder / name) if f"{name}/{entry.name}" not in named]
    found = []
    for entry in sorted(entries, key=lambda entry: entry.path):
        path = Path(entry.path)
        is_file = entry.is_file(follow_symlinks=False)
        if not is_file and not (entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)):
            continue  # none of ours
        files = [path] if is_file else [part for part in path.rglob("*") if part.is_file()]
        num_bytes = sum(file.lstat().st_size for file in files)
        found.append(Leftover(path=path.relative_to(folder).as_posix(), num_bytes=num_bytes))
        if not is_dry:
            path.unlink(missing_ok=True) if is_file else shutil.rmtree(path, ignore_errors=True)
    return found


def _clean_remote(store: RemoteFolder, named: set[str], *, is_dry: bool) -> list[Leftover]:
    found = [
        Leftover(path=name, num_bytes=size)
        for name, size in store.sizes().items()
        if name.partition("/")[0] in FOLDERS and name not in named
    ]
    uploads = store.objects.pending_uploads()
    if not is_dry:
        store.objects.remove(left.path for left in found)
        store.objects.end_uploads(uploads)
    return found + [Leftover(path=f"upload of {name}", num_bytes=0) for name, _ in uploads]
