"""Versions of installed packages, by the names of their folders.

importlib.metadata gives the same, but importing it takes longer than all that a small run does at its end."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache

SUFFIX = ".dist-info"


def version_of(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    return _listed(tuple(sys.path)).get(_normal(package)) or _looked_up(package)


@lru_cache(maxsize=1)
def _listed(folders: tuple[str, ...]) -> dict[str, str]:
    """Versions by package, of all that pip has installed; the first on the path counts."""
    versions: dict[str, str] = {}
    for folder in folders:
        with suppress(OSError):
            for entry in os.listdir(folder or "."):
                name, dash, version = entry.removesuffix(SUFFIX).partition("-")
                if entry.endswith(SUFFIX) and dash:
                    versions.setdefault(_normal(name), version)
    return versions


def _looked_up(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _normal(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")
