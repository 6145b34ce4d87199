"""Mistral's tekken.json: tiktoken's ranks with special tokens first and the pattern inside."""

from __future__ import annotations

import msgspec

from gristmill.errors import TokenizerFormatError
from gristmill.load.loaded import Loaded
from gristmill.load.reading import MAX_ID, decode_json
from gristmill.load.tiktoken_ranks import Encoding, check_ranks, decode_base64, load_rank_model

UNLISTED_SPECIALS = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
"""Of files up to v7 that do not list their special tokens."""


class _Token(msgspec.Struct, frozen=True):
    rank: int
    token_bytes: str


class _Special(msgspec.Struct, frozen=True):
    rank: int
    token_str: str


class _Config(msgspec.Struct, frozen=True):
    pattern: str
    default_vocab_size: int
    default_num_special_tokens: int
    version: str


class _File(msgspec.Struct, frozen=True):
    config: _Config
    vocab: list[_Token]
    special_tokens: list[_Special] | None = None


def looks_like_tekken(content: bytes) -> bool:
    """Whether a JSON file is tekken's and not a tokenizer.json."""
    return b'"default_num_special_tokens"' in content and b'"token_bytes"' in content


def load_tekken(content: bytes, *, source: str) -> Loaded:
    """Load the content of a tekken.json."""
    file = decode_json(content, _File, source=source)
    specials = _specials(file, source)
    num_ranks = file.config.default_vocab_size - len(specials)
    if not 0 < num_ranks <= min(len(file.vocab), MAX_ID):
        raise TokenizerFormatError(
            f"{source}: default_vocab_size is {file.config.default_vocab_size:,}, "
            f"but the file has {len(file.vocab):,} tokens and {len(specials):,} special ones"
        )
    # The file may list more tokens than the model was trained with; the first ones count.
    tokens = file.vocab[:num_ranks]
    if any(token.rank != i for i, token in enumerate(tokens)):
        raise TokenizerFormatError(f"{source}: ranks do not count up from 0")
    try:
        texts = decode_base64([token.token_bytes.encode("ascii") for token in tokens])
    except ValueError as error:
        raise TokenizerFormatError(f"{source}: {error}") from error
    ranks = {text: rank for rank, text in enumerate(texts)}
    check_ranks(ranks, num_tokens=len(tokens), source=source)
    encoding = Encoding(file.config.pattern, specials, bos="<s>", eos="</s>", pad="<pad>")
    return load_rank_model(ranks, encoding, id_offset=len(specials), source=source)


def _specials(file: _File, source: str) -> dict[str, int]:
    num_specials = file.config.default_num_special_tokens
    if not 0 <= num_specials <= 1 << 16:
        raise TokenizerFormatError(f"{source}: default_num_special_tokens is {num_specials:,}")
    if file.special_tokens is not None:
        listed = {token.token_str: token.rank for token in file.special_tokens}
        num_listed = len(file.special_tokens)
    else:
        listed = {text: rank for rank, text in enumerate(UNLISTED_SPECIALS)}
        num_listed = len(listed)
    filler = {f"<SPECIAL_{i}>": i for i in range(num_listed, num_specials)}
    specials = listed | filler
    if len(listed) != num_listed or set(specials.values()) != set(range(num_specials)):
        raise TokenizerFormatError(
            f"{source}: special tokens are not {num_specials:,} different ones from rank 0 on"
        )
    return specials
