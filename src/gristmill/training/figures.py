"""An inventory in figures: its commonest pieces, how it grows with text, and what scripts it is of."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.training.inventory import Inventory, Pieces

FRACTIONS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
LOOKED_AT_BYTES = 8
# Where each stretch of code points begins, and its script. Scripts of few pieces are "other".
RANGES: tuple[tuple[int, str], ...] = (
    *((0x0, "symbols"), (0x30, "digits"), (0x3A, "symbols"), (0x41, "Latin"), (0x5B, "symbols")),
    *((0x61, "Latin"), (0x7B, "symbols"), (0xC0, "Latin"), (0xD7, "symbols"), (0xD8, "Latin")),
    *((0xF7, "symbols"), (0xF8, "Latin"), (0x2B0, "symbols"), (0x370, "Greek"), (0x400, "Cyrillic")),
    *((0x530, "Armenian"), (0x590, "Hebrew"), (0x600, "Arabic"), (0x700, "other"), (0x750, "Arabic")),
    *((0x780, "other"), (0x8A0, "Arabic"), (0x900, "Devanagari"), (0x980, "Bengali"), (0xA00, "Indic")),
    *((0xE00, "Thai"), (0xE80, "other"), (0x10A0, "Georgian"), (0x1100, "Hangul"), (0x1200, "Ethiopic")),
    *((0x13A0, "other"), (0x1E00, "Latin"), (0x1F00, "Greek"), (0x2000, "symbols"), (0x2C00, "other")),
    *((0x2E80, "Han"), (0x3000, "symbols"), (0x3040, "Kana"), (0x3100, "other"), (0x3130, "Hangul")),
    *((0x3190, "other"), (0x31F0, "Kana"), (0x3200, "symbols"), (0x3400, "Han"), (0x4DC0, "symbols")),
    *((0x4E00, "Han"), (0xA000, "other"), (0xAC00, "Hangul"), (0xD800, "other"), (0xF900, "Han")),
    *((0xFB00, "Latin"), (0xFB13, "Armenian"), (0xFB1D, "Hebrew"), (0xFB50, "Arabic"), (0xFE00, "symbols")),
    *((0xFE70, "Arabic"), (0xFEFF, "symbols"), (0xFF21, "Latin"), (0xFF5B, "symbols"), (0xFF66, "Kana")),
    *((0xFFA0, "Hangul"), (0xFFE0, "symbols"), (0x10000, "other"), (0x1F000, "symbols"), (0x20000, "Han")),
    (0x40000, "other"),
)
SCRIPTS = tuple(sorted({script for _, script in RANGES}))
_STARTS = np.array([start for start, _ in RANGES], np.int64)
_SCRIPT_OF_RANGE = np.array([SCRIPTS.index(script) for _, script in RANGES], np.int64)


class Growth(NamedTuple):
    """How the number of distinct pieces follows from the amount of text."""

    num_hapax: int
    """Pieces that were there once."""
    distinct: tuple[tuple[float, float], ...]
    """Share of all pieces in a random sample, and how many distinct ones it is expected to have."""


class ScriptShare(NamedTuple):
    """What pieces of one script add up to."""

    num_pieces: int
    total_count: int
    text_bytes: int
    """Sizes times counts: their share of the text."""


def top_pieces(inventory: Inventory, num_pieces: int) -> list[tuple[bytes, int]]:
    """The commonest pieces, most frequent first; of equals, the one first in order of bytes."""
    best: list[tuple[int, int, bytes]] = []  # a heap; the second number falls, so later equals lose
    position = 0
    for chunk in inventory.chunks():
        least = best[0][0] if best and len(best) == num_pieces else 0
        for i in np.flatnonzero(chunk.counts > least).tolist():
            entry = (int(chunk.counts[i]), -(position + i), chunk.piece(i))
            if len(best) < num_pieces:
                heapq.heappush(best, entry)
            elif best and entry > best[0]:
                heapq.heapreplace(best, entry)
        position += len(chunk.counts)
    return [(piece, count) for count, _, piece in sorted(best, reverse=True)]


def measure_growth(inventory: Inventory) -> Growth:
    """Hapaxes, and distinct pieces expected in samples, from how many pieces have each count."""
    pieces_with: Counter[int] = Counter()
    for chunk in inventory.chunks():
        values, sizes = np.unique(chunk.counts, return_counts=True)
        pieces_with.update(dict(zip(values.tolist(), sizes.tolist(), strict=True)))
    counts = np.array(list(pieces_with), np.float64)
    sizes = np.array(list(pieces_with.values()), np.float64)
    distinct = tuple(
        (fraction, float(np.sum(sizes * (1 - (1 - fraction) ** counts)))) for fraction in FRACTIONS
    )
    return Growth(pieces_with[1], distinct)


def script_shares(inventory: Inventory, *, below: int | None = None) -> dict[str, ScriptShare]:
    """Scripts by their share of the text, largest first; with `below`, of pieces rarer than that alone."""
    totals = np.zeros((len(SCRIPTS), 3), np.uint64)
    for chunk in inventory.chunks():
        scripts = scripts_of(chunk)
        if below is not None:
            scripts[chunk.counts >= below] = -1
        lengths = np.diff(chunk.offsets).astype(np.uint64)
        for script in np.unique(scripts[scripts >= 0]).tolist():
            counts = chunk.counts[scripts == script]
            text_bytes = np.sum(counts * lengths[scripts == script])
            totals[script] += np.array([len(counts), np.sum(counts), text_bytes], np.uint64)
    shares = {name: ScriptShare(*row) for name, row in zip(SCRIPTS, totals.tolist(), strict=True) if row[0]}
    return dict(sorted(shares.items(), key=lambda item: (-item[1].text_bytes, item[0])))


def scripts_of(pieces: Pieces) -> NDArray[np.int64]:
    """Index in SCRIPTS of each piece: that of its first letter, or of its first character without one.

    A letter is looked for behind the ASCII that a piece begins with, its first few bytes."""
    text = np.concatenate([pieces.text, np.zeros(3, np.uint8)]).astype(np.int64)
    at, ends = pieces.offsets[:-1].copy(), pieces.offsets[1:]
    first = _script_at(text, at)
    symbols, digits = SCRIPTS.index("symbols"), SCRIPTS.index("digits")
    found = first.copy()
    for _ in range(LOOKED_AT_BYTES):
        moving = (text[at] < 0x80) & ((found == symbols) | (found == digits)) & (at + 1 < ends)
        if not moving.any():
            break
        at[moving] += 1
        found[moving] = _script_at(text, at[moving])
    is_letter = (found != symbols) & (found != digits)
    return np.where(is_letter, found, first)


def _script_at(text: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
    lead, b1, b2, b3 = (text[at + i] & (0xFF if i == 0 else 0x3F) for i in range(4))
    points = np.select(
        [lead < 0x80, lead < 0xE0, lead < 0xF0],
        [lead, (lead & 0x1F) << 6 | b1, (lead & 0x0F) << 12 | b1 << 6 | b2],
        (lead & 0x07) << 18 | b1 << 12 | b2 << 6 | b3,
    )
    return _SCRIPT_OF_RANGE[np.searchsorted(_STARTS, points, side="right") - 1]
