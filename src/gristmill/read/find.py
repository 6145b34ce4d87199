"""Which files a job reads: names, folders, patterns and URLs -> files, always in the same order."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gristmill.config import ReadConfig
from gristmill.errors import ConfigError, GristmillError, InputError
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
MAX_NAMES_SHOWN = 5


class Found(NamedTuple):
    """A file that an input names, or stands for."""

    path: str
    num_bytes: int
    version: str


def list_inputs(config: ReadConfig, *, without: str | None = None) -> list[InputFile]:
    """Every file to read: inputs as given, the files of each by name; a file named again is taken once, and
    one in the folder `without` never: what a run writes is not its input."""
    if not config.inputs:
        raise ConfigError("read.inputs is empty; name files, folders, patterns or URLs")
    own = None if without is None else os.path.join(os.path.realpath(without), "")
    files: dict[str, InputFile] = {}
    for given in config.inputs:
        path = local_path(given)
        find = _find_remote if is_remote(path) else _find_local
        for found in find(path, config):
            key = found.path if is_remote(found.path) else os.path.realpath(found.path)
            if own is not None and key.startswith(own):
                continue
            format, compression = _choose_format(found.path, config)
            files.setdefault(
                key,
                InputFile(
                    path=found.path,
                    num_bytes=found.num_bytes,
                    version=found.version,
                    format=format,
                    compression=compression,
                ),
            )
    if not files:
        raise InputError(f"{', '.join(config.inputs)}: holds nothing but the run folder {without}")
    return list(files.values())


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


def _is_known(path: str, config: ReadConfig) -> bool:
    format = split_suffixes(path)[0]
    return format is not None and config.format in ("auto", format)


def _is_hidden(relative: str) -> bool:
    return any(name.startswith((".", "_")) for name in relative.split("/"))


def _find_local(path: str, config: ReadConfig) -> list[Found]:
    try:
        if os.path.isdir(path):
            names = _require(
                [name for name in _walk(path) if _is_known(name, config)], path, os.listdir(path)
            )
        elif os.path.lexists(path) or not glob.has_magic(path):
            names = [path]
        else:
            matches = sorted(name for name in glob.glob(path, recursive=True) if os.path.isfile(name))
            known = [name for name in matches if config.format != "auto" or _is_known(name, config)]
            names = _require(known, path, matches or _list_near(path))
        return [_describe_local(name) for name in names]
    except OSError as error:
        near = f"; there is {_show_names(_list_near(path))}" if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{error.filename or path}: {describe_error(error)}{near}") from error


def _describe_local(name: str) -> Found:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{os.fsencode(name)!r}: the name is not UTF-8; rename the file") from error
    if os.path.islink(name) and not os.path.exists(name):
        raise InputError(f"{name}: is a link to nothing; mend it, or remove it")
    return Found(name, *describe_file(name))


def _walk(folder: str) -> Iterator[str]:
    """Files under a folder by name; links to folders are followed, each folder once."""
    seen = set()
    found = []
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        if (real := os.path.realpath(root)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        found += [os.path.join(root, name) for name in names if not _is_hidden(name)]
    # A link to nothing is looked at like a file, and then refused: it stands for text that is missing.
    return iter(sorted(name for name in found if os.path.isfile(name) or not os.path.exists(name)))


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


def _find_remote(url: str, config: ReadConfig) -> list[Found]:
    store, path = open_store(url)
    is_web = url.startswith(WEB_PROTOCOLS)
    try:
        # A question mark in a web address begins its query.
        if "*" in path if is_web else glob.has_magic(path):
            entries = _list_entries(store, store.glob(path, detail=True).values())
            known = [found for found in entries if config.format != "auto" or _is_known(found.path, config)]
            return _require(known, url, [found.path for found in entries])
        info = store.info(path)
        if info["type"] != "directory":
            return [Found(url, *describe_entry(store, info))]
        entries = _list_entries(store, store.find(path, detail=True).values())
        under = _url_of(store, path).rstrip("/") + "/"
        shown = [found for found in entries if not _is_hidden(found.path.removeprefix(under))]
        return _require([found for found in shown if _is_known(found.path, config)], url, entries)
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


def _show_names(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:MAX_NAMES_SHOWN]) or "nothing"
    more = len(names) - MAX_NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
