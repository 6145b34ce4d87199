"""Patterns of files in a repository, as cards have them: `*` and `?` stay in a folder, `**` does not.

A card is written by anyone, so the time that a pattern takes must not explode as that of a regular expression
may: all places of a path that a part of the pattern leads to are followed at once, a bit each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import accumulate

from gristmill.errors import InputError

_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", flags=re.DOTALL)
_WILD = re.compile(r"[*?\[]")


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Tells whether a file is one that a pattern means, as a glob or as a folder."""
    wanted = list(patterns)
    plain = {pattern.removesuffix("/") for pattern in wanted if not _WILD.search(pattern)}
    globs = [_parse(pattern) for pattern in wanted if _WILD.search(pattern)]

    def is_meant(path: str) -> bool:
        if not plain.isdisjoint(accumulate(path.split("/"), "{}/{}".format)):
            return True
        return any(_matches(parts, path) for parts in globs)

    return is_meant


def fixed_folder(pattern: str) -> str:
    """The folder of a pattern that holds no wildcard: what must be listed to find its files."""
    return _WILD.split(pattern, maxsplit=1)[0].rpartition("/")[0]


_Part = str | re.Pattern[str]


def _parse(pattern: str) -> list[_Part]:
    parts: list[_Part] = []
    for part in _PARTS.findall(pattern.removesuffix("/")):
        if part.startswith("[") and len(part) > 1:
            inside = re.sub(r"[\\\[&~|]", r"\\\g<0>", part[1:-1])
            try:
                parts.append(re.compile(f"[{'^' + inside[1:] if inside.startswith('!') else inside}]"))
            except re.error as error:
                raise InputError(f"{pattern}: is no pattern of files ({error})") from error
        else:
            parts.append(part)
    return parts


def _matches(parts: list[_Part], path: str) -> bool:
    """Bit i of `places` says that the parts so far may end before character i of the path."""
    everywhere = (2 << len(path)) - 1
    where: dict[str, int] = {}
    for at, char in enumerate(path):
        where[char] = where.get(char, 0) | 1 << at
    slashes = where.get("/", 0)
    inside = everywhere >> 1 & ~slashes
    places = 1
    for part in parts:
        if not places:
            return False
        onwards = everywhere & -(places & -places)
        """From the first place on."""
        if part == "**":
            places = onwards
        elif part == "**/":
            places |= (slashes & onwards) << 1
        elif part == "*":
            # Adding a place to the run of ones that it lies in carries to the end of that run.
            places |= ((places & inside) + inside) ^ inside
        elif part == "?":
            places = (places & inside) << 1
        elif isinstance(part, str):
            places = (places & where.get(part, 0)) << 1
        else:
            chosen = sum(own for char, own in where.items() if part.match(char))
            places = (places & chosen) << 1
    # To the end, or to a folder that the file is in.
    return bool(places & (slashes | 1 << len(path)))
