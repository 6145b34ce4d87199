"""The run folder, the only truth about a run: config, plan, records of committed units, events, manifest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, get_args

import msgspec

from gristmill.config import OutputFormat
from gristmill.drafts import reported
from gristmill.errors import ResumeError, RunError
from gristmill.files import write_whole
from gristmill.plan import CountPlan, Plan, UnitPlan
from gristmill.records import Manifest, UnitRecord
from gristmill.sidecars import FOLDER

PLAN, CONFIG, MANIFEST, EVENTS, QUARANTINE = (
    "plan.json",
    "config.yaml",
    "manifest.json",
    "events.jsonl",
    "quarantine.jsonl",
)
LOCK = ".lock"
INVENTORY, COUNTED, CHECKPOINT = "inventory.pieces", "counts.json", "merges.npy"
"""Of a training."""
OWN_FILES = (PLAN, CONFIG, MANIFEST, EVENTS, QUARANTINE, INVENTORY, COUNTED, CHECKPOINT)



Record = TypeVar("Record", bound=msgspec.Struct)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder, made where it is not there, for this run alone as long as it lasts."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+b")
    except OSError as error:
        raise RunError(f"{folder}: cannot be used as a run folder ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ResumeError(f"{folder}: another run is at work in this folder; wait for it") from error
        try:
            yield
        finally:
            _remove_if_unused(folder)


def _remove_if_unused(folder: Path) -> None:
    """A job that was refused leaves no folder behind."""
    if folder.is_dir() and os.listdir(folder) == [LOCK]:
        (folder / LOCK).unlink()
        folder.rmdir()


def read_plan(folder: Path) -> Plan | None:
    """The plan of a run, or None where none was made."""
    return _read(folder / PLAN, Plan)


def read_any_plan(folder: Path) -> Plan | CountPlan | None:
    """The plan of a run or of a count, or None where none was made."""
    found: Plan | CountPlan | None = _read(folder / PLAN, Plan | CountPlan)  # type: ignore[arg-type]
    return found


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a finished run, or None where it is not finished."""
    return _read(folder / MANIFEST, Manifest)


def require_manifest(folder: Path) -> Manifest:
    """The manifest of a finished run."""
    manifest = read_manifest(folder)
    if manifest is None:
        state = (
            "its run is not finished; run the same command again" if (folder / PLAN).exists() else "no run"
        )
        raise RunError(f"{folder}: has no {MANIFEST} ({state})")
    return manifest


def require_plan(folder: Path) -> Plan:
    """The plan of a run."""
    plan = read_plan(folder)
    if plan is None:
        raise RunError(f"{folder}: is no run folder (it has no {PLAN})")
    return plan


def read_records(folder: Path, plan: UnitPlan) -> dict[int, UnitRecord]:
    """Records of committed units, by unit; the tails' comes after the last."""
    found = {}
    for index in range(len(plan.units) + 1):
        record = _read(folder / FOLDER / f"{plan.unit_name(index)}.json", UnitRecord)
        if record is not None:
            found[index] = record
    return found


def write_json(path: Path, value: msgspec.Struct) -> None:
    """Write a struct so that people can read it."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def prepare_folder(folder: Path, formats: tuple[OutputFormat, ...]) -> None:
    """Folders for units and shards."""
    for name in (FOLDER, *formats):
        (folder / name).mkdir(exist_ok=True)


def check_unused(folder: Path) -> None:
    """Refuse a folder that holds something else."""
    known = {LOCK, *OWN_FILES, FOLDER}
    others = sorted(name for name in os.listdir(folder) if name not in known and not _is_temporary(name))
    if others:
        raise RunError(
            f"{folder}: is no run folder and is not empty (it holds {', '.join(others[:3])}); "
            "choose another folder"
        )


def start_over(folder: Path) -> None:
    """Remove all that an earlier run has written, and nothing else: the manifest first, so that a kill in
    between leaves no run that looks finished, and the plan last, so that the folder is known as ours."""
    others = [name for name in OWN_FILES if name not in (MANIFEST, PLAN)]
    for name in (MANIFEST, FOLDER, *get_args(OutputFormat), *others, PLAN):
        path = folder / name
        with reported(path):  # what stayed behind would be taken for the new run's
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def remove_unnamed(folder: Path, named: set[str], formats: tuple[OutputFormat, ...]) -> None:
    """Remove files of units that no record names: left by attempts that were never committed."""
    for name in (*formats, FOLDER):
        for entry in os.scandir(folder / name):
            if f"{name}/{entry.name}" not in named and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed process was writing: hidden, so that no reader ever saw it."""
    if not folder.is_dir():
        return
    for name in filter(_is_temporary, os.listdir(folder)):
        (folder / name).unlink()
    for name in (FOLDER, *get_args(OutputFormat)):
        if (folder / name).is_dir():
            for entry in os.scandir(folder / name):
                if entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)
                elif entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_temporary(name: str) -> bool:
    """Whether a file of the folder itself is one of its own, not yet whole."""
    return name.startswith(tuple(f".{own}." for own in OWN_FILES))


def _read(path: Path, kind: type[Record]) -> Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read ({error}); --force starts the run over") from error
