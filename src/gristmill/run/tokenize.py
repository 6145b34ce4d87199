"""A whole run: plan or resume, map the units over a backend, pack the tails, check the ledger, finish."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import msgspec

from gristmill.config import TokenizeConfig
from gristmill.formats import check_formats
from gristmill.load.folder import tokenizer_versions
from gristmill.plan import Plan, cut_units
from gristmill.read import Listing, find_inputs
from gristmill.records import VERSION, Manifest
from gristmill.run.backends import open_backend
from gristmill.run.done import DoneUnits
from gristmill.run.early import NOTHING, Early
from gristmill.run.fetch_ahead import fetching_ahead
from gristmill.run.finish import finish
from gristmill.run.folder import (
    EVENTS,
    MANIFEST,
    held,
    prepare_folder,
    read_any_plan,
    read_manifest,
    remove_temporaries,
    revoke_leases,
    whole_records,
)
from gristmill.run.machine import describe_machine
from gristmill.run.process import check_reachable
from gristmill.run.progress import OnProgress, Progress, Snapshot
from gristmill.run.resume import plan_or_resume, settled_commit
from gristmill.run.settle import TokenizerFacts, identity_of, settle_layout, settle_sizes
from gristmill.run.warn import input_warnings, option_warnings, outcome_warnings
from gristmill.run.work import Backend, Work
from gristmill.sidecars import FOLDER
from gristmill.store import RemoteFolder, RunFolder, open_folder

EVENTS_EVERY_S = 5.0
EVENT_BYTES_A_S = 100_000
"""Of the events of a run in a store, put there anew each time."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run."""

    folder: str
    manifest: Manifest | None
    """Absent where units failed."""
    last: Snapshot | None
    """The run's last moment; absent where it had been finished before."""
    failed: dict[int, str]
    """Units that could not be done, and why."""
    loading_s: float = 0.0
    """Before the first unit: the inputs were looked for and the tokenizer was loaded."""
    warnings: tuple[str, ...] = ()
    """What changed nothing about the run, but may not be what was meant."""

    def __repr__(self) -> str:
        if self.manifest is None:
            return f"<gristmill.RunResult {self.folder}: {len(self.failed)} units failed>"
        ledger = self.manifest.ledger
        return (
            f"<gristmill.RunResult {self.folder}: {ledger.documents_encoded} documents, "
            f"{ledger.tokens_written} tokens, {len(self.manifest.shards)} shards>"
        )


def tokenize(
    config: TokenizeConfig,
    *,
    force: bool = False,
    on_progress: OnProgress | None = None,
    early: Early = NOTHING,
) -> RunResult:
    """Do a job: from the files it names to shards in its run folder.

    The same call again takes up a run that was cut short, and answers at once where it was finished; `force`
    starts over. `on_progress` is called a few times a second. `early` is what was started
    before, and ends with the run."""
    start = early.since or time.monotonic()
    config = settle_sizes(config)
    check_reachable(config)
    store = open_folder(config.write.output)
    folder = store.path
    with closing(store), held(store):
        if not force and (finished := _finished_before(config, store)) is not None:
            return finished
        backend = open_backend(config, early)
        try:
            versions = tokenizer_versions(config.tokenizer.source)
            commit = settled_commit(folder, config.read, force=force)
            listing = find_inputs(config.read, commit=commit)  # while workers load the tokenizer
            files = tuple(listing.files)
            units = cut_units(config.read, files)
            warnings = (*option_warnings(config), *input_warnings(config.read, listing))
            facts = backend.facts()
            assert facts is not None
            layout = settle_layout(config, facts)
            check_formats(config.write, layout)
            plan = plan_or_resume(
                store,
                Plan(
                    version=VERSION,
                    identity=identity_of(config, layout, files),
                    config=config,
                    layout=layout,
                    files=files,
                    units=units,
                    max_document_bytes=backend.budget.blocks.max_document_bytes,
                    commit=listing.commit,
                    tokenizer_path=os.path.abspath(config.tokenizer.source) if versions else "",
                    tokenizer_files=versions,
                ),
                force=force,
            )
            prepare_folder(folder, layout.formats)
            manifest = read_manifest(folder)
            if manifest is not None and not _is_all_there(store, manifest):
                (folder / MANIFEST).unlink()  # so that a kill leaves no run that looks finished
                manifest = None
            if manifest is not None:
                result = RunResult(folder=str(store), manifest=manifest, last=None, failed={})
            else:
                loading_s = round(time.monotonic() - start, 3)
                result = _run(plan, store, backend, on_progress, facts=facts, loading_s=loading_s)
                result = msgspec.structs.replace(result, loading_s=loading_s)
            if result.manifest is not None:
                warnings += tuple(outcome_warnings(plan, folder, result.manifest))
            return msgspec.structs.replace(result, warnings=warnings)
        finally:
            backend.close()
            remove_temporaries(folder)


def _finished_before(config: TokenizeConfig, store: RunFolder) -> RunResult | None:
    """What this very job has given, told without loading the tokenizer; None where only that can tell."""
    folder = store.path
    plan = read_any_plan(folder)
    if not isinstance(plan, Plan) or not plan.tokenizer_files or config != plan.config:
        return None
    manifest = read_manifest(folder)
    if manifest is None or tokenizer_versions(config.tokenizer.source) != plan.tokenizer_files:
        return None
    if not _is_all_there(store, manifest):
        return None
    listing = find_inputs(config.read) if not plan.commit else Listing(list(plan.files))
    if tuple(listing.files) != plan.files:
        return None
    warnings = (*option_warnings(config), *input_warnings(config.read, listing))
    warnings += tuple(outcome_warnings(plan, folder, manifest))
    return RunResult(folder=str(store), manifest=manifest, last=None, failed={}, warnings=warnings)


def _is_all_there(store: RunFolder, manifest: Manifest) -> bool:
    """Whether a finished run on this machine still has its files, each in its size, and the records of its
    units; what is gone is made again."""
    if isinstance(store, RemoteFolder):
        return True
    shards = (file for shard in manifest.shards for files in shard.files.values() for file in files)
    if not all(map(store.has, (*shards, *manifest.sidecars))):
        return False
    names = (file.path.partition(".")[0] for file in manifest.sidecars if file.path.startswith(f"{FOLDER}/"))
    return all((store.path / f"{name}.json").exists() for name in dict.fromkeys(names))


@contextmanager
def events_kept(store: RunFolder) -> Iterator[None]:
    """The events of a run in a store are kept there, now and then while it goes on and however it ends."""
    if not isinstance(store, RemoteFolder):
        yield
        return
    is_over = threading.Event()
    keeper = threading.Thread(target=_keep_events, args=(store, is_over), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        is_over.set()
        keeper.join()
        with suppress(Exception):  # what ended the run matters more
            store.put(EVENTS)


def _keep_events(store: RemoteFolder, is_over: threading.Event) -> None:
    """For those who watch: the larger the file, the less often."""
    wait_s = EVENTS_EVERY_S
    while not is_over.wait(wait_s):
        with suppress(Exception):  # the next time, or at the end
            store.put(EVENTS)
            wait_s = max(EVENTS_EVERY_S, (store.path / EVENTS).stat().st_size / EVENT_BYTES_A_S)


def _run(
    plan: Plan,
    store: RunFolder,
    backend: Backend,
    on_progress: OnProgress | None,
    *,
    facts: TokenizerFacts,
    loading_s: float,
) -> RunResult:
    revoke_leases(store.path)
    done = DoneUnits(len(plan.units), whole_records(store, plan))
    pending = done.pending()
    backend.prepare(store, num_tasks=len(pending))
    progress = Progress(plan, done, store.path / EVENTS, on_progress)
    progress.why_not_native = facts.why_not_native or ""
    if isinstance(store, RemoteFolder):
        progress.check = store.check_lease
    with closing(progress), events_kept(store):
        progress.note(
            "start",
            units_pending=len(pending),
            backend=backend.budget.backend,
            block_bytes=backend.budget.blocks.block_bytes,
            engine=facts.engine,
            why_not_native=facts.why_not_native or "",
            loading_s=loading_s,
            machine=describe_machine(),
            cwd=os.getcwd(),
        )
        work = Work(plan, plan.config.run, backend, progress, done, store)
        with fetching_ahead(plan, plan.config.run, pending, progress):
            work.do_units(pending)
        if not work.failed:
            work.do_tails()
            manifest = finish(plan, store, done)
        last = progress.note("failed" if work.failed else "finished", failed=len(work.failed))
        return RunResult(
            folder=str(store),
            manifest=None if work.failed else manifest,
            last=last,
            failed=work.failed,
        )
