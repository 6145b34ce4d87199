"""Calls to the hub by `huggingface_hub`: its settings and token honoured, its errors in words with a remedy.

It is an extra; this folder and `load/hub.py` alone import it.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from gristmill.errors import InputError, MissingPackageError
from gristmill.retry import is_unreached

Answer = TypeVar("Answer")
REPO_TYPE = "dataset"
MAX_TRIES = 5
FIRST_WAIT_S = 1.0
MAX_WAIT_S = 300.0
"""A hub that asks for more patience than this gets none."""
BUSY = (408, 429, 500, 502, 503, 504)
HOPELESS = ("UnsupportedProtocol", "InvalidURL", "TooManyRedirects")
"""What the hub sends the client to is no address; asked again, it would be none again."""
TRANSPORTS = {"httpx", "httpcore"}
TIMEOUT_S = 30.0
"""Without a byte, until the connection is given up."""
COMMIT = re.compile(r"[0-9a-f]{40}")
MAX_CARD_BYTES = 1 << 23
MAX_ENTRIES = 1 << 21
MAX_FILE_BYTES = 1 << 44
"""Units are cut before anything is fetched: a size that no file has would make too many."""
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
        import huggingface_hub.errors  # the package does not import it itself, and it is asked for
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
    found = ask(lambda: api.dataset_info(repo, revision=revision), repo, revision).sha
    if not isinstance(found, str) or COMMIT.fullmatch(found) is None:
        raise InputError(f"{repo}: the hub names {str(found)[:100]!r} as its commit; check HF_ENDPOINT")
    return found


def list_entries(repo: str, commit: str, folders: Iterable[str]) -> list[Entry]:
    """Every file under some folders of a repository."""
    api = load_client(repo).HfApi()

    def list_folder(folder: str) -> dict[str, Any]:
        tree = api.list_repo_tree(repo, folder or None, recursive=True, revision=commit, repo_type=REPO_TYPE)
        listed: dict[str, Any] = {}
        for entry in tree:
            if entry.path in listed or len(listed) >= MAX_ENTRIES:
                raise InputError(f"{repo}: the hub lists its files without end, {entry.path!r:.200} twice")
            listed[entry.path] = entry
        return listed

    found: dict[str, Entry] = {}
    for folder in dict.fromkeys(folders):
        try:
            entries = ask(lambda folder=folder: list_folder(folder), repo, commit)  # type: ignore[misc]
        except FileNotFoundError:
            continue
        found |= {path: _entry(repo, entry) for path, entry in entries.items() if hasattr(entry, "blob_id")}
    return list(found.values())


def _entry(repo: str, listed: Any) -> Entry:
    """A file as it was listed; the hub is not trusted with numbers that everything after it counts with."""
    if type(listed.size) is not int or not 0 <= listed.size <= MAX_FILE_BYTES:
        raise InputError(
            f"{repo}: the hub lists {str(listed.path)[:200]!r} with a size of {str(listed.size)[:40]} bytes; "
            "check HF_ENDPOINT, or name other files as hf:// URLs"
        )
    digest = listed.lfs.sha256 if listed.lfs else listed.blob_id
    return Entry(str(listed.path), listed.size, str(digest))


def read_card_text(repo: str, commit: str) -> str:
    """README.md of a repository; empty where it has none."""
    # Not by hf_hub_download: that writes a file which the ETag of the answer names, wherever that leads.
    try:
        content = ask(lambda: _read_card(repo, commit), repo, commit)
    except FileNotFoundError:
        return ""
    return content.decode("utf-8", "replace")


def _read_card(repo: str, commit: str) -> bytes:
    content = bytearray()
    with open_stream(repo, "README.md", commit) as (_, pieces):
        for piece in pieces:
            content += piece
            if len(content) > MAX_CARD_BYTES:
                raise InputError(
                    f"{repo}: its card has more than {MAX_CARD_BYTES:,} bytes; name its files as hf:// URLs"
                )
    return bytes(content)


@contextmanager
def open_stream(repo: str, path: str, commit: str, start: int = 0) -> Iterator[tuple[int, Iterator[bytes]]]:
    """The status of an answer, and a file from some byte on as it comes."""
    client = load_client(repo)
    if is_offline():
        raise client.errors.OfflineModeIsEnabled("offline")
    utils: Any = import_module("huggingface_hub.utils")
    url = client.hf_hub_url(repo, path, repo_type=REPO_TYPE, revision=commit)
    # A range of compressed content would be another one.
    headers = utils.build_hf_headers() | {"Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={start}-"} if start else {}
    once: dict[str, Any] = {"headers": headers, "timeout": TIMEOUT_S, "retry_on_exceptions": ()}
    once |= {"retry_on_status_codes": ()}
    with utils.http_stream_backoff("GET", url, **once) as response:
        utils.hf_raise_for_status(response)
        yield response.status_code, response.iter_bytes()


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
    name = type(error).__name__
    is_worth_it = name not in HOPELESS and (is_known_hub or not is_unreached(error))
    return wait_s if is_transport and is_worth_it else None


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
    if is_unanswered(error):
        return _unreachable(repo, error)
    if isinstance(error, errors.EntryNotFoundError):
        return FileNotFoundError(one_line(error))
    if getattr(getattr(error, "response", None), "status_code", None) == 429:
        return InputError(
            f"{repo}: the hub asks for fewer requests (429); wait, or log in (hf auth login), and run again"
        )
    return InputError(f"{repo}: the hub fails ({one_line(error)}); run the same command again to go on")


def is_unanswered(error: BaseException | None) -> bool:
    """Whether a call ended without any answer of the hub."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return True
    is_transport = type(error).__module__.split(".")[0] in TRANSPORTS
    return is_transport and getattr(error, "response", None) is None


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
