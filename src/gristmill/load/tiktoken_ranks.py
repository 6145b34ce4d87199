"""Rank files of tiktoken: base64 tokens with their ranks, which know neither their pattern nor their
special tokens.

Those come from the encoding's name, from the caller, or (Llama's tokenizer.model) from the number of tokens.
"""

from __future__ import annotations

import binascii
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gristmill.engines import Engine
from gristmill.errors import (
    ConfigError,
    MissingPackageError,
    TokenizerFormatError,
    UnsupportedTokenizerError,
)
from gristmill.load.loaded import Loaded, check_vocabulary, fingerprint_spec, package_version
from gristmill.load.reading import MAX_PATTERN_CHARACTERS, MAX_TOKEN_CHARACTERS, max_id
from gristmill.pattern import PATTERNS
from gristmill.spec import AddedToken, RankModel, Split, TokenizerSpec


class Encoding(msgspec.Struct, frozen=True):
    """What a rank file leaves out."""

    pattern: str
    specials: Mapping[str, int]
    num_ranks: int | None = None
    bos: str | None = None
    eos: str | None = None
    pad: str | None = None


def _openai(pattern: str, specials: dict[str, int], num_ranks: int) -> Encoding:
    return Encoding(pattern, specials, num_ranks, eos="<|endoftext|>")


def _r50k() -> Encoding:
    return _openai(PATTERNS["r50k_base"], {"<|endoftext|>": 50256}, 50256)


def _p50k() -> Encoding:
    return _openai(PATTERNS["r50k_base"], {"<|endoftext|>": 50256}, 50280)


def _p50k_edit() -> Encoding:
    middle = {"<|fim_prefix|>": 50281, "<|fim_middle|>": 50282, "<|fim_suffix|>": 50283}
    return _openai(PATTERNS["r50k_base"], {"<|endoftext|>": 50256, **middle}, 50280)


def _cl100k() -> Encoding:
    names = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]
    specials = {**_numbered(names, 100257), "<|endofprompt|>": 100276}
    return _openai(PATTERNS["cl100k_base"], specials, 100256)


def _o200k() -> Encoding:
    return _openai(PATTERNS["o200k_base"], {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}, 199998)


def _o200k_harmony() -> Encoding:
    named = {
        199998: "<|startoftext|>",
        199999: "<|endoftext|>",
        200002: "<|return|>",
        200003: "<|constrain|>",
        200005: "<|channel|>",
        200006: "<|start|>",
        200007: "<|end|>",
        200008: "<|message|>",
        200012: "<|call|>",
    }
    specials = {named.get(i, f"<|reserved_{i}|>"): i for i in range(199998, 201088)}
    # 200018 has two names: OpenAI's table adds the reserved one to those of o200k_base.
    return _openai(PATTERNS["o200k_base"], {**specials, "<|endofprompt|>": 200018}, 199998)


def _llama3() -> Encoding:
    reserved = [f"<|reserved_special_token_{i}|>" for i in range(251)]
    names = [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        *reserved[:4],
        "<|start_header_id|>",
        "<|end_header_id|>",
    ]
    names += [reserved[4], "<|eot_id|>", *reserved[5:]]
    return _llama(PATTERNS["llama3"], names, 128000)


def _llama31() -> Encoding:
    names = [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|reserved_special_token_0|>",
        "<|reserved_special_token_1|>",
    ]
    names += ["<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>"]
    names += ["<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>"]
    names += [f"<|reserved_special_token_{i}|>" for i in range(2, 246)]
    return _llama(PATTERNS["llama3"], names, 128000, pad="<|finetune_right_pad_id|>")


def _llama4() -> Encoding:
    def reserved(family: str, start: int, stop: int) -> list[str]:
        return [f"<|{family}reserved_special_token_{i}|>" for i in range(start, stop)]

    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]
    names += ["<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"]
    names += [
        *reserved("text_post_train_", 0, 6),
        "<|python_start|>",
        "<|python_end|>",
        "<|finetune_right_pad|>",
    ]
    names += reserved("text_post_train_", 8, 69)
    names += ["<|image_start|>", "<|image_end|>", *reserved("vision_", 0, 2), "<|tile_x_separator|>"]
    names += [
        "<|tile_y_separator|>",
        *reserved("vision_", 2, 6),
        "<|image|>",
        *reserved("vision_", 6, 7),
        "<|patch|>",
    ]
    names += [*reserved("vision_", 7, 1048), *reserved("reasoning_", 0, 8)]
    names += ["<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"]
    names += reserved("", 0, 2048 - len(names))
    return _llama(PATTERNS["o200k_base"], names, 200000, pad="<|finetune_right_pad|>")


def _llama(pattern: str, names: list[str], first_id: int, pad: str | None = None) -> Encoding:
    specials = _numbered(names, first_id)
    return Encoding(pattern, specials, first_id, bos="<|begin_of_text|>", eos="<|end_of_text|>", pad=pad)


def _numbered(names: list[str], first_id: int) -> dict[str, int]:
    return {name: first_id + i for i, name in enumerate(names)}


ENCODINGS: dict[str, Callable[[], Encoding]] = {
    "cl100k_base": _cl100k,
    "gpt2": _r50k,
    "llama3": _llama3,
    "llama3.1": _llama31,
    "llama4": _llama4,
    "o200k_base": _o200k,
    "o200k_harmony": _o200k_harmony,
    "p50k_base": _p50k,
    "p50k_edit": _p50k_edit,
    "r50k_base": _r50k,
}

LLAMA_BY_NUM_RANKS = {128000: "llama3", 200000: "llama4"}
MAX_FIELDS = 1 << 22
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


def looks_like_ranks(content: bytes) -> bool:
    """Whether the first line is a base64 token and a rank."""
    fields = content[:4096].split(b"\n", 1)[0].split()
    return len(fields) == 2 and not fields[0].translate(None, _BASE64) and fields[1].isdigit()


def load_ranks(
    content: bytes,
    *,
    source: str,
    name: str | None,
    encoding: str | None,
    pattern: str | None,
    special_tokens: Mapping[str, int] | None,
) -> Loaded:
    """Load the content of a rank file; `name` is the file's, which for OpenAI's files is the encoding's."""
    ranks = parse_ranks(content, source=source)
    if pattern is not None:
        if encoding is not None:
            raise ConfigError("give an encoding or a pattern, not both")
        chosen = Encoding(pattern, special_tokens or {})
    else:
        chosen = _choose_encoding(name, encoding, len(ranks), source)
        if special_tokens is not None:
            chosen = msgspec.structs.replace(chosen, specials=special_tokens)
    return load_rank_model(ranks, chosen, id_offset=0, source=source)


def _choose_encoding(name: str | None, encoding: str | None, num_ranks: int, source: str) -> Encoding:
    known = ", ".join(ENCODINGS)
    if encoding is not None and encoding not in ENCODINGS:
        raise ConfigError(f"unknown encoding {encoding!r}; known are {known}")
    stem = name.removesuffix(".tiktoken") if name else None
    key = encoding or (stem if stem in ENCODINGS else None) or LLAMA_BY_NUM_RANKS.get(num_ranks)
    if key is None:
        raise ConfigError(
            f"{source}: a rank file does not say its pattern; set encoding ({known}) or pattern"
        )
    chosen = ENCODINGS[key]()
    if chosen.num_ranks != num_ranks:
        raise TokenizerFormatError(
            f"{source}: has {num_ranks:,} tokens, but {key} has {chosen.num_ranks:,}; "
            "is it whole, and the right encoding?"
        )
    return chosen


def parse_ranks(content: bytes, *, source: str) -> dict[bytes, int]:
    """Token bytes and their ranks, every line checked."""
    if len(content) - len(content.translate(None, b" \t\n\r\v\f")) > MAX_FIELDS:
        raise TokenizerFormatError(f"{source}: has more than {MAX_FIELDS // 2:,} lines")
    fields = content.split()
    encoded, numbers = fields[0::2], fields[1::2]
    if not fields or len(fields) != 2 * sum(map(bool, content.splitlines())):
        raise TokenizerFormatError(f"{source}: is no rank file: not every line is a token and a rank")
    if not b"".join(numbers).isdigit() or max(map(len, numbers)) > 10:
        raise TokenizerFormatError(f"{source}: is no rank file: a rank is not a number")
    try:
        tokens = decode_base64(encoded)
    except ValueError as error:
        raise TokenizerFormatError(f"{source}: is no rank file: {error}") from error
    ranks = dict(zip(tokens, map(int, numbers), strict=True))
    check_ranks(ranks, num_tokens=len(tokens), source=source)
    return ranks


def decode_base64(encoded: list[bytes]) -> list[bytes]:
    """Strict base64 of many tokens at once: the library's own check is newer than the oldest Python we run
    on."""
    joined = b"".join(encoded)
    if joined.translate(None, _BASE64) or any(len(token) % 4 for token in encoded):
        raise ValueError("a token is not base64")
    tokens = list(map(binascii.a2b_base64, encoded))
    if sum(map(len, tokens)) != len(joined) // 4 * 3 - joined.count(b"="):
        raise ValueError("a token is not base64")
    return tokens


def check_ranks(ranks: Mapping[bytes, int], *, num_tokens: int, source: str) -> None:
    """Refuse what tiktoken could only crash on."""
    if len(ranks) != num_tokens:
        raise TokenizerFormatError(f"{source}: a token is there twice")
    check_vocabulary(ranks, source=source)
    if b"" in ranks:
        raise TokenizerFormatError(f"{source}: a token is empty")
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise TokenizerFormatError(
            f"{source}: {len(missing)} single bytes have no rank, 0x{missing[0]:02X} for one"
        )


def load_rank_model(ranks: dict[bytes, int], encoding: Encoding, *, id_offset: int, source: str) -> Loaded:
    """Ranks with a pattern and special tokens: tiktoken's files, tiktoken's objects and Mistral's tekken."""
    specials = dict(encoding.specials)
    _check_specials(specials, ranks, id_offset, source)
    if not 0 < len(encoding.pattern) <= MAX_PATTERN_CHARACTERS:
        raise TokenizerFormatError(f"{source}: the pattern has {len(encoding.pattern):,} characters")
    ordered = sorted(specials.items(), key=lambda item: (item[1], item[0]))
    spec = TokenizerSpec(
        model=RankModel(ranks=ranks, id_offset=id_offset),
        # tiktoken encodes what its pattern matches, and drops the rest.
        splits=(Split(pattern=encoding.pattern, dialect="rust", behavior="removed", invert=True),),
        added_tokens=tuple(AddedToken(id=id_, content=text, special=True) for text, id_ in ordered),
    )

    def token_to_id(token: str) -> int | None:
        if token in specials:
            return specials[token]
        rank = ranks.get(token.encode("utf-8", "surrogatepass"))
        return None if rank is None else rank + id_offset

    return Loaded(
        source=source,
        model="BPE by rank",
        spec=spec,
        why_not_native=None,
        fingerprint=fingerprint_spec(spec),
        vocab_size=1 + max(max(ranks.values()) + id_offset, max(specials.values(), default=0)),
        specials=specials,
        token_to_id=token_to_id,
        reference_name="slow",
        build_reference=lambda: _build_tiktoken(ranks, encoding.pattern, specials, id_offset, source),
        build_check=lambda: _build_check(ranks, encoding.pattern, specials, id_offset, source),
        reference_version=package_version("tiktoken"),
        bos_id=specials.get(encoding.bos or ""),
        eos_id=specials.get(encoding.eos or ""),
        pad_id=specials.get(encoding.pad or ""),
    )


def _check_specials(specials: dict[str, int], ranks: dict[bytes, int], id_offset: int, source: str) -> None:
    used = {rank + id_offset for rank in ranks.values()}
    largest = max_id(len(ranks))
    for text, id_ in specials.items():
        if not isinstance(text, str) or type(id_) is not int or not 0 <= id_ <= largest:
            raise TokenizerFormatError(
                f"{source}: special token {text!r} has id {id_!r}, not in 0..{largest}"
            )
        if not 0 < len(text) <= MAX_TOKEN_CHARACTERS:
            raise TokenizerFormatError(f"{source}: special token {id_} has {len(text):,} characters")
        if id_ in used:
            raise TokenizerFormatError(
                f"{source}: special token {text!r} has id {id_}, which is an ordinary token's"
            )
    ordered = sorted(specials)
    for short, long in itertools.pairwise(ordered):  # whatever begins others stands right before one of them
        if long.startswith(short):
            raise UnsupportedTokenizerError(
                f"{source}: special token {short!r} begins {long!r}, and which of them tiktoken finds in "
                "a text depends on how it hashes them; leave one out"
            )


def _build_tiktoken(
    ranks: dict[bytes, int], pattern: str, specials: dict[str, int], id_offset: int, source: str
) -> Engine:
    from gristmill.engines.slow import from_tiktoken
    from gristmill.engines.tokenizers import calm

    try:
        import tiktoken
    except ImportError as error:
        raise MissingPackageError(f"{source} needs tiktoken here: pip install tiktoken") from error
    try:
        encoding: Any = calm(
            lambda: tiktoken.Encoding(source, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        )
    except Exception as error:
        raise TokenizerFormatError(f"{source}: tiktoken refuses it: {error}") from error
    return from_tiktoken(encoding, specials=specials, id_offset=id_offset)


def _build_check(
    ranks: dict[bytes, int], pattern: str, specials: dict[str, int], id_offset: int, source: str
) -> Engine:
    try:
        return _build_tiktoken(ranks, pattern, specials, id_offset, source)
    except MissingPackageError:
        from gristmill.engines.twins import rank_twin

        return rank_twin(ranks, pattern, specials=specials, id_offset=id_offset)
