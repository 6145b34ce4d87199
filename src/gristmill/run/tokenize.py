"""A whole run: plan or resume, map the units over a backend, pack the tails, check the ledger, finish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from gristmill.config import TokenizeConfig
from gristmill.errors import LedgerError, ResumeError, RunError
from gristmill.files import write_whole
from gristmill.formats import check_formats, finish_run
from gristmill.layout import Layout
from gristmill.ledger import add_up, check_balance
from gristmill.pipeline import Limit
from gristmill.plan import Plan, Unit, plan_units
from gristmill.read import InputFile
from gristmill.records import FileRecord, Ledger, Manifest, ShardRecord, UnitRecord
from gristmill.run.budget import Budget
from gristmill.run.folder import (
    CONFIG,
    EVENTS,
    MANIFEST,
    PLAN,
    check_unused,
    locked,
    prepare_folder,
    read_manifest,
    read_plan,
    read_records,
    remove_temporaries,
    remove_unnamed,
    start_over,
    write_json,
)
from gristmill.run.inline import InlineBackend
from gristmill.run.local import LocalBackend
from gristmill.run.messages import Task
from gristmill.run.outcome import Outcome
from gristmill.run.process import WorkerProcess, choose_backend
from gristmill.run.progress import OnProgress, Progress, Snapshot
from gristmill.run.quarantine import merge_quarantine
from gristmill.run.settle import differences, identity_of, settle_layout, settle_sizes
from gristmill.sidecars import FOLDER

BACKENDS: dict[str, type[InlineBackend] | type[LocalBackend]] = {
    "inline": InlineBackend,
    "local": LocalBackend,
}
MANIFEST_VERSION = 1
MIN_DOCUMENTS_TO_JUDGE = 1000
"""Fewer say nothing about the fraction that is bad, before the end."""


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
            inputs = plan_units(config.read)  # while workers load the tokenizer
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
        prepare_folder(folder, layout.formats)
        plan = msgspec.structs.replace(before, config=config)  # what changes no output may change
        if plan != before:
            write_json(folder / PLAN, plan)
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


def _run(
    plan: Plan,
    folder: Path,
    backend: InlineBackend | LocalBackend,
    on_progress: OnProgress | None,
) -> RunResult:
    records = read_records(folder, plan)
    pending = [unit.index for unit in plan.units if unit.index not in records]
    backend.prepare(folder, num_tasks=len(pending))
    progress = Progress(plan, records, folder / EVENTS, on_progress)
    with closing(progress):
        progress.note("start", units_pending=len(pending))
        work = _Work(plan, backend, progress, records)
        work.do_units(pending)
        if not work.failed:
            work.do_tails()
            manifest = _finish(plan, folder, work.records)
        last = progress.note("failed" if work.failed else "finished", failed=len(work.failed))
        return RunResult(
            folder=str(folder),
            manifest=None if work.failed else manifest,
            last=last,
            failed=work.failed,
        )


class _Work:
    """The records a run has so far, and what is still allowed."""

    def __init__(
        self,
        plan: Plan,
        backend: InlineBackend | LocalBackend,
        progress: Progress,
        records: dict[int, UnitRecord],
    ) -> None:
        self.records = records
        self.failed: dict[int, str] = {}
        self._plan = plan
        self._backend = backend
        self._progress = progress
        run = plan.config.run
        self._limit = Limit(run.max_rows, run.max_tokens)
        self._has_limit = self._limit != Limit()

    def do_units(self, pending: list[int]) -> None:
        """Every unit that is not done, or as many as the limit needs."""
        last = self._last_needed()
        outcomes = self._backend.run(
            [Task(unit) for unit in pending if last is None or unit < last], self._progress
        )
        for outcome in outcomes:
            self._take(outcome)
            last = self._last_needed() if self._has_limit else None
            if last is not None:
                break
        outcomes.close()
        if last is not None and not self.failed:
            self._cut(last)

    def do_tails(self) -> None:
        """What the units carried over, packed together; a limit that was reached leaves nothing to pack."""
        tails = len(self._plan.units)
        is_limited = any(record.is_limited for record in self.records.values())
        carried = sum(record.ledger.tokens_carried for record in self.records.values())
        if carried and not is_limited and tails not in self.records:
            limit = _left(self._limit, self.records.values())
            self._do_one(Task(tails, limit))

    def _do_one(self, task: Task) -> None:
        for outcome in self._backend.run([task], self._progress):
            self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        if outcome.record is None:
            self.failed[outcome.task.unit] = str(outcome.why_failed)
            self._progress.failed(outcome.task.unit, str(outcome.why_failed))
            return
        self.records[outcome.record.unit] = outcome.record
        self._progress.done(outcome.record)
        _check_bad_fraction(self.records.values(), self._plan, is_end=False)

    def _last_needed(self) -> int | None:
        """The unit in which the limit is reached, once all before it are done."""
        limit, units = self._limit, len(self._plan.units)
        for unit in range(units):
            record = self.records.get(unit)
            if record is None:
                return None
            if record.is_limited:
                return unit
            rows, tokens = _left(limit, [record])
            if (rows is not None and rows < 0) or (tokens is not None and tokens < 0):
                return unit
            limit = Limit(rows, tokens)
        return None

    def _cut(self, last: int) -> None:
        """Do the last unit again with what is left of the limit, and forget what comes after it."""
        for unit in [unit for unit in self.records if unit > last]:
            del self.records[unit]
        if not self.records[last].is_limited:
            before = [self.records[unit] for unit in range(last)]
            self._do_one(Task(last, _left(self._limit, before)))


def _left(limit: Limit, records: Iterable[UnitRecord]) -> Limit:
    rows, tokens = limit
    for record in records:
        ledger = record.ledger
        rows = None if rows is None else rows - ledger.rows
        tokens = (
            None
            if tokens is None
            else tokens - ledger.tokens_written - ledger.tokens_repeated - ledger.padding
        )
    return Limit(rows, tokens)


def _check_bad_fraction(records: Iterable[UnitRecord], plan: Plan, *, is_end: bool) -> None:
    allowed = plan.config.run.max_bad_fraction
    if allowed >= 1 and not is_end:
        return
    total = add_up(record.ledger for record in records)
    bad = sum(count for reason, count in total.documents_dropped.items() if reason != "limit")
    reasons = ", ".join(f"{reason} {count}" for reason, count in total.documents_dropped.items())
    files = ", ".join(f"{reason} {count}" for reason, count in total.bad_files.items())
    is_judged = is_end or total.documents_read >= MIN_DOCUMENTS_TO_JUDGE
    if is_judged and bad > allowed * total.documents_read:
        raise RunError(
            f"{bad} of {total.documents_read} documents are bad ({reasons}), more than run.max_bad_fraction "
            f"{allowed} allows; see the quarantine files in {plan.config.write.output}/{FOLDER}"
        )
    if is_end and total.documents_encoded == 0 and not total.documents_dropped.get("limit"):
        raise RunError(
            f"no document could be encoded (documents: {reasons or 'none'}; files: {files or 'none bad'}); "
            f"see the quarantine files in {plan.config.write.output}/{FOLDER}, and read.text_field"
        )


def _finish(plan: Plan, folder: Path, records: dict[int, UnitRecord]) -> Manifest:
    """The ledger of the whole run balances, leftovers are gone, and the manifest says what there is."""
    ordered = [records[unit] for unit in sorted(records)]
    _check_bad_fraction(ordered, plan, is_end=True)
    ledger = _balance(ordered)
    shards = tuple(shard for record in ordered for shard in record.shards)
    sidecars = [file for record in ordered for file in record.sidecars if not file.path.endswith(".tail")]
    for name in plan.layout.formats:
        sidecars += finish_run(folder, name, shards, plan.config.write, plan.layout)
    named = {file.path for shard in shards for files in shard.files.values() for file in files}
    named |= {file.path for file in sidecars}
    named |= {f"{FOLDER}/{plan.unit_name(unit)}.json" for unit in records}
    merge_quarantine(folder, plan, ordered)
    manifest = _manifest(plan, ledger, shards, tuple(sidecars))
    remove_unnamed(folder, named, plan.layout.formats)
    write_json(folder / MANIFEST, manifest)
    return manifest


def _balance(records: list[UnitRecord]) -> Ledger:
    total = add_up(record.ledger for record in records)
    if total.tokens_carried != total.tokens_received:
        is_limited = any(record.is_limited for record in records)
        if not is_limited:
            raise LedgerError(
                f"units carried {total.tokens_carried} tokens over, "
                f"but {total.tokens_received} were packed at the end"
            )
        dropped = total.tokens_dropped | {
            "limit": total.tokens_dropped.get("limit", 0) + total.tokens_carried - total.tokens_received
        }
        total = msgspec.structs.replace(total, tokens_dropped=dropped)
    total = msgspec.structs.replace(total, tokens_carried=0, tokens_received=0)
    check_balance(total, what="the run")
    return total


def _manifest(
    plan: Plan, ledger: Ledger, shards: tuple[ShardRecord, ...], sidecars: tuple[FileRecord, ...]
) -> Manifest:
    from importlib.metadata import version

    layout = plan.layout
    return Manifest(
        version=MANIFEST_VERSION,
        gristmill=version("gristmill"),
        tokenizer=layout.tokenizer,
        fingerprint=layout.fingerprint,
        vocab_size=layout.vocab_size,
        dtype=layout.dtype,
        formats=layout.formats,
        mode=layout.mode,
        sequence_length=layout.sequence_length,
        eos_id=layout.eos_id,
        bos_id=layout.bos_id,
        pad_id=layout.pad_id,
        ledger=ledger,
        shards=shards,
        sidecars=sidecars,
    )


def _as_yaml(config: TokenizeConfig) -> bytes:
    import yaml

    text: str = yaml.safe_dump(msgspec.to_builtins(config), sort_keys=False, allow_unicode=True)
    return text.encode()
