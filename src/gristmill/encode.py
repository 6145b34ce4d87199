"""2. DocumentBatch -> TokenBatch: the engine's ids, with BOS and EOS where the job wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gristmill import _native
from gristmill.batch import BadDocument, DocumentBatch, TokenBatch
from gristmill.config import SpecialTokenPolicy
from gristmill.errors import InputError
from gristmill.layout import Layout
from gristmill.tokenizer import Tokenizer

EXCERPT_CHARS = 100


def encode_documents(
    documents: DocumentBatch,
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    special_tokens: SpecialTokenPolicy,
    num_threads: int,
) -> tuple[DocumentBatch, TokenBatch]:
    """Ids of the documents as they go into shards; documents the tokenizer refuses move to the bad ones."""
    try:
        tokens = tokenizer.encode_batch(
            (documents.text, documents.offsets), num_threads=num_threads, special_tokens=special_tokens
        )
    except InputError:
        documents = _drop_refused(documents, tokenizer, special_tokens)
        tokens = tokenizer.encode_batch(
            (documents.text, documents.offsets), num_threads=num_threads, special_tokens=special_tokens
        )
    ids, offsets = _native.lay_out(
        tokens.ids, tokens.offsets, _or_none(layout.bos_id), _or_none(layout.eos_id), _width(layout)
    )
    return documents, TokenBatch(ids, offsets)


def _drop_refused(
    documents: DocumentBatch, tokenizer: Tokenizer, special_tokens: SpecialTokenPolicy
) -> DocumentBatch:
    """Ask of each document alone: slow, and rare."""
    reason = "special_text" if special_tokens == "error" else "refused"
    kept, bad = np.ones(len(documents), dtype=bool), []
    for i in range(len(documents)):
        text = documents.text[documents.offsets[i] : documents.offsets[i + 1]].tobytes()
        try:
            tokenizer.encode(text, special_tokens=special_tokens)
        except InputError as error:
            kept[i] = False
            detail = str(error).removeprefix("document 0: ")
            excerpt = text.decode()[:EXCERPT_CHARS]
            place = int(documents.records[i]), int(documents.positions[i])
            bad.append(BadDocument(*place, reason, detail, excerpt))
    return keep_documents(documents, kept, bad=(*documents.bad, *bad))


def keep_documents(
    documents: DocumentBatch, kept: Any, *, bad: tuple[BadDocument, ...] | None = None
) -> DocumentBatch:
    """The documents for which `kept` is true."""
    text, offsets = _keep(documents.text, documents.offsets, kept)
    return replace(
        documents,
        text=text,
        offsets=offsets,
        records=documents.records[kept],
        positions=documents.positions[kept],
        names=None if documents.names is None else _keep(*documents.names, kept),
        bad=documents.bad if bad is None else bad,
    )


def _keep(flat: Any, offsets: Any, kept: Any) -> tuple[Any, Any]:
    lengths = np.diff(offsets)
    new_offsets = np.zeros(int(kept.sum()) + 1, dtype=np.int64)
    np.cumsum(lengths[kept], out=new_offsets[1:])
    return flat[np.repeat(kept, lengths)], new_offsets


def _or_none(id_: int | None) -> int:
    return -1 if id_ is None else id_


def _width(layout: Layout) -> int:
    return layout.id_type.itemsize
