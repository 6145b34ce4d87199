"""How text becomes ids: engines behind one protocol (native: ours; cuda: ours on a GPU; tokenizers: the
reference; slow: Python)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ids = NDArray[np.uint32]
Offsets = NDArray[np.int64]
EngineName = Literal["native", "cuda", "tokenizers", "slow"]
SpecialTokens = Literal["text", "parse"]
"""What the text of a special token in a document becomes: ordinary text, or the token."""


class Engine(Protocol):
    """Encodes documents and decodes ids; adds no BOS or EOS."""

    @property
    def name(self) -> EngineName: ...

    def encode_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Ids, Offsets]:
        """Ids of document i, `buffer[offsets[i]:offsets[i + 1]]` (valid UTF-8), are `ids[o[i]:o[i + 1]]`."""
        ...

    def count_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> Offsets:
        """Number of ids of each document."""
        ...

    def decode(self, ids: Ids) -> bytes:
        """The text the ids stand for, special tokens included; partial characters as the engine's library
        has them."""
        ...


@runtime_checkable
class ListEngine(Protocol):
    """An engine that reads a list of documents where it lies, without joining them first, and whose methods
    refuse themselves what is not UTF-8."""

    def encode_list(
        self,
        texts: list[Any],
        *,
        special_tokens: SpecialTokens,
        replace_invalid: bool,
        num_threads: int,
    ) -> tuple[Ids, Offsets]:
        """Ids and offsets; invalid text raises `InputError`, or becomes U+FFFD."""
        ...


@runtime_checkable
class DeviceEngine(Protocol):
    """An engine that can leave ids on a device, and may leave documents to the CPU."""

    @property
    def fallback_rate(self) -> float:
        """Share of the documents so far that the CPU encoded."""
        ...

    def encode_on_device(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Any, Any]:
        """Ids and offsets as arrays of the device."""
        ...


def split_texts(buffer: Bytes, offsets: Offsets) -> Iterator[str]:
    """Each document as a `str`, for libraries that want one."""
    view = np.ascontiguousarray(buffer).data
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        yield str(view[start:end], "utf-8")


def join_ids(lists: Iterable[Sequence[int]]) -> tuple[Ids, Offsets]:
    """Ragged Python lists as one flat array and offsets."""
    arrays = [np.asarray(ids, dtype=np.uint32) for ids in lists]
    offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
    np.cumsum([len(ids) for ids in arrays], out=offsets[1:])
    return (np.concatenate(arrays) if arrays else np.empty(0, dtype=np.uint32)), offsets
