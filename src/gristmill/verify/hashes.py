"""Every file is there, with its size and its BLAKE3, and no other."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blake3 import blake3

from gristmill.errors import RunError
from gristmill.files import open_without_waiting
from gristmill.finished import FinishedRun
from gristmill.records import FileRecord
from gristmill.report.words import of_bytes
from gristmill.run.resources import num_cores
from gristmill.sidecars import FOLDER
from gristmill.verify.findings import Findings
from gristmill.verify.records import is_inside, named_files

READ_BYTES = 1 << 20
MAX_THREADS = 8


def check_files(run: FinishedRun, on_step: Callable[[str], None]) -> Findings:
    """Hash every file that is named, several at a time, and look for others."""
    files = named_files(run)
    total = sum(file.num_bytes for file in files)
    faults, done = [], 0
    with ThreadPoolExecutor(min(MAX_THREADS, num_cores())) as pool:
        for file, fault in zip(files, pool.map(lambda f: _check(run, f), files), strict=True):
            faults += [fault] if fault else []
            done += file.num_bytes
            on_step(f"files: {of_bytes(done)} of {of_bytes(total)}")
    faults += _unknown_files(run, {file.path for file in files})
    return Findings(f"size and BLAKE3 of {len(files):,} files, {of_bytes(total)}", faults)


def _check(run: FinishedRun, record: FileRecord) -> str | None:
    faults = fetch_faults(run, [record])
    return faults[0] if faults else check_file(run.folder, record)


def fetch_faults(run: FinishedRun, files: list[FileRecord]) -> list[str]:
    """What is wrong with files of a run in a store, which are brought here to be looked at."""
    try:
        run.store.fetch(files)
    except RunError as error:
        return [str(error)]
    return []


def check_file(folder: Path, record: FileRecord) -> str | None:
    """What is wrong with a file, or None."""
    path = folder / record.path
    try:
        with open_without_waiting(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return f"{path}: is no regular file"
            size = status.st_size
            if size != record.num_bytes:
                return f"{path}: has {size} bytes, its record says {record.num_bytes}"
            digest = blake3()
            while block := file.read(READ_BYTES):
                digest.update(block)
    except FileNotFoundError:
        return f"{path}: is missing"
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    if digest.hexdigest() != record.blake3:
        return f"{path}: has other content than when it was written (its BLAKE3 differs)"
    return None


def _unknown_files(run: FinishedRun, named: set[str]) -> Iterator[str]:
    named = named | {f"{FOLDER}/{run.plan.unit_name(unit)}.json" for unit in run.records}
    for name in (FOLDER, *run.layout.formats):
        entries = run.store.names(name)
        if entries is None:
            yield f"{run.store}/{name}: is missing"
            continue
        for entry in entries:
            if f"{name}/{entry}" not in named:
                yield f"{run.store}/{name}/{entry}: belongs to no shard or unit of the run"
    records = [file for shard in run.manifest.shards for files in shard.files.values() for file in files]
    for file in (*records, *run.manifest.sidecars):
        if not is_inside(run, file.path):
            yield f"manifest.json: {file.path!r} is no path of a file of this run"
