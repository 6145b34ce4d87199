"""The run folder, the only truth about a run: config, plan, records of committed units, events, manifest."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar, cast, get_args

import msgspec

from gristmill.config import OutputFormat
from gristmill.drafts import reported
from gristmill.errors import ResumeError, RunError
from gristmill.files import open_without_waiting, write_whole
from gristmill.plan import CountPlan, Plan, UnitPlan
from gristmill.records import VERSION, FileRecord, Manifest, UnitRecord
from gristmill.sidecars import FOLDER
from gristmill.store import LocalFolder, RemoteFolder, RunFolder

PLAN, CONFIG, MANIFEST, EVENTS, QUARANTINE, REPORT_PAGE = (
    "plan.json",
    "config.yaml",
    "manifest.json",
    "events.jsonl",
    "quarantine.jsonl",
    "report.html",
)
LOCK = ".lock"
INVENTORY, COUNTED, CHECKPOINT = "inventory.pieces", "counts.json", "merges.npy"
LEARNED = "learned.pieces"
"""Inventories put together, or less what is too rare."""
REPORT = "report.json"
"""Of a training."""
LEARNING_FILES = (CHECKPOINT, LEARNED, REPORT)
"""What training from counts leaves, with no plan beside it."""
OWN_FILES = (PLAN, CONFIG, MANIFEST, EVENTS, QUARANTINE, REPORT_PAGE, INVENTORY, COUNTED, *LEARNING_FILES)
OWN_PLAN = re.compile(rb'\{\s*"job"\s*:\s*"(tokenize|count)"')
"""How every plan begins, whatever became of the rest of it."""
PLAN_HEAD_BYTES = 100
Record = TypeVar("Record", bound=msgspec.Struct)


@contextmanager
def held(store: RunFolder) -> Iterator[None]:
    """The folder of a run, for this run alone as long as it lasts; of one in a store, its small files are at
    hand."""
    if isinstance(store, LocalFolder):
        with locked(store.path):
            yield
        return
    store.acquire()
    try:
        store.pull()
        yield
    finally:
        store.release()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder, made where it is not there, for this run alone as long as it lasts."""
    with _open_lock(folder):
        try:
            yield
        finally:
            _leave(folder)


def _open_lock(folder: Path) -> BinaryIO:
    """The lock of a folder, held until it is closed."""
    import fcntl

    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = open_own(folder / LOCK)
        except OSError as error:
            raise RunError(f"{folder}: cannot be used as a run folder ({error.strerror})") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise ResumeError(f"{folder}: another run is at work in this folder; wait for it") from error
        # A job that was refused may have removed the file after it was opened here.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(folder / LOCK)):
                return lock
        lock.close()


def _leave(folder: Path) -> None:
    """A job that was refused leaves no folder and no file behind."""
    if folder.is_dir() and not (folder / PLAN).exists():
        (folder / LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # it holds what was there before
            folder.rmdir()


def open_own(path: Path) -> BinaryIO:
    """A file of the run folder to append to; never one elsewhere that a link names, and no pipe."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return cast(BinaryIO, os.fdopen(os.open(path, flags, 0o644), "wb", buffering=0))


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
        raise RunError(f"{folder}: has no {MANIFEST} ({_why_no_manifest(folder)})")
    return manifest


def _why_no_manifest(folder: Path) -> str:
    if (folder / PLAN).exists():
        return "its run is not finished; give the command that began it again"
    if not folder.exists():
        return "no run: there is no such folder"
    inside = (folder.parent / MANIFEST).exists()
    return f"no run, but a part of one: give {folder.parent}" if inside else "no run"


def require_plan(folder: Path) -> Plan:
    """The plan of a run."""
    plan = read_plan(folder)
    if plan is None:
        why = f"it has no {PLAN}" if folder.exists() else "there is no such folder"
        raise RunError(f"{folder}: is no run folder ({why})")
    return plan


def read_records(folder: Path, plan: UnitPlan) -> dict[int, UnitRecord]:
    """Records of committed units, by unit; the tails' comes after the last."""
    return {record.unit: record for record in each_record(folder, plan)}


def committed_units(folder: Path, plan: UnitPlan) -> list[int]:
    """Units that have a record, in order; the tails' comes after the last."""
    if not (folder / FOLDER).is_dir():
        return []
    names = (entry.name for entry in os.scandir(folder / FOLDER))
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    found = sorted(int(stem) for stem in stems if stem.isdecimal() and stem.isascii())
    return [index for index in found if index <= len(plan.units)]


def each_record(
    folder: Path, plan: UnitPlan, units: Iterable[int] | None = None
) -> Iterator[UnitRecord]:
    """Records of these or of all committed units, in order, one at a time."""
    for index in committed_units(folder, plan) if units is None else units:
        record = _read(folder / FOLDER / f"{plan.unit_name(index)}.json", UnitRecord)
        if record is None:
            continue
        num_slices = len(plan.units[index].slices) if index < len(plan.units) else 0
        if record.unit != index or len(record.slice_records) != num_slices:
            raise RunError(
                f"{folder}: the record of unit {index} is not that of a unit of its plan; "
                "--force starts the run over"
            )
        yield record


def whole_records(store: RunFolder, plan: UnitPlan) -> Iterator[UnitRecord]:
    """The records whose files are there in their size: the other units must be done again."""
    tails = list(each_record(store.path, plan, [len(plan.units)]))
    # Then what units carried over is not needed any more.
    is_packed = any(all(map(store.has, files_of(record))) for record in tails)
    broken = []
    for record in each_record(store.path, plan):
        files = [file for file in files_of(record) if not (is_packed and file.path.endswith(".tail"))]
        if all(store.has(file) for file in files):
            yield record
        else:
            broken.append(f"{FOLDER}/{plan.unit_name(record.unit)}.json")
    if isinstance(store, RemoteFolder):  # a record that is there keeps others from being put
        store.objects.remove(broken)


def files_of(record: UnitRecord) -> list[FileRecord]:
    """Every file that a record names."""
    shards = (file for shard in record.shards for files in shard.files.values() for file in files)
    return [*shards, *record.sidecars]


def write_json(path: Path, value: msgspec.Struct) -> None:
    """Write a struct so that people can read it."""
    write_whole(path, format_json(value))


def format_json(value: msgspec.Struct) -> bytes:
    """A struct as people can read it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def prepare_folder(folder: Path, formats: tuple[OutputFormat, ...]) -> None:
    """Folders for units and shards."""
    _refuse_links(folder)
    for path in (folder / name for name in (FOLDER, *formats)):
        with reported(path):
            path.mkdir(exist_ok=True)


def _refuse_links(folder: Path) -> None:
    """What no record names is removed from the folders of a run: they may not be somewhere else."""
    for path in (folder / name for name in (FOLDER, *get_args(OutputFormat))):
        if path.is_symlink():
            raise RunError(f"{path}: is a link; a run keeps its files in folders of its own: remove the link")


def check_unused(store: RunFolder) -> None:
    """Refuse a folder that holds something else."""
    if isinstance(store, RemoteFolder):
        names = {name.partition("/")[0] for name in store.sizes()}
    else:
        names = {entry.name for entry in store.path.iterdir()}
    others = sorted(name for name in names if not is_passing(name) and name not in LEARNING_FILES)
    if others:
        raise RunError(
            f"{store}: is no run folder and is not empty (it holds {', '.join(others[:3])}); "
            "choose another folder"
        )


def start_over(store: RunFolder) -> None:
    """Remove all that an earlier run has written, and nothing else: the manifest first, so that a kill in
    between leaves no run that looks finished, and the plan last, so that the folder is known as ours."""
    import shutil

    folder = store.path
    with reported(folder / PLAN):
        head = (folder / PLAN).read_bytes()[:PLAN_HEAD_BYTES]
    if not OWN_PLAN.match(head):
        raise RunError(f"{store}: its {PLAN} is not that of a run; choose another folder")
    _refuse_links(folder)
    revoke_leases(folder)
    others = [name for name in OWN_FILES if name not in (MANIFEST, PLAN)]
    ours = (MANIFEST, FOLDER, *get_args(OutputFormat), *others, PLAN)
    if isinstance(store, RemoteFolder):
        there = store.sizes()
        for name in ours:
            store.objects.remove(n for n in there if n == name or n.startswith(f"{name}/"))
    for name in ours:
        path = folder / name
        with reported(path):  # what stayed behind would be taken for the new run's
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def remove_unnamed(store: RunFolder, named: Container[str], formats: tuple[OutputFormat, ...]) -> None:
    """Remove files of units that no record names: left by attempts that were never committed."""
    if isinstance(store, RemoteFolder):
        folders = (*formats, FOLDER)
        store.objects.remove(
            name for name in store.sizes() if name.partition("/")[0] in folders and name not in named
        )
        return
    for name in (*formats, FOLDER):
        for entry in os.scandir(store.path / name):
            if f"{name}/{entry.name}" not in named and entry.is_file(follow_symlinks=False):
                Path(entry.path).unlink(missing_ok=True)  # its attempt may be cleaning up too


def grant_lease(folder: Path) -> Path:
    """A file without which whoever is told of it may commit no unit."""
    path = folder / FOLDER / f".lease-{os.urandom(8).hex()}"
    with reported(path):
        path.touch(exist_ok=False)
    return path


def revoke_leases(folder: Path) -> None:
    """From now on no attempt at a unit that was begun before can be committed: see `check_lease`."""
    for path in (folder / FOLDER).glob(".lease-*"):
        path.unlink(missing_ok=True)
    remove_temporaries(folder)


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed worker or run was writing: hidden, so that no reader ever saw it."""
    if not (folder / PLAN).exists():  # not ours
        return
    for entry in os.scandir(folder):
        if entry.name != LOCK and is_passing(entry.name):
            Path(entry.path).unlink(missing_ok=True)
    for path in (folder / name for name in (FOLDER, *get_args(OutputFormat))):
        if path.is_dir() and not path.is_symlink():
            for entry in os.scandir(path):
                if entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                    Path(entry.path).unlink(missing_ok=True)  # its attempt may be cleaning up too
                elif entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    import shutil

                    shutil.rmtree(entry.path, ignore_errors=True)


def is_passing(name: str) -> bool:
    """Whether a file of the run folder is no part of the run: the lock, or what a kill left half written."""
    names = "|".join(map(re.escape, OWN_FILES))
    return name == LOCK or re.fullmatch(rf"\.({names})\.[\w-]+(\.tmp)?", name) is not None


class _Versioned(msgspec.Struct):
    version: int


def _read(path: Path, kind: type[Record]) -> Record | None:
    content = b""
    try:
        with open_without_waiting(path) as file:
            content = file.read() or b""
        found = msgspec.json.decode(content, type=kind)
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise RunError(f"{path.parent}: is a file; a run is a folder, as tokenize writes it") from error
    except (msgspec.MsgspecError, OSError, UnicodeDecodeError) as error:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            _check_version(path, msgspec.json.decode(content, type=_Versioned))
        raise RunError(f"{path}: cannot be read ({error}); --force starts the run over") from error
    _check_version(path, found)
    return found


def _check_version(path: Path, found: object) -> None:
    version = getattr(found, "version", VERSION)
    if version != VERSION:
        raise RunError(
            f"{path}: was written by another version of gristmill (layout {version}, this one has "
            f"{VERSION}); use that version, or make it anew with --force"
        )
