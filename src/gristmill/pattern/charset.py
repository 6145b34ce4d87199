"""Sets of code points, and how several of them cut all code points into classes.

A set is a sorted tuple of the code points where membership changes: (48, 58) are the ASCII digits. Even
entries begin a range, odd ones end it (exclusive). Tuples hash, so equal sets are one class boundary.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.unicode_data import CATEGORIES, CATEGORY_RUNS, FOLDS, SETS

Charset = tuple[int, ...]

NUM_CODE_POINTS = 0x110000
EMPTY: Charset = ()
EVERYTHING: Charset = (0, NUM_CODE_POINTS)

LONG_NAMES = {
    "letter": "L",
    "uppercaseletter": "Lu",
    "lowercaseletter": "Ll",
    "titlecaseletter": "Lt",
    "modifierletter": "Lm",
    "otherletter": "Lo",
    "mark": "M",
    "nonspacingmark": "Mn",
    "spacingmark": "Mc",
    "enclosingmark": "Me",
    "number": "N",
    "decimalnumber": "Nd",
    "letternumber": "Nl",
    "othernumber": "No",
    "punctuation": "P",
    "connectorpunctuation": "Pc",
    "dashpunctuation": "Pd",
    "openpunctuation": "Ps",
    "closepunctuation": "Pe",
    "initialpunctuation": "Pi",
    "finalpunctuation": "Pf",
    "otherpunctuation": "Po",
    "symbol": "S",
    "mathsymbol": "Sm",
    "currencysymbol": "Sc",
    "modifiersymbol": "Sk",
    "othersymbol": "So",
    "separator": "Z",
    "spaceseparator": "Zs",
    "lineseparator": "Zl",
    "paragraphseparator": "Zp",
    "other": "C",
    "control": "Cc",
    "format": "Cf",
    "privateuse": "Co",
    "unassigned": "Cn",
}


class Partition(NamedTuple):
    """All code points cut into classes that no set of a pattern tells apart."""

    starts: NDArray[np.int64]
    """First code point of every interval, ascending from 0."""
    classes: NDArray[np.int64]
    """The class of every interval."""
    num_classes: int


def contains(charset: Charset, point: int) -> bool:
    """Whether a code point is in a set."""
    return bisect_right(charset, point) % 2 == 1


def single(point: int) -> Charset:
    """The set of one code point."""
    return (point, point + 1)


def _membership(charset: Charset, points: NDArray[np.int64]) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (np.searchsorted(np.array(charset, np.int64), points, side="right") & 1) == 1
    return inside


def _from_membership(points: NDArray[np.int64], inside: NDArray[np.bool_]) -> Charset:
    changed = np.diff(inside, prepend=False)
    return tuple(points[changed].tolist())


def rising(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each number once, in order; np.unique would import numpy.ma, a quarter of a pattern's compilation."""
    ordered = np.sort(numbers)
    is_first = np.diff(ordered, prepend=ordered[:1] - 1) != 0
    distinct: NDArray[np.int64] = ordered[is_first]
    return distinct


def union(charsets: Sequence[Charset]) -> Charset:
    """Code points in any of the sets."""
    distinct = list(dict.fromkeys(charsets))
    if len(distinct) < 2:
        return distinct[0] if distinct else EMPTY
    points = rising(np.concatenate([np.array(charset, np.int64) for charset in distinct]))
    inside = np.zeros(len(points), np.bool_)
    for charset in distinct:
        inside |= _membership(charset, points)
    return _from_membership(points, inside)


def complement(charset: Charset) -> Charset:
    """Code points not in the set."""
    begins = charset[1:] if charset[:1] == (0,) else (0, *charset)
    return begins[:-1] if begins[-1:] == (NUM_CODE_POINTS,) else (*begins, NUM_CODE_POINTS)


def intersection(a: Charset, b: Charset) -> Charset:
    """Code points in both sets."""
    return complement(union([complement(a), complement(b)]))


@lru_cache(maxsize=1)
def _category_runs() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First code point and category of every run; the points end with the number of code points."""
    codes = string.ascii_uppercase + string.ascii_lowercase
    runs = re.findall(r"([A-Za-z])(\d*)", CATEGORY_RUNS)
    points = np.cumsum([0, *(int(length or 1) for _, length in runs)])
    return points, np.array([codes.index(code) for code, _ in runs])


def _categories(name: str) -> Charset | None:
    """The set of one general category (Lu) or of a group of them (L)."""
    wanted = [i for i, category in enumerate(CATEGORIES) if category.startswith(name)]
    if not wanted or not name:
        return None
    points, categories = _category_runs()
    return _from_membership(points, np.append(np.isin(categories, wanted), False))


def _sum(text: str) -> Charset:
    added: list[Charset] = []
    removed: list[Charset] = []
    for term in text.split():
        if term[0] in "+-":
            low, _, high = term[1:].partition("-")
            (added if term[0] == "+" else removed).append((int(low, 16), int(high or low, 16) + 1))
        else:
            group = _categories(term)
            assert group is not None, term
            added.append(group)
    return intersection(union(added), complement(union(removed)))


@lru_cache(maxsize=256)
def named_set(dialect: str, name: str) -> Charset | None:
    """A set of the dialect's Unicode tables: a category, a script, s (white space), w and lone w (\\w in and
    outside a class)."""
    if dialect == "rust_std":
        # The library uses only these three; nothing says what the others would be.
        return _sum(SETS[dialect][name]) if name in SETS[dialect] else None
    for listed in (SETS[dialect], SETS["oniguruma"]):
        if name in listed:
            return _sum(listed[name])
    return _categories(name)


@lru_cache(maxsize=256)
def property_set(dialect: str, name: str) -> Charset | None:
    """The set that a property name between the braces of \\p{..} stands for, or None if unknown."""
    plain = re.sub(r"[ _-]", "", name).lower()
    if plain == "any":
        return EVERYTHING
    if plain in ("lc", "casedletter"):
        parts = [named_set(dialect, category) for category in ("Lu", "Ll", "Lt")]
        return union([part for part in parts if part is not None]) or None
    short = LONG_NAMES.get(plain, plain.capitalize())
    return named_set(dialect, short) if len(short) > 1 or short in "LMNPSZC" else None


def folded(dialect: str, charset: Charset) -> Charset:
    """What an ASCII set matches when case is ignored."""
    folds = FOLDS.get(dialect, {})
    points = {p for low, high in zip(charset[::2], charset[1::2], strict=True) for p in range(low, high)}
    for letter in string.ascii_lowercase:
        if not points.isdisjoint((ord(letter), ord(letter.upper()))):
            points.update(map(ord, letter + letter.upper() + folds.get(letter, "")))
    return union([single(point) for point in sorted(points)])


def partition(charsets: Sequence[Charset]) -> Partition:
    """The coarsest classes that the sets do not tell apart, numbered by their first code point."""
    starts = rising(np.concatenate([np.array((0, *charset), np.int64) for charset in (EMPTY, *charsets)]))
    starts = starts[starts < NUM_CODE_POINTS]
    rows = np.array([_membership(charset, starts) for charset in (EMPTY, *charsets)])
    return merge_classes(starts, np.packbits(rows, axis=0).T)


def merge_classes(starts: NDArray[np.int64], keys: NDArray[np.generic]) -> Partition:
    """The partition whose classes are the intervals with equal rows of keys."""
    numbers: dict[bytes, int] = {}
    classes = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in keys], np.int64)
    return Partition(starts, classes, len(numbers))


def classes_of_set(parts: Partition, charset: Charset) -> list[bool]:
    """For every class, whether it lies in the set; the set must be one the partition was made from."""
    inside = _membership(charset, parts.starts)
    found = np.zeros(parts.num_classes, np.bool_)
    found[parts.classes[inside]] = True
    result: list[bool] = found.tolist()
    return result


def class_at(parts: Partition, points: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class of every given code point."""
    return parts.classes[np.searchsorted(parts.starts, points, side="right") - 1]


def two_stage(parts: Partition) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Lookup tables: the class of a code point is stage2[stage1[cp >> 8] * 256 + (cp & 255)]."""
    lengths = np.diff(parts.starts, append=NUM_CODE_POINTS)
    dense = np.repeat(parts.classes.astype(np.uint8), lengths).reshape(-1, 256)
    is_alike = (dense == dense[:, :1]).all(axis=1)  # as most blocks are
    blocks: dict[bytes, int] = {}
    contents = [bytes((first,)) for first in dense[:, 0].tolist()]
    for index in np.flatnonzero(~is_alike).tolist():
        contents[index] = dense[index].tobytes()
    stage1 = np.array([blocks.setdefault(content, len(blocks)) for content in contents], np.uint16)
    return stage1, np.frombuffer(b"".join(block.ljust(256, block[-1:]) for block in blocks), np.uint8)
