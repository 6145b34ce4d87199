"""The first half of training: the pieces of all units counted, and merged into one inventory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.config import CountConfig, TrainConfig
from gristmill.count_pipeline import SUFFIX, describe, is_called
from gristmill.drafts import Draft, sync_folder
from gristmill.errors import ConfigError, InputError, RunError
from gristmill.ledger import add_up, check_balance
from gristmill.plan import CountPlan, cut_units
from gristmill.read import InputFile, find_inputs, is_remote
from gristmill.records import VERSION, FileRecord, Ledger
from gristmill.run.backends import open_backend
from gristmill.run.cutting import settle_cut
from gristmill.run.done import DoneUnits
from gristmill.run.early import Early
from gristmill.run.fetch_ahead import fetching_ahead
from gristmill.run.folder import (
    COUNTED,
    EVENTS,
    INVENTORY,
    each_record,
    prepare_folder,
    revoke_leases,
    whole_records,
    write_json,
)
from gristmill.run.inline import InlineBackend
from gristmill.run.machine import describe_machine
from gristmill.run.progress import OnProgress, Progress
from gristmill.run.quarantine import QuarantineDraft
from gristmill.run.resume import plan_or_resume, settled_commit
from gristmill.run.settle import IDENTITY_VERSION, NOT_IN_OUTPUT
from gristmill.run.warn import input_warnings
from gristmill.run.work import Backend, Work, check_bad_fraction
from gristmill.sidecars import FOLDER
from gristmill.store import LocalFolder
from gristmill.training.counting import OnPieces
from gristmill.training.cut import Cut, encode_cut, name_of_cut
from gristmill.training.inventory import Inventory, Summary, merge_inventories
from gristmill.training.output import Output

NOT_IN_COUNTS = (*NOT_IN_OUTPUT, "folder")
UNIT_BYTES = 128 << 20
"""Of a unit, at least: counting it takes half a second, and an inventory of little text has nearly as many
pieces as one of much."""


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished count has found."""

    ledger: Ledger
    summary: Summary
    inventory: FileRecord


class CountOutcome(NamedTuple):
    """What a count has found, and how it went this time."""

    counted: Counted
    peak_memory_bytes: int | None
    """Of all processes; None where it had been finished before."""
    warnings: tuple[str, ...]
    """What changed nothing, but may not be what was meant."""


def count(
    config: TrainConfig,
    folder: Path,
    *,
    force: bool,
    on_progress: OnProgress | None,
    early: Early,
    on_pieces: OnPieces | None = None,
) -> CountOutcome:
    """Count the pieces of the job's inputs, or answer from what was counted before.

    `on_pieces` is told the pieces before they are written, if all are counted in memory, in this process."""
    cut = settle_cut(config)
    backend = open_backend(config, early)
    try:
        listing = find_inputs(config.read, commit=settled_commit(folder, config.read, force=force))
        files = tuple(_without_output(listing.files, config))
        units = cut_units(config.read, files, least_bytes=UNIT_BYTES)
        warnings = (*input_warnings(config.read, listing), *_unused_weights(config.count, files))
        backend.facts()
        plan = CountPlan(
            version=VERSION,
            identity=_identity(config, [(file.path, file.num_bytes, file.version) for file in files], cut),
            config=config,
            cut=encode_cut(cut).decode(),
            files=files,
            units=units,
            max_document_bytes=backend.budget.blocks.max_document_bytes,
            commit=listing.commit,
        )
        plan = plan_or_resume(LocalFolder(folder), plan, force=force)
        prepare_folder(folder, ())
        if (counted := _counted_before(folder)) is not None:
            _remove_parts(folder)  # a kill may have left some
            return CountOutcome(counted, None, warnings)
        done, peak = _count_units(plan, folder, backend, on_progress, on_pieces)
        return CountOutcome(_finish(plan, folder, done), peak, warnings)
    finally:
        backend.close()


def _without_output(files: Sequence[InputFile], config: TrainConfig) -> list[InputFile]:
    """The inputs less a tokenizer that this job has written beside them; one that is named is refused."""
    written = {os.path.realpath(path) for path in Output.of(config.learn.output).files}
    for path in config.read.inputs:
        if os.path.realpath(path) in written:
            raise ConfigError(f"{path}: is an input, and would be written over; choose another --output")
    kept = [file for file in files if is_remote(file.path) or os.path.realpath(file.path) not in written]
    if not kept:
        raise InputError(f"{files[0].path}: is what this job writes, and there is no other input")
    return kept


def _unused_weights(config: CountConfig, files: Iterable[InputFile]) -> list[str]:
    """Weights that no file has, in words."""
    return [
        f"count.weights: no input is called {pattern}, so nothing counts {weight} times"
        for pattern, weight in config.weights.items()
        if not any(is_called(file.path, pattern) for file in files)
    ]


def _counted_before(folder: Path) -> Counted | None:
    """What a finished count has found; None where there was none, or its inventory is gone."""
    if not (folder / COUNTED).exists():
        return None
    counted = read_counted(folder)
    if LocalFolder(folder).has(counted.inventory):
        return counted
    (folder / COUNTED).unlink()
    return None


def read_counted(folder: Path) -> Counted:
    """What a finished count has found."""
    try:
        return msgspec.json.decode((folder / COUNTED).read_bytes(), type=Counted)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunError(f"{folder / COUNTED}: cannot be read ({error}); --force counts again") from error


def _count_units(
    plan: CountPlan,
    folder: Path,
    backend: Backend,
    on_progress: OnProgress | None,
    on_pieces: OnPieces | None,
) -> tuple[DoneUnits, int]:
    revoke_leases(folder)
    done = DoneUnits(len(plan.units), whole_records(LocalFolder(folder), plan))
    pending = done.pending()
    backend.prepare(LocalFolder(folder), num_tasks=len(pending))
    if on_pieces is not None and isinstance(backend, InlineBackend) and len(plan.units) == 1:
        backend.tell_pieces(on_pieces)
    progress = Progress(plan, done, folder / EVENTS, on_progress)
    with closing(progress):
        progress.note("start", units_pending=len(pending), machine=describe_machine(), cwd=os.getcwd())
        limits = msgspec.structs.replace(
            plan.config.run, max_rows=plan.config.count.max_documents, max_tokens=None
        )
        work = Work(plan, limits, backend, progress, done, LocalFolder(folder))
        with fetching_ahead(plan, limits, pending, progress):
            work.do_units(pending)
        last = progress.note("failed" if work.failed else "counted", failed=len(work.failed))
    if work.failed:
        unit, why = next(iter(sorted(work.failed.items())))
        raise RunError(f"{len(work.failed)} units could not be counted, such as unit {unit}: {why}")
    return done, last.peak_memory_bytes


def _finish(plan: CountPlan, folder: Path, done: DoneUnits) -> Counted:
    """One inventory of all units; theirs are no longer needed."""
    ordered = list(each_record(folder, plan, done))
    ledger = add_up(record.ledger for record in ordered)
    quarantine = QuarantineDraft(folder, plan, ordered)
    try:
        cause = quarantine.first_fault
        check_bad_fraction(ledger, plan.config.run.max_bad_fraction, cause=cause)
        check_balance(ledger, what="the count")
        quarantine.commit()
    finally:
        quarantine.discard()
    parts = [file for record in ordered for file in record.sidecars if file.path.endswith(f".{SUFFIX}")]
    inventory = _merge_parts(parts, folder)
    summary = Inventory(folder / INVENTORY).summary
    counted = Counted(ledger=ledger, summary=summary, inventory=inventory)
    write_json(folder / COUNTED, counted)
    _remove_parts(folder)
    return counted


def _remove_parts(folder: Path) -> None:
    for part in (folder / FOLDER).glob(f"*.{SUFFIX}"):
        part.unlink(missing_ok=True)


def _merge_parts(parts: list[FileRecord], folder: Path) -> FileRecord:
    """The inventory of all parts; of a single one it is the same file."""
    path = folder / INVENTORY
    if len(parts) != 1:
        merge_inventories([folder / part.path for part in parts], path)
        return describe(path, INVENTORY)
    draft = Draft.of_file(folder / parts[0].path, parts[0], path, [])
    draft.commit()
    sync_folder(folder)
    return draft.record(folder)


def _identity(config: TrainConfig, files: list[tuple[str, int, str]], cut: Cut) -> dict[str, Any]:
    identity: dict[str, Any] = {"version": IDENTITY_VERSION}
    for name in ("read", "count"):
        section = msgspec.to_builtins(getattr(config, name))
        identity |= {f"{name}.{key}": value for key, value in section.items() if key not in NOT_IN_COUNTS}
    if config.count.pattern is None:
        identity |= {"count.pattern": name_of_cut(cut), "count.form": cut.form}
    for path, num_bytes, version in files:
        identity[f"input {path}"] = f"{num_bytes} bytes, version {version}"
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(identity))  # as it is read back
    return plain
