"""Merges -> tokenizer.json, as `tokenizers`, `transformers` and `load_tokenizer` read it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gristmill.engines.native import SPACE_MARK
from gristmill.errors import TokenizerFormatError
from gristmill.pattern import PATTERNS
from gristmill.spec import Split
from gristmill.training.merging import Merges


def new_json(
    merges: Merges,
    *,
    special_tokens: tuple[str, ...],
    splits: tuple[Split, ...],
    form: Literal["nfc", "nfkc"] | None = None,
) -> bytes:
    """The tokenizer that cuts text as the pieces were cut: byte-level, or, where symbols are characters, with
    ▁ for spaces and byte tokens for characters that have none (its splits are then those of ▁)."""
    ids = {token: id_ for id_, token in enumerate(merges.tokens)}
    is_bytes = merges.symbols == "bytes"
    made = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(token, ids[token]) for token in dict.fromkeys(special_tokens)],
        "normalizer": {"type": form.upper()} if form else None,
        "pre_tokenizer": _byte_level_splits(splits) if is_bytes else _MARKS,
        "post_processor": None,
        "decoder": _byte_level() if is_bytes else _MARKS_DECODER,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": not is_bytes,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges.pairs,
        },
    }
    return _written(made)


def extended_json(content: bytes, merges: Merges, *, source: str) -> bytes:
    """The tokenizer.json that the merges continue, with the new tokens and merges added; all else stays."""
    from gristmill.load.reading import decode_json

    made = decode_json(content, dict[str, Any], source=source)
    model = made.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise TokenizerFormatError(f"{source}: has no vocabulary that could be extended")
    # Added tokens outside the vocabulary get their ids by its size: they must be in it before it grows.
    for entry in made.get("added_tokens") or []:
        model["vocab"].setdefault(entry["content"], entry["id"])
    old = model.get("merges") or []
    is_text = bool(old) and isinstance(old[0], str)
    num_old = len(merges.rules) - len(merges.counts)
    new = merges.pairs[num_old:]
    model["merges"] = [*old, *(map(" ".join, new) if is_text else new)]
    known = set(model["vocab"])
    model["vocab"] |= {token: id_ for id_, token in enumerate(merges.tokens) if token and token not in known}
    return _written(made)


def _written(made: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(made), indent=1)


def _added_token(content: str, id_: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id_, "content": content, **flags, "special": True}


def _byte_level(*, use_regex: bool = True) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split_json(split: Split) -> dict[str, Any]:
    """A split as a pre-tokenizer."""
    return {
        "type": "Split",
        "pattern": {"Regex": split.pattern},
        "behavior": split.behavior.title().replace("_", ""),
        "invert": split.invert,
    }


def _byte_level_splits(splits: tuple[Split, ...]) -> dict[str, Any]:
    if [split.pattern for split in splits] == [PATTERNS["gpt2"]]:
        return _byte_level()
    steps = [split_json(split) for split in splits]
    if not steps:
        return _byte_level(use_regex=False)
    return {"type": "Sequence", "pretokenizers": [*steps, _byte_level(use_regex=False)]}


_MARKS = {"type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": "always", "split": True}
_MARKS_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
