"""What a tokenizer is, as plain values: loaders produce it, the native engine compiles it.

Everything that can change an id is in `TokenizerSpec` and nothing else, so its fingerprint names the
tokenizer.
A loader that meets something these structs cannot say raises `UnsupportedTokenizerError` with the reason.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Dialect = Literal["oniguruma", "rust", "rust_std"]
SplitBehavior = Literal["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]


class MergeModel(msgspec.Struct, frozen=True, kw_only=True, tag="merges"):
    """BPE by a merge list, as in tokenizer.json; strings are as in the file.

    Byte-level: a byte without a token (StarCoder has none for 0xF1) is taken out of its piece before merging.
    Plain: a byte without a fallback token never needs one (its character is a token)."""

    vocab: dict[str, int]
    merges: list[tuple[str, str]] | list[str]
    """In priority order, as pairs or as "left right" strings (older files)."""
    token_text: Literal["byte_level", "plain"]
    """byte_level: each character of a token stands for a byte (GPT-2's table); plain: UTF-8, ▁ for a
    space."""
    byte_fallback: bool = False
    ignore_merges: bool = False


class RankModel(msgspec.Struct, frozen=True, kw_only=True, tag="ranks"):
    """BPE by rank of the merged bytes, as in tiktoken and tekken; a whole piece in the vocabulary is one
    token.

    A token's id is its rank plus `id_offset`."""

    ranks: dict[bytes, int]
    id_offset: int = 0


class ScoreModel(msgspec.Struct, frozen=True, kw_only=True, tag="scores"):
    """SentencePiece BPE: any two neighbours whose concatenation is a piece may merge, highest score first.

    Only pieces that merging can produce are listed, ▁ for a space; byte pieces are in `byte_ids` alone,
    because the text "<0x0A>" is six characters and never the piece of that name."""

    pieces: list[str]
    ids: list[int]
    scores: list[float]
    byte_ids: list[int]
    """Ids of <0x00>..<0xFF> (256 of them): characters that are no piece become these."""


class Normalization(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to text before splitting, in this order."""

    form: Literal["nfc", "nfkc"] | None = None
    replace_spaces: bool = False
    """Every space becomes ▁ (plain token text)."""


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """A space (▁ where spaces are replaced) put before a stretch of text between added tokens."""

    where: Literal["first", "always"]
    """first: only before a stretch that begins at the first byte of the document."""
    unless_present: bool
    """Not when the stretch already begins with one."""
    stage: Literal["normalizer", "pre_tokenizer"]
    """Before or after added tokens with `normalized` are looked for."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """One cut of text into pieces by a pattern; several apply one after the other, each inside the pieces
    of the last."""

    pattern: str
    dialect: Dialect
    """Whose syntax and Unicode tables it follows: Oniguruma (`tokenizers`), Rust's regex (tiktoken), or
    Rust's char methods (the Digits and Punctuation pre-tokenizers)."""
    behavior: SplitBehavior = "isolated"
    invert: bool = False
    over: Literal["characters", "bytes"] = "characters"
    """bytes: the pattern reads one character of GPT-2's byte table per byte of text, as Falcon's digits do
    (a cut may fall inside a character)."""


class AddedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A string matched in text before anything else."""

    id: int
    content: str
    special: bool
    normalized: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False


class TokenizerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides which ids a text gets."""

    model: MergeModel | RankModel | ScoreModel
    normalization: Normalization = Normalization()
    prefix: Prefix | None = None
    splits: tuple[Split, ...] = ()
    """Empty: a stretch of text is one piece."""
    added_tokens: tuple[AddedToken, ...] = ()
