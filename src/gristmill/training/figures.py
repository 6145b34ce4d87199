"""An inventory in figures: its commonest pieces, how it grows with text, and what scripts it is of."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.scripts import SCRIPTS, script_at
from gristmill.training.inventory import Inventory, Pieces

FRACTIONS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
LOOKED_AT_BYTES = 8


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
    first = script_at(text, at)
    symbols, digits = SCRIPTS.index("symbols"), SCRIPTS.index("digits")
    found = first.copy()
    for _ in range(LOOKED_AT_BYTES):
        moving = (text[at] < 0x80) & ((found == symbols) | (found == digits)) & (at + 1 < ends)
        if not moving.any():
            break
        at[moving] += 1
        found[moving] = script_at(text, at[moving])
    is_letter = (found != symbols) & (found != digits)
    return np.where(is_letter, found, first)
