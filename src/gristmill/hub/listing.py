"""A dataset by name -> a commit and the files to read, always in the same order.

What was listed is kept in the cache: without a network, and for a commit that is known, it is enough.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from gristmill.config import ReadConfig
from gristmill.errors import GristmillError, InputError
from gristmill.files import write_whole
from gristmill.hub.cache import OWN_FOLDER, check_entry, repo_folder
from gristmill.hub.card import (
    FormatOf,
    Part,
    choose_by_names,
    choose_config,
    patterns_of,
    read_card,
)
from gristmill.hub.client import (
    COMMIT,
    MAX_FILE_BYTES,
    Entry,
    is_offline,
    is_unanswered,
    list_entries,
    load_client,
    read_card_text,
    resolve_commit,
)
from gristmill.hub.globs import fixed_folder, matcher
from gristmill.hub.names import DEFAULT_SPLIT, INSTEAD, Dataset, is_pinned, look_up, pinned_url

CONVERTED_REVISION = "refs/convert/parquet"
"""Where the hub keeps Parquet files of datasets that have none of their own."""
MAX_FOLDERS = 32
"""Listed one by one; for more, one list of everything takes fewer requests."""


class HubFile(msgspec.Struct, frozen=True):
    """A file of a dataset."""

    url: str
    num_bytes: int
    digest: str


class HubListing(msgspec.Struct, frozen=True):
    """The files of a part of a dataset, at a commit."""

    commit: str
    files: tuple[HubFile, ...]


def list_dataset(config: ReadConfig, format_of: FormatOf, *, commit: str = "") -> HubListing:
    """The files of the dataset that a job names; where the commit is settled, as they were then."""
    assert config.dataset is not None
    dataset = look_up(config.dataset)
    load_client(dataset.repo)
    revision = commit or config.revision
    is_settled = revision is not None and COMMIT.fullmatch(revision) is not None
    memory = _memory(dataset, config, revision)
    if (is_settled or is_offline()) and (known := _recall(memory)) is not None:
        return known
    try:
        listing = _ask_hub(dataset, config, format_of, revision, is_settled=is_settled)
    except InputError as error:
        if is_unanswered(error.__cause__) and (known := _recall(memory)) is not None:
            return known  # as huggingface_hub does: what was fetched serves without a network
        raise
    for path in {memory, _memory(dataset, config, listing.commit)}:
        with suppress(OSError, GristmillError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, msgspec.json.encode(listing))
    return listing


def _memory(dataset: Dataset, config: ReadConfig, revision: str | None) -> Path:
    """The file that keeps what was listed for the same wish."""
    wish = [dataset.repo, config.dataset_config or dataset.config, config.split, revision, config.format]
    name = hashlib.sha256(msgspec.json.encode([*wish, dataset.files])).hexdigest()[:32]
    return repo_folder(dataset.repo, config.cache_dir) / OWN_FOLDER / f"{name}.listing.json"


def _recall(path: Path) -> HubListing | None:
    try:
        known = msgspec.json.decode(path.read_bytes(), type=HubListing)
    except (OSError, msgspec.MsgspecError):
        return None
    is_whole = all(is_pinned(file.url) and 0 <= file.num_bytes <= MAX_FILE_BYTES for file in known.files)
    return known if known.files and is_whole else None


def _ask_hub(
    dataset: Dataset, config: ReadConfig, format_of: FormatOf, revision: str | None, *, is_settled: bool
) -> HubListing:
    repo = dataset.repo
    commit = revision if is_settled and revision else resolve_commit(repo, revision)
    if not is_settled and (known := _recall(_memory(dataset, config, commit))) is not None:
        return known
    wanted = Part(repo, config.dataset_config or dataset.config, config.split)
    found, seen = _find(dataset, wanted, commit, config, format_of)
    if not found and revision is None and repo not in INSTEAD and (other := _converted_commit(repo)):
        commit = other
        found = _by_names(list_entries(repo, commit, [""]), wanted, "", format_of)
    if not found:
        raise _no_files(dataset, wanted, seen)
    for entry in found:
        check_entry(repo, entry.path, entry.digest)
    files = (HubFile(pinned_url(repo, commit, e.path), e.num_bytes, e.digest) for e in found)
    return HubListing(commit, tuple(files))


def _converted_commit(repo: str) -> str | None:
    """The commit of what the hub has converted, if it has."""
    with suppress(InputError):
        return resolve_commit(repo, CONVERTED_REVISION)
    return None


def _find(
    dataset: Dataset, wanted: Part, commit: str, config: ReadConfig, format_of: FormatOf
) -> tuple[list[Entry], list[str]]:
    """The files of the part, and every path that was seen on the way to them."""
    patterns, folder = _patterns(dataset, wanted, commit)
    folders = list(dict.fromkeys(map(fixed_folder, patterns))) if patterns else [folder]
    entries = list_entries(dataset.repo, commit, folders if len(folders) <= MAX_FOLDERS else [""])
    seen = [entry.path for entry in entries]
    if not patterns:
        return _by_names(entries, wanted, folder, format_of), seen
    is_meant = matcher(patterns)
    chosen = [entry for entry in entries if is_meant(entry.path)]
    known = [entry for entry in chosen if config.format != "auto" or format_of(entry.path) is not None]
    return sorted(known), seen


def _patterns(dataset: Dataset, wanted: Part, commit: str) -> tuple[tuple[str, ...], str]:
    """Patterns of the files, or none and their folder."""
    if dataset.files:
        if wanted.split != DEFAULT_SPLIT and not any("{split}" in pattern for pattern in dataset.files):
            raise InputError(f"{dataset.repo} has no split {wanted.split!r}; it has {DEFAULT_SPLIT}")
        fill = {"config": wanted.config, "split": wanted.split}
        return tuple(pattern.format(**fill) for pattern in dataset.files), ""
    text = read_card_text(dataset.repo, commit)
    configs = read_card(text, dataset.repo)
    if not configs:
        return (), ""
    chosen = choose_config(configs, wanted)
    return patterns_of(chosen, wanted), chosen.folder


def _by_names(entries: Iterable[Entry], wanted: Part, folder: str, format_of: FormatOf) -> list[Entry]:
    by_path = {entry.path: entry for entry in entries}
    return [by_path[path] for path in choose_by_names(by_path, wanted, folder, format_of)]


def _no_files(dataset: Dataset, wanted: Part, seen: list[str]) -> InputError:
    scripts = [path for path in seen if path.endswith(".py") and "/" not in path]
    instead = INSTEAD.get(dataset.repo)
    if scripts:
        remedy = "look for a copy of it in Parquet"
        if instead is not None:
            remedy = f"use --dataset {instead}, which is {look_up(instead).repo}"
        return InputError(
            f"{dataset.repo} has no files of text but a script ({scripts[0]}), which is not run; {remedy}"
        )
    shown = ", ".join(sorted(seen)[:5]) or "nothing"
    return InputError(
        f"{dataset.repo} has no files that are read for config {wanted.config or 'default'}, split "
        f"{wanted.split} (seen: {shown}); choose with --dataset-config, --split and --revision, or name "
        "files as hf:// URLs"
    )
