"""What every loader returns: the tokenizer as plain values, and how to build the reference for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from gristmill.engines import Engine
from gristmill.errors import TokenizerFormatError
from gristmill.load.reading import MAX_TOKEN_CHARACTERS, max_id
from gristmill.spec import MergeModel, RankModel, ScoreModel, TokenizerSpec
from gristmill.versions import version_of

FINGERPRINT_VERSION = b"gristmill tokenizer 1\0"


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A tokenizer read from anywhere."""

    source: str
    """For messages: a path, a hub name or the kind of object."""
    model: str
    """Its kind, in the words of whoever made it."""
    spec: TokenizerSpec | None
    why_not_native: str | None
    """Why there is no spec."""
    fingerprint: str
    vocab_size: int
    specials: Mapping[str, int]
    """Text of each special token, for the policy."""
    token_to_id: Callable[[str], int | None]
    reference_name: Literal["tokenizers", "slow"]
    build_reference: Callable[[], Engine]
    build_check: Callable[[], Engine]
    """What the native engine is compared with: the reference, or a slow twin of ours where it is not
    installed."""
    reference_version: str
    is_random: bool = False
    """The same text has other ids each time, as the tokenizer is meant to."""
    digest: str = ""
    """Of what was read, where that holds more than the spec: the reference may stumble over the rest."""
    bos_id: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None
    unk_id: int | None = None
    path: Path | None = None
    """The file that was read, where there is one."""
    format: str | None = None


def check_vocabulary(vocab: Mapping[str, int] | Mapping[bytes, int], *, source: str) -> None:
    """Refuse ids no tokenizer has: negative, huge, or given twice; and tokens too long to be one."""
    if not vocab:
        raise TokenizerFormatError(f"{source}: the vocabulary is empty")
    largest = max_id(len(vocab))
    if min(vocab.values()) < 0 or max(vocab.values()) > largest:
        token, id_ = next((token, id_) for token, id_ in vocab.items() if not 0 <= id_ <= largest)
        raise TokenizerFormatError(
            f"{source}: token {token[:40]!r} has id {id_}, not in 0..{largest}, "
            f"as far as ids may go for {len(vocab):,} tokens"
        )
    if len(set(vocab.values())) != len(vocab):
        raise TokenizerFormatError(f"{source}: {_first_repeated(vocab)}")
    if max(map(len, vocab)) > MAX_TOKEN_CHARACTERS:
        raise TokenizerFormatError(f"{source}: a token is longer than {MAX_TOKEN_CHARACTERS:,}")


def package_version(name: str) -> str:
    """Name and version of a reference library; "own" where our twin stands in for it."""
    version = version_of(name)
    return "own" if version is None else f"{name} {version}"


def _first_repeated(vocab: Mapping[Any, int]) -> str:
    seen: dict[int, Any] = {}
    for token, id_ in vocab.items():
        if id_ in seen:
            return f"tokens {seen[id_][:40]!r} and {token[:40]!r} have the same id {id_}"
        seen[id_] = token
    raise AssertionError("no id is repeated")


def merges_bytes(merges: list[tuple[str, str]] | list[str]) -> bytes:
    """Merges as bytes to hash, the same for pairs and for "left right" strings."""
    is_pairs = bool(merges) and not isinstance(merges[0], str)
    tokens: list[Any] = list(chain.from_iterable(merges)) if is_pairs else list(merges)
    joined = " ".join(tokens)
    if joined.count(" ") == max(2 * len(merges) - 1, 0):
        return joined.encode()
    return msgspec.msgpack.encode(tokens)  # a token holds a space, which strings cannot say


def fingerprint_spec(spec: TokenizerSpec) -> str:
    """A hash of all that decides ids, the same whatever the order of the vocabulary or the form of the
    merges."""
    digest = hashlib.blake2b(FINGERPRINT_VERSION, digest_size=32)
    model = spec.model
    if isinstance(model, MergeModel):
        options: Any = (model.token_text, model.byte_fallback, model.ignore_merges)
        _add_vocabulary(digest, model.vocab)
        digest.update(merges_bytes(model.merges))
    elif isinstance(model, RankModel):
        options = model.id_offset
        _add_vocabulary(digest, model.ranks)
    else:
        assert isinstance(model, ScoreModel)
        options = model.byte_ids
        order = np.argsort(np.asarray(model.ids, dtype=np.int64), kind="stable").tolist()
        digest.update(
            msgspec.msgpack.encode([(model.pieces[i], model.ids[i], model.scores[i]) for i in order])
        )
    rest = (
        type(model).__name__,
        options,
        spec.normalization,
        spec.prefix,
        spec.splits,
        sorted(spec.added_tokens, key=lambda token: (token.id, token.content)),
    )
    digest.update(msgspec.msgpack.encode(rest))
    return digest.hexdigest()


def fingerprint_plain(kind: str, values: Any) -> str:
    """A hash of plain values (dicts in any order), for a tokenizer that has no spec."""
    digest = hashlib.blake2b(FINGERPRINT_VERSION, digest_size=32)
    digest.update(msgspec.msgpack.encode(kind))
    digest.update(msgspec.msgpack.encode(values, order="deterministic"))
    return digest.hexdigest()


def _add_vocabulary(digest: Any, vocab: Mapping[str, int] | Mapping[bytes, int]) -> None:
    tokens: list[Any] = list(vocab)
    ids = np.fromiter(vocab.values(), dtype=np.int64, count=len(vocab))
    if np.any(ids[1:] < ids[:-1]):
        order = np.argsort(ids)
        ids = ids[order]
        tokens = [tokens[i] for i in order.tolist()]
    digest.update(ids.astype("<i8").tobytes())
    digest.update(msgspec.msgpack.encode(tokens))
