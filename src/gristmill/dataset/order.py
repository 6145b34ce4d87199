"""A seeded permutation of any size that is computed place by place, in no memory.

Number x of n is written as left * b + right, where a = ceil(sqrt(n)) and b = ceil(n / a), so that left < a
and right < b. Eight rounds follow, with a key each: left becomes (left + mix(right + key)) mod a in the
first, right becomes (right + mix(left + key)) mod b in the second, and so on in turn. Each round can be
undone, so together they permute 0..a*b-1. A result that is not under n goes through all rounds again until it
is: what is left is a permutation of 0..n-1. `mix` is the finalizer of splitmix64. The keys are the 64 bytes
of BLAKE2b over the name of the order. Saved states depend on it: neither may ever change."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from gristmill.engines import Offsets

Numbers = NDArray[np.uint64]


def shuffled(places: Offsets, num_items: int, *, name: str) -> Offsets:
    """The items that stand at some places of the order of this name."""
    keys = np.frombuffer(hashlib.blake2b(f"gristmill order 1: {name}".encode()).digest(), "<u8")
    left_size = math.isqrt(max(num_items, 1) - 1) + 1
    right_size = -(-num_items // left_size)
    found = _permuted(places.astype(np.uint64), left_size, right_size, keys)
    outside = np.flatnonzero(found >= num_items)
    while len(outside):
        found[outside] = _permuted(found[outside], left_size, right_size, keys)
        outside = outside[found[outside] >= num_items]
    return found.astype(np.int64)


def _permuted(numbers: Numbers, left_size: int, right_size: int, keys: Numbers) -> Numbers:
    a, b = np.uint64(left_size), np.uint64(right_size)
    left, right = numbers // b, numbers % b
    for number, key in enumerate(keys):
        if number % 2 == 0:
            left = (left + _mix(right + key) % a) % a
        else:
            right = (right + _mix(left + key) % b) % b
    return left * b + right


def _mix(x: Numbers) -> Numbers:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
