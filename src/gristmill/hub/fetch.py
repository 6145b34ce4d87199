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
from typing import Any

from gristmill.errors import InputError
from gristmill.hub.cache import Place, cached_copy, check_blob, digest_of, is_marked, link_snapshot, place_of
from gristmill.hub.client import (
    MAX_TRIES,
    REPO_TYPE,
    explained,
    is_offline,
    load_client,
    one_line,
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
        with utils.WeakFileLock(lock):
            found = cached_copy(url, num_bytes, digest, cache_dir)  # another may have fetched it meanwhile
            if found is None:
                _fetch_anew(place, on_bytes or (lambda _: None))
    except OSError as error:
        raise InputError(
            f"{place.folder}: cannot hold {place.path} ({one_line(error)}); mend that, choose another "
            "read.cache_dir (--cache-dir), or read without a copy (--streaming)"
        ) from error
    return str(place.blob)


def _fetch_anew(place: Place, on_bytes: OnBytes) -> None:
    place.blob.unlink(missing_ok=True)  # one that is there is damaged
    part = place.blob.with_name(f"{place.digest}.gristmill.incomplete")
    for _ in range(2):
        _download(place, part, on_bytes)
        if digest_of(part, place.num_bytes, place.digest) == place.digest:
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(place.blob)
            check_blob(place)
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
    while True:
        before = part.stat().st_size if part.exists() else 0
        if before > place.num_bytes:
            part.unlink()
            before = 0
        _check_room(place, place.num_bytes - before)
        try:
            _get(place, part, on_bytes)
            return
        except Exception as error:
            attempt = 0 if part.stat().st_size > before else attempt + 1
            wait_s = wait_before_retry(error, attempt, is_known_hub=True)
            if wait_s is None and isinstance(error, OSError) and getattr(error, "response", None) is None:
                wait_s = 0.0 if part.stat().st_size > before else None  # less came than was announced
            if wait_s is None or attempt == MAX_TRIES:
                raise _failed(error, place) from error
            time.sleep(wait_s)


def _get(place: Place, part: Path, on_bytes: OnBytes) -> None:
    client = load_client(place.repo)
    utils: Any = import_module("huggingface_hub.utils")
    downloads: Any = import_module("huggingface_hub.file_download")
    if is_offline():
        raise import_module("huggingface_hub.errors").OfflineModeIsEnabled("offline")
    url = client.hf_hub_url(place.repo, place.path, repo_type=REPO_TYPE, revision=place.commit)
    with part.open("ab") as file:
        bar = _Bar(on_bytes)
        on_bytes(file.tell())
        try:
            downloads.http_get(
                url,
                file,
                resume_size=file.tell(),
                headers=utils.build_hf_headers(),
                expected_size=place.num_bytes,
                _tqdm_bar=bar,
            )
        except BaseException:
            on_bytes(-file.tell())  # counted again when it is taken up
            raise


class _Bar:
    """Stands for the progress bar of `huggingface_hub`, which would draw over ours."""

    def __init__(self, on_bytes: OnBytes) -> None:
        self.update = on_bytes


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
