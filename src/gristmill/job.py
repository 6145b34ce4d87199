"""A job as people write it, YAML and `section.key=value`, becomes a checked config."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from gristmill.config import ReadConfig, TokenizeConfig, TrainConfig
from gristmill.errors import ConfigError, InputError
from gristmill.hub.names import default_field

Sections = dict[str, type[msgspec.Struct]]
Overrides = Iterable[tuple[str, str, Any]]
Job = TypeVar("Job", TokenizeConfig, TrainConfig)
SECTIONS: Sections = get_type_hints(TokenizeConfig)
TRAINING_SECTIONS: Sections = get_type_hints(TrainConfig)
NO_INPUT = "no input: name files, folders or globs, or a --dataset, or set read.inputs in the config"
OF_DATASET = ("dataset_config", "split", "revision", "cache_dir", "streaming")
"""Options of read that mean nothing without a dataset."""
OF_TOKENIZE = ("run.max_rows", "run.max_tokens")
"""Options of a section that both jobs have, which mean nothing to a training."""
BETWEEN_TEXTS = {"read.join", "read.separator"}
YAML_WORDS = {"null", "true", "false", "yes", "no", "on", "off"}
"""That are no text there, however they are written."""
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
WORDS = {
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "keys and values",
    "null": "nothing",
}
"""What msgspec calls types, for people."""
FILE_NAMES = (
    "tokenizer.source",
    "read.inputs",
    "read.cache_dir",
    "write.output",
    "learn.output",
    "count.folder",
)
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{letter}IB": 1 << 10 * (power + 1) for power, letter in enumerate("KMGT")
}


def read_job_file(path: str | Path, *, needs: Iterable[str] = SECTIONS) -> dict[str, Any]:
    """The values of a YAML file, sections by name; `needs` are those that a file without any is told of."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            _refuse_repeated(str(path), [key for key, _value in node.value])
            return super().construct_mapping(node, deep)

    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # such as a date that there is not
        raise ConfigError(f"{path}: is no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: has no sections; it needs {', '.join(needs)}")
    return values


def _refuse_repeated(path: str, keys: Iterable[Any]) -> None:
    """Refuse a key that stands twice in one section: YAML would quietly take the last."""
    lines: dict[str, int] = {}
    for key in keys:
        if not isinstance(key.value, str):
            continue
        line = key.start_mark.line + 1
        if key.value in lines:
            raise ConfigError(
                f"{path}: {key.value} stands in line {lines[key.value]} and again in line {line}; keep one"
            )
        lines[key.value] = line


def parse_override(text: str, known: Sections = SECTIONS) -> tuple[str, str, Any]:
    """Section, key and value of `section.key=value`.

    The value is read as YAML; where an option takes several, commas part them; in what stands between texts,
    \\n, \\r, \\t and \\\\ are the characters they stand for."""
    found = re.fullmatch(r"(\w+)\.(\w+)=(.*)", text, flags=re.DOTALL)
    if found is None:
        raise ConfigError(f"{text!r} is not section.key=value")
    section, key, value = found.groups()
    if f"{section}.{key}" in BETWEEN_TEXTS and value[:1] not in ("'", '"'):
        return section, key, re.sub(r"\\([nrt\\])", lambda escape: ESCAPES[escape[1]], value)
    # The same in YAML, whose import takes 10 ms.
    if re.fullmatch(r"0|[1-9][0-9]{0,17}", value):
        return section, key, int(value)
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", value) and value.lower() not in YAML_WORDS:
        return section, key, value
    import yaml

    try:
        read = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # such as a date that there is not
        raise ConfigError(f"{text!r}: the value is no YAML; quote it") from error
    is_list = isinstance(read, str) and "," in read and _takes_several(known, section, key)
    return section, key, split_list(read) if is_list else read


def split_list(text: str) -> list[str]:
    """The parts between commas, without spaces round them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def suggest_override(text: str, known: Sections = SECTIONS) -> None:
    """Refuse an input that looks like an option without its section, or of an unknown one."""
    found = re.match(r"(?:(\w+)\.)?(\w+)=", text)
    if found is None or os.path.exists(text):
        return
    if found[1] is not None:
        _check_names(known, found[1], {found[2]: None})
    if found[2] == "tokenizer" and "tokenizer" in known:  # as YAML has it
        raise ConfigError(f"{text}: no such file; did you mean tokenizer.source{text[len(found[2]) :]}?")
    for name, kind in known.items():
        if found[2] in kind.__struct_fields__:
            raise ConfigError(f"{text}: no such file; did you mean {name}.{text}?")


def make_job(values: Mapping[str, Any], overrides: Overrides = ()) -> TokenizeConfig:
    """The job of `tokenize` that plain values and overrides describe; later overrides win."""
    sections = _gather(SECTIONS, values, overrides)
    _require(
        sections,
        {
            "tokenizer.source": "no tokenizer: give --tokenizer, or tokenizer.source in the config",
            **_needed_input(sections),
            "write.output": "no output folder: give --output, or write.output in the config",
        },
    )
    return _convert(SECTIONS, sections, TokenizeConfig)


def make_training(values: Mapping[str, Any], overrides: Overrides = ()) -> TrainConfig:
    """The job of `train` that plain values and overrides describe; later overrides win."""
    sections = _gather(TRAINING_SECTIONS, values, overrides)
    needed = {
        "learn.output": "no output: give --output, or learn.output in the config",
        "learn.vocab_size": "no vocabulary size: give --vocab-size, or learn.vocab_size in the config",
    }
    if not sections.get("learn", {}).get("from_counts"):
        needed |= _needed_input(sections)
    _require(sections, needed)
    for name in OF_TOKENIZE:
        section, _, key = name.partition(".")
        if sections.get(section, {}).get(key) is not None:
            raise ConfigError(f"{name} is of tokenize; use --limit-documents (count.max_documents)")
    return _convert(TRAINING_SECTIONS, sections, TrainConfig)


def _gather(known: Sections, values: Mapping[str, Any], overrides: Overrides) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for name, section in values.items():
        sections[name] = {key: _plain(value) for key, value in _as_section(known, name, section).items()}
    for name, key, value in overrides:
        sections.setdefault(name, {})[key] = value
    for name, section in sections.items():
        _check_names(known, name, section)
    _check_texts(sections)
    _settle_dataset(sections.get("read", {}))
    return sections


def _needed_input(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {} if sections.get("read", {}).get("dataset") else {"read.inputs": NO_INPUT}


def _settle_dataset(read: dict[str, Any]) -> None:
    """Refuse options that do not go together, and fill in where a known dataset has its text."""
    name = read.get("dataset")
    if not name:
        default = ReadConfig()
        lost = [key for key in OF_DATASET if read.get(key, getattr(default, key)) != getattr(default, key)]
        if lost:
            raise ConfigError(f"read.{lost[0]} is of a dataset, and none is named; give --dataset")
        return
    if read.get("inputs"):
        raise ConfigError("there are inputs and a dataset; give one or the other")
    if read.get("text_field") in (None, ReadConfig().text_field):
        read["text_field"] = default_field(name)


def _convert(known: Sections, sections: Mapping[str, Mapping[str, Any]], kind: type[Job]) -> Job:
    try:
        return msgspec.convert(_listed(known, sections), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(known, str(error))) from error


def as_job(config: TokenizeConfig | Mapping[str, Any] | str | os.PathLike[str]) -> TokenizeConfig:
    """The job that a config, plain values as in the YAML, or a YAML file describe, checked."""
    return make_job(_values_of(config, TokenizeConfig))


def as_training(config: TrainConfig | Mapping[str, Any] | str | os.PathLike[str]) -> TrainConfig:
    """The training that a config, plain values as in the YAML, or a YAML file describe, checked."""
    return make_training(_values_of(config, TrainConfig))


def _values_of(config: Any, kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The plain values of a job; a struct made in Python was never checked, so it is taken apart too."""
    if isinstance(config, str | os.PathLike):
        return read_job_file(Path(config))
    values = msgspec.to_builtins(config) if isinstance(config, kind) else config
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{config!r}: is no job; give a {kind.__name__}, a dict or the path of a YAML file"
        )
    return values


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


def _as_section(known: Sections, name: str, section: Any) -> dict[str, Any]:
    if name == "tokenizer" and isinstance(section, str | os.PathLike):
        return {"source": section}
    _check_names(known, name, {})
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise ConfigError(f"{name} is {section!r}; it needs keys and values")
    return dict(section)


def _check_names(known: Sections, name: str, section: Mapping[str, Any]) -> None:
    kind = known.get(name)
    if kind is None:
        near = _did_you_mean(name, known)
        raise ConfigError(f"no section {name!r}{near}; there are {', '.join(known)}")
    fields: tuple[str, ...] = kind.__struct_fields__
    for key in section:
        if key not in fields:
            near = _did_you_mean(str(key), fields)
            raise ConfigError(f"no option {name}.{key}{near}; {name} has {', '.join(fields)}")


def _require(sections: Mapping[str, Mapping[str, Any]], needed: Mapping[str, str]) -> None:
    for option, message in needed.items():
        section, _, key = option.partition(".")
        if sections.get(section, {}).get(key) in (None, "", [], ()):
            raise ConfigError(message)


def _plain(value: Any) -> Any:
    """Paths as text."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


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


def _listed(known: Sections, sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """One text may stand where several can."""
    listed: dict[str, dict[str, Any]] = {"read": {}}
    for name, section in sections.items():
        listed[name] = {
            key: [value] if isinstance(value, str) and _takes_only_several(known, name, key) else value
            for key, value in section.items()
        }
    return listed


def _kinds(known: Sections, section: str, key: str) -> list[Any]:
    """What an option may be."""
    hint = get_type_hints(known[section]).get(key) if section in known else None
    return [hint] if get_origin(hint) is tuple else list(get_args(hint))


def _takes_several(known: Sections, section: str, key: str) -> bool:
    """Whether commas part values: not names of files, which may hold some."""
    kinds = _kinds(known, section, key)
    return f"{section}.{key}" != "read.inputs" and any(get_origin(kind) is tuple for kind in kinds)


def _takes_only_several(known: Sections, section: str, key: str) -> bool:
    return [get_origin(kind) for kind in _kinds(known, section, key)] == [tuple]


def _explain(known: Sections, message: str) -> str:
    """msgspec's message with our names: what was expected, what was got, and where."""
    found = re.search(r" - at `\$\.?(.*?)`$", message)
    if found is None:
        return message
    path = re.sub(r"\[.*", "", found[1])
    section, _, key = path.partition(".")
    allowed = literals(get_type_hints(known[section]).get(key)) if section in known else []
    remedy = f"; it can be {', '.join(allowed)}" if allowed and "enum" in message else ""
    said = re.sub(r"`([a-z |]+)`", _in_words, message[: found.start()]).replace("Expected ", "needs ")
    return f"{found[1]}: {said}{remedy}"


def _in_words(types: re.Match[str]) -> str:
    names = types[1].removesuffix(" | null").split(" | ")
    return " or ".join(WORDS.get(name, name) for name in names)


def literals(kind: Any) -> list[str]:
    """Every word a type allows, however deep in unions and tuples."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return list(dict.fromkeys(word for part in get_args(kind) for word in literals(part)))


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    import difflib  # a millisecond that only a mistake needs

    near = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
