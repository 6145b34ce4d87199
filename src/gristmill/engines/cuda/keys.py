"""The tables of pieces (words.h): where a key lies, and a table of the vocabulary's own pieces."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WORD_WORDS = 4
PHRASE_WORDS = 8
MORE = 0x80000000

Words = NDArray[np.uint32]


def key_table(
    flat: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    headers: Words,
    width: int,
    bits: int,
    num_needed: int,
) -> Words:
    """A table of 2**bits entries of keys and one id each; those that find no place are left out, but for the
    first `num_needed`."""
    keys = _keys(flat, starts, sizes, width)
    table = np.zeros((1 << bits, 2 * width), np.uint32)
    first_places = place_of(keys, bits, 0)
    pending = np.arange(len(keys))
    for attempt in range(4):
        places = place_of(keys[pending], bits, attempt)
        free = np.flatnonzero(table[places, width - 1] == 0)
        taken, first = np.unique(places[free], return_index=True)
        placed = pending[free[first]]
        table[taken, :width] = keys[placed]
        table[taken, width] |= headers[placed]
        if attempt:
            table[first_places[placed], width] |= np.uint32(MORE)
        pending = np.delete(pending, free[first])
    assert not (pending < num_needed).any()
    return table


def _keys(flat: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64], width: int) -> Words:
    """The bytes, zeros, and the length in the last byte."""
    keys = np.zeros((len(starts), 4 * width), np.uint8)
    for i in range(4 * width - 1):
        has = sizes > i
        keys[has, i] = flat[starts[has] + i]
    keys[:, -1] = sizes
    return keys.view(np.uint32)


def place_of(keys: Words, bits: int, attempt: int) -> NDArray[np.int64]:
    """Where the keys lie at an attempt, as the kernels have it."""
    found = np.full(len(keys), 0 if attempt < 2 else 0x85EBCA77, np.uint32)
    with np.errstate(over="ignore"):
        for i in range(keys.shape[1]):
            found = (found ^ keys[:, i]) * np.uint32(0x9E3779B1) + (found >> np.uint32(15))
        found ^= found >> np.uint32(15)
        found *= np.uint32(0x2C1B3C6D)
    found ^= found >> np.uint32(13)
    places = (found >> np.uint32(32 - bits)).astype(np.int64)
    return places ^ (attempt & 1)
