"""How training text is cut into pieces; stored in every inventory, so that unlike counts never mix."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import msgspec

from gristmill import _native
from gristmill.engines.native import splitting_steps
from gristmill.errors import ConfigError, UnsupportedTokenizerError
from gristmill.pattern import PATTERNS, CompiledSplits, compile_splits
from gristmill.spec import Split

SPACES = "metaspace"
NAMES = {
    "gpt2": "gpt2",
    "gpt4": "llama3",  # the same pieces; `tokenizers` reads the {1,3}+ of cl100k_base otherwise
    "cl100k": "llama3",
    "cl100k_base": "llama3",
    "o200k": "o200k_base",
    "o200k_base": "o200k_base",
    "llama3": "llama3",
    "qwen2": "qwen2",
    "tekken": "tekken",
    "bloom": "bloom",
}


class Cut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides which pieces a document has."""

    splits: tuple[Split, ...] = ()
    """None: a document is one piece."""
    form: Literal["nfc", "nfkc"] | None = None
    marks: bool = False
    """As SentencePiece: a space before every document, and U+2581 is a space; pieces have spaces."""


def cut_of(pattern: str, *, form: Literal["nfc", "nfkc"] | None = None) -> Cut:
    """The cut of a pattern: one of `NAMES`, "none", "metaspace", or a regex in the syntax of `tokenizers`."""
    if pattern == "none":
        return Cut(form=form)
    if pattern == SPACES:
        split = Split(pattern="[ \u2581]", dialect="oniguruma", behavior="merged_with_next")
        return Cut(splits=(split,), form=form, marks=True)
    regex = PATTERNS[NAMES[pattern]] if pattern in NAMES else pattern
    return Cut(splits=(Split(pattern=regex, dialect="oniguruma"),), form=form)


def encode_cut(cut: Cut) -> bytes:
    """The same bytes for the same cut, as they stand in an inventory."""
    return msgspec.json.encode(cut)


def decode_cut(about: bytes) -> Cut:
    """What `encode_cut` wrote; ConfigError for anything else."""
    try:
        return msgspec.json.decode(about, type=Cut)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the inventory was cut in a way that is not known here: {error}") from error


@lru_cache(maxsize=4)
def _tables(splits: tuple[Split, ...]) -> CompiledSplits:
    return compile_splits(splits)


def build_cut(cut: Cut) -> Any:
    """The native tables of a cut; ConfigError says why a pattern has none."""
    build = _native.Build()
    if cut.form:
        build.set_form(cut.form)
    if cut.marks:
        build.set_spaces_as_marks()
        build.set_prefix("always", True, False)
    try:
        for name, arguments in splitting_steps(_tables(cut.splits)):
            getattr(build, name)(*arguments)
    except UnsupportedTokenizerError as error:
        raise ConfigError(
            f"{error}; the pattern is one of {', '.join(sorted(NAMES))}, {SPACES}, none, or a regex"
        ) from error
    return build
