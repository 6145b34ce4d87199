"""Tokenizers in: one file a source format, told apart by content where a name could lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gristmill.errors import ConfigError, TokenizerFormatError
from gristmill.load.folder import TOKENIZER_JSON, explain_absence, find_tokenizer_file, read_roles
from gristmill.load.reading import read_whole

if TYPE_CHECKING:  # each format is imported where one is met: a remembered tokenizer needs none
    from gristmill.load.loaded import Loaded

__all__ = ["LoadOptions", "find_local_file", "load_source"]


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a source may need to be told; an option its source has no use for is refused."""

    encoding: str | None = None
    pattern: str | None = None
    special_tokens: Mapping[str, int] | None = None
    revision: str | None = None
    token: str | bool | None = None
    cache_dir: str | Path | None = None


def load_source(source: Any, options: LoadOptions) -> Loaded:
    """Load a path, a hub name or an object."""
    if not isinstance(source, str | os.PathLike):
        from gristmill.load.objects import load_object

        _refuse(options, "an object", *RANK_OPTIONS, *HUB_OPTIONS)
        return load_object(source)
    path = find_local_file(source, options)
    if path is not None:
        return _load_file(path, options, source=str(path))
    from gristmill.load.hub import download_tokenizer, looks_like_hub_name

    text = os.fspath(source)
    if not looks_like_hub_name(text):
        raise TokenizerFormatError(explain_absence(text))
    downloaded = download_tokenizer(
        text, revision=options.revision, token=options.token, cache_dir=options.cache_dir
    )
    return _load_file(downloaded, options, source=f"{text} ({downloaded.name})")


RANK_OPTIONS = ("encoding", "pattern", "special_tokens")
HUB_OPTIONS = ("revision", "token", "cache_dir")


def _refuse(options: LoadOptions, what: str, *names: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise ConfigError(f"{name} says nothing about {what}; leave it out")


def _exists(path: Path) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError as error:  # a NUL in the name
        raise TokenizerFormatError(f"{str(path)[:200]!r}: is no path: {error}") from error


def find_local_file(source: str | os.PathLike[str], options: LoadOptions) -> Path | None:
    """The file that a local source names; None where it can only be a hub name."""
    path = Path(source)
    if not os.fspath(source) or not _exists(path):
        return None
    _refuse(options, "a local path", *HUB_OPTIONS)
    return find_tokenizer_file(path) if path.is_dir() else path


def _load_file(path: Path, options: LoadOptions, *, source: str) -> Loaded:
    loaded, format_ = _load_content(read_whole(path), path, options, source=source)
    return msgspec.structs.replace(loaded, path=path, format=format_)


def _load_content(content: bytes, path: Path, options: LoadOptions, *, source: str) -> tuple[Loaded, str]:
    from gristmill.load.hf_json import load_tokenizer_json
    from gristmill.load.sentencepiece_model import load_sentencepiece, looks_like_model
    from gristmill.load.tekken import load_tekken, looks_like_tekken
    from gristmill.load.tiktoken_ranks import load_ranks, looks_like_ranks

    if looks_like_ranks(content):
        loaded = load_ranks(
            content,
            source=source,
            name=path.name,
            encoding=options.encoding,
            pattern=options.pattern,
            special_tokens=options.special_tokens,
        )
        return loaded, "tiktoken ranks"
    is_json = content.lstrip(b" \t\r\n")[:1] == b"{"
    if is_json or looks_like_model(content):
        _refuse(options, f"{source}, which is no rank file", *RANK_OPTIONS)
    if is_json and looks_like_tekken(content):
        return load_tekken(content, source=source), "tekken.json"
    if is_json:
        roles = read_roles(path.parent) if path.name == TOKENIZER_JSON else None
        return load_tokenizer_json(content, source=source, roles=roles), TOKENIZER_JSON
    if looks_like_model(content):
        return load_sentencepiece(content, source=source), "SentencePiece model"
    raise TokenizerFormatError(
        f"{source}: is no tokenizer.json, rank file, SentencePiece model or tekken.json, or is damaged"
    )
