"""The reference engine: Hugging Face `tokenizers`, for any tokenizer.json, one Rust thread pool."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Literal, TypeVar

import numpy as np
import tokenizers

from gristmill.engines import Bytes, Ids, Offsets, SpecialTokens, join_ids, split_texts
from gristmill.errors import InputError, TokenizerFormatError

CHUNK_DOCUMENTS = 1024
"""Documents held as Python objects at a time: bounds memory, and is past where larger calls are faster."""

NOT_CHARACTERS = "\U0010fffd\U000ffffd"
"""No vocabulary has them: they become the unknown token, or bytes."""

T = TypeVar("T")


class PanicError(Exception):
    """The reference library panicked; its own exception is no `Exception` and would end the program."""


def calm(call: Callable[[], T]) -> T:
    """The call's result, with a Rust panic turned into an ordinary exception."""
    try:
        return call()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise PanicError(str(error)) from error


class _Switch:
    """One setting for all who are inside; whoever needs the other waits until they have left."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._changed = threading.Condition()
        self._num_inside = 0

    @contextmanager
    def set_to(self, special_tokens: SpecialTokens) -> Iterator[tokenizers.Tokenizer]:
        wanted = special_tokens == "text"
        with self._changed:
            while self._num_inside and self._tokenizer.encode_special_tokens != wanted:
                self._changed.wait()
            if not self._num_inside:
                self._tokenizer.encode_special_tokens = wanted
            self._num_inside += 1
        try:
            yield self._tokenizer
        finally:
            with self._changed:
                self._num_inside -= 1
                self._changed.notify_all()


class TokenizersEngine:
    """Runs `tokenizers.Tokenizer` as it is; the user's object is never touched, a copy is made from its
    JSON."""

    name: Literal["tokenizers"] = "tokenizers"

    def __init__(self, json: str, *, source: str) -> None:
        # The policy is a flag inside the library's object, and a second object would cost as much memory
        # again.
        self._switch = _Switch(parse_reference(json, source=source))
        self._forgeable: dict[int, str] | None = None
        """Special tokens that plain text can become, by id; absent: not looked for yet."""

    def encode_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Ids, Offsets]:
        texts = split_texts(buffer, offsets)
        try:
            with self._switch.set_to(special_tokens) as tokenizer:
                ids, ends = join_ids(calm(lambda: list(_encode(tokenizer, texts, num_threads))))
                if special_tokens == "text" and self._forgeable is None:
                    self._forgeable = _find_forgeable(tokenizer)
        except Exception as error:
            raise InputError(f"the tokenizers library failed on these documents: {error}") from error
        if special_tokens == "text" and self._forgeable:
            _refuse_forged(ids, ends, self._forgeable)
        return ids, ends

    def count_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> Offsets:
        ends = self.encode_batch(buffer, offsets, special_tokens=special_tokens, num_threads=num_threads)[1]
        return np.diff(ends)

    def decode(self, ids: Ids) -> bytes:
        with self._switch.set_to("text") as tokenizer:
            text: str = tokenizer.decode(ids.tolist(), skip_special_tokens=False)
        return text.encode()


def parse_reference(json: str, *, source: str) -> tokenizers.Tokenizer:
    """The reference library's object, with truncation and padding off: they are the trainer's business."""
    try:
        tokenizer = calm(lambda: tokenizers.Tokenizer.from_str(json))
    except Exception as error:
        raise TokenizerFormatError(f"{source}: the tokenizers library refuses it: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _find_forgeable(tokenizer: tokenizers.Tokenizer) -> dict[int, str]:
    """Special tokens that the model has among the pieces of plain text too, as Unigram models may."""
    added = tokenizer.get_added_tokens_decoder()
    specials = {id_: token.content for id_, token in added.items() if token.special}

    def encode(text: str) -> set[int]:
        return set(tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_by_model(text: str) -> set[int]:  # a normalizer may leave nothing of the text
        return {token.id for token in tokenizer.model.tokenize(text)}

    together = "".join(f"a{content}b {content} " for content in specials.values())
    found = set().union(*(_ids_or_none(encode, text) for text in (together, *specials.values())))
    found -= _ids_or_none(encode_by_model, NOT_CHARACTERS)
    return {id_: content for id_, content in specials.items() if id_ in found}


def _ids_or_none(encode: Callable[[str], set[int]], text: str) -> set[int]:
    """Of a text; none where the model has no ids for it, not even that of what is unknown."""
    try:
        return calm(lambda: encode(text))
    except Exception:
        return set()


def _refuse_forged(ids: Ids, ends: Offsets, forgeable: dict[int, str]) -> None:
    forged = np.flatnonzero(np.isin(ids, list(forgeable)))
    if len(forged):
        document = int(np.searchsorted(ends, forged[0], side="right")) - 1
        raise InputError(
            f"document {document}: the text of special token {forgeable[int(ids[forged[0]])]!r} cannot stay "
            "text: the model has it as a piece of text; special_tokens='parse' takes it as the token"
        )


def _encode(tokenizer: tokenizers.Tokenizer, texts: Iterator[str], num_threads: int) -> Iterator[list[int]]:
    if num_threads >= (os.cpu_count() or 1):
        while chunk := list(islice(texts, CHUNK_DOCUMENTS)):
            yield from (one.ids for one in tokenizer.encode_batch_fast(chunk, add_special_tokens=False))
        return

    def encode_one(text: str) -> list[int]:
        # A batch of one runs on one Rust thread, so the pool below, not the library's, sets how many run.
        ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    if num_threads == 1:
        yield from map(encode_one, texts)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        while chunk := list(islice(texts, CHUNK_DOCUMENTS)):
            yield from pool.map(encode_one, chunk)
