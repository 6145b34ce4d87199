"""Which files make up a part of a dataset: by its card, or by how the files are called; asks no hub."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from gristmill.errors import InputError
from gristmill.hub.names import DEFAULT_SPLIT

MAX_SHOWN = 20
MAX_DEPTH = 64
"""Of the YAML of a card; the features of real ones are nested a dozen deep."""
SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""What file names call the splits."""
NO_DATA = {"dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"}
CONVERTED = re.compile(r"([^/]+)/([^/]+)/\d{4}\.parquet")
"""How the hub names files that it has converted: config/split/number."""
PARTIAL = "partial-"
"""Before the name of a split of which the hub has converted the first part only."""
FormatOf = Callable[[str], str | None]
"""What a file is read as, told by its name; None where it is not."""


class Part(NamedTuple):
    """What is wanted of a dataset."""

    name: str
    """As people call it, for errors."""
    config: str | None
    split: str


class CardConfig(NamedTuple):
    """A part of a dataset as its card describes it."""

    name: str
    is_default: bool
    splits: dict[str, tuple[str, ...]]
    """Patterns of each; none where the folder alone is named."""
    folder: str


def read_card(text: str, name: str) -> list[CardConfig]:
    """The configs that the YAML at the top of a card lists; none where it has none."""
    import yaml

    found = re.match(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", text, flags=re.DOTALL | re.MULTILINE)
    if found is None:
        return []
    # The one in C is ten times as fast, and cards of many languages are long.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_yaml(found[1], loader)
        values = yaml.load(found[1], Loader=loader)
        listed = values.get("configs") if isinstance(values, dict) else None
        return [_read_config(entry) for entry in listed or []]
    except (yaml.YAMLError, RecursionError, TypeError, ValueError, KeyError, AttributeError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(f"{name}: its card cannot be read ({said}); name its files as hf:// URLs") from error


def _check_yaml(text: str, loader: Any) -> None:
    """Refuse what would take all of the stack or of the memory: a card is written by anyone."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<":
            raise ValueError("it merges mappings with <<")  # each may double what it is merged of


def _read_config(entry: Any) -> CardConfig:
    splits: dict[str, list[str]] = {}
    files = entry.get("data_files")
    if isinstance(files, dict):
        files = [{"split": split, "path": path} for split, path in files.items()]
    for part in _as_list(files):
        is_named = isinstance(part, dict)
        split = _word(part.get("split", DEFAULT_SPLIT)) if is_named else DEFAULT_SPLIT
        patterns = _as_list(part["path"] if is_named else part)
        splits.setdefault(split, []).extend(map(_word, patterns))
    folder = _word(entry.get("data_dir") or "").strip("./")
    by_split = {split: tuple(patterns) for split, patterns in splits.items()}
    return CardConfig(_word(entry["config_name"]), bool(entry.get("default")), by_split, folder)


def _word(value: Any) -> str:
    """A word as YAML gives it; lists of lists of anchors would be words without end."""
    if not isinstance(value, str | int | float | datetime.date):
        raise TypeError(f"a {type(value).__name__} stands where a name or a path should")
    return str(value)


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def choose_config(configs: list[CardConfig], wanted: Part) -> CardConfig:
    """The config asked for, or the dataset's default."""
    names = [config.name for config in configs]
    if wanted.config is not None:
        return configs[_index(names, wanted.config, f"{wanted.name} has no config", "--dataset-config")]
    default = [config for config in configs if config.is_default] or [
        config for config in configs if config.name == "default" or len(configs) == 1
    ]
    if not default:
        raise InputError(f"{wanted.name} has several configs; choose with --dataset-config: {_few(names)}")
    return default[0]


def patterns_of(config: CardConfig, wanted: Part) -> tuple[str, ...]:
    """Patterns of the files of a split; none where only their folder is known."""
    if not config.splits:
        return ()
    splits = list(config.splits)
    split = splits[_index(splits, wanted.split, f"{wanted.name} ({config.name}) has no split", "--split")]
    patterns = tuple(pattern.removeprefix("./") for pattern in config.splits[split])
    for pattern in patterns:
        if "://" in pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise InputError(f"{wanted.name}: its card names {pattern}, which is not in its repository")
    return patterns


def choose_by_names(paths: Collection[str], wanted: Part, folder: str, format_of: FormatOf) -> list[str]:
    """Files of a split, told by the names of files and folders alone."""
    formats = {path: format for path in paths if (format := _data_format(path, format_of)) is not None}
    if formats and all(CONVERTED.fullmatch(path) for path in formats):
        return _choose_converted(sorted(formats), wanted)
    within = {path: format for path, format in formats.items() if path.startswith(f"{folder}/") or not folder}
    if wanted.config is not None and not folder:
        inside = {path: format for path, format in within.items() if wanted.config in path.split("/")[:-1]}
        if within and not inside:
            folders = sorted({path.rsplit("/", 1)[0] for path in within if "/" in path})
            _index(folders, wanted.config, f"{wanted.name} has no config", "--dataset-config")
        within = inside
    # A dataset of Parquet files may have a table of figures or a licence beside them.
    counts = Counter(format for format in within.values() if format != "text")
    usual = max(sorted(counts), key=lambda name: counts[name]) if counts else "text"
    if usual == "text" and any(path.endswith(".py") and "/" not in path for path in paths):
        return []  # a script, and the addresses that it would fetch from
    return _choose_split([path for path, format in within.items() if format == usual], wanted)


def _data_format(path: str, format_of: FormatOf) -> str | None:
    parts = path.split("/")
    is_hidden = any(part.startswith((".", "_")) for part in parts)
    return None if is_hidden or parts[-1] in NO_DATA or path == "README.md" else format_of(path)


def _choose_converted(paths: list[str], wanted: Part) -> list[str]:
    """Of files that the hub converted: those of a config and a split."""
    folders = [(found[1], found[2]) for path in paths if (found := CONVERTED.fullmatch(path))]
    configs = list(dict.fromkeys(config for config, _ in folders))
    config = wanted.config or ("default" if "default" in configs else configs[0])
    if wanted.config is None and "default" not in configs and len(configs) > 1:
        raise InputError(f"{wanted.name} has several configs; choose with --dataset-config: {_few(configs)}")
    _index(configs, config, f"{wanted.name} has no config", "--dataset-config")
    splits = list(dict.fromkeys(split for name, split in folders if name == config))
    if wanted.split not in splits and f"{PARTIAL}{wanted.split}" in splits:
        raise InputError(
            f"{wanted.name} has no files of its own, and the hub has converted only the first part of its "
            f"split {wanted.split}; --revision refs/convert/parquet --split {PARTIAL}{wanted.split} is it"
        )
    _index(splits, wanted.split, f"{wanted.name} ({config}) has no split", "--split")
    return [path for path in paths if path.startswith(f"{config}/{wanted.split}/")]


def _choose_split(paths: list[str], wanted: Part) -> list[str]:
    found = {path: _split_of(path) for path in paths}
    names = [split for split in dict.fromkeys(found.values()) if split is not None]
    if paths and not names:
        _index([DEFAULT_SPLIT], wanted.split, f"{wanted.name} has no split", "--split")
        return sorted(paths)
    if paths:
        _index(sorted(names), wanted.split, f"{wanted.name} has no split", "--split")
    return sorted(path for path, split in found.items() if split == wanted.split)


def _split_of(path: str) -> str | None:
    """The split that the name of a file tells, else that of the folder nearest to it."""
    for part in reversed(path.split("/")):
        words = re.findall("[a-z]+", part.lower())
        for split, known in SPLIT_WORDS.items():
            if any(word in known for word in words):
                return split
    return None


def _index(names: list[str], wanted: str, what: str, flag: str) -> int:
    if wanted in names:
        return names.index(wanted)
    hint = "; a part of a split is not read: use --max-chunks" if "[" in wanted else ""
    raise InputError(f"{what} {wanted!r}; it has {_few(names)} ({flag}){hint}")


def _few(names: list[str]) -> str:
    more = len(names) - MAX_SHOWN
    return ", ".join(names[:MAX_SHOWN]) + (f" and {more:,} more" if more > 0 else "") or "none"
