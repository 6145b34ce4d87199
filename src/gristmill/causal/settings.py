"""The block `tokenizer` of a YAML file, or the same as a dict, becomes a checked config; a mistake is named
in one line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from gristmill.config import CausalLMConfig
from gristmill.errors import ConfigError, InputError
from gristmill.job import literals, read_job_file

CausalSource = CausalLMConfig | Mapping[str, Any] | str | os.PathLike[str]
BLOCK = "tokenizer"
REQUIRED = ("context_length", "tokenizer_name")
OTHER_WORDS = {
    "block_size": "context_length",
    "column": "text_column",
    "log_level": "verbose_level",
    "max_length": "context_length",
    "max_seq_length": "context_length",
    "model": "tokenizer_name",
    "model_name_or_path": "tokenizer_name",
    "num_workers": "num_proc",
    "seq_len": "context_length",
    "seq_length": "context_length",
    "sequence_length": "context_length",
    "stride": "overlap",
    "text_field": "text_column",
    "tokenizer": "tokenizer_name",
    "verbose": "verbose_level",
}
"""What other tools call our keys, where spelling would suggest another one."""
WORDS = {bool: "true or false", int: "a whole number", str: "text"}
MAX_VALUE_SHOWN = 80


def as_causal(config: CausalSource) -> CausalLMConfig:
    """The config that a struct, a dict or a YAML file describe, with the block under `tokenizer` or bare."""
    named, where = _block_of(config)
    known: tuple[str, ...] = CausalLMConfig.__struct_fields__
    for key, value in named.items():
        if key not in known and isinstance(value, Mapping):
            raise ConfigError(
                f"{where}{key} is {_shown(value)}: no such block; the nearest is {BLOCK}, which takes "
                f"{', '.join(known)}"
            )
        if key not in known:
            near = nearest(str(key), known)
            raise ConfigError(
                f"{where}{key} is {_shown(value)}: no such key; the nearest is {near}, which takes "
                f"{allowed(near)}; there are {', '.join(known)}"
            )
    values = {key: value for key, value in named.items() if value is not None}  # null is absent
    for key in REQUIRED:
        if values.get(key, "") == "":
            raise ConfigError(f"{where}{key} is missing; it needs {allowed(key)}")
    checked = {key: _check(key, value, where) for key, value in values.items()}
    made = CausalLMConfig(**checked)
    if made.overlap >= made.context_length:
        raise ConfigError(
            f"{where}overlap is {made.overlap}; it can be 0 to {made.context_length - 1}, "
            f"less than context_length, which is {made.context_length}"
        )
    return made


def nearest(name: str, names: Iterable[str]) -> str:
    """The key that was most likely meant."""
    listed = list(names)
    if OTHER_WORDS.get(name) in listed:
        return OTHER_WORDS[name]
    return difflib.get_close_matches(name, listed, n=1, cutoff=0)[0]


def allowed(key: str) -> str:
    """What a key takes, in words."""
    hint = get_type_hints(CausalLMConfig, include_extras=True)[key]
    parts = [part for part in get_args(hint) if part is not type(None)] if _is_union(hint) else [hint]
    null = ", or null" if _is_union(hint) and type(None) in get_args(hint) else ""
    return _in_words(parts[0]) + null


def _is_union(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _in_words(kind: Any) -> str:
    if words := literals(kind):
        return f"one of {', '.join(words)}"
    if get_origin(kind) is not Annotated:
        return WORDS[kind]
    base, limits = get_args(kind)
    return f"{WORDS[base]} from {limits.ge}" + ("" if limits.le is None else f" to {limits.le}")


def _check(key: str, value: Any, where: str) -> Any:
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    try:
        return msgspec.convert(value, get_type_hints(CausalLMConfig, include_extras=True)[key])
    except (msgspec.ValidationError, OverflowError) as error:
        words = literals(get_type_hints(CausalLMConfig)[key])
        near = f"; the nearest is {nearest(str(value).upper(), words)}" if words else ""
        raise ConfigError(f"{where}{key} is {_shown(value)}; it needs {allowed(key)}{near}") from error


def _block_of(config: CausalSource) -> tuple[Mapping[str, Any], str]:
    """The values, and what stands before their names in messages."""
    where = ""
    values: Any = config
    if isinstance(config, CausalLMConfig):  # one made in Python was never checked
        values = msgspec.structs.asdict(config)
    elif isinstance(config, str | os.PathLike):
        values, where = _read_file(config), f"{os.fspath(config)}: "
    if isinstance(values, Mapping) and isinstance(values.get(BLOCK, ""), Mapping | None):
        values, where = values[BLOCK] or {}, f"{where}{BLOCK}."
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"config is {_shown(config)}; it needs a CausalLMConfig, a dict with context_length and "
            "tokenizer_name, or the path of a YAML file that has them, bare or under tokenizer:"
        )
    return values, where


def _read_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return read_job_file(Path(path), needs=[BLOCK])
    except InputError as error:
        raise InputError(
            f"{error}; the config is the path of a YAML file, or a dict such as "
            "{'context_length': 2048, 'tokenizer_name': 'gpt2'}"
        ) from error


def _shown(value: Any) -> str:
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= MAX_VALUE_SHOWN else f"{text[:MAX_VALUE_SHOWN]}..."
