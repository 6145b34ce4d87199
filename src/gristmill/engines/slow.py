"""Any tokenizer that Python can call: tiktoken, sentencepiece, transformers' Python tokenizers, or your
own object."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from gristmill.engines import Bytes, Ids, Offsets, SpecialTokens, join_ids, split_texts
from gristmill.engines.tokenizers import calm
from gristmill.errors import InputError

EncodeText = Callable[[str], Iterable[int]]
DecodeIds = Callable[[list[int]], bytes]


class SlowEngine:
    """One Python call a document; special tokens are found here, so that every library follows the same
    policy, unless the library has a `parse` of its own.

    `why_not_text` says why the library cannot take special tokens as text; documents that spell one are then
    refused."""

    name: Literal["slow"] = "slow"

    def __init__(
        self,
        encode: EncodeText,
        decode: DecodeIds,
        *,
        specials: Mapping[str, int],
        parallel: bool,
        parse: EncodeText | None = None,
        why_not_text: str | None = None,
    ) -> None:
        self._encode_text = encode
        self._decode_ids = decode
        self._parse_text = parse or self._parse
        self._why_not_text = why_not_text
        self._specials = dict(specials)
        self._is_parallel = parallel
        # Longest first, so that the alternation is leftmost-longest as in the other engines.
        longest_first = sorted(self._specials, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def encode_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Ids, Offsets]:
        one = self._encode_text if special_tokens == "text" else self._parse_text
        encode: Callable[[str], list[int]] = lambda text: calm(lambda: list(one(text)))  # noqa: E731
        texts = split_texts(buffer, offsets)
        if special_tokens == "text" and self._why_not_text is not None:
            texts = self._without_specials(texts)
        try:
            if num_threads == 1 or not self._is_parallel:
                return join_ids(map(encode, texts))
            with ThreadPoolExecutor(num_threads) as pool:
                return join_ids(pool.map(encode, texts))
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"the tokenizer's library failed on these documents: {error}") from error

    def count_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> Offsets:
        ends = self.encode_batch(buffer, offsets, special_tokens=special_tokens, num_threads=num_threads)[1]
        return np.diff(ends)

    def decode(self, ids: Ids) -> bytes:
        return self._decode_ids(ids.tolist())

    def _without_specials(self, texts: Iterable[str]) -> Iterator[str]:
        for document, text in enumerate(texts):
            if self._special is not None and (found := self._special.search(text)):
                raise InputError(
                    f"document {document}: the text of special token {found.group()!r} cannot stay text: "
                    f"{self._why_not_text}; special_tokens='parse' takes it as the token"
                )
            yield text

    def _parse(self, text: str) -> list[int]:
        if self._special is None:
            return list(self._encode_text(text))
        ids: list[int] = []
        start = 0
        for match in self._special.finditer(text):
            if match.start() > start:
                ids.extend(self._encode_text(text[start : match.start()]))
            ids.append(self._specials[match.group()])
            start = match.end()
        if start < len(text):
            ids.extend(self._encode_text(text[start:]))
        return ids


def from_tiktoken(encoding: Any, *, specials: Mapping[str, int], id_offset: int = 0) -> SlowEngine:
    """Engine over a `tiktoken.Encoding`; ids are its ranks plus an offset (tekken puts special tokens
    first)."""
    special_bytes = {id_: text.encode() for text, id_ in specials.items()}

    def encode(text: str) -> list[int]:
        ranks: list[int] = encoding.encode_ordinary(text)
        return [rank + id_offset for rank in ranks] if id_offset else ranks

    def decode(ids: list[int]) -> bytes:
        return b"".join(special_bytes.get(i) or _rank_bytes(encoding, i - id_offset, i) for i in ids)

    return SlowEngine(encode, decode, specials=specials, parallel=True)


def from_sentencepiece(processor: Any, *, specials: Mapping[str, int]) -> SlowEngine:
    """Engine over a `sentencepiece.SentencePieceProcessor`."""

    def decode(ids: list[int]) -> bytes:
        if any(not 0 <= i < processor.vocab_size() for i in ids):
            raise InputError(f"an id to decode is not in 0..{processor.vocab_size() - 1}")
        return bytes(processor.decode(ids).encode())

    return SlowEngine(processor.encode_as_ids, decode, specials=specials, parallel=True)


def from_python(tokenizer: Any, *, specials: Mapping[str, int]) -> SlowEngine:
    """Engine over any object with `encode(str)` and `decode(ids)`; it is asked to add no special tokens.

    Special tokens are parsed by the object itself, because in transformers they may strip the spaces round
    them."""
    accepts = _keywords_of(tokenizer.encode)
    wanted = {"add_special_tokens": False, "verbose": False}
    options = {name: value for name, value in wanted.items() if name in accepts}
    is_asked = "split_special_tokens" in accepts or hasattr(tokenizer, "all_special_tokens")

    def encoder(*, split_special_tokens: bool) -> EncodeText:
        asked = options | ({"split_special_tokens": split_special_tokens} if is_asked else {})
        return lambda text: list(tokenizer.encode(text, **asked))

    encode, parse = encoder(split_special_tokens=True), encoder(split_special_tokens=False)

    def decode(ids: list[int]) -> bytes:
        text = tokenizer.decode(ids)
        return text if isinstance(text, bytes) else str(text).encode()

    why_not_text = _why_not_text(tokenizer, encode, specials)
    return SlowEngine(
        encode if why_not_text is None else parse,
        decode,
        specials=specials,
        parallel=False,
        parse=parse,
        why_not_text=why_not_text,
    )


def _why_not_text(tokenizer: Any, encode: EncodeText, specials: Mapping[str, int]) -> str | None:
    # split_special_tokens is all or nothing in transformers, and some tokenizers do not heed it.
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    others = [str(token) for token in added.values() if str(token) not in specials]
    if others:
        return f"its library would take its added token {others[0]!r} as text too"
    hidden = {id_ for id_ in specials.values() if id_ != getattr(tokenizer, "unk_token_id", None)}
    if hidden.intersection(encode("".join(f"a{text}b {text} " for text in specials))):
        return "its library takes it as the token whatever it is told"
    return None


def _rank_bytes(encoding: Any, rank: int, id_: int) -> bytes:
    try:
        return bytes(encoding.decode_single_token_bytes(rank))
    except (KeyError, OverflowError) as error:
        raise InputError(f"the tokenizer has no token with id {id_}") from error


def _keywords_of(function: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return frozenset()
