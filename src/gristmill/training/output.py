"""Where a trained tokenizer goes: a tokenizer.json, or a folder as models are published."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.config import LearnConfig
from gristmill.errors import InputError
from gristmill.files import check_writable, make_folders, write_whole

TOKENIZER_JSON = "tokenizer.json"
CONFIG_JSON = "tokenizer_config.json"
ROLES_JSON = "special_tokens_map.json"
FOLDER_FILES = (ROLES_JSON, CONFIG_JSON, TOKENIZER_JSON)
ROLES = {
    "eos_token": ("endoftext", "end_of_text", "eos", "</s>", "im_end"),
    "bos_token": ("begin_of_text", "startoftext", "bos", "<s>"),
    "pad_token": ("pad",),
    "unk_token": ("unk",),
}
"""What names of special tokens hold, by what they are for."""
NO_LIMIT = 10**30
"""What `transformers` writes for a tokenizer that knows no longest text."""


class Output(NamedTuple):
    """The file, or the folder, that is asked for."""

    path: Path
    is_folder: bool

    @classmethod
    def of(cls, name: str) -> Output:
        """A name that ends in a slash, or that a folder has, is a folder."""
        return cls(Path(name), name.endswith(("/", os.sep)) or Path(name).is_dir())

    @property
    def tokenizer(self) -> Path:
        """The tokenizer.json."""
        return self.path / TOKENIZER_JSON if self.is_folder else self.path

    @property
    def files(self) -> list[Path]:
        """All that is written."""
        return [self.path / name for name in FOLDER_FILES] if self.is_folder else [self.path]

    @property
    def run_folder(self) -> Path:
        """Beside it."""
        path = Path(os.path.abspath(self.path))
        if not path.name:
            raise InputError(f"{self.path}: has no name; name a tokenizer.json, or a folder for it")
        shown = path if self.path.name in ("", "..") else self.path
        return shown.with_name(f"{shown.name}.run")

    def prepare(self) -> None:
        """Make the folders above it, and refuse what could not be written before work is done for it."""
        if self.is_folder and self.path.is_file():
            raise InputError(f"{self.path}: is a file; leave the slash after it out, or name a folder")
        make_folders(self.path.parent)
        check_writable(self.tokenizer if self.path.is_dir() else self.path)

    def write(self, content: bytes, roles: dict[str, str]) -> None:
        """Write the tokenizer; in a folder also what its special tokens are for."""
        if not self.is_folder:
            write_whole(Path(os.path.realpath(self.path)), content)  # a link stays, and what it names is new
            return
        self.path.mkdir(exist_ok=True)
        write_whole(self.path / ROLES_JSON, _json(roles))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": NO_LIMIT,
            "clean_up_tokenization_spaces": False,
        }
        write_whole(self.path / CONFIG_JSON, _json(config | roles))
        write_whole(self.path / TOKENIZER_JSON, content)


def base_file(name: str) -> Path:
    """The tokenizer.json that is extended: the file, or that of a folder."""
    path = Path(name)
    return path / TOKENIZER_JSON if path.is_dir() else path


def guess_roles(special_tokens: tuple[str, ...]) -> dict[str, str]:
    """What special tokens are for, by their names; the first that fits."""
    found = {}
    for role, words in ROLES.items():
        fitting = [token for token in special_tokens if any(word in token.lower() for word in words)]
        if fitting:
            found[role] = fitting[0]
    return found


def roles_of(learn: LearnConfig) -> dict[str, str]:
    """What the special tokens of a job are for; a tokenizer that is extended keeps what its folder says, or
    else its tokens are known by their names."""
    if learn.extend is None:
        return guess_roles(learn.special_tokens)
    from gristmill.load.folder import read_roles
    from gristmill.load.reading import decode_json, read_whole

    base = base_file(learn.extend)
    if named := read_roles(base.parent):
        return {f"{role}_token": token for role, token in named.items()}
    added = decode_json(read_whole(base), dict[str, Any], source=learn.extend).get("added_tokens") or []
    return guess_roles(tuple(entry["content"] for entry in added if entry["special"]))


def _json(values: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(values), indent=1) + b"\n"
