"""SentencePiece's .model: its protobuf is read here by a strict reader of the few fields that decide ids.

BPE with the identity normalizer and byte fallback gets a spec (Llama-2, Mistral, Gemma, Yi, Baichuan2);
everything else, Unigram above all, runs through the `sentencepiece` package.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from gristmill.engines import Engine
from gristmill.errors import MissingPackageError, TokenizerFormatError, UnsupportedTokenizerError
from gristmill.load.loaded import (
    Loaded,
    check_vocabulary,
    fingerprint_plain,
    fingerprint_spec,
    package_version,
)
from gristmill.spec import AddedToken, Normalization, Prefix, ScoreModel, TokenizerSpec

MAX_MODEL_BYTES = 64 << 20
"""Gemma's, the largest known, has 5 MB."""
MAX_PIECES = 1 << 20
SPACE_MARK = "▁"

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MODEL_TYPES = {1: "Unigram", 2: "BPE", 3: "Word", 4: "Char"}

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT = struct.Struct("<f")


class _Proto(msgspec.Struct):
    """The fields that matter, with protobuf's defaults."""

    pieces: list[str] = []
    ids: dict[str, int] = {}
    scores: list[float] = []
    types: list[int] = []
    model_type: int = 1
    byte_fallback: bool = False
    space_is_suffix: bool = False
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    normalizer: str = ""
    has_rules: bool = False
    add_dummy_prefix: bool = True
    remove_extra_spaces: bool = True
    escape_spaces: bool = True


def looks_like_model(content: bytes) -> bool:
    """Whether the bytes begin as a model does: with a piece that has a text."""
    return len(content) > 4 and content[0] == 0x0A and 0x0A in (content[2], content[3], content[4])


def load_sentencepiece(content: bytes, *, source: str) -> Loaded:
    """Load the content of a SentencePiece model."""
    if len(content) > MAX_MODEL_BYTES:
        raise TokenizerFormatError(f"{source}: has {len(content):,} bytes, more than any SentencePiece model")
    proto = _parse(content, source)
    vocab = proto.ids
    check_vocabulary(vocab, source=source)
    specials = {p: i for p, i in vocab.items() if proto.types[i] in (CONTROL, UNKNOWN)}
    spec, why_not = None, None
    try:
        spec = _spec(proto, specials)
    except UnsupportedTokenizerError as error:
        why_not = str(error)

    def role(id_: int) -> int | None:
        return id_ if 0 <= id_ < len(vocab) and proto.types[id_] in (CONTROL, USER_DEFINED) else None

    return Loaded(
        source=source,
        model=f"SentencePiece {MODEL_TYPES.get(proto.model_type, 'unknown')}",
        spec=spec,
        why_not_native=why_not,
        fingerprint=fingerprint_spec(spec) if spec else fingerprint_plain("sentencepiece", content),
        vocab_size=len(vocab),
        specials=specials,
        token_to_id=vocab.get,
        reference_name="slow",
        build_reference=lambda: _build_reference(content, specials, source),
        build_check=lambda: _build_check(content, spec, specials, source),
        reference_version=package_version("sentencepiece"),
        digest=hashlib.sha256(content).hexdigest(),
        bos_id=role(proto.bos_id),
        eos_id=role(proto.eos_id),
        pad_id=role(proto.pad_id),
        unk_id=proto.types.index(UNKNOWN) if UNKNOWN in proto.types else None,
    )


def _spec(proto: _Proto, specials: dict[str, int]) -> TokenizerSpec:
    _require_known(proto)
    user_defined = [i for i, kind in enumerate(proto.types) if kind == USER_DEFINED]
    _require_equal_user_defined(proto, user_defined)
    byte_ids = _byte_ids(proto)
    normal = [i for i, kind in enumerate(proto.types) if kind == NORMAL]
    _require_plain_merges([proto.pieces[i] for i in normal], [proto.scores[i] for i in normal])
    added = [AddedToken(id=id_, content=text, special=True) for text, id_ in specials.items()]
    # sentencepiece looks for these in normalised text, longest first, and merges nothing with them: as
    # added tokens.
    added += [AddedToken(id=i, content=proto.pieces[i], special=False, normalized=True) for i in user_defined]
    return TokenizerSpec(
        model=ScoreModel(
            pieces=[proto.pieces[i] for i in normal],
            ids=normal,
            scores=[proto.scores[i] for i in normal],
            byte_ids=byte_ids,
        ),
        normalization=Normalization(replace_spaces=True),
        prefix=Prefix(where="always", unless_present=False, stage="normalizer")
        if proto.add_dummy_prefix
        else None,
        added_tokens=tuple(sorted(added, key=lambda token: token.id)),
    )


def _require_known(proto: _Proto) -> None:
    if MODEL_TYPES.get(proto.model_type) != "BPE":
        kind = MODEL_TYPES.get(proto.model_type, "unknown")
        raise UnsupportedTokenizerError(
            f"the native engine runs BPE, and this is a SentencePiece {kind} model"
        )
    if proto.has_rules:
        raise UnsupportedTokenizerError(f"its normalizer {proto.normalizer[:40]!r} rewrites characters")
    if proto.remove_extra_spaces or not proto.escape_spaces or proto.space_is_suffix:
        raise UnsupportedTokenizerError("its normalizer treats spaces in a way the native engine does not")
    if not proto.byte_fallback:
        raise UnsupportedTokenizerError("it has no byte fallback, so characters can be unknown")
    typed = zip(proto.pieces, proto.types, strict=True)
    if any(len(piece) == 1 for piece, kind in typed if kind in (CONTROL, UNKNOWN)):
        raise UnsupportedTokenizerError("it has a control symbol of one character, which text can spell")
    if UNUSED in proto.types:
        raise UnsupportedTokenizerError("it has unused pieces, which are cut again after merging")


def _require_plain_merges(pieces: list[str], scores: list[float]) -> None:
    characters = {piece for piece in pieces if len(piece) == 1}
    if alone := set().union(*pieces) - characters:
        # sentencepiece merges such a character as any other; it is bytes only where nothing took it.
        raise UnsupportedTokenizerError(f"its pieces hold {min(alone)!r}, which is no piece itself")
    if len({math.copysign(1.0, score) for score in scores if score == 0.0}) > 1:
        raise UnsupportedTokenizerError("it has scores of 0.0 and of -0.0, which sentencepiece tells apart")


def _require_equal_user_defined(proto: _Proto, user_defined: list[int]) -> None:
    if user_defined and proto.add_dummy_prefix:
        raise UnsupportedTokenizerError("it has user-defined symbols and a dummy prefix, which can touch")
    for i in user_defined:
        if " " in proto.pieces[i]:
            raise UnsupportedTokenizerError(f"its user-defined symbol {proto.pieces[i][:40]!r} holds a space")


def _byte_ids(proto: _Proto) -> list[int]:
    ids = {proto.pieces[i]: i for i, kind in enumerate(proto.types) if kind == BYTE}
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    if missing := [name for name in names if name not in ids]:
        raise UnsupportedTokenizerError(f"its byte fallback has no piece {missing[0]}")
    return [ids[name] for name in names]


def _build_reference(content: bytes, specials: dict[str, int], source: str) -> Engine:
    from gristmill.engines.slow import from_sentencepiece

    try:
        import sentencepiece
    except ImportError as error:
        raise MissingPackageError(f"{source} needs sentencepiece here: pip install sentencepiece") from error
    try:
        processor: Any = sentencepiece.SentencePieceProcessor(model_proto=content)
    except Exception as error:
        raise TokenizerFormatError(f"{source}: sentencepiece refuses it: {error}") from error
    return from_sentencepiece(processor, specials=specials)


def _build_check(content: bytes, spec: TokenizerSpec | None, specials: dict[str, int], source: str) -> Engine:
    try:
        return _build_reference(content, specials, source)
    except MissingPackageError:
        if spec is None or any(not token.special for token in spec.added_tokens):
            raise
        from gristmill.engines.twins import score_twin

        assert isinstance(spec.model, ScoreModel)
        return score_twin(spec.model, has_prefix=spec.prefix is not None, specials=specials)


# The protobuf reader: https://protobuf.dev/programming-guides/encoding, no groups, every length checked.


def _parse(content: bytes, source: str) -> _Proto:
    proto = _Proto()
    try:
        for field, value in _fields(content):
            if field == 1:
                _read_piece(proto, _message(value))
            elif field == 2:
                _read_trainer(proto, _message(value))
            elif field == 3:
                _read_normalizer(proto, _message(value))
    except ValueError as error:
        raise TokenizerFormatError(f"{source}: is no SentencePiece model: {str(error)[:200]}") from error
    if not proto.pieces:
        raise TokenizerFormatError(f"{source}: is no SentencePiece model: it has no pieces")
    return proto


def _read_piece(proto: _Proto, message: bytes) -> None:
    piece, score, kind = "", 0.0, NORMAL
    for field, value in _fields(message):
        if field == 1:
            piece = _text(value)
        elif field == 2:
            score = _float(value)
        elif field == 3:
            kind = _number(value)
    if not piece or not NORMAL <= kind <= BYTE or score != score:
        raise ValueError(f"piece {len(proto.pieces)} has no text, no known type or no score")
    if len(proto.pieces) == MAX_PIECES:
        raise ValueError(f"it has more than {MAX_PIECES:,} pieces")
    if proto.ids.setdefault(piece, len(proto.pieces)) != len(proto.pieces):
        raise ValueError(f"piece {piece[:40]!r} is there twice")
    proto.pieces.append(piece)
    proto.scores.append(score)
    proto.types.append(kind)


def _read_trainer(proto: _Proto, message: bytes) -> None:
    for field, value in _fields(message):
        if field == 3:
            proto.model_type = _number(value)
        elif field == 24:
            proto.space_is_suffix = bool(_number(value))
        elif field == 35:
            proto.byte_fallback = bool(_number(value))
        elif field == 41:
            proto.bos_id = _signed(value)
        elif field == 42:
            proto.eos_id = _signed(value)
        elif field == 43:
            proto.pad_id = _signed(value)


def _read_normalizer(proto: _Proto, message: bytes) -> None:
    for field, value in _fields(message):
        if field == 1:
            proto.normalizer = _text(value)
        elif field in (2, 6):
            proto.has_rules = proto.has_rules or value != b""
        elif field == 3:
            proto.add_dummy_prefix = bool(_number(value))
        elif field == 4:
            proto.remove_extra_spaces = bool(_number(value))
        elif field == 5:
            proto.escape_spaces = bool(_number(value))


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError("a number is not one")
    return value


def _signed(value: Any) -> int:
    number = _number(value)
    return number - (1 << 64) if number >> 63 else number


def _float(value: Any) -> float:
    if not isinstance(value, bytes) or len(value) != 4:
        raise ValueError("a score is not one")
    return float(_FLOAT.unpack(value)[0])


def _message(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a message is a number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise ValueError("a string is not one")
    return value.decode()


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int for varints, bytes for the rest."""
    at, end = 0, len(message)
    while at < end:
        key = message[at]
        at += 1
        if key >= 0x80:
            key, at = _varint(message, at - 1)
        wire = key & 7
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire == _FIXED32:
            size = 4
        elif wire == _FIXED64:
            size = 8
        elif wire == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if size > end - at:
            raise ValueError(f"a field of {size} bytes where {end - at} are left")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"a number does not end at byte {at}")
