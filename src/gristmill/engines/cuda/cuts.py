"""Which places no token reaches across, from a few bytes around them (docs/design.md, coverage cuts).

The kernels ask at the start of characters that are not ASCII, first of the two bytes before and the two
at it, then of three and three. A token that covers the place begins one byte before it or earlier, and
ends one byte behind its start or later; in the first filter, where it begins or ends so near, the byte
beyond it may be any.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CUT_BITS = 23


class CutTables(NamedTuple):
    """What tokens have inside them: a cut that a table allows is a cut, others are left uncut."""

    pairs: NDArray[np.uint32]
    """Bits: tokens of just two bytes."""
    windows: NDArray[np.uint32]
    """Bits, by hash: four bytes of which some token covers the middle."""
    contexts: NDArray[np.uint32]
    """Bits, by hash: up to three bytes before and after a place that a token covers, with how many it has."""
    near: NDArray[np.uint8]
    """By two bytes: 1: a token begins with them; 2: one ends with them; 4 and 8: the same for longer ones."""
    has_no_double_space: bool


def cut_tables(flat: NDArray[np.uint8], offsets: NDArray[np.int64]) -> CutTables:
    """The tables for a vocabulary."""
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    before = np.arange(len(flat)) - offsets[owner]
    behind = offsets[owner + 1] - np.arange(len(flat))
    is_double = (flat[1:] == 0x20) & (flat[:-1] == 0x20) & (before[1:] > 0)
    inside = np.flatnonzero((before > 0) & (flat >= 0xC0))
    before, behind = before[inside], behind[inside]
    padded = np.concatenate([np.zeros(2, np.uint8), flat, np.zeros(2, np.uint8)]).astype(np.uint32)
    bytes_ = [padded[inside + i] for i in range(4)]  # two before, two at it
    is_near, is_short = before == 1, behind == 1
    windows = [
        _window(bytes_, ~is_near & ~is_short),
        *_windows_of_any(bytes_, ~is_near & is_short, 3),
        *_windows_of_any(bytes_, is_near & ~is_short, 0),
    ]
    pairs = bytes_[1][is_near & is_short] | bytes_[2][is_near & is_short] << 8
    return CutTables(
        _bits(pairs, 16),
        _bits(_hash(np.concatenate(windows)), CUT_BITS),
        _bits(_contexts(flat, inside, np.minimum(before, 3), np.minimum(behind, 3)), CUT_BITS),
        _near(flat, offsets),
        not is_double.any(),
    )


def _near(flat: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """What the contexts with fewer than three bytes need, so that most need not be asked for."""
    starts, ends, sizes = offsets[:-1], offsets[1:], np.diff(offsets)
    near = np.zeros(1 << 16, np.uint8)
    for least, bits in ((2, (1, 2)), (3, (4, 8))):
        long = sizes >= least
        for bit, at in zip(bits, (starts[long], ends[long] - 2), strict=True):
            pairs = flat[at].astype(np.int64) | flat[at + 1].astype(np.int64) << 8
            near[np.unique(pairs)] |= np.uint8(bit)
    return near


def _contexts(
    flat: NDArray[np.uint8], at: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Hashes of what stands around the places, as the kernels compute them."""
    padded = np.concatenate([np.zeros(3, np.uint8), flat, np.zeros(3, np.uint8)]).astype(np.uint32)
    before = sum((padded[at + i] << np.uint32(8 * i) for i in range(3)), np.uint32(0))
    after = sum((padded[at + 3 + i] << np.uint32(8 * i) for i in range(3)), np.uint32(0))
    near = before >> (8 * (3 - left)).astype(np.uint32)
    far = after & ((np.uint32(1) << (8 * right).astype(np.uint32)) - np.uint32(1))
    with np.errstate(over="ignore"):
        kind = (left * 4 + right).astype(np.uint32) * np.uint32(0x27D4EB2F)
        found = near * np.uint32(0x9E3779B1) ^ far * np.uint32(0x85EBCA77) ^ kind
        found = (found ^ found >> np.uint32(15)) * np.uint32(0x2C1B3C6D)
    hashes: NDArray[np.uint32] = found >> np.uint32(32 - CUT_BITS)
    return hashes


def _window(bytes_: list[NDArray[np.uint32]], which: NDArray[np.bool_]) -> NDArray[np.uint32]:
    return np.unique(sum((bytes_[i][which] << np.uint32(8 * i) for i in range(4)), np.uint32(0)))


def _windows_of_any(
    bytes_: list[NDArray[np.uint32]], which: NDArray[np.bool_], at: int
) -> list[NDArray[np.uint32]]:
    """Windows with every byte at one place."""
    kept = [byte if i != at else np.zeros_like(byte) for i, byte in enumerate(bytes_)]
    known = _window(kept, which)
    return [known | np.uint32(byte << 8 * at) for byte in range(256)]


def _hash(windows: NDArray[np.uint32]) -> NDArray[np.uint32]:
    with np.errstate(over="ignore"):
        return (windows * np.uint32(0x9E3779B1)) >> np.uint32(32 - CUT_BITS)


def _bits(numbers: NDArray[np.uint32], num_bits: int) -> NDArray[np.uint32]:
    flags = np.zeros(1 << num_bits, np.bool_)
    flags[numbers] = True
    return np.packbits(flags, bitorder="little").view(np.uint32)
