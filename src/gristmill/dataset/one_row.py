"""Columns of a single row, without the cost of arrays over arrays: the quick twin of `pack.columns`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.pack.columns import IGNORED

Borders = list[int]
"""0, then where each segment of the row ends; what comes after the last is padding."""


def labels(ids: NDArray[Any], kind: np.dtype[Any], borders: Borders, starts: list[int]) -> NDArray[Any]:
    """The ids, with IGNORED on padding and on the first token of documents; `starts` is empty where those are
    learned from too."""
    out = ids.astype(kind)
    out[borders[-1] :] = IGNORED
    for begin, start in zip(borders, starts, strict=False):
        if start == 0:
            out[begin] = IGNORED
    return out


def attention_mask(borders: Borders, length: int) -> NDArray[np.int8]:
    """1 on tokens, 0 on padding."""
    out = np.ones(length, np.int8)
    out[borders[-1] :] = 0
    return out


def position_ids(borders: Borders, length: int) -> NDArray[np.int32]:
    """Places from 0 in each segment, and in the padding."""
    numbers = np.arange(length, dtype=np.int32)
    out = np.empty(length, np.int32)
    for begin, end in itertools.pairwise([*borders, length]):
        out[begin:end] = numbers[: end - begin]
    return out


def segment_ids(borders: Borders, length: int) -> NDArray[np.int32]:
    """1 in the first segment, 2 in the next, and so on; 0 on padding."""
    out = np.zeros(length, np.int32)
    for number, (begin, end) in enumerate(itertools.pairwise(borders), 1):
        out[begin:end] = number
    return out
