"""Is what a finished run holds what it says it holds? Every check by itself, none of it taken on trust."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from gristmill.errors import RunError
from gristmill.finished import is_conversion, open_run
from gristmill.run.folder import MANIFEST, PLAN, require_manifest
from gristmill.store import open_finished
from gristmill.verify.borders import check_borders
from gristmill.verify.conversion import check_conversion
from gristmill.verify.counts import check_ledgers
from gristmill.verify.findings import Findings
from gristmill.verify.hashes import check_files
from gristmill.verify.records import check_records
from gristmill.verify.sample import check_sample
from gristmill.verify.shards import Sound, check_shards

DEFAULT_SAMPLE = 100
"""Documents that are encoded again."""

OnStep = Callable[[str], None]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found."""

    name: str
    what: str
    """What was looked at, in words."""
    faults: tuple[str, ...]
    not_checked: tuple[str, ...]
    """What could not be looked at, and why."""
    is_looked_at: bool
    """At least in part."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What all checks found."""

    folder: str
    is_sound: bool
    """Nothing is wrong with what was looked at."""
    is_complete: bool
    """All was looked at that was to be."""
    checks: tuple[Check, ...]


def verify(
    where: str | os.PathLike[str],
    *,
    sample: int | None = None,
    seed: int = 0,
    on_step: OnStep = lambda _step: None,
) -> Verification:
    """Check a finished run; `sample` is how many documents are read and encoded again."""
    store = open_finished(where)
    folder = store.path
    if not store.is_remote and is_conversion(folder):
        return _verify_conversion(folder, on_step)
    try:
        run = open_run(store)
    except RunError as error:
        if not (folder / PLAN).is_file() or not (folder / MANIFEST).is_file():
            raise
        return _conclude(str(store), [_check("records", Findings("records of the run", [str(error)]))])
    sound = Sound()
    num_sampled = DEFAULT_SAMPLE if sample is None else sample
    steps: dict[str, Callable[[], Findings]] = {
        "records": lambda: check_records(run),
        "files": lambda: check_files(run, on_step),
        "shards": lambda: check_shards(run, sound, on_step),
        "ledger": lambda: check_ledgers(run),
        "borders": lambda: check_borders(run, sound, on_step),
    }
    if num_sampled:
        steps["sample"] = lambda: check_sample(run, sound, num_documents=num_sampled, seed=seed)
    checks = []
    for name, look in steps.items():
        on_step(name)
        checks.append(_check(name, _caught(look)))
    on_step("")
    return _conclude(str(store), checks)


def _verify_conversion(folder: Path, on_step: OnStep) -> Verification:
    try:
        found = check_conversion(folder, require_manifest(folder), on_step)
    except RunError as error:
        found = Findings("manifest of a conversion", [str(error)])
    on_step("")
    return _conclude(str(folder), [_check("files", found)])


def _caught(look: Callable[[], Findings]) -> Findings:
    """A check that meets damage where it did not look for it has found it."""
    try:
        return look()
    except RunError as error:
        return Findings("stopped at damage", [str(error)])


def _check(name: str, found: Findings) -> Check:
    return Check(
        name=name,
        what=found.what,
        faults=tuple(found.faults),
        not_checked=tuple(found.not_checked),
        is_looked_at=found.is_looked_at,
    )


def _conclude(folder: str, checks: list[Check]) -> Verification:
    return Verification(
        folder=folder,
        is_sound=not any(check.faults for check in checks),
        is_complete=not any(check.not_checked for check in checks),
        checks=tuple(checks),
    )
