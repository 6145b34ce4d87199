"""A name on the Hugging Face hub: the needed files are fetched by `huggingface_hub`, its cache and
settings honoured."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from gristmill.errors import MissingPackageError, TokenizerError
from gristmill.load.folder import ROLE_FILES, TOKENIZER_FILES
from gristmill.retry import UnreachableError, is_unreached, retried

_COMMIT = re.compile("[0-9a-f]{40}")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_FILE_ENDINGS = (".json", ".model", ".tiktoken", ".txt")
"""A name that ends so is a file's; mistyped, it must not go over the network."""

CONFIG_FILES = ("config.json", "tokenizer_config.json")
"""Of what transformers has used before, one of these is in the cache."""


def looks_like_hub_name(text: str) -> bool:
    """Whether it can be owner/name or a name of old, and not the name of a file."""
    is_name = _NAME.fullmatch(text) is not None and ".." not in text and "--" not in text
    return is_name and not text.lower().endswith(_FILE_ENDINGS)


def download_tokenizer(
    name: str, *, revision: str | None, token: str | bool | None, cache_dir: str | Path | None
) -> Path:
    """The tokenizer's file in the cache, with the files that name its special tokens beside it."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingPackageError(
            f"{_nowhere(name)} needs huggingface_hub: pip install 'gristmill[hub]'"
        ) from error

    @cache
    def is_reached() -> bool:
        return _is_reached(name, revision=revision, token=token)

    def fetch(file: str, commit: str | None) -> Path:
        wanted = commit or revision
        if _is_known(name, file, commit=wanted, cache_dir=cache_dir) or not is_reached():
            return _find_cached(name, file, revision=wanted, cache_dir=cache_dir)
        path = huggingface_hub.hf_hub_download(
            name,
            file,
            revision=wanted,
            token=token,
            cache_dir=None if cache_dir is None else str(cache_dir),
        )
        return Path(path)

    path = _first(fetch, name, revision)
    commit = path.parent.name  # the cache keeps snapshots/<commit>/: all files come from one
    if path.name == "tokenizer.json":
        for file in ROLE_FILES:
            _fetch_optional(fetch, file, name, commit)
    return path


def _is_known(name: str, file: str, *, commit: str | None, cache_dir: str | Path | None) -> bool:
    """Whether the cache has the file of a commit, or knows that it has none: neither changes."""
    from huggingface_hub import try_to_load_from_cache

    is_commit = commit is not None and _COMMIT.fullmatch(commit) is not None
    return is_commit and try_to_load_from_cache(name, file, cache_dir, commit) is not None


def _is_reached(name: str, *, revision: str | None, token: str | bool | None) -> bool:
    """Whether somebody answers for the hub, or may not be asked; the package would ask for half a minute."""
    import huggingface_hub

    url = huggingface_hub.hf_hub_url(name, TOKENIZER_FILES[0], revision=revision)
    try:
        retried(
            lambda: huggingface_hub.get_hf_file_metadata(url, token=token),
            is_lasting=lambda error: not is_unreached(error),
            is_known=False,
        )
    except UnreachableError:
        return False
    except Exception:  # met again by the download, where it is said what it means
        return True
    return True


def _find_cached(name: str, file: str, *, revision: str | None, cache_dir: str | Path | None) -> Path:
    """What the cache has of a hub that is out of reach; a file it knows nothing of may well be there."""
    from huggingface_hub import errors, try_to_load_from_cache

    found = try_to_load_from_cache(name, file, cache_dir=cache_dir, revision=revision)
    if isinstance(found, str):
        return Path(found)
    if found is None:
        raise errors.LocalEntryNotFoundError(f"{file} is not in the cache")
    raise errors.EntryNotFoundError(f"{file} was not on the hub when it was last asked")


def is_out_of_reach(name: str, error: TokenizerError) -> bool:
    """Whether a download failed for want of a way to the hub, and its cache knows nothing of the name
    either: asking for other files would take as long and end the same way."""
    from huggingface_hub import errors, try_to_load_from_cache

    is_cached = any(isinstance(try_to_load_from_cache(name, file), str) for file in CONFIG_FILES)
    return isinstance(error.__cause__, errors.LocalEntryNotFoundError) and not is_cached


def _nowhere(name: str) -> str:
    return f"no such file or folder here, and as a hub name {name!r}"


def _first(fetch: Any, name: str, revision: str | None) -> Path:
    missing: Exception | None = None
    for file in TOKENIZER_FILES:
        try:
            path: Path = fetch(file, None)
            return path
        except Exception as error:
            if not _is_missing_file(error):
                raise _explained(error, name, revision) from error
            missing = error
    where = "in the cache" if isinstance(missing, FileNotFoundError) else "on the hub"
    raise TokenizerError(f"{_nowhere(name)} has none of {', '.join(TOKENIZER_FILES)} {where}") from missing


def _fetch_optional(fetch: Any, file: str, name: str, commit: str) -> None:
    try:
        fetch(file, commit)
    except Exception as error:
        if not _is_missing_file(error):
            raise _explained(error, name, commit) from error


def _is_missing_file(error: Exception) -> bool:
    from huggingface_hub import constants, errors

    if isinstance(error, errors.LocalEntryNotFoundError):
        # Asked to stay offline, the cache is all there is; a hub that cannot be reached may well have the
        # file.
        return bool(constants.HF_HUB_OFFLINE)
    return isinstance(error, errors.EntryNotFoundError)


def _explained(error: Exception, name: str, revision: str | None) -> TokenizerError:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return TokenizerError(f"{_nowhere(name)} is restricted; accept its terms and pass token=")
    if isinstance(error, errors.RevisionNotFoundError):
        return TokenizerError(f"{_nowhere(name)} has no revision {revision!r}")
    if isinstance(error, errors.RepositoryNotFoundError):
        return TokenizerError(f"{_nowhere(name)} is no repository (private ones need token=)")
    if isinstance(error, errors.LocalEntryNotFoundError):
        return TokenizerError(
            f"{_nowhere(name)} is not in the cache, and the hub cannot be reached; check the network, "
            "HF_ENDPOINT and proxies, or give the folder that holds its files"
        )
    return TokenizerError(
        f"{_nowhere(name)} fails: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    )
