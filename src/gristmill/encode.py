"""2. DocumentBatch -> TokenBatch: the engine's ids, with BOS and EOS where the job wants them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gristmill import _native
from gristmill.batch import DocumentBatch, TokenBatch
from gristmill.config import SpecialTokenPolicy
from gristmill.errors import InputError
from gristmill.layout import Layout
from gristmill.read.documents import set_apart
from gristmill.tokenizer import Tokenizer

FEW_DOCUMENTS = 32
"""Encoded together where some of a batch are refused."""


def encode_documents(
    documents: DocumentBatch,
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    special_tokens: SpecialTokenPolicy,
    num_threads: int,
) -> tuple[DocumentBatch, TokenBatch]:
    """Ids of the documents as they go into shards; documents the tokenizer refuses move to the bad ones."""

    def encode(part: DocumentBatch) -> TokenBatch:
        return tokenizer.encode_batch(
            (part.text, part.offsets), num_threads=num_threads, special_tokens=special_tokens
        )

    try:
        tokens = encode(documents)
    except InputError:
        documents, tokens = _encode_apart(
            documents, encode, reason="special_text" if special_tokens == "error" else "refused"
        )
    return documents, lay_out(tokens, layout)


def lay_out(tokens: TokenBatch, layout: Layout) -> TokenBatch:
    """Ids of documents with BOS and EOS where the job wants them, as wide as in its shards."""
    ids, offsets = _native.lay_out(
        tokens.ids, tokens.offsets, _or_none(layout.bos_id), _or_none(layout.eos_id), _width(layout)
    )
    return TokenBatch(ids, offsets)


def _encode_apart(
    documents: DocumentBatch, encode: Callable[[DocumentBatch], TokenBatch], *, reason: str
) -> tuple[DocumentBatch, TokenBatch]:
    """A few documents at a time, and one by one where some of these are refused."""
    parts: list[TokenBatch] = []
    faults: dict[int, tuple[str, str]] = {}

    def take(start: int, stop: int) -> None:
        try:
            parts.append(encode(documents.part(start, stop)))
        except InputError as error:
            if stop - start == 1:
                faults[start] = reason, str(error).removeprefix("document 0: ")
                return
            for i in range(start, stop):
                take(i, i + 1)

    for start in range(0, len(documents), FEW_DOCUMENTS):
        take(start, min(start + FEW_DOCUMENTS, len(documents)))
    lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
    ids = np.concatenate([np.zeros(0, np.uint32), *(part.ids for part in parts)])
    return set_apart(documents, faults), TokenBatch(ids, np.cumsum(lengths))


def _or_none(id_: int | None) -> int:
    return -1 if id_ is None else id_


def _width(layout: Layout) -> int:
    return layout.id_type.itemsize
