"""2. DocumentBatch -> TokenBatch: the engine's ids, with BOS and EOS where the job wants them."""

from __future__ import annotations

from gristmill import _native
from gristmill.batch import DocumentBatch, TokenBatch
from gristmill.config import SpecialTokenPolicy
from gristmill.errors import InputError
from gristmill.layout import Layout
from gristmill.read.documents import set_apart
from gristmill.tokenizer import Tokenizer


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
    return documents, lay_out(tokens, layout)


def lay_out(tokens: TokenBatch, layout: Layout) -> TokenBatch:
    """Ids of documents with BOS and EOS where the job wants them, as wide as in its shards."""
    ids, offsets = _native.lay_out(
        tokens.ids, tokens.offsets, _or_none(layout.bos_id), _or_none(layout.eos_id), _width(layout)
    )
    return TokenBatch(ids, offsets)


def _drop_refused(
    documents: DocumentBatch, tokenizer: Tokenizer, special_tokens: SpecialTokenPolicy
) -> DocumentBatch:
    """Ask of each document alone: slow, and rare."""
    reason = "special_text" if special_tokens == "error" else "refused"
    faults = {}
    for i in range(len(documents)):
        text = documents.text[documents.offsets[i] : documents.offsets[i + 1]].tobytes()
        try:
            tokenizer.encode(text, special_tokens=special_tokens)
        except InputError as error:
            faults[i] = reason, str(error).removeprefix("document 0: ")
    return set_apart(documents, faults)


def _or_none(id_: int | None) -> int:
    return -1 if id_ is None else id_


def _width(layout: Layout) -> int:
    return layout.id_type.itemsize
