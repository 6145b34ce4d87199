"""A file of a dataset is fetched into the cache: one process at a time, from where an earlier one ended.

`huggingface_hub` downloads into a file of a new name each time and so begins anew after a kill; here the part
that is there is kept, and only a file with the right digest gets its final name.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from gristmill.errors import InputError
from gristmill.hub.cache import Place, cached_copy, digest_of, is_marked, link_snapshot, mark, place_of
from gristmill.hub.client import (
    MAX_TRIES,
    explained,
    load_client,
    one_line,
    open_stream,
    wait_before_retry,
)

OnBytes = Callable[[int], None]
"""Called with the bytes that have come, less those that were in vain."""


def fetch(
    url: str, num_bytes: int, digest: str, cache_dir: str | None, *, on_bytes: OnBytes | None = None
) -> str:
    """The path of a whole, checked copy of a file; fetched where there is none, by one process at a time."""
    place = place_of(url, num_bytes, digest, cache_dir)
    if is_marked(place):
        link_snapshot(place)
        return str(place.blob)
    load_client(place.repo)
    utils: Any = import_module("huggingface_hub.utils")
    # The lock that huggingface_hub takes for the same file.
    lock = place.folder.parent / ".locks" / place.folder.name / f"{digest}.lock"
    try:
        for folder in (lock.parent, place.blob.parent):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if (found := cached_copy(url, num_bytes, digest, cache_dir)) is not None:
            return found  # a cache that others fill
        raise _no_room(place, error) from error
    try:
        with utils.WeakFileLock(lock):
            found = cached_copy(url, num_bytes, digest, cache_dir)  # another may have fetched it meanwhile
            if found is None:
                _fetch_anew(place, on_bytes or (lambda _: None))
    except OSError as error:
        raise _no_room(place, error) from error
    return str(place.blob)


def _no_room(place: Place, error: OSError) -> InputError:
    return InputError(
        f"{place.folder}: cannot hold {place.path} ({one_line(error)}); mend that, choose another "
        "read.cache_dir (--cache-dir), or read without a copy (--streaming)"
    )


def _fetch_anew(place: Place, on_bytes: OnBytes) -> None:
    place.blob.unlink(missing_ok=True)  # one that is there is damaged
    part = place.blob.with_name(f"{place.digest}.gristmill.incomplete")
    for _ in range(2):
        _download(place, part, on_bytes)
        if digest_of(part, place.num_bytes, place.digest) == place.digest:
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(place.blob)
            mark(place)
            link_snapshot(place)
            return
        # What was kept of an earlier try may be at fault: once more, from the start.
        on_bytes(-part.stat().st_size)
        part.unlink()
    raise InputError(
        f"{place.repo}: {place.path} does not have the digest that the hub lists ({place.digest}); it is "
        "damaged there or on the way: run again later, or choose another --revision"
    )


def _download(place: Place, part: Path, on_bytes: OnBytes) -> None:
    """Bring the part to its full size, however often the connection is lost while something still comes."""
    attempt = 0
    with part.open("ab", buffering=0) as file:  # what has come survives a kill
        most = file.tell()
        on_bytes(most)
        while (before := file.tell()) < place.num_bytes:
            _check_room(place, place.num_bytes - before)
            try:
                _append(place, file, on_bytes)
                if file.tell() <= most:
                    raise InputError(
                        f"{place.repo}: the hub sends nothing more of {place.path}; run again later"
                    )
                most = file.tell()
            except Exception as error:
                # A hub that begins anew each time makes no headway while it gets no further than before.
                attempt = 0 if file.tell() > most else attempt + 1
                most = max(most, file.tell())
                wait_s = wait_before_retry(error, attempt, is_known_hub=True)
                if wait_s is None or attempt == MAX_TRIES:
                    on_bytes(-file.tell())
                    raise _failed(error, place) from error
                time.sleep(wait_s)


def _append(place: Place, file: BinaryIO, on_bytes: OnBytes) -> None:
    """Ask for what is missing, and keep what comes."""
    start = file.tell()
    with open_stream(place.repo, place.path, place.commit, start) as (status, pieces):
        if start and status == 200:  # all of it comes, whatever was asked for
            file.truncate(0)
            on_bytes(-start)
        for piece in pieces:
            file.write(piece)
            on_bytes(len(piece))
            if file.tell() > place.num_bytes:
                return  # its digest will be wrong, and it may be without end


def _check_room(place: Place, num_bytes: int) -> None:
    free = shutil.disk_usage(place.blob.parent).free
    if num_bytes > free:
        raise InputError(
            f"{place.folder}: has room for {free:,} bytes, and {place.path} needs {num_bytes:,}; make room, "
            "choose another read.cache_dir (--cache-dir), or read without a copy (--streaming)"
        )


def _failed(error: Exception, place: Place) -> Exception:
    if isinstance(error, OSError) and error.errno is not None and getattr(error, "response", None) is None:
        return error  # of the disk
    found = explained(error, place.repo, place.commit)
    if isinstance(found, FileNotFoundError):
        return InputError(f"{place.repo}: {place.path} is listed and not there; run again later")
    return found
