"""A run folder that holds a plan: the same job goes on, another is refused with what differs."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from gristmill.config import ReadConfig
from gristmill.errors import ResumeError
from gristmill.files import write_whole
from gristmill.plan import CountPlan, Plan
from gristmill.run.folder import (
    CONFIG,
    COUNTED,
    MANIFEST,
    PLAN,
    check_unused,
    each_record,
    read_any_plan,
    start_over,
    write_json,
)
from gristmill.run.settle import explain_changes
from gristmill.store import RunFolder
from gristmill.yaml_text import render_yaml

WISH = ("dataset", "dataset_config", "split", "revision")
"""What of a dataset is asked for."""
WRITTEN_AGAIN = " (a version is when a file was written, or what its store says: a copy counts as changed)"
AnyPlan = TypeVar("AnyPlan", Plan, CountPlan)


def plan_or_resume(store: RunFolder, plan: AnyPlan, *, force: bool) -> AnyPlan:
    """The plan that is in the folder where it is the same job's, else this one, which is then there."""
    folder = store.path
    if force and (folder / PLAN).exists():
        start_over(store)
    before = read_any_plan(folder)
    if before is None:
        check_unused(store)
        _write(store, plan)
        return plan
    if type(before) is not type(plan):
        raise ResumeError(f"{store}: holds a run of another kind; use another folder")
    changes = explain_changes(before.identity, plan.identity)
    if changes and holds_nothing(folder, before):
        start_over(store)
        _write(store, plan)
        return plan
    if changes:
        raise ResumeError(
            f"{store}: holds a run of another job: {changes}; use --force to start over, or another folder"
            f"{WRITTEN_AGAIN if ', version ' in changes else ''}"
        )
    # What changes no output may change; what decided which documents are too large may not.
    resumed = msgspec.structs.replace(plan, max_document_bytes=before.max_document_bytes)
    if resumed != before or not (folder / CONFIG).exists():
        _write(store, resumed)
    return resumed


def settled_commit(folder: Path, read: ReadConfig, *, force: bool) -> str:
    """The commit of the dataset that the run in the folder reads, where it is the same wish; else none."""
    before = None if force or read.dataset is None else read_any_plan(folder)
    if before is None or any(getattr(before.config.read, key) != getattr(read, key) for key in WISH):
        return ""
    return before.commit


def holds_nothing(folder: Path, plan: Plan | CountPlan) -> bool:
    """Whether a run has got nowhere yet, so that nothing is lost when another takes its place."""
    if (folder / MANIFEST).exists() or (folder / COUNTED).exists():
        return False
    return not any(record.ledger.documents_encoded for record in each_record(folder, plan))


def _write(store: RunFolder, plan: Plan | CountPlan) -> None:
    """The plan first: a folder that holds one is known as ours, whatever else a kill keeps out of it."""
    write_json(store.path / PLAN, plan)
    write_whole(store.path / CONFIG, render_yaml(msgspec.to_builtins(plan.config)).encode())
    store.put(PLAN, CONFIG)
