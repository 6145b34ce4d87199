"""Which files a job reads: names, folders, patterns and URLs -> files, always in the same order."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.config import ReadConfig
from gristmill.errors import ConfigError, GristmillError, InputError
from gristmill.files import open_without_waiting
from gristmill.read.inputs import InputFile
from gristmill.read.storage import (
    WEB_PROTOCOLS,
    describe_entry,
    describe_error,
    describe_file,
    is_remote,
    local_path,
    open_store,
)
from gristmill.retry import retried

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".xz": "xz"}
COLUMN_FORMATS = ("parquet", "arrow")
"""Compressed inside, never as a whole."""
CARDS = ("readme.md",)
"""What tells of the data beside it, in a folder that holds other formats than text."""
MAX_NAMES_SHOWN = 5
MANIFEST_HEAD_BYTES = 256
OWN_MANIFEST = re.compile(rb'\{\s*"version"\s*:\s*\d+\s*,\s*"gristmill"\s*:')


class Listing(msgspec.Struct, frozen=True):
    """The files to read, and what was passed over on the way to them."""

    files: list[InputFile]
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    """Files of folders and patterns whose name tells no format that is read, by suffix."""
    run_folders: list[str] = msgspec.field(default_factory=list)
    """Folders of earlier runs, which are no input of this one."""
    repeated: list[str] = msgspec.field(default_factory=list)
    """Files that were named more than once."""
    folders: list[str] = msgspec.field(default_factory=list)
    """That patterns match, and do not look into."""
    commit: str = ""
    """Of the dataset, where the job names one."""


class Found(NamedTuple):
    """A file that an input names, or stands for."""

    path: str
    num_bytes: int
    version: str


def list_inputs(config: ReadConfig) -> list[InputFile]:
    """Every file to read: inputs as given, the files of each by name; a file named again is taken once."""
    return find_inputs(config).files


def find_inputs(config: ReadConfig, *, commit: str = "") -> Listing:
    """Every file to read, as `list_inputs` gives them, and what was passed over; those of a dataset at the
    commit, where it is settled."""
    if config.dataset is not None:
        return _find_dataset(config, commit)
    if not config.inputs:
        raise ConfigError("read.inputs is empty; name files, folders, patterns or URLs")
    files: dict[str, InputFile] = {}
    listing = Listing([])
    for given in config.inputs:
        path = local_path(given)
        find = _find_remote if is_remote(path) else _find_local
        for found in find(path, config, listing):
            key = found.path if is_remote(found.path) else os.path.realpath(found.path)
            if key in files:
                listing.repeated.append(found.path)
                continue
            format, compression = _choose_format(found.path, config)
            files[key] = InputFile(
                # The run is looked at from other folders later.
                path=found.path if is_remote(found.path) else os.path.abspath(found.path),
                num_bytes=found.num_bytes,
                version=found.version,
                format=format,
                compression=compression,
            )
    return msgspec.structs.replace(listing, files=list(files.values()))


def _find_dataset(config: ReadConfig, commit: str) -> Listing:
    from gristmill.hub.listing import list_dataset

    def format_of(path: str) -> str | None:
        by_name = split_suffixes(path)[0]
        return by_name if config.format in ("auto", by_name) else "text" if config.format == "text" else None

    found = list_dataset(config, format_of, commit=commit)
    files = []
    for file in found.files:
        format, compression = _choose_format(file.url, config)
        files.append(
            InputFile(
                path=file.url,
                num_bytes=file.num_bytes,
                version=file.digest,
                format=format,
                compression=compression,
            )
        )
    return Listing(files, commit=found.commit)


def split_suffixes(path: str) -> tuple[str | None, str]:
    """Format and compression that the end of a name tells; None where it tells no format."""
    name = path.split("?")[0].split("#")[0] if path.startswith(WEB_PROTOCOLS) else path
    stem, suffix = os.path.splitext(name.lower())
    compression = COMPRESSIONS.get(suffix, "none")
    format = FORMATS.get(os.path.splitext(stem)[1] if compression != "none" else suffix)
    return (None if format in COLUMN_FORMATS and compression != "none" else format), compression


def _choose_format(path: str, config: ReadConfig) -> tuple[str, str]:
    by_name, compression = split_suffixes(path)
    format = by_name if config.format == "auto" else config.format
    if format is None:
        raise ConfigError(
            f"{path}: its name tells no format (known: {' '.join(FORMATS)}, and of text "
            f"{' '.join(COMPRESSIONS)} after that); set read.format"
        )
    if format in COLUMN_FORMATS:
        return format, "none"
    return format, compression if config.compression == "auto" else config.compression


def _is_known(path: str, config: ReadConfig, listing: Listing) -> bool:
    """Whether a file of a folder is to be read; one that is not is counted."""
    format = split_suffixes(path)[0]
    # Any file can be read as text, whatever its name.
    is_known = config.format == "text" or (format is not None and config.format in ("auto", format))
    if not is_known:
        listing.skipped[os.path.splitext(path)[1]] += 1
    return is_known


def _without_cards(paths: list[str], config: ReadConfig, listing: Listing) -> list[str]:
    """The files of a folder without those that tell of the others."""
    if config.format != "auto" or all(split_suffixes(path)[0] == "text" for path in paths):
        return paths
    cards = {path for path in paths if os.path.basename(path).lower() in CARDS}
    listing.skipped.update(os.path.splitext(path)[1] for path in cards)
    return [path for path in paths if path not in cards]


def _is_match(path: str, config: ReadConfig, listing: Listing) -> bool:
    """Whether a file that a pattern matches is to be read: all are, where the format is set."""
    return config.format != "auto" or _is_known(path, config, listing)


def is_run_folder(path: str) -> bool:
    """Whether a folder holds a run, or what one was converted to: what is in it came out of gristmill."""
    is_run = os.path.isfile(os.path.join(path, "plan.json")) and os.path.isdir(os.path.join(path, "units"))
    return is_run or has_own_manifest(path)


def has_own_manifest(path: str) -> bool:
    """Whether a folder holds the manifest of a run or of a conversion, of any version."""
    try:
        with open_without_waiting(Path(path, "manifest.json")) as file:
            return OWN_MANIFEST.match(file.read(MANIFEST_HEAD_BYTES) or b"") is not None
    except OSError:  # there is none
        return False


def _is_hidden(relative: str) -> bool:
    return any(name.startswith((".", "_")) for name in relative.split("/"))


def _find_local(path: str, config: ReadConfig, listing: Listing) -> list[Found]:
    try:
        if is_run_folder(path):
            raise InputError(f"{path}: is a run folder; name the folder of the texts")
        if os.path.isdir(path):
            known = [name for name in _walk(path, listing) if _is_known(name, config, listing)]
            names = _require(_without_cards(known, config, listing), path, os.listdir(path))
        elif os.path.lexists(path) or not glob.has_magic(path):
            names = [path]
        else:
            every = sorted(glob.glob(path, recursive=True))
            if "**" not in path:
                listing.folders.extend(name for name in every if _is_folder_of_texts(name))
            matches = list(filter(_is_looked_at, every))
            own = [name for name in matches if not _is_output(name, path, listing)]
            known = [name for name in own if _is_match(name, config, listing)]
            names = _require(known, path, matches or every or _list_near(path))
        return [_describe_local(name) for name in names]
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError)
        near = f"; there is {_show_names(_list_near(path), like=path)}" if is_absent else ""
        raise InputError(f"{error.filename or path}: {describe_error(error)}{near}") from error


def _describe_local(name: str) -> Found:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{os.fsencode(name)!r}: the name is not UTF-8; rename the file") from error
    if os.path.islink(name) and not os.path.exists(name):
        raise InputError(f"{name}: is a link to nothing; mend it, or remove it")
    return Found(name, *describe_file(name))


def _is_output(name: str, pattern: str, listing: Listing) -> bool:
    """Whether a file lies in a run folder that the pattern does not name itself."""
    fixed = os.path.dirname(re.split(r"[*?[]", pattern, maxsplit=1)[0])
    folder = os.path.dirname(name)
    while len(folder) > len(fixed):
        if folder in listing.run_folders:
            return True
        if is_run_folder(folder):
            listing.run_folders.append(folder)
            return True
        folder = os.path.dirname(folder)
    return False


def _walk(folder: str, listing: Listing) -> Iterator[str]:
    """Files under a folder by name; links to folders are followed, each folder once; runs are left out."""
    seen = set()
    found = []
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        if (real := os.path.realpath(root)) in seen:
            folders.clear()
            continue
        seen.add(real)
        shown = sorted(name for name in folders if not _is_hidden(name))
        runs = [name for name in shown if is_run_folder(os.path.join(root, name))]
        listing.run_folders.extend(os.path.join(root, name) for name in runs)
        folders[:] = [name for name in shown if name not in runs]
        found += [os.path.join(root, name) for name in names if not _is_hidden(name)]
    return iter(sorted(filter(_is_looked_at, found)))


def _is_folder_of_texts(name: str) -> bool:
    return os.path.isdir(name) and not is_run_folder(name)


def _is_looked_at(name: str) -> bool:
    """A link to nothing is, like a file, and is then refused: it stands for text that is missing."""
    return os.path.isfile(name) or not os.path.exists(name)


def _raise(error: OSError) -> None:
    raise error


def _list_near(path: str) -> list[str]:
    """What the nearest folder of a path that exists holds."""
    folder = os.path.dirname(path)
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder or "."))]
    except OSError:
        return []


def _find_remote(url: str, config: ReadConfig, listing: Listing) -> list[Found]:
    store, path = open_store(url)
    ask = partial(retried, is_known=False)
    is_web = url.startswith(WEB_PROTOCOLS)
    try:
        # A question mark in a web address begins its query.
        if "*" in path if is_web else glob.has_magic(path):
            entries = _list_entries(store, ask(lambda: store.glob(path, detail=True)).values())
            known = [found for found in entries if _is_match(found.path, config, listing)]
            return _require(known, url, [found.path for found in entries])
        info = ask(lambda: store.info(path))
        if info["type"] != "directory":
            return [Found(url, *describe_entry(store, info))]
        entries = _list_entries(store, retried(lambda: store.find(path, detail=True)).values())
        under = _url_of(store, path).rstrip("/") + "/"
        shown = [found for found in entries if not _is_hidden(found.path.removeprefix(under))]
        by_name = {found.path: found for found in shown if _is_known(found.path, config, listing)}
        kept = _without_cards(list(by_name), config, listing)
        return _require([by_name[name] for name in kept], url, entries)
    except GristmillError:
        raise
    except Exception as error:  # a store's package raises what it likes
        raise InputError(f"{url}: {describe_error(error)}") from error


def _list_entries(store: Any, entries: Iterable[dict[str, Any]]) -> list[Found]:
    files = [entry for entry in entries if entry["type"] != "directory"]
    return sorted(Found(_url_of(store, entry["name"]), *describe_entry(store, entry)) for entry in files)


def _url_of(store: Any, path: str) -> str:
    return str(store.unstrip_protocol(path))


def _require(found: list[Any], given: str, instead: Iterable[Any]) -> list[Any]:
    if found:
        return found
    names = [entry.path if isinstance(entry, Found) else entry for entry in instead]
    raise InputError(
        f"{given}: matches no file to read (there is {_show_names(names)}; read are {' '.join(FORMATS)}, "
        f"compressed or not, or what a pattern matches where read.format is set)"
    )


def _show_names(names: list[str], *, like: str = "") -> str:
    """A few, those first that are nearly what was asked for."""
    by_name = {os.path.basename(path): path for path in names} if like else {}
    nearest = [by_name[name] for name in difflib.get_close_matches(os.path.basename(like), by_name)]
    ordered = [*nearest, *sorted(set(names) - set(nearest))]
    shown = ", ".join(ordered[:MAX_NAMES_SHOWN]) or "nothing"
    more = len(names) - MAX_NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
