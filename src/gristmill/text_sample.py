"""A few documents as they were, with the file each came from: a trained tokenizer is measured on them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.batch import DocumentBatch
from gristmill.drafts import Draft
from gristmill.engines import Bytes, Offsets
from gristmill.errors import RunError
from gristmill.files import open_without_waiting
from gristmill.plain_arrays import read_array

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
    try:
        with open_without_waiting(path) as file:
            sample = TextSample(*(read_array(file) for _ in range(3)))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read ({error}); --force starts over") from error
    _check(path, sample)
    return sample


def _check(path: Path, sample: TextSample) -> None:
    text, offsets, files = sample
    kinds = [array.dtype for array in sample] == [np.uint8, np.int64, np.int64]
    if not (
        kinds
        and all(array.ndim == 1 for array in sample)
        and len(offsets) == len(files) + 1
        and offsets[0] == 0
        and offsets[-1] == len(text)
        and not (np.diff(offsets) < 0).any()
        and not (files < 0).any()
    ):
        raise RunError(f"{path}: is damaged; --force starts over")
