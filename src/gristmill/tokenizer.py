"""START HERE for encoding: `load_tokenizer` reads a tokenizer from anywhere, `Tokenizer` turns text into
ids and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from gristmill.batch import Texts, TokenBatch, flatten_texts, join_texts
from gristmill.config import MAX_THREADS, EngineChoice, Errors, SpecialTokenPolicy
from gristmill.engine_cache import Facts, Known, facts_of, recall, remember
from gristmill.engines import DeviceEngine, Engine, EngineName, Ids, ListEngine, Offsets
from gristmill.engines.native import NativeEngine
from gristmill.errors import ConfigError, InputError, TokenizerError
from gristmill.load import LoadOptions, find_local_file, load_source
from gristmill.special_text import find_special_text

if TYPE_CHECKING:
    from gristmill.engines.cuda.late import LateEngine
    from gristmill.engines.cuda.slots import OnDevice
    from gristmill.load.loaded import Loaded


class Origin(NamedTuple):
    """What a tokenizer was loaded from, so that another process can load it too."""

    source: str
    options: LoadOptions
    engine: EngineChoice


class Tokenizer:
    """Text to ids and back, exactly as the tokenizer's own library has it.

    No call adds BOS or EOS: where they go is for whoever lays out training rows to say. A tokenizer that came
    from a path or a hub name can be pickled; it is loaded again where it arrives."""

    def __init__(
        self,
        facts: Facts,
        engine: Engine,
        *,
        why_not_native: str | None,
        origin: Origin | None,
        loaded: Loaded | None,
    ) -> None:
        self._facts = facts
        self._engine = engine
        self._why_not_native = why_not_native
        self._origin = origin
        self._loaded_now = loaded

    @property
    def _loaded(self) -> Loaded:
        """All of it: where the engine was remembered, what is seldom asked for is loaded when it is."""
        if self._loaded_now is None:
            assert self._origin is not None
            self._loaded_now = load_source(self._origin.source, self._origin.options)
            if self._loaded_now.fingerprint != self.fingerprint:
                raise TokenizerError(f"{self._origin.source}: has changed since it was loaded; load it anew")
        return self._loaded_now

    def __repr__(self) -> str:
        return f"<gristmill.Tokenizer {self._facts.source}: {self.engine_name}, {self.vocab_size} tokens>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is None:
            raise TokenizerError(
                f"a tokenizer loaded from an object ({self._facts.source}) cannot be pickled; "
                "call load_tokenizer in each worker"
            )
        return _load_again, (self._origin, self.fingerprint)

    def __copy__(self) -> Tokenizer:
        return self  # nothing in it changes

    def __deepcopy__(self, _memo: object) -> Tokenizer:
        return self

    def encode_batch(
        self,
        texts: Texts,
        *,
        num_threads: int | None = None,
        special_tokens: SpecialTokenPolicy = "text",
        errors: Errors = "strict",
        device: Literal["cpu", "cuda"] = "cpu",
    ) -> TokenBatch:
        """Ids of many documents, the same for any number of threads; no number of threads means all cores.

        Texts are a list of str or bytes, a pyarrow string or binary array (large or not, chunked or not), or
        a pair (buffer, offsets). Text that reads like a special token stays text, becomes the token (parse),
        or is refused (error). Device cuda, for engine cuda, leaves ids and offsets on the GPU, as arrays with
        DLPack."""
        _one_of(Errors, errors, "errors")
        threads = _threads(num_threads)
        if device != "cpu":
            return self._encode_on_device(texts, threads, special_tokens, errors)
        join = flatten_texts
        if special_tokens in ("text", "parse") and isinstance(self._engine, ListEngine):
            if type(texts) is list:
                return TokenBatch(
                    *self._engine.encode_list(
                        texts,
                        special_tokens=special_tokens,
                        replace_invalid=errors == "replace",
                        num_threads=threads,
                    )
                )
            join = join_texts if errors == "strict" else flatten_texts  # what it refuses is checked once
        buffer, offsets = join(texts, errors=errors)
        policy = self._enforce(special_tokens, buffer, offsets)
        return TokenBatch(
            *self._engine.encode_batch(buffer, offsets, special_tokens=policy, num_threads=threads)
        )

    def _encode_on_device(
        self, texts: Texts, num_threads: int, special_tokens: SpecialTokenPolicy, errors: Errors
    ) -> TokenBatch:
        if not isinstance(self._engine, DeviceEngine):
            raise ConfigError(f"device 'cuda' needs engine 'cuda'; this tokenizer has {self.engine_name!r}")
        buffer, offsets = flatten_texts(texts, errors=errors)
        policy = self._enforce(special_tokens, buffer, offsets)
        return TokenBatch(
            *self._engine.encode_on_device(buffer, offsets, special_tokens=policy, num_threads=num_threads)
        )

    def encode(
        self, text: str | bytes, *, special_tokens: SpecialTokenPolicy = "text", errors: Errors = "strict"
    ) -> Ids:
        """Ids of one document."""
        if not isinstance(text, str | bytes):
            raise InputError(f"text is a {type(text).__name__}, not str or bytes; use encode_batch for many")
        return self.encode_batch([text], num_threads=1, special_tokens=special_tokens, errors=errors).ids

    def count_batch(
        self,
        texts: Texts,
        *,
        num_threads: int | None = None,
        special_tokens: SpecialTokenPolicy = "text",
        errors: Errors = "strict",
    ) -> Offsets:
        """Number of ids of each document, without keeping the ids."""
        buffer, offsets = flatten_texts(texts, errors=_one_of(Errors, errors, "errors"))
        policy = self._enforce(special_tokens, buffer, offsets)
        return self._engine.count_batch(
            buffer, offsets, special_tokens=policy, num_threads=_threads(num_threads)
        )

    def decode(self, ids: ArrayLike) -> str:
        """The text ids stand for; bytes that are no character become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """The bytes ids stand for: exact where the engine knows bytes (native, tiktoken)."""
        try:
            array = np.asarray(ids)
        except ValueError as error:
            raise InputError(f"ids are not one row of integers: {error}") from error
        if array.size == 0:
            return b""
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InputError(f"ids are not one row of integers ({array.ndim} dimensions of {array.dtype})")
        if array.min() < 0 or array.max() >= self.vocab_size:
            wrong = array[(array < 0) | (array >= self.vocab_size)][0]
            raise InputError(f"id {wrong} is not in 0..{self.vocab_size - 1}")
        return self._engine.decode(array.astype(np.uint32, copy=False))

    def decode_batch(self, batch: TokenBatch | Iterable[ArrayLike]) -> list[str]:
        """The text of each row of ids."""
        if not isinstance(batch, Iterable):
            raise InputError(f"batch is a {type(batch).__name__}, not rows of ids")
        return [self.decode(ids) for ids in batch]

    def token_to_id(self, token: str) -> int | None:
        """Id of a token as its file spells it, or None."""
        return self._loaded.token_to_id(token)

    def describe(self) -> dict[str, object]:
        """What was understood of the tokenizer, as plain values."""
        from gristmill.load.describe import describe

        chosen: dict[str, object] = {
            "engine": self.engine_name,
            "why_not_native": self.why_not_native,
            "token_dtype": str(self.token_dtype),
        }
        if isinstance(self._engine, DeviceEngine):
            chosen["fallback_rate"] = self._engine.fallback_rate
        return chosen | describe(self._loaded)

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Text and id of each special token."""
        return dict(self._facts.specials)

    @property
    def bos_id(self) -> int | None:
        """Id that begins a document, where the tokenizer names one."""
        return self._facts.bos_id

    @property
    def eos_id(self) -> int | None:
        """Id that ends a document, where the tokenizer names one."""
        return self._facts.eos_id

    @property
    def pad_id(self) -> int | None:
        """Id that fills rows, where the tokenizer names one."""
        return self._facts.pad_id

    @property
    def unk_id(self) -> int | None:
        """Id of the unknown token, where the tokenizer has one."""
        return self._facts.unk_id

    @property
    def vocab_size(self) -> int:
        """The largest id, added tokens included, plus one."""
        return self._facts.vocab_size

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """The smallest dtype that holds every id."""
        return np.dtype(np.uint16 if self.vocab_size <= 1 << 16 else np.uint32)

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides ids, equal on every machine."""
        return self._facts.fingerprint

    @property
    def engine_name(self) -> EngineName:
        """Which engine encodes."""
        return self._engine.name

    @property
    def is_random(self) -> bool:
        """Whether the same text has other ids each time (dropout)."""
        return self._loaded_now is not None and self._loaded_now.is_random

    @property
    def why_not_native(self) -> str | None:
        """A sentence on why the native engine does not encode, or None where it does."""
        return self._why_not_native

    @property
    def remembered_bytes(self) -> int:
        """Memory held by the pieces that threads remember; 0 for an engine that does not say."""
        return int(getattr(self._engine, "state_bytes", 0))

    def _enforce(self, policy: SpecialTokenPolicy, buffer: Any, offsets: Offsets) -> Literal["text", "parse"]:
        if _one_of(SpecialTokenPolicy, policy, "special_tokens") != "error":
            return "parse" if policy == "parse" else "text"
        found = find_special_text(buffer, offsets, self._facts.specials)
        if found is not None:
            document, offset, token = found
            raise InputError(
                f"document {document}: the text of special token {token!r} at byte {offset}; "
                "special_tokens='text' takes it as text, 'parse' as the token"
            )
        return "text"


def load_tokenizer(
    source: Any,
    *,
    engine: EngineChoice = "auto",
    encoding: str | None = None,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
) -> Tokenizer:
    """Load a tokenizer from a file, a folder, a hub name, or an object of tokenizers, tiktoken,
    sentencepiece or transformers.

    A rank file may need its `encoding`, or its `pattern` and `special_tokens`; a hub name takes
    `revision`, `token`
    and `cache_dir`. `auto` uses the native engine where it provably gives the reference's ids."""
    _one_of(EngineChoice, engine, "engine")
    _require_text(encoding=encoding, pattern=pattern, revision=revision)
    if special_tokens is not None:
        if not isinstance(special_tokens, Mapping):
            kind = type(special_tokens).__name__
            raise ConfigError(f"special_tokens is a {kind}, not a dict of text to id")
        for text, id_ in special_tokens.items():
            _require_text(**{"a special token": text})
            if type(id_) is not int:
                raise ConfigError(f"special token {text!r} has id {id_!r}, which is no whole number")
    options = LoadOptions(
        encoding=encoding,
        pattern=pattern,
        special_tokens=special_tokens,
        revision=revision,
        token=token,
        cache_dir=cache_dir,
    )
    return load_from(source, options, engine)


def move_to_gpu(tokenizer: Tokenizer) -> tuple[Tokenizer, LateEngine]:
    """A native tokenizer that encodes on a GPU as soon as one is open, and what is waited for."""
    from gristmill.engine_choice import open_on_gpu_later

    assert isinstance(tokenizer._engine, NativeEngine)
    late = open_on_gpu_later(tokenizer._engine, lambda: tokenizer._loaded)
    moved = Tokenizer(
        tokenizer._facts, late, why_not_native=None, origin=tokenizer._origin, loaded=tokenizer._loaded_now
    )
    return moved, late


def lend_gpu(tokenizer: Tokenizer) -> OnDevice:
    """What a native tokenizer has on a GPU that this process drives for others."""
    from gristmill import engine_choice

    assert isinstance(tokenizer._engine, NativeEngine)
    return engine_choice.open_for_others(tokenizer._loaded, tokenizer._engine)


def share_gpu(tokenizer: Tokenizer, address: str, batch_bytes: int) -> Tokenizer:
    """A native tokenizer that encodes on the GPU of the process at an address, as soon as it is there."""
    from gristmill.engines.cuda.shared import SharedEngine

    assert isinstance(tokenizer._engine, NativeEngine)
    engine = SharedEngine(tokenizer._engine, address, batch_bytes)
    return Tokenizer(
        tokenizer._facts, engine, why_not_native=None, origin=tokenizer._origin, loaded=tokenizer._loaded_now
    )


def load_from(
    source: Any, options: LoadOptions, engine: EngineChoice, *, known: Known | None = None
) -> Tokenizer:
    """Load with options that are checked; `known` is what was recalled of the source already, if it was."""
    origin, path = None, None
    if isinstance(source, str | os.PathLike):
        path = find_local_file(source, options)
        # A worker may run in another folder.
        origin = Origin(os.fspath(source) if path is None else os.path.abspath(source), options, engine)
    if path is not None and engine in ("auto", "native"):
        known = known or recall(path, options)
        if known is not None:
            return Tokenizer(known.facts, known.engine(), why_not_native=None, origin=origin, loaded=None)
    from gristmill.engine_choice import choose_engine

    loaded = load_source(source, options)
    chosen, why_not_native = choose_engine(loaded, engine)
    facts = facts_of(loaded)
    if path is not None and isinstance(chosen, NativeEngine):
        remember(path, options, facts, chosen)
    return Tokenizer(facts, chosen, why_not_native=why_not_native, origin=origin, loaded=loaded)


def _load_again(origin: Origin, fingerprint: str) -> Tokenizer:
    tokenizer = load_from(*origin)
    if tokenizer.fingerprint != fingerprint:
        raise TokenizerError(f"{origin.source}: is another tokenizer than the one pickled; pickle it anew")
    return tokenizer


def _require_text(**options: Any) -> None:
    for name, value in options.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{name} is a {type(value).__name__}, not a str")
        if value is not None and not value.isascii() and value != value.encode("utf-8", "replace").decode():
            raise ConfigError(f"{name} has a lone surrogate")


def _one_of(kind: Any, value: Any, name: str) -> Any:
    allowed: Sequence[str] = get_args(kind)
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; it can be {', '.join(map(repr, allowed))}")
    return value


def _threads(num_threads: int | None) -> int:
    if num_threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(num_threads) is not int or not 1 <= num_threads <= MAX_THREADS:
        raise ConfigError(f"num_threads is {num_threads!r}; it must be in 1..{MAX_THREADS}")
    return num_threads
