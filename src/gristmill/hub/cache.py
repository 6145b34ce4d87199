"""What of a dataset is on this machine, in the cache of `huggingface_hub`, and what was checked of it.

Beside the hub's own blobs and snapshots, the folder `gristmill` of a repository keeps a mark for each blob
whose digest was compared, and what was listed, so that a dataset that was fetched needs no network.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from gristmill.errors import InputError
from gristmill.files import write_whole
from gristmill.hub.names import PINNED

DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
OWN_FOLDER = "gristmill"
HASH_BYTES = 1 << 20


class Place(NamedTuple):
    """A file of a dataset, and where its copy is or would be."""

    repo: str
    commit: str
    path: str
    folder: Path
    """Of the repository in the cache."""
    num_bytes: int
    digest: str

    @property
    def blob(self) -> Path:
        return self.folder / "blobs" / self.digest

    @property
    def snapshot(self) -> Path:
        return self.folder / "snapshots" / self.commit / self.path

    @property
    def mark(self) -> Path:
        return self.folder / OWN_FOLDER / f"{self.digest}.checked"


class Mark(msgspec.Struct, frozen=True):
    """A blob as it was when its digest was found right."""

    num_bytes: int
    mtime_ns: int


def place_of(url: str, num_bytes: int, digest: str, cache_dir: str | None) -> Place:
    """Where a file is kept."""
    found = PINNED.fullmatch(url)
    assert found is not None
    repo, commit, path = found.groups()
    check_entry(repo, path, digest)
    return Place(repo, commit, path, repo_folder(repo, cache_dir), num_bytes, digest)


def check_entry(repo: str, path: str, digest: str) -> None:
    """Refuse names that would lead out of the cache: a hub is not trusted with that."""
    parts = path.split("/")
    is_odd = any(part in ("", ".", "..") for part in parts) or re.search(r"[\\\0]", path)
    if is_odd or not DIGEST.fullmatch(digest):
        raise InputError(f"{repo}: the hub lists {path[:200]!r} ({digest[:64]!r}), which names no file")


def cache_root(cache_dir: str | None) -> Path:
    """The cache that is used: the one asked for, or that of `huggingface_hub`."""
    if cache_dir is None:
        from huggingface_hub import constants

        cache_dir = str(constants.HF_HUB_CACHE)
    return Path(os.path.abspath(os.path.expanduser(cache_dir)))


def repo_folder(repo: str, cache_dir: str | None) -> Path:
    """The folder of a repository in the cache, as `huggingface_hub` names it."""
    return cache_root(cache_dir) / f"datasets--{repo.replace('/', '--')}"


def cached_copy(url: str, num_bytes: int, digest: str, cache_dir: str | None) -> str | None:
    """The path of a copy that is whole and was checked, now or before; None where there is none."""
    place = place_of(url, num_bytes, digest, cache_dir)
    if is_marked(place) or (place.blob.exists() and check_blob(place)):
        link_snapshot(place)
        return str(place.blob)
    return None


def to_fetch(files: list[tuple[str, int, str]], cache_dir: str | None) -> int:
    """Bytes of those files of which there is no copy; what is there is taken at its size."""
    missing = 0
    for url, num_bytes, digest in files:
        blob = place_of(url, num_bytes, digest, cache_dir).blob
        with suppress(OSError):
            if blob.stat().st_size == num_bytes:
                continue
        missing += num_bytes
    return missing


def is_marked(place: Place) -> bool:
    """Whether the blob is there, and is the one whose digest was compared."""
    try:
        status = place.blob.stat()
        mark = msgspec.json.decode(place.mark.read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return False
    return Mark(status.st_size, status.st_mtime_ns) == mark and mark.num_bytes == place.num_bytes


def check_blob(place: Place) -> bool:
    """Compare the digest of a blob with what the hub listed, and remember that it is right."""
    status = place.blob.stat()
    if status.st_size != place.num_bytes:
        return False
    if not _has_digest(str(place.blob), status.st_size, status.st_mtime_ns, place.digest):
        return False
    mark(place)
    return True


def mark(place: Place) -> None:
    """Remember that the digest of a blob is right."""
    with suppress(OSError, InputError):  # a cache that cannot be written is checked in each process
        status = place.blob.stat()
        place.mark.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place.mark, msgspec.json.encode(Mark(status.st_size, status.st_mtime_ns)))


@lru_cache(maxsize=4096)
def _has_digest(path: str, num_bytes: int, _mtime_ns: int, digest: str) -> bool:
    return digest_of(Path(path), num_bytes, digest) == digest


def digest_of(path: Path, num_bytes: int, like: str) -> str:
    """The digest of a file, of the kind that another one is."""
    # git hashes a blob with its size before it; neither digest guards against anything but faults here.
    found = hashlib.sha256() if len(like) == 64 else hashlib.sha1(b"blob %d\0" % num_bytes)
    with path.open("rb") as file:
        while block := file.read(HASH_BYTES):
            found.update(block)
    return found.hexdigest()


def link_snapshot(place: Place) -> None:
    """Let other programs find the blob under its name, as `huggingface_hub` does."""
    if place.snapshot.exists():
        return
    with suppress(OSError):  # without links, or without the right to write, the blob alone serves
        place.snapshot.parent.mkdir(parents=True, exist_ok=True)
        depth = len(place.path.split("/")) + 1
        place.snapshot.unlink(missing_ok=True)
        place.snapshot.symlink_to("/".join([".."] * depth + ["blobs", place.digest]))
