"""A tokenizer by name, and what the model should see round a document and after it.

Files are loaded by `load_tokenizer`; what has none of its files (tokenizers that exist only as Python code,
old vocabularies) is loaded by transformers, if that is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import tokenizers

from gristmill.config import CausalLMConfig
from gristmill.errors import ConfigError, TokenizerError
from gristmill.load import LoadOptions, find_local_file
from gristmill.load.hub import is_out_of_reach, looks_like_hub_name
from gristmill.tokenizer import Tokenizer, load_tokenizer

ALIASES = {
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "gemma": "google/gemma-7b",
    "gpt-neox": "EleutherAI/gpt-neox-20b",
    "gpt2": "openai-community/gpt2",
    "llama2": "meta-llama/Llama-2-7b-hf",
    "llama3": "meta-llama/Meta-Llama-3-8B",
    "mistral": "mistralai/Mistral-7B-v0.1",
    "pythia": "EleutherAI/pythia-1b",
    "qwen2.5": "Qwen/Qwen2.5-7B",
    "qwen3": "Qwen/Qwen3-8B-Base",
}
"""Short names of common tokenizers; a file or folder of that name comes first."""
END_WORDS = ("endoftext", "end_of_text", "eos", "</s>", "end")
"""In names of special tokens that are likely to end a document, the likeliest first."""
PROBE_ID = 0xFFFF_FFFF
"""Of the one word that the probe knows: no tokenizer has an id as large."""

Kind = Literal["native", "reference", "library", "python"]
"""Who encodes: our threads, the tokenizers library, tiktoken or sentencepiece, or Python, text by text."""


class Opened(NamedTuple):
    """A tokenizer, and what its own library puts round a text when it is called."""

    tokenizer: Tokenizer
    source: str
    kind: Kind
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    class_name: str | None
    """Of a Python tokenizer: its class, as module:name."""
    fast_version: str | None
    """Of a Python tokenizer: the class that does the same faster."""


def open_tokenizer(name: str) -> Opened:
    """Load a path, a hub name or an alias."""
    source = os.path.abspath(name) if os.path.lexists(name) else ALIASES.get(name, name)
    try:
        tokenizer = load_tokenizer(source)
    except TokenizerError as error:
        if not (os.path.isdir(source) or looks_like_hub_name(source)):
            raise
        return _open_object(_ask_transformers(source, error), source)
    kinds: dict[str, Kind] = {"native": "native", "tokenizers": "reference", "slow": "library"}
    # What a hub name stands for is known once it is loaded; a file need not be loaded in full.
    path = find_local_file(source, LoadOptions()) or Path(str(tokenizer.describe()["file"]))
    prefix, suffix = _added_by_file(path)
    return Opened(tokenizer, source, kinds[tokenizer.engine_name], prefix, suffix, None, None)


def open_class(source: str, class_name: str) -> Tokenizer:
    """Load a Python tokenizer whose class is known: half the time of finding out, and without torch."""
    module, _, name = class_name.partition(":")
    made = getattr(import_module(module), name).from_pretrained(source)
    remember_ids(made)
    return load_tokenizer(made)


class TokenIds(dict[str, int]):
    """Ids of tokens that were asked for before; of a bounded number, since any word may be unknown."""

    def __init__(self, find: Callable[[str], int], *, most: int = 1_000_000) -> None:
        super().__init__()
        self._find = find
        self._most = most

    def __missing__(self, token: str) -> int:
        if len(self) >= self._most:
            self.clear()
        id_ = self[token] = self._find(token)
        return id_


def remember_ids(made: Any) -> None:
    """Let a Python tokenizer of our own look tokens up in a table: a quarter of its time goes into asking
    method after method for the id of every token."""
    name = "_convert_token_to_id_with_added_voc"
    if hasattr(made, name):
        setattr(made, name, TokenIds(getattr(made, name)).__getitem__)


def _ask_transformers(source: str, error: TokenizerError) -> Any:
    try:
        transformers: Any = import_module("transformers")
    except ImportError:
        raise TokenizerError(f"{error}; transformers, which may know it, is not installed") from error
    if looks_like_hub_name(source) and is_out_of_reach(source, error):
        raise error
    try:
        return transformers.AutoTokenizer.from_pretrained(source)
    except Exception as also:
        said = " ".join(str(also).split()) or type(also).__name__
        raise TokenizerError(f"{error}; nor can transformers load it: {said[:200]}") from also


def _open_object(made: Any, source: str) -> Opened:
    if not made.is_fast:
        remember_ids(made)
    tokenizer = load_tokenizer(made)
    with_added, bare = made.encode("a"), made.encode("a", add_special_tokens=False)
    prefix, suffix = _split_round(list(with_added), list(bare), source)
    if made.is_fast:
        kind: Kind = "native" if tokenizer.engine_name == "native" else "reference"
        return Opened(tokenizer, source, kind, prefix, suffix, None, None)
    class_name = f"{type(made).__module__}:{type(made).__name__}"
    return Opened(tokenizer, source, "python", prefix, suffix, class_name, _fast_version(made))


def _fast_version(made: Any) -> str | None:
    """The class of transformers that runs the same tokenizer in Rust, by how such classes are named."""
    transformers: Any = import_module("transformers")
    name = type(made).__name__
    for other in (f"{name}Fast", name.removesuffix("Legacy"), f"{name.removesuffix('Legacy')}Fast"):
        kind = getattr(transformers, other, None)
        if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedTokenizerFast):
            return other
    return None


class _Json(msgspec.Struct):
    post_processor: msgspec.Raw = msgspec.Raw(b"null")


def _added_by_file(path: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the post-processor does; files beside it have no say, as in transformers."""
    content = path.read_bytes()
    if content.lstrip()[:1] != b"{":  # ranks or a SentencePiece model: their libraries add nothing
        return (), ()
    found = msgspec.json.decode(content, type=_Json).post_processor
    # The library itself is asked, through a tokenizer of one word: the real one takes half a second to build.
    probe: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": found,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"a": PROBE_ID}, "unk_token": "a"},
    }
    ids = tokenizers.Tokenizer.from_str(msgspec.json.encode(probe).decode()).encode("a").ids
    return _split_round(ids, [PROBE_ID], str(path))


def _split_round(ids: list[int], bare: list[int], source: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What stands before and after the bare ids."""
    for start in range(len(ids) - len(bare) + 1):
        if ids[start : start + len(bare)] == bare:
            return tuple(ids[:start]), tuple(ids[start + len(bare) :])
    raise TokenizerError(f"{source}: adds special tokens that stand neither before nor after a text")


def _one(id_: int | None) -> tuple[int, ...]:
    return () if id_ is None else (id_,)


def likely_end(special_tokens: Mapping[str, int]) -> int | None:
    """The special token that most likely ends a document, if one does."""
    for word in END_WORDS:
        found = [id_ for text, id_ in special_tokens.items() if word in text.lower()]
        if found:
            return min(found)
    return None


class Round(NamedTuple):
    """Ids that go round every document, and the one that fills its last row."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    pad_id: int


def settle_round(opened: Opened, config: CausalLMConfig) -> Round:
    """What the config says, else what the tokenizer does."""
    tokenizer = opened.tokenizer
    bos = tokenizer.bos_id if config.bos_id is None else config.bos_id
    eos = tokenizer.eos_id if config.eos_id is None else config.eos_id
    likely = likely_end(tokenizer.special_tokens)
    pad = next(id_ for id_ in (config.pad_id, tokenizer.pad_id, eos, likely, 0) if id_ is not None)
    for key in ("bos_id", "eos_id", "pad_id"):
        id_ = getattr(config, key)
        if id_ is not None and id_ >= tokenizer.vocab_size:
            last = tokenizer.vocab_size - 1
            raise ConfigError(f"{key} is {id_}; the tokenizer {opened.source} has ids 0 to {last}")
    for role, is_added, id_ in (("bos", config.add_bos, bos), ("eos", config.add_eos, eos)):
        if is_added and id_ is None:
            example = f", such as {likely}" if role == "eos" and likely is not None else ""
            raise ConfigError(
                f"add_{role} is True, and the tokenizer {opened.source} names no {role.upper()}; "
                f"set {role}_id to one of its ids 0 to {tokenizer.vocab_size - 1}{example}"
            )
    prefix = opened.prefix if config.add_bos is None else _one(bos if config.add_bos else None)
    suffix = opened.suffix if config.add_eos is None else _one(eos if config.add_eos else None)
    return Round(prefix, suffix, pad)
