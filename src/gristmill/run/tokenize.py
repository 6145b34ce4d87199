"""A whole run: plan or resume, map the units over a backend, pack the tails, check the ledger, finish."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from gristmill.config import TokenizeConfig
from gristmill.errors import ResumeError, RunError
from gristmill.files import write_whole
from gristmill.formats import check_formats
from gristmill.layout import Layout
from gristmill.plan import Plan, Unit, plan_units
from gristmill.read import InputFile
from gristmill.records import Manifest
from gristmill.run.budget import Budget
from gristmill.run.finish import finish
from gristmill.run.folder import (
    CONFIG,
    EVENTS,
    PLAN,
    check_unused,
    folder_of_run,
    keep_whole,
    locked,
    prepare_folder,
    read_manifest,
    read_plan,
    read_records,
    remove_temporaries,
    start_over,
    write_json,
)
from gristmill.run.inline import InlineBackend
from gristmill.run.local import LocalBackend
from gristmill.run.process import WorkerProcess, choose_backend
from gristmill.run.progress import OnProgress, Progress, Snapshot
from gristmill.run.settle import differences, identity_of, settle_layout, settle_sizes
from gristmill.run.work import Work

BACKENDS: dict[str, type[InlineBackend] | type[LocalBackend]] = {
    "inline": InlineBackend,
    "local": LocalBackend,
}


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run."""

    folder: str
    manifest: Manifest | None
    """Absent where units failed."""
    last: Snapshot | None
    """The run's last moment; absent where it had been finished before."""
    failed: dict[int, str]
    """Units that could not be done, and why."""


def tokenize(
    config: TokenizeConfig,
    *,
    force: bool = False,
    on_progress: OnProgress | None = None,
    processes: Sequence[WorkerProcess] = (),
) -> RunResult:
    """Do a job: from the files it names to shards in its run folder.

    The same call again takes up a run that was cut short, and answers at once where it was finished; `force`
    starts over. `on_progress` is called a few times a second. `processes` are workers that were started
    before."""
    config = settle_sizes(config)
    folder = Path(config.write.output)
    with locked(folder):
        backend = BACKENDS[choose_backend(config)](config, processes)
        try:
            # While workers load the tokenizer.
            inputs = plan_units(config.read, without=folder_of_run(folder))
            layout = settle_layout(config, backend.facts())
            plan = _plan_or_resume(config, folder, layout, inputs, backend.budget, force=force)
            manifest = read_manifest(folder)
            if manifest is not None:
                return RunResult(folder=str(folder), manifest=manifest, last=None, failed={})
            return _run(plan, folder, backend, on_progress)
        finally:
            backend.close()
            remove_temporaries(folder)


def _plan_or_resume(
    config: TokenizeConfig,
    folder: Path,
    layout: Layout,
    inputs: tuple[tuple[InputFile, ...], tuple[Unit, ...]],
    budget: Budget,
    *,
    force: bool,
) -> Plan:
    """The plan in the folder where it is this job's, else a new one."""
    check_formats(config.write, layout)
    if force and (folder / PLAN).exists():
        start_over(folder)
    before = read_plan(folder)
    if before is None:
        check_unused(folder)
    files, units = inputs
    identity = identity_of(config, layout, files)
    if before is not None:
        changes = differences(before.identity, identity)
        if changes:
            more = f", and {len(changes) - 5} more" if len(changes) > 5 else ""
            raise ResumeError(
                f"{folder}: holds a run of another job: {'; '.join(changes[:5])}{more}; "
                "use --force to start over, or another folder"
            )
        _check_plan(before, folder, layout, files)
        prepare_folder(folder, layout.formats)
        plan = msgspec.structs.replace(before, config=config)  # what changes no output may change
        if plan != before:
            write_json(folder / PLAN, plan)
        if plan != before or not (folder / CONFIG).exists():  # a kill may have come before it was written
            write_whole(folder / CONFIG, _as_yaml(config))
        return plan
    plan = Plan(
        version=1,
        identity=identity,
        config=config,
        layout=layout,
        files=files,
        units=units,
        max_document_bytes=budget.blocks.max_document_bytes,
    )
    write_json(folder / PLAN, plan)
    write_whole(folder / CONFIG, _as_yaml(config))
    prepare_folder(folder, layout.formats)
    return plan


def _check_plan(plan: Plan, folder: Path, layout: Layout, files: tuple[InputFile, ...]) -> None:
    """Refuse a plan whose identity is that of the job, but whose other parts are not."""
    is_same_layout = msgspec.structs.replace(plan.layout, tokenizer=layout.tokenizer) == layout
    is_numbered = [unit.index for unit in plan.units] == list(range(len(plan.units)))
    is_named = all(0 <= part.file < len(files) for unit in plan.units for part in unit.slices)
    if not (is_same_layout and is_numbered and is_named and plan.files == files):
        raise RunError(f"{folder / PLAN}: does not agree with itself; --force starts the run over")


def _run(
    plan: Plan,
    folder: Path,
    backend: InlineBackend | LocalBackend,
    on_progress: OnProgress | None,
) -> RunResult:
    records = keep_whole(folder, plan, read_records(folder, plan))
    pending = [unit.index for unit in plan.units if unit.index not in records]
    backend.prepare(folder, num_tasks=len(pending))
    progress = Progress(plan, records, folder / EVENTS, on_progress)
    with closing(progress):
        progress.note("start", units_pending=len(pending))
        work = Work(plan, plan.config.run, backend, progress, records)
        work.do_units(pending)
        if not work.failed:
            work.do_tails()
            manifest = finish(plan, folder, work.records)
        last = progress.note("failed" if work.failed else "finished", failed=len(work.failed))
        return RunResult(
            folder=str(folder),
            manifest=None if work.failed else manifest,
            last=last,
            failed=work.failed,
        )


def _as_yaml(config: TokenizeConfig) -> bytes:
    import yaml

    text: str = yaml.safe_dump(msgspec.to_builtins(config), sort_keys=False, allow_unicode=True)
    return text.encode()
