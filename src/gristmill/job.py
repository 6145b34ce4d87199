"""A job as people write it, YAML and `section.key=value`, becomes a checked config."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from gristmill.config import TokenizeConfig
from gristmill.errors import ConfigError, InputError

SECTIONS: dict[str, type[msgspec.Struct]] = get_type_hints(TokenizeConfig)
FILE_NAMES = ("tokenizer.source", "read.inputs", "write.output")
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{letter}IB": 1 << 10 * (power + 1) for power, letter in enumerate("KMGT")
}


def read_job_file(path: str | Path) -> dict[str, Any]:
    """The values of a YAML file, sections by name."""
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: has no sections; it needs {', '.join(SECTIONS)}")
    return values


def parse_override(text: str) -> tuple[str, str, Any]:
    """Section, key and value of `section.key=value`; the value is read as YAML."""
    import yaml

    found = re.fullmatch(r"(\w+)\.(\w+)=(.*)", text, flags=re.DOTALL)
    if found is None:
        raise ConfigError(f"{text!r} is not section.key=value")
    section, key, value = found.groups()
    try:
        return section, key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"{text!r}: the value is no YAML; quote it") from error


def make_job(values: Mapping[str, Any], overrides: Iterable[tuple[str, str, Any]] = ()) -> TokenizeConfig:
    """The job that plain values and overrides describe; later overrides win."""
    sections: dict[str, dict[str, Any]] = {"read": {}, "write": {}}
    for name, section in values.items():
        sections[name] = _as_section(name, section)
    for name, key, value in overrides:
        sections.setdefault(name, {})[key] = value
    for name, section in sections.items():
        _check_names(name, section)
    _require(sections)
    _check_texts(sections)
    try:
        return msgspec.convert(_listed(sections), TokenizeConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error))) from error


def as_job(config: TokenizeConfig | Mapping[str, Any] | str | os.PathLike[str]) -> TokenizeConfig:
    """The job that a config, plain values as in the YAML, or a YAML file describe, checked."""
    if isinstance(config, str | os.PathLike):
        return make_job(read_job_file(Path(config)))
    # A struct made in Python was never checked.
    values = msgspec.to_builtins(config) if isinstance(config, TokenizeConfig) else config
    if not isinstance(values, Mapping):
        raise ConfigError(f"{config!r}: is no job; give a TokenizeConfig, a dict or the path of a YAML file")
    return make_job(values)


def byte_size(value: str | int, *, name: str) -> int:
    """The number of bytes that a size such as 512MB stands for."""
    if isinstance(value, int):
        number, unit = float(value), ""
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?I?B?)\s*", value.upper())
        number, unit = (float(found[1]), found[2]) if found else (0.0, "?")
        unit = unit if unit in UNITS else f"{unit}B"
    if unit not in UNITS or number * UNITS[unit] < 1:
        raise ConfigError(f"{name} is {value!r}; it needs a size such as 512MB, 1.5GB or 4MiB")
    return int(number * UNITS[unit])


def _as_section(name: str, section: Any) -> dict[str, Any]:
    if name == "tokenizer" and isinstance(section, str):
        return {"source": section}
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise ConfigError(f"{name} is {section!r}; it needs keys and values{_did_you_mean(name, SECTIONS)}")
    return dict(section)


def _check_names(name: str, section: Mapping[str, Any]) -> None:
    kind = SECTIONS.get(name)
    if kind is None:
        near = _did_you_mean(name, SECTIONS)
        raise ConfigError(f"no section {name!r}{near}; there are {', '.join(SECTIONS)}")
    fields: tuple[str, ...] = kind.__struct_fields__
    for key in section:
        if key not in fields:
            near = _did_you_mean(str(key), fields)
            raise ConfigError(f"no option {name}.{key}{near}; {name} has {', '.join(fields)}")


def _require(sections: Mapping[str, Mapping[str, Any]]) -> None:
    if not sections.get("tokenizer", {}).get("source"):
        raise ConfigError("no tokenizer: give --tokenizer, or tokenizer.source in the config")
    if not sections["read"].get("inputs"):
        raise ConfigError("no input: name files, folders or globs, or set read.inputs in the config")
    if not sections["write"].get("output"):
        raise ConfigError("no output folder: give --output, or write.output in the config")


def _check_texts(value: Any, name: str = "") -> None:
    """Refuse text that cannot be written down as UTF-8, and names that no file can have."""
    if isinstance(value, str):
        if not value.isascii() and re.search("[\ud800-\udfff]", value):
            raise ConfigError(f"{name} is {value!a}, which is not UTF-8; choose another")
        if "\0" in value and name in FILE_NAMES:
            raise ConfigError(f"{name} is {value!r}; no file can be called that")
    elif isinstance(value, Mapping):
        for key, part in value.items():
            _check_texts(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for part in value:
            _check_texts(part, name)


def _listed(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One input may stand where several can."""
    inputs = sections["read"]["inputs"]
    read = {**sections["read"], "inputs": [inputs] if isinstance(inputs, str) else inputs}
    return {**sections, "read": read}


def _explain(message: str) -> str:
    """msgspec's message with our names: what was expected, what was got, and where."""
    found = re.search(r" - at `\$\.?(.*?)`$", message)
    if found is None:
        return message
    path = re.sub(r"\[.*", "", found[1])
    section, _, key = path.partition(".")
    allowed = _literals(get_type_hints(SECTIONS[section]).get(key)) if section in SECTIONS else []
    remedy = f"; it can be {', '.join(allowed)}" if allowed and "enum" in message else ""
    return f"{found[1]}: {message[: found.start()]}{remedy}"


def _literals(kind: Any) -> list[str]:
    """Every word a type allows, however deep in unions and tuples."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return list(dict.fromkeys(word for part in get_args(kind) for word in _literals(part)))


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
