"""Tokenizers that are already Python objects: they are asked for what they are, and never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gristmill.engines.slow import from_python
from gristmill.errors import TokenizerFormatError, UnsupportedTokenizerError
from gristmill.load.hf_json import load_tokenizer_json
from gristmill.load.loaded import Loaded, fingerprint_plain
from gristmill.load.probe import PROBE
from gristmill.load.reading import MAX_ID
from gristmill.load.sentencepiece_model import load_sentencepiece
from gristmill.load.tiktoken_ranks import Encoding, load_rank_model

ROLES = ("bos", "eos", "pad", "unk")


def load_object(tokenizer: Any) -> Loaded:
    """Load any tokenizer object, or say what it lacks."""
    kind = _kind(tokenizer)
    return LOADERS[kind](tokenizer)


def _kind(tokenizer: Any) -> str:
    if isinstance(tokenizer, type):
        raise TokenizerFormatError(f"{tokenizer.__name__} is a class; pass an object of it")
    if hasattr(tokenizer, "backend_tokenizer"):
        return "transformers_fast"
    package = type(tokenizer).__module__.split(".")[0]
    if package in ("tokenizers", "tiktoken", "sentencepiece"):
        return package
    if callable(getattr(tokenizer, "encode", None)) and callable(getattr(tokenizer, "decode", None)):
        return "python"
    raise TokenizerFormatError(
        f"a {type(tokenizer).__name__} is no tokenizer: "
        "pass a path, a hub name, or an object with encode and decode"
    )


def _load_tokenizers(tokenizer: Any) -> Loaded:
    return load_tokenizer_json(_to_json(tokenizer), source=f"a {_full_name(tokenizer)}")


def _load_transformers_fast(tokenizer: Any) -> Loaded:
    roles = {
        role: text for role in ROLES if isinstance(text := getattr(tokenizer, f"{role}_token", None), str)
    }
    return load_tokenizer_json(
        _to_json(tokenizer.backend_tokenizer), source=f"a {_full_name(tokenizer)}", roles=roles
    )


def _to_json(tokenizer: Any) -> bytes:
    try:
        text: str = tokenizer.to_str()
    except Exception as error:
        raise UnsupportedTokenizerError(
            f"this {_full_name(tokenizer)} cannot be written as JSON, maybe for parts in Python ({error})"
        ) from error
    return text.encode()


def _load_tiktoken(encoding: Any) -> Loaded:
    try:
        ranks, pattern, specials = encoding._mergeable_ranks, encoding._pat_str, encoding._special_tokens
    except AttributeError as error:
        raise UnsupportedTokenizerError(
            f"this version of tiktoken keeps its ranks elsewhere: {error}"
        ) from error
    eos = "<|endoftext|>" if "<|endoftext|>" in specials else None
    return load_rank_model(
        dict(ranks),
        Encoding(pattern, dict(specials), eos=eos),
        id_offset=0,
        source=f"tiktoken {encoding.name!r}",
    )


def _load_sentencepiece(processor: Any) -> Loaded:
    return load_sentencepiece(processor.serialized_model_proto(), source="a SentencePieceProcessor")


def _load_python(tokenizer: Any) -> Loaded:
    """An object of unknown making: its ids are taken as they come, and hashed over the probe text."""
    source = f"a {_full_name(tokenizer)}"
    vocab = _vocabulary(tokenizer)
    specials = _python_specials(tokenizer, vocab)

    try:
        engine = from_python(tokenizer, specials=specials)
        probe_ids = [int(i) for i in engine._encode_text(PROBE)]
    except Exception as error:
        raise TokenizerFormatError(f"{source} cannot encode a text: {error}") from error
    vocab_size = _vocab_size(tokenizer, vocab, source)
    if any(not 0 <= i < vocab_size for i in probe_ids):
        raise TokenizerFormatError(f"{source} gives ids that are not in 0..{vocab_size - 1}, its vocabulary")
    return Loaded(
        source=source,
        model="Python",
        spec=None,
        why_not_native="it is a Python tokenizer, whose rules cannot be read",
        fingerprint=fingerprint_plain("python", (vocab, vocab_size, sorted(specials.items()), probe_ids)),
        vocab_size=vocab_size,
        specials=specials,
        token_to_id=vocab.get,
        reference_name="slow",
        build_reference=lambda: engine,
        build_check=lambda: engine,
        reference_version=_full_name(tokenizer),
        bos_id=_python_role(tokenizer, "bos"),
        eos_id=_python_role(tokenizer, "eos"),
        pad_id=_python_role(tokenizer, "pad"),
        unk_id=_python_role(tokenizer, "unk"),
    )


def _vocabulary(tokenizer: Any) -> Mapping[str, int]:
    get_vocab = getattr(tokenizer, "get_vocab", None)
    return dict(get_vocab()) if callable(get_vocab) else {}


def _python_specials(tokenizer: Any, vocab: Mapping[str, int]) -> dict[str, int]:
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    marked = [str(token) for token in added.values() if getattr(token, "special", False)]
    texts = dict.fromkeys([*getattr(tokenizer, "all_special_tokens", ()), *marked])
    ids: Callable[[str], Any] = getattr(tokenizer, "convert_tokens_to_ids", vocab.get)
    return {str(text): id_ for text in texts if text and type(id_ := ids(str(text))) is int}


def _python_role(tokenizer: Any, role: str) -> int | None:
    # transformers has bos_token_id, many others bos_id; sentencepiece-like ones have it as a method.
    for name in (f"{role}_token_id", f"{role}_id"):
        value = getattr(tokenizer, name, None)
        value = value() if callable(value) else value
        if type(value) is int and value >= 0:
            return value
    return None


def _vocab_size(tokenizer: Any, vocab: Mapping[str, int], source: str) -> int:
    declared: Any = getattr(tokenizer, "vocab_size", getattr(tokenizer, "n_vocab", None))
    size: Any = declared() if callable(declared) else declared
    if vocab:
        size = max(vocab.values()) + 1
    if type(size) is not int or not 0 < size <= MAX_ID + 1:
        raise TokenizerFormatError(f"{source} does not say its vocab_size (it is {size!r})")
    return int(size)


def _full_name(tokenizer: Any) -> str:
    return f"{type(tokenizer).__module__.split('.')[0]}.{type(tokenizer).__qualname__}"


LOADERS: dict[str, Callable[[Any], Loaded]] = {
    "tokenizers": _load_tokenizers,
    "transformers_fast": _load_transformers_fast,
    "tiktoken": _load_tiktoken,
    "sentencepiece": _load_sentencepiece,
    "python": _load_python,
}
