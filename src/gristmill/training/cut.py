"""How training text is cut into pieces; stored in every inventory, so that unlike counts never mix."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from typing import Any, Literal

import msgspec

from gristmill import _native
from gristmill.engine_cache import Steps
from gristmill.engines.native import SPACE_MARK, require_same_class, splits_over_spaces, splitting_steps
from gristmill.errors import ConfigError, UnsupportedTokenizerError
from gristmill.pattern import PATTERNS, CompiledSplits, compile_splits
from gristmill.spec import Split, TokenizerSpec

SPACES = "metaspace"
USUAL = "gpt2"
"""Where neither the user nor a tokenizer that is extended says otherwise."""
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
_AT_SPACES = Split(pattern=f"[ {SPACE_MARK}]", dialect="oniguruma", behavior="merged_with_next")
_AT_RUNS_OF_SPACES = Split(pattern=f"[ {SPACE_MARK}]*[^ {SPACE_MARK}]+", dialect="oniguruma")


class Cut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides which pieces a document has."""

    splits: tuple[Split, ...] = ()
    """None: a document is one piece."""
    form: Literal["nfc", "nfkc"] | None = None
    marks: bool = False
    """As SentencePiece: a space before every document, and U+2581 is a space; pieces have spaces."""
    prefix: Literal["never", "missing", "always"] | None = None
    """A space before every document, or before those that begin with none; absent: as `marks` has it."""


def cut_of(pattern: str, *, form: Literal["nfc", "nfkc"] | None = None) -> Cut:
    """The cut of a pattern: one of `NAMES`, "none", "metaspace", or a regex in the syntax of `tokenizers`."""
    if pattern == "none":
        return Cut(form=form)
    if pattern == SPACES:
        return Cut(splits=(_AT_SPACES,), form=form, marks=True)
    _refuse_unknown(pattern)
    regex = PATTERNS[NAMES[pattern]] if pattern in NAMES else pattern
    return Cut(splits=(Split(pattern=regex, dialect="oniguruma"),), form=form)


def _refuse_unknown(pattern: str) -> None:
    """A word is the name of a pattern: as a regex it would only cut out that word."""
    if pattern in NAMES or not re.fullmatch(r"[A-Za-z]\w*([.-]\w+)*", pattern):
        return
    names = [*NAMES, SPACES, "none"]
    near = difflib.get_close_matches(pattern.lower(), names, n=1)
    raise ConfigError(
        f"no pattern {pattern!r}{f' (did you mean {near[0]}?)' if near else ''}; there are "
        f"{', '.join(sorted(names))}, and a regex of this word is (?:{pattern})"
    )


def cut_of_spec(spec: TokenizerSpec) -> Cut:
    """The cut of a tokenizer: text is brought into its form and cut into pieces as it does before encoding.

    One that replaces spaces and cuts nowhere is cut before spaces, as SentencePiece does when it trains:
    else a document would be one piece, and tokens would reach across words."""
    marks = spec.normalization.replace_spaces
    splits = splits_over_spaces(spec.splits) if marks else spec.splits
    if marks and not splits:
        splits = (_AT_RUNS_OF_SPACES,)
    if marks and [(split.pattern, split.behavior) for split in splits] == [("[ \u2581]", "merged_with_next")]:
        splits = (_AT_SPACES,)
    prefix: Literal["never", "missing", "always"] = "never"
    if spec.prefix is not None:
        prefix = "missing" if spec.prefix.unless_present else "always"
    is_implied = prefix == ("missing" if marks else "never")
    return Cut(
        splits=splits, form=spec.normalization.form, marks=marks, prefix=None if is_implied else prefix
    )


def name_of_cut(cut: Cut) -> str:
    """The pattern of a cut as the user would give it; else all of the cut, as it stands in an inventory."""
    names = (*NAMES.values(), *NAMES, SPACES, "none")
    named = (name for name in names if cut_of(name, form=cut.form) == cut)
    return next(named, encode_cut(cut).decode())


def encode_cut(cut: Cut) -> bytes:
    """The same bytes for the same cut, as they stand in an inventory."""
    values = msgspec.to_builtins(cut)
    if cut.prefix is None:  # as inventories have it that are older than this field
        del values["prefix"]
    return msgspec.json.encode(values)


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
    for name, arguments in _known.get(cut) or cut_steps(cut):
        getattr(build, name)(*arguments)
    return build


_known: dict[Cut, Steps] = {}


def know_cut(cut: Cut, steps: Steps) -> None:
    """Let `build_cut` have what was compiled before of this cut; the last one is known."""
    _known.clear()
    _known[cut] = steps


def cut_steps(cut: Cut) -> Steps:
    """The calls that hand a cut to a native build; ConfigError says why a pattern has none."""
    steps: Steps = []
    if cut.form:
        steps.append(("set_form", [cut.form]))
    if cut.marks:
        steps.append(("set_spaces_as_marks", []))
    prefix = cut.prefix or ("missing" if cut.marks else "never")
    if prefix != "never":
        steps.append(("set_prefix", ["always", prefix == "missing", prefix == "always"]))
    try:
        tables = _tables(cut.splits)
        if cut.marks:
            require_same_class(tables)
    except UnsupportedTokenizerError as error:
        raise ConfigError(
            f"{error}; the pattern is one of {', '.join(sorted(NAMES))}, {SPACES}, none, or a regex"
        ) from error
    return steps + [(name, list(arguments)) for name, arguments in splitting_steps(tables)]
