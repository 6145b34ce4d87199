"""A few documents as they were, with the file each came from: a trained tokenizer is measured on them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.batch import DocumentBatch
from gristmill.drafts import Draft
from gristmill.engines import Bytes, Offsets

MAX_DOCUMENT_BYTES = 64 << 10
"""Kept of a document: its beginning."""


class TextSample(NamedTuple):
    """Document i is `text[offsets[i]:offsets[i + 1]]`, of the file with the number `files[i]`."""

    text: Bytes
    offsets: Offsets
    files: NDArray[np.int64]


class SampleWriter:
    """Gathers documents."""

    def __init__(self) -> None:
        self._texts: list[Bytes] = []
        self._files: list[int] = []

    def add(self, documents: DocumentBatch, drawn: NDArray[np.bool_], *, file: int) -> None:
        """Keep the beginnings of the documents that are drawn."""
        for document in np.flatnonzero(drawn).tolist():
            start, stop = map(int, documents.offsets[document : document + 2])
            self._texts.append(_beginning(documents.text[start:stop]).copy())
            self._files.append(file)

    def arrays(self) -> TextSample:
        """All of it, flat."""
        return TextSample(
            np.concatenate([np.zeros(0, np.uint8), *self._texts]),
            np.cumsum([0, *map(len, self._texts)], dtype=np.int64),
            np.array(self._files, np.int64),
        )


def _beginning(text: Bytes) -> Bytes:
    stop = min(len(text), MAX_DOCUMENT_BYTES)
    while 0 < stop < len(text) and text[stop] & 0xC0 == 0x80:  # not inside a character
        stop -= 1
    return text[:stop]


def write_sample(file: Draft, sample: TextSample) -> None:
    """Three NumPy arrays, one after the other."""
    for array in sample:
        np.save(file, array, allow_pickle=False)


def read_sample(path: Path) -> TextSample:
    """What `write_sample` wrote."""
    with path.open("rb") as file:
        return TextSample(*(np.load(file, allow_pickle=False) for _ in range(3)))
