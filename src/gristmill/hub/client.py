"""Calls to the hub by `huggingface_hub`: its settings and token honoured, its errors in words with a remedy.

It is an extra; this folder and `load/hub.py` alone import it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from gristmill.errors import InputError, MissingPackageError

Answer = TypeVar("Answer")
REPO_TYPE = "dataset"
MAX_TRIES = 5
FIRST_WAIT_S = 1.0
MAX_WAIT_S = 300.0
"""A hub that asks for more patience than this gets none."""
BUSY = (408, 429, 500, 502, 503, 504)
UNREACHED = ("ConnectError", "ConnectTimeout", "UnsupportedProtocol")
TRANSPORTS = {"httpx", "httpcore"}
log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A file of a repository, as the hub lists it."""

    path: str
    num_bytes: int
    digest: str
    """SHA-256 of a large file, else git's SHA-1 of a blob: what the hub calls its ETag."""


def load_client(name: str) -> Any:
    """The package, or how to get it."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingPackageError(
            f"the dataset {name} needs huggingface_hub: pip install 'gristmill[hub]'"
        ) from error
    return huggingface_hub


def is_offline() -> bool:
    """Whether the user has forbidden the network."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def resolve_commit(repo: str, revision: str | None) -> str:
    """The commit that a branch or tag is now."""
    api = load_client(repo).HfApi()
    found = ask(lambda: api.dataset_info(repo, revision=revision), repo, revision)
    return str(found.sha)


def list_entries(repo: str, commit: str, folders: Iterable[str]) -> list[Entry]:
    """Every file under some folders of a repository."""
    api = load_client(repo).HfApi()

    def list_folder(folder: str) -> list[Any]:
        tree = api.list_repo_tree(repo, folder or None, recursive=True, revision=commit, repo_type=REPO_TYPE)
        return [entry for entry in tree if hasattr(entry, "blob_id")]

    found: dict[str, Entry] = {}
    for folder in dict.fromkeys(folders):
        try:
            entries = ask(lambda folder=folder: list_folder(folder), repo, commit)  # type: ignore[misc]
        except FileNotFoundError:
            continue
        for entry in entries:
            digest = entry.lfs.sha256 if entry.lfs else entry.blob_id
            found[entry.path] = Entry(str(entry.path), int(entry.size), str(digest))
    return list(found.values())


def read_card_text(repo: str, commit: str, cache_dir: str) -> str:
    """README.md of a repository; empty where it has none."""
    client = load_client(repo)
    try:
        path = ask(
            lambda: client.hf_hub_download(
                repo, "README.md", repo_type=REPO_TYPE, revision=commit, cache_dir=cache_dir
            ),
            repo,
            commit,
        )
    except FileNotFoundError:
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def ask(call: Callable[[], Answer], repo: str, revision: str | None) -> Answer:
    """What a call to the hub gives; a busy one is asked again, and `FileNotFoundError` is a missing file."""
    for attempt in range(MAX_TRIES):
        try:
            return call()
        except Exception as error:
            wait_s = wait_before_retry(error, attempt)
            if wait_s is None or attempt == MAX_TRIES - 1:
                raise explained(error, repo, revision) from error
            log.warning("%s: %s; asked again in %.0f s", repo, one_line(error), wait_s)
            time.sleep(wait_s)
    raise AssertionError


def wait_before_retry(error: Exception, attempt: int, *, is_known_hub: bool = False) -> float | None:
    """Seconds until it is worth trying again; None where it is not. A hub that was reached before may be gone
    for a moment; one that never was is not there."""
    wait_s = FIRST_WAIT_S * 2**attempt
    response = getattr(error, "response", None)
    if response is not None:
        said = response.headers.get("Retry-After", "")
        asked_s = float(said) if said.isdecimal() else wait_s
        return asked_s if response.status_code in BUSY and asked_s <= MAX_WAIT_S else None
    is_transport = type(error).__module__.split(".")[0] in TRANSPORTS
    is_refused = type(error).__name__ in UNREACHED
    return wait_s if is_transport and (is_known_hub or not is_refused) else None


def explained(error: Exception, repo: str, revision: str | None) -> Exception:
    """The error with what to do about it."""
    from huggingface_hub import errors

    if isinstance(error, InputError):
        return error
    if isinstance(error, errors.GatedRepoError):
        return InputError(
            f"{repo} is restricted: accept its terms at {_endpoint()}/datasets/{repo}, then log in "
            "(hf auth login) or set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return InputError(
            f"{repo} has no revision {revision!r}; give a branch, a tag or a commit (--revision)"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return InputError(
            f"{repo} is no dataset of {_endpoint()}, or a private one; check the name, or log in "
            "(hf auth login) or set HF_TOKEN"
        )
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return _unreachable(repo, error)
    if isinstance(error, errors.EntryNotFoundError):
        return FileNotFoundError(one_line(error))
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 429:
        return InputError(
            f"{repo}: the hub asks for fewer requests (429); wait, or log in (hf auth login), and run again"
        )
    if status is None and type(error).__module__.split(".")[0] in TRANSPORTS:
        return _unreachable(repo, error)
    return InputError(f"{repo}: the hub fails ({one_line(error)}); run the same command again to go on")


def _unreachable(repo: str, error: Exception) -> InputError:
    if is_offline():
        return InputError(
            f"{repo}: is not all in the cache, and HF_HUB_OFFLINE forbids to fetch it; unset that, or set "
            "read.cache_dir (--cache-dir) to where it is"
        )
    return InputError(
        f"{repo}: {_endpoint()} cannot be reached ({one_line(error)}); check the network, HF_ENDPOINT and "
        "proxies, and run the same command again to go on"
    )


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def one_line(error: BaseException) -> str:
    """An error in one line; never empty."""
    if isinstance(error, OSError) and error.strerror:
        return os.strerror(error.errno) if error.errno else error.strerror
    return " ".join(str(error).split())[:200] or type(error).__name__
