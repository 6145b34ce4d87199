"""The normalizer and pre_tokenizer sections of a tokenizer.json as spec values, or the reason they cannot be.

Every default of an absent field is the one of the Rust library. A part of an unexpected shape is "not
known" here; whether it is damaged is for the reference library to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from gristmill.errors import UnsupportedTokenizerError
from gristmill.load.reading import MAX_PATTERN_CHARACTERS
from gristmill.pattern import PATTERNS, escape
from gristmill.spec import Normalization, Prefix, Split, SplitBehavior

MAX_NESTING = 16
MAX_SPLITS = 16
"""DeepSeek and Falcon, which have the most, have three and four."""
SPACE_MARK = "▁"

BEHAVIORS: dict[str, SplitBehavior] = {
    "Isolated": "isolated",
    "Removed": "removed",
    "MergedWithPrevious": "merged_with_previous",
    "MergedWithNext": "merged_with_next",
    "Contiguous": "contiguous",
}


class Pipeline(msgspec.Struct, kw_only=True):
    """Built up step by step, in the order of the file."""

    form: Literal["nfc", "nfkc"] | None = None
    replaces_spaces: Literal["normalizer", "pre_tokenizer"] | None = None
    prefix: Prefix | None = None
    prefix_text: str = ""
    """What the normalizer puts in front, as it stands after the steps so far."""
    splits: list[Split] = []
    is_byte_level: bool = False

    @property
    def normalization(self) -> Normalization:
        """The normalizer as the spec has it."""
        return Normalization(form=self.form, replace_spaces=self.replaces_spaces is not None)


def read_pipeline(normalizer: Any, pre_tokenizer: Any) -> Pipeline:
    """Both sections in one value, or `UnsupportedTokenizerError` with a sentence that says what is in the
    way."""
    line = Pipeline()
    for part in _steps(normalizer, "normalizers"):
        _apply(NORMALIZERS, line, part, what="normalizer")
    if line.prefix and line.replaces_spaces is None and line.prefix_text != " ":
        raise UnsupportedTokenizerError(
            f"its normalizer prepends {line.prefix_text!r} but keeps spaces as they are"
        )
    for part in _steps(pre_tokenizer, "pretokenizers"):
        _apply(PRE_TOKENIZERS, line, part, what="pre-tokenizer")
        if len(line.splits) > MAX_SPLITS:
            raise UnsupportedTokenizerError(f"it splits more than {MAX_SPLITS} times over")
    if line.is_byte_level and line.replaces_spaces:
        raise UnsupportedTokenizerError("it replaces spaces and then maps bytes to characters")
    return line


def _steps(section: Any, members: str, depth: int = 0) -> list[dict[str, Any]]:
    if section is None:
        return []
    if not isinstance(section, dict) or depth > MAX_NESTING:
        raise UnsupportedTokenizerError("its pipeline has a shape the native engine does not know")
    if section.get("type") != "Sequence":
        return [section]
    parts = section.get(members)
    if not isinstance(parts, list):
        raise UnsupportedTokenizerError(f"it has a Sequence without {members}")
    return [step for part in parts for step in _steps(part, members, depth + 1)]


Step = Callable[[Pipeline, "dict[str, Any]"], None]


def _apply(known: dict[str, Step], line: Pipeline, part: dict[str, Any], *, what: str) -> None:
    step = known.get(str(part.get("type")))
    if step is None:
        raise UnsupportedTokenizerError(f"the native engine has no {what} {str(part.get('type'))[:40]!r}")
    step(line, part)


def _field(part: dict[str, Any], name: str, kind: type, *default: Any) -> Any:
    value = part.get(name, *default)
    if type(value) is not kind:
        raise UnsupportedTokenizerError(f"{part.get('type')}.{name} is not a {kind.__name__}")
    return value


# Normalizers. The spec's order is: form, then spaces; each step here is accepted only where that order
# gives the same.


def _nfc(line: Pipeline, part: dict[str, Any]) -> None:
    # Neither a space nor ▁ takes part in a canonical composition, and NFC makes no spaces: the order does
    # not matter.
    _set_form(line, "nfc")


def _nfkc(line: Pipeline, part: dict[str, Any]) -> None:
    if line.replaces_spaces:
        raise UnsupportedTokenizerError("it applies NFKC, which makes spaces, after replacing them")
    _set_form(line, "nfkc")


def _set_form(line: Pipeline, form: Literal["nfc", "nfkc"]) -> None:
    if line.is_byte_level or line.form not in (None, form):
        raise UnsupportedTokenizerError("it combines several Unicode normalizers")
    line.form = form


def _prepend(line: Pipeline, part: dict[str, Any]) -> None:
    text = _field(part, "prepend", str)
    if not text:
        return
    if text not in (" ", SPACE_MARK) or line.prefix or line.is_byte_level:
        raise UnsupportedTokenizerError(
            f"its normalizer prepends {text[:40]!r}, not one space or one {SPACE_MARK}"
        )
    if line.replaces_spaces and text == " ":
        raise UnsupportedTokenizerError("its normalizer prepends a space after replacing spaces")
    line.prefix = Prefix(where="always", unless_present=False, stage="normalizer")
    line.prefix_text = text


def _replace(line: Pipeline, part: dict[str, Any]) -> None:
    pattern, content = _field(part, "pattern", dict), _field(part, "content", str)
    if pattern not in ({"String": " "}, {"Regex": " "}) or content != SPACE_MARK or line.is_byte_level:
        raise UnsupportedTokenizerError(
            f"its normalizer replaces something other than a space by {SPACE_MARK}"
        )
    line.replaces_spaces = "normalizer"
    line.prefix_text = line.prefix_text and SPACE_MARK


def _byte_level_normalizer(line: Pipeline, part: dict[str, Any]) -> None:
    if line.is_byte_level or line.prefix:
        raise UnsupportedTokenizerError(
            "its normalizer maps bytes to characters in a way the native engine does not"
        )
    line.is_byte_level = True


NORMALIZERS: dict[str, Step] = {
    "NFC": _nfc,
    "NFKC": _nfkc,
    "Prepend": _prepend,
    "Replace": _replace,
    "ByteLevel": _byte_level_normalizer,
}


def _byte_level(line: Pipeline, part: dict[str, Any]) -> None:
    if line.is_byte_level:
        raise UnsupportedTokenizerError("it maps bytes to characters twice")
    _field(part, "trim_offsets", bool)
    if _field(part, "add_prefix_space", bool):
        if line.splits or line.prefix:
            raise UnsupportedTokenizerError("it puts a space before every piece, not before the text")
        line.prefix = Prefix(where="always", unless_present=True, stage="pre_tokenizer")
    if _field(part, "use_regex", bool, True):
        line.splits.append(Split(pattern=PATTERNS["gpt2"], dialect="oniguruma"))
    line.is_byte_level = True


def _metaspace(line: Pipeline, part: dict[str, Any]) -> None:
    if line.splits or line.is_byte_level or line.prefix:
        raise UnsupportedTokenizerError("its Metaspace does not come first")
    if part.get("replacement") != SPACE_MARK:
        raise UnsupportedTokenizerError(
            f"its Metaspace puts {str(part.get('replacement'))[:40]!r} for a space"
        )
    scheme = _field(part, "prepend_scheme", str, "always")
    if part.get("add_prefix_space") is False and scheme != "never":
        raise UnsupportedTokenizerError("its Metaspace contradicts itself about the prefix")
    if scheme not in ("always", "first", "never"):
        raise UnsupportedTokenizerError(f"its Metaspace has the prepend_scheme {scheme[:40]!r}")
    if scheme != "never":
        where: Literal["first", "always"] = "first" if scheme == "first" else "always"
        line.prefix = Prefix(where=where, unless_present=True, stage="pre_tokenizer")
    line.replaces_spaces = line.replaces_spaces or "pre_tokenizer"
    if part.get("split") is not False:
        _cut(line, SPACE_MARK, "rust_std", "merged_with_next")


def _split(line: Pipeline, part: dict[str, Any]) -> None:
    pattern, invert = _field(part, "pattern", dict), _field(part, "invert", bool)
    behavior = BEHAVIORS.get(_field(part, "behavior", str))
    if behavior is None:
        raise UnsupportedTokenizerError(f"Split.behavior is {part['behavior'][:40]!r}")
    if set(pattern) == {"String"} and isinstance(pattern["String"], str):
        text = pattern["String"]
        if text == " " and line.replaces_spaces and not invert:
            return  # Gemma: no space is left to cut at
        regex = escape(text)
    elif set(pattern) == {"Regex"} and isinstance(pattern["Regex"], str):
        regex = pattern["Regex"]
    else:
        raise UnsupportedTokenizerError("Split.pattern is neither a string nor a regex")
    if not regex or len(regex) > MAX_PATTERN_CHARACTERS:
        raise UnsupportedTokenizerError(f"Split.pattern has {len(regex):,} characters")
    over: Literal["characters", "bytes"] = "bytes" if line.is_byte_level else "characters"
    line.splits.append(Split(pattern=regex, dialect="oniguruma", behavior=behavior, invert=invert, over=over))


def _digits(line: Pipeline, part: dict[str, Any]) -> None:
    alone = _field(part, "individual_digits", bool)
    _cut(line, PATTERNS["digits"], "rust_std", "isolated" if alone else "contiguous")


def _punctuation(line: Pipeline, part: dict[str, Any]) -> None:
    name = _field(part, "behavior", str, "Isolated")
    if name not in BEHAVIORS:
        raise UnsupportedTokenizerError(f"Punctuation.behavior is {name[:40]!r}")
    _cut(line, PATTERNS["punctuation"], "rust_std", BEHAVIORS[name])


def _whitespace(line: Pipeline, part: dict[str, Any]) -> None:
    _cut(line, r"\w+|[^\w\s]+", "rust", "removed", invert=True)


def _whitespace_split(line: Pipeline, part: dict[str, Any]) -> None:
    _cut(line, r"\s", "rust_std", "removed")


PRE_TOKENIZERS: dict[str, Step] = {
    "ByteLevel": _byte_level,
    "Metaspace": _metaspace,
    "Split": _split,
    "Digits": _digits,
    "Punctuation": _punctuation,
    "Whitespace": _whitespace,
    "WhitespaceSplit": _whitespace_split,
}


def _cut(
    line: Pipeline,
    pattern: str,
    dialect: Literal["rust", "rust_std"],
    behavior: SplitBehavior,
    *,
    invert: bool = False,
) -> None:
    over: Literal["characters", "bytes"] = "bytes" if line.is_byte_level else "characters"
    line.splits.append(Split(pattern=pattern, dialect=dialect, behavior=behavior, invert=invert, over=over))
