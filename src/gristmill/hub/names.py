"""Names of datasets that people use, what on the hub each stands for, and addresses of their files."""

from __future__ import annotations

import re

import msgspec

from gristmill.errors import ConfigError

DEFAULT_FIELD = "text"
DEFAULT_SPLIT = "train"


class Dataset(msgspec.Struct, frozen=True):
    """Where a dataset is on the hub, and what is read of it where the job does not say."""

    repo: str
    config: str | None = None
    """Absent: the dataset's own default."""
    field: str = DEFAULT_FIELD
    files: tuple[str, ...] = ()
    """Patterns, in which {config} and {split} are filled in; none: what its card or its file names say."""
    note: str = ""


ALIASES: dict[str, Dataset] = {
    "fineweb": Dataset(
        "HuggingFaceFW/fineweb", config="sample-10BT", note="all of it: --dataset-config default"
    ),
    "finewebedu": Dataset(
        "HuggingFaceFW/fineweb-edu", config="sample-10BT", note="all of it: --dataset-config default"
    ),
    "dolma": Dataset(
        "emozilla/dolma-v1_7-305B", note="a sample of v1.7: allenai/dolma is a script without files"
    ),
    "c4": Dataset("allenai/c4", config="en", files=("{config}/c4-{split}.*.json.gz",)),
    "openwebtext": Dataset(
        "vietgpt/openwebtext_en", note="a copy: Skylion007/openwebtext is a script and archives"
    ),
    "wikipedia": Dataset("wikimedia/wikipedia", config="20231101.en", files=("{config}/{split}-*.parquet",)),
    "the-stack": Dataset(
        "bigcode/the-stack",
        config="*",
        field="content",
        files=("data/{config}/{split}-*.parquet",),
        note="restricted; --dataset-config python is one language",
    ),
    "redpajama": Dataset(
        "togethercomputer/RedPajama-Data-1T-Sample",
        files=("*_sample.jsonl",),
        note="the sample: togethercomputer/RedPajama-Data-1T is a script without files",
    ),
    "slimpajama": Dataset("cerebras/SlimPajama-627B", files=("{split}/*/*.jsonl.zst",)),
    "tinystories": Dataset("roneneldan/TinyStories", files=("data/{split}-*.parquet",)),
}
INSTEAD = {
    "allenai/dolma": "dolma",
    "Skylion007/openwebtext": "openwebtext",
    "togethercomputer/RedPajama-Data-1T": "redpajama",
}
"""Repositories without files that can be read, and the alias of what can be."""
PINNED = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)@([0-9a-f]{40})/(.+)", flags=re.DOTALL)
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def pinned_url(repo: str, commit: str, path: str) -> str:
    """The address of a file that can never change."""
    return f"hf://datasets/{repo}@{commit}/{path}"


def is_pinned(url: str) -> bool:
    """Whether an address names a file of a dataset at a commit."""
    return PINNED.fullmatch(url) is not None


def look_up(name: str) -> Dataset:
    """The dataset that an alias or owner/name means."""
    if (alias := _find_alias(name)) is not None:
        return alias
    if _REPO.fullmatch(name) and ".." not in name and "--" not in name:
        return Dataset(name)
    import difflib

    near = difflib.get_close_matches(_plain(name), map(_plain, ALIASES), n=1, cutoff=0.6)
    meant = [alias for alias in ALIASES if _plain(alias) in near]
    raise ConfigError(
        f"read.dataset is {name!r}{f' (did you mean {meant[0]}?)' if meant else ''}; it needs owner/name as "
        f"on the hub, or one of {', '.join(ALIASES)}"
    )


def default_field(name: object) -> str:
    """The field of the text where a job names none."""
    alias = _find_alias(name) if isinstance(name, str) else None
    return alias.field if alias else DEFAULT_FIELD


def _find_alias(name: str) -> Dataset | None:
    return next((found for alias, found in ALIASES.items() if _plain(alias) == _plain(name)), None)


def _plain(name: str) -> str:
    """FineWeb-Edu and fineweb_edu are finewebedu."""
    return re.sub(r"[-_]", "", name.lower())
