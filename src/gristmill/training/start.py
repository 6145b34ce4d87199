"""Where learning starts: special tokens and the alphabet, or all tokens and merges of another tokenizer.

Ids are those of `tokenizers`: special tokens as given, then the alphabet by code point, then merges in order.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill import _native
from gristmill.engines.native import SPACE_MARK
from gristmill.errors import ConfigError, UnsupportedTokenizerError
from gristmill.spec import MergeModel, TokenizerSpec
from gristmill.training.inventory import Pieces

Symbols = Literal["bytes", "characters"]
"""What pieces consist of before the first merge: bytes, or characters, where a space is written ▁ and
characters outside the alphabet are left to byte tokens."""

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}
"""GPT-2's table: the byte that a character of a byte-level token stands for."""
_CHARACTERS = {byte: character for character, byte in _BYTES.items()}


class Start(NamedTuple):
    """Tokens and merges there are before anything is learned."""

    symbols: Symbols
    tokens: list[str]
    """By id, as tokenizer.json writes them."""
    alphabet: dict[int, int]
    """Ids of bytes or of code points."""
    known: NDArray[np.uint32]
    """Merges already there, a row each: left id, right id, id of the merged token."""


def new_start(
    pieces: Pieces,
    *,
    symbols: Symbols = "bytes",
    special_tokens: tuple[str, ...] = (),
    is_whole_alphabet: bool = True,
    max_alphabet: int | None = None,
) -> Start:
    """Special tokens (and byte tokens, where symbols are characters), then the alphabet of the pieces; the
    whole alphabet has all 256 bytes, whether they occur or not."""
    reserved = special_tokens if symbols == "bytes" else (*special_tokens, *BYTE_TOKENS)
    tokens = list(dict.fromkeys(reserved))
    ids = {token: id_ for id_, token in enumerate(tokens)}
    if symbols == "bytes" and is_whole_alphabet:
        kept = list(range(256))
    else:
        kept = _most_frequent(*_native.count_symbols(*pieces, symbols=symbols), max_alphabet)
    text = {
        symbol: _CHARACTERS[symbol] if symbols == "bytes" else chr(symbol).replace(" ", SPACE_MARK)
        for symbol in kept
    }
    alphabet = {}
    for symbol in sorted(kept, key=lambda symbol: ord(text[symbol])):
        alphabet[symbol] = ids.setdefault(text[symbol], len(ids))
    return Start(symbols, list(ids), alphabet, np.zeros((0, 3), np.uint32))


def start_from(spec: TokenizerSpec) -> Start:
    """All tokens of a tokenizer with their ids, and its merges, to go on from."""
    model = spec.model
    if not isinstance(model, MergeModel):
        raise UnsupportedTokenizerError("only a tokenizer.json with merges can be extended")
    ids = model.vocab | {token.content: token.id for token in spec.added_tokens}
    tokens = [""] * (1 + max(ids.values()))
    for token, id_ in ids.items():
        tokens[id_] = token
    is_bytes = model.token_text == "byte_level"
    alphabet = {
        _BYTES[token] if is_bytes else ord(token): id_
        for token, id_ in model.vocab.items()
        if len(token) == 1 and (not is_bytes or token in _BYTES)
    }
    if ord(SPACE_MARK) in alphabet and not is_bytes:
        alphabet[ord(" ")] = alphabet[ord(SPACE_MARK)]
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model.merges)
    try:
        rows = [(ids[left], ids[right], ids[left + right]) for left, right in pairs]
    except KeyError as error:
        raise UnsupportedTokenizerError(f"a merge needs the token {error}, which is not there") from error
    known = np.array(rows, np.uint32).reshape(-1, 3)
    return Start("bytes" if is_bytes else "characters", tokens, alphabet, known)


def spelling(token: str, symbols: Symbols) -> bytes:
    """The text a merge must give to make this token; empty where none can."""
    if symbols == "characters":
        return token.replace(SPACE_MARK, " ").encode()
    return bytes(map(_BYTES.__getitem__, token)) if _BYTES.keys() >= set(token) else b""


def token_text(spelled: bytes, symbols: Symbols) -> str:
    """A token as tokenizer.json writes it."""
    if symbols == "characters":
        return spelled.decode().replace(" ", SPACE_MARK)
    return spelled.decode("latin-1").translate(_CHARACTERS)


def token_texts(spelled: bytes, offsets: NDArray[np.int64], symbols: Symbols) -> list[str]:
    """The same for tokens of one flat buffer."""
    bounds = offsets.tolist()
    if symbols == "characters":
        return [token_text(spelled[start:stop], symbols) for start, stop in pairwise(bounds)]
    text = token_text(spelled, symbols)  # a character for every byte
    return [text[start:stop] for start, stop in pairwise(bounds)]


def check_room(start: Start, vocab_size: int) -> None:
    """Refuse a vocabulary that has no room for the tokens there are."""
    if vocab_size >= len(start.tokens):
        return
    remedy = ", or keep fewer characters (learn.max_alphabet)" if start.symbols == "characters" else ""
    raise ConfigError(
        f"vocab_size is {vocab_size:,}, but special tokens, alphabet and known merges are already"
        f" {len(start.tokens):,} tokens; ask for as many or more{remedy}"
    )


def _most_frequent(
    found: NDArray[np.uint32], counts: NDArray[np.uint64], max_alphabet: int | None
) -> list[int]:
    if max_alphabet is None or len(found) <= max_alphabet:
        return list(map(int, found))
    order = np.argsort(counts.max() - counts, kind="stable")  # of equal counts the smaller symbol stays
    return sorted(map(int, found[order[:max_alphabet]]))
