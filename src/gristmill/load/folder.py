"""A folder as models are published: tokenizer.json first, else whichever known file is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from gristmill.errors import TokenizerFormatError
from gristmill.load.reading import decode_json, read_whole

TOKENIZER_JSON = "tokenizer.json"
TOKENIZER_FILES = (TOKENIZER_JSON, "tekken.json", "tokenizer.model")
"""In order of preference; *.tiktoken comes last."""
ROLE_FILES = ("special_tokens_map.json", "tokenizer_config.json")
"""Later ones win."""
MAX_ROLE_BYTES = 16 << 20
MAX_NAMES_SEEN = 10_000
"""Of a folder, where one is looked for that was meant."""


class _Named(msgspec.Struct):
    content: str


class _Roles(msgspec.Struct):
    bos_token: str | _Named | None = None
    eos_token: str | _Named | None = None
    pad_token: str | _Named | None = None
    unk_token: str | _Named | None = None


def find_tokenizer_file(folder: Path) -> Path:
    """The file to load, or an error that lists what was looked for."""
    for name in TOKENIZER_FILES:
        if (folder / name).exists() or (folder / name).is_symlink():
            return folder / name
    try:
        ranks = sorted(folder.glob("*.tiktoken"))
    except OSError as error:
        raise TokenizerFormatError(f"{folder}: cannot be read ({error.strerror})") from error
    if len(ranks) == 1:
        return ranks[0]
    if ranks:
        raise TokenizerFormatError(f"{folder}: has {len(ranks)} .tiktoken files; name one of them")
    raise TokenizerFormatError(f"{folder}: has none of {', '.join(TOKENIZER_FILES)} and no .tiktoken file")


def explain_absence(name: str) -> str:
    """What is wrong with a name that is neither a path nor a hub name."""
    import difflib

    path = Path(name)
    try:
        names = list(islice((entry.name for entry in os.scandir(path.parent)), MAX_NAMES_SEEN))
    except (OSError, ValueError):
        names = []
    near = difflib.get_close_matches(path.name, names, n=1)
    meant = f" (did you mean {path.parent / near[0]}?)" if near else ""
    return f"{name[:200]}: no such file or folder, and no hub name (owner/name){meant}"


def read_roles(folder: Path) -> Mapping[str, str]:
    """Text of the bos, eos, pad and unk tokens, from the files that name them."""
    roles: dict[str, str] = {}
    for name in ROLE_FILES:
        path = folder / name
        if not path.is_file():
            continue
        content = read_whole(path, limit=MAX_ROLE_BYTES)
        roles.update(_named_roles(decode_json(content, _Roles, source=str(path))))
    return roles


def tokenizer_versions(source: str) -> dict[str, str]:
    """The local files that loading a source may read, with size and time of change; none for a hub name."""
    path = Path(source).absolute()
    if path.is_dir():
        found = sorted(entry for entry in path.iterdir() if entry.is_file())
    else:
        found = [file for file in (path, *(path.parent / name for name in ROLE_FILES)) if file.is_file()]
        found = found if path in found else []
    stats = {str(file): file.stat() for file in found}
    return {name: f"{stat.st_size} bytes, {stat.st_mtime_ns}" for name, stat in stats.items()}


def _named_roles(roles: _Roles) -> Mapping[str, str]:
    texts: Mapping[str, Any] = msgspec.structs.asdict(roles)
    return {
        name.removesuffix("_token"): token.content if isinstance(token, _Named) else token
        for name, token in texts.items()
        if token is not None
    }
