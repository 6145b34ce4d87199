"""tokenizer.json of Hugging Face `tokenizers`: any one is loaded, byte-level and SentencePiece-style BPE
get a spec.

The truncation, padding and decoder sections are not read: they do not decide which ids a text gets. Nor does
a post_processor that leaves the text as it is, which all but odd templates do.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Mapping
from itertools import chain
from operator import methodcaller
from typing import Any

import msgspec
import tokenizers

from gristmill.engines import Engine
from gristmill.engines.tokenizers import TokenizersEngine
from gristmill.errors import TokenizerFormatError, UnsupportedTokenizerError
from gristmill.load.hf_pipeline import SPACE_MARK, Pipeline, read_pipeline
from gristmill.load.loaded import Loaded, check_vocabulary, fingerprint_plain, fingerprint_spec, merges_bytes
from gristmill.load.reading import MAX_TOKEN_CHARACTERS, decode_json
from gristmill.spec import AddedToken, MergeModel, TokenizerSpec

MAX_ADDED_CHARACTERS = 1 << 20
"""In all added tokens together; DeepSeek, with 1,283 of them, has 25,000."""
MAX_SECTION_BYTES = 8 << 20
"""Of a normalizer or pre_tokenizer; the largest known, a compiled character map, has half a megabyte."""


class _AddedEntry(msgspec.Struct, frozen=True):
    id: int
    content: str
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    special: bool


class _Model(msgspec.Struct, frozen=True):
    vocab: dict[str, int] | list[tuple[str, float]]
    type: str | None = None
    merges: list[str | tuple[str, str]] | None = None
    dropout: float | None = None
    unk_token: str | None = None
    unk_id: int | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    max_input_chars_per_word: int | None = None
    fuse_unk: bool | None = None
    byte_fallback: bool | None = None
    ignore_merges: bool | None = None


class _File(msgspec.Struct, frozen=True):
    model: _Model
    added_tokens: list[_AddedEntry] = []
    normalizer: msgspec.Raw = msgspec.Raw(b"null")
    pre_tokenizer: msgspec.Raw = msgspec.Raw(b"null")
    post_processor: msgspec.Raw = msgspec.Raw(b"null")


def load_tokenizer_json(content: bytes, *, source: str, roles: Mapping[str, str] | None = None) -> Loaded:
    """Load the content of a tokenizer.json; `roles` names the bos, eos and pad tokens where something else
    knows them."""
    file = decode_json(content, _File, source=source)
    model = _checked(file.model, source)
    vocab = _vocabulary(model, source)
    check_vocabulary(vocab, source=source)
    if sum(len(token.content) for token in file.added_tokens) > MAX_ADDED_CHARACTERS:
        raise TokenizerFormatError(f"{source}: added tokens of over {MAX_ADDED_CHARACTERS:,} characters")
    added = _resolve_added(file.added_tokens, vocab, source)
    _require_utf8(content, source)
    sections = [_section(raw, source) for raw in (file.normalizer, file.pre_tokenizer)]
    processor = _section(file.post_processor, source)
    spec, why_not = None, None
    try:
        spec = _spec(model, vocab, file.added_tokens, added, *sections)
    except UnsupportedTokenizerError as error:
        why_not = str(error)
    if not _has_text_once(processor):
        spec, why_not = None, why_not or "its post_processor does not put the text in once"
        sections.append(processor)

    def token_to_id(token: str) -> int | None:
        return added[token].id if token in added else vocab.get(token)

    def build() -> Engine:
        return TokenizersEngine(content.decode(), source=source)

    ids = {name: token_to_id(token) for name, token in (roles or {}).items()}
    return Loaded(
        source=source,
        model=_kind(model)[:40],
        spec=spec,
        why_not_native=why_not,
        fingerprint=fingerprint_spec(spec) if spec else _fingerprint_parts(model, sections, added),
        vocab_size=1 + max(max(vocab.values()), max((token.id for token in added.values()), default=0)),
        specials={token.content: token.id for token in added.values() if token.special},
        token_to_id=token_to_id,
        reference_name="tokenizers",
        build_reference=build,
        build_check=build,
        reference_version=f"tokenizers {tokenizers.__version__}",
        is_random=bool(model.dropout),
        digest=hashlib.sha256(content).hexdigest(),
        bos_id=ids.get("bos"),
        eos_id=ids.get("eos"),
        pad_id=ids.get("pad"),
        unk_id=_unk_id(model, ids.get("unk"), token_to_id),
    )


def _require_utf8(content: bytes, source: str) -> None:
    # The JSON reader passes over strings it has no use for, the reference library does not. In parts, because
    # a whole large file as a string needs memory.
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), 1 << 20):
            decoder.decode(content[start : start + (1 << 20)])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise TokenizerFormatError(f"{source}: is not UTF-8: {error.reason}") from error


def _checked(model: _Model, source: str) -> _Model:
    merges = model.merges or []
    if len(kinds := set(map(type, merges))) > 1:
        raise TokenizerFormatError(f"{source}: merges are strings and pairs at once")
    if kinds == {str}:
        is_comment = methodcaller("startswith", "#version")
        if any(map(is_comment, merges)):
            merges = [merge for merge in merges if not is_comment(merge)]
        if set(map(methodcaller("count", " "), merges)) - {1}:
            raise TokenizerFormatError(f"{source}: a merge is not two tokens with a space between")
        return msgspec.structs.replace(model, merges=merges)
    return model


def _vocabulary(model: _Model, source: str) -> dict[str, int]:
    if isinstance(model.vocab, dict):
        return model.vocab
    vocab = {token: id_ for id_, (token, _) in enumerate(model.vocab)}
    if len(vocab) != len(model.vocab):
        raise TokenizerFormatError(f"{source}: a token of the Unigram vocabulary is there twice")
    if model.unk_id is not None and not 0 <= model.unk_id < len(vocab):
        raise TokenizerFormatError(f"{source}: unk_id {model.unk_id} is not in the vocabulary")
    return vocab


def _unk_id(model: _Model, role: int | None, token_to_id: Any) -> int | None:
    if isinstance(model.vocab, list):
        return model.unk_id
    return token_to_id(model.unk_token) if model.unk_token is not None else role


def _section(raw: msgspec.Raw, source: str) -> Any:
    content = bytes(raw)
    if len(content) > MAX_SECTION_BYTES:
        raise TokenizerFormatError(f"{source}: one of its sections has {len(content):,} bytes")
    return decode_json(content, object, source=source)


def _has_text_once(processor: Any) -> bool:
    """False for a template in which the text stands not at all, or twice: so it does where no special tokens
    are added, too."""
    if not isinstance(processor, dict):
        return True
    steps, single = processor.get("processors"), processor.get("single")
    if isinstance(steps, list) and not all(map(_has_text_once, steps)):
        return False
    if processor.get("type") != "TemplateProcessing" or not isinstance(single, list):
        return True  # or something that the reference refuses
    texts = [part["Sequence"] for part in single if isinstance(part, dict) and "Sequence" in part]
    return [text.get("id") for text in texts if isinstance(text, dict)] == ["A"]


def _resolve_added(entries: list[_AddedEntry], vocab: dict[str, int], source: str) -> dict[str, AddedToken]:
    """Added tokens with the ids they really get.

    The library does not read the ids of the file: a token of the vocabulary keeps its id, any other gets
    the next
    after the number of tokens. Of several entries with one content the last counts, but "special" sticks."""
    added: dict[str, AddedToken] = {}
    next_id = len(vocab)
    for entry in entries:
        if not entry.content:
            continue
        if len(entry.content) > MAX_TOKEN_CHARACTERS:
            raise TokenizerFormatError(f"{source}: an added token is longer than {MAX_TOKEN_CHARACTERS:,}")
        earlier = added.get(entry.content)
        id_ = earlier.id if earlier else vocab.get(entry.content)
        if id_ is None:
            id_, next_id = next_id, next_id + 1
        added[entry.content] = AddedToken(
            id=id_,
            content=entry.content,
            special=entry.special or (earlier is not None and earlier.special),
            normalized=entry.normalized,
            single_word=entry.single_word,
            lstrip=entry.lstrip,
            rstrip=entry.rstrip,
        )
    return added


def _spec(
    model: _Model,
    vocab: dict[str, int],
    entries: list[_AddedEntry],
    added: dict[str, AddedToken],
    normalizer: Any,
    pre_tokenizer: Any,
) -> TokenizerSpec:
    _require_plain_bpe(model)
    line = read_pipeline(normalizer, pre_tokenizer)
    _require_bytes(model, vocab, line)
    if not line.is_byte_level:
        _require_bytes_apart(model, vocab)
    _require_honest_ids(entries, added, vocab)
    _require_clear_normalized(line, added)
    _require_one_meaning(model, line, added, normalizer)
    return TokenizerSpec(
        model=MergeModel(
            vocab=vocab,
            merges=model.merges or [],  # type: ignore[arg-type]
            token_text="byte_level" if line.is_byte_level else "plain",
            byte_fallback=not line.is_byte_level,
            ignore_merges=bool(model.ignore_merges),
        ),
        normalization=line.normalization,
        prefix=line.prefix,
        splits=tuple(line.splits),
        added_tokens=tuple(sorted(added.values(), key=lambda token: token.id)),
    )


def _require_one_meaning(
    model: _Model, line: Pipeline, added: dict[str, AddedToken], normalizer: Any
) -> None:
    """Refuse combinations in which the library does what its parts alone would not."""
    has_normalized = any(token.normalized for token in added.values())
    if model.ignore_merges and not line.is_byte_level:
        raise UnsupportedTokenizerError("it takes whole pieces first, even those that spell a byte token")
    if has_normalized and "ByteLevel" in str(normalizer):
        raise UnsupportedTokenizerError("it looks for added tokens in text mapped to bytes")
    if has_normalized and line.form == "nfkc" and line.prefix is not None and line.prefix.where == "first":
        raise UnsupportedTokenizerError("NFKC can put an added token inside what was the first character")


def _require_plain_bpe(model: _Model) -> None:
    kind = _kind(model)
    if kind != "BPE":
        raise UnsupportedTokenizerError(f"the native engine runs BPE, and this is a {kind[:40]} model")
    if model.merges is None or isinstance(model.vocab, list):
        raise UnsupportedTokenizerError("its BPE model has no vocabulary with merges")
    if model.dropout:
        raise UnsupportedTokenizerError("it has a dropout, so its ids are random")
    if model.continuing_subword_prefix:
        raise UnsupportedTokenizerError("it marks continued words with a prefix (continuing_subword_prefix)")
    if model.end_of_word_suffix:
        raise UnsupportedTokenizerError("it marks the end of words with a suffix (end_of_word_suffix)")


def _kind(model: _Model) -> str:
    if model.type is not None:
        return model.type
    # Older files leave it out, and the library takes the first that fits.
    if isinstance(model.vocab, list):
        return "Unigram"
    return "BPE" if model.merges is not None else "WordPiece"


def _require_bytes(model: _Model, vocab: dict[str, int], line: Pipeline) -> None:
    """Nothing may be unknown: what has no token must have its bytes' tokens, or be dropped as the library
    drops it."""
    if line.is_byte_level:
        missing = [byte for byte, char in BYTE_CHARACTERS.items() if char not in vocab]
        if missing and (model.unk_token is not None or model.byte_fallback):
            raise UnsupportedTokenizerError(
                f"byte 0x{missing[0]:02X} has no token and becomes an unknown token"
            )
        return
    if not model.byte_fallback:
        raise UnsupportedTokenizerError("it has no byte fallback, so characters can be unknown")
    replaces_spaces = line.replaces_spaces is not None
    if replaces_spaces and SPACE_MARK not in vocab:
        raise UnsupportedTokenizerError(f"it replaces spaces by {SPACE_MARK}, which is no token")
    for byte in BYTE_CHARACTERS:
        # Below 0x80 a byte is a character, and falls back only if that is no token (Gemma has a tab but no
        # <0x09>).
        is_whole = byte < 0x80 and (SPACE_MARK if byte == 0x20 and replaces_spaces else chr(byte)) in vocab
        if not is_whole and f"<0x{byte:02X}>" not in vocab:
            raise UnsupportedTokenizerError(f"its byte fallback has no token <0x{byte:02X}>")


def _require_bytes_apart(model: _Model, vocab: dict[str, int]) -> None:
    """The library merges tokens that characters have fallen back to, the native engine does not."""
    # Such a merge makes a token that holds a byte's; few vocabularies have one, and merges are many.
    if not any(len(token) > 6 and "<0x" in token for token in vocab):
        return
    merges: Any = model.merges or []
    if merges and isinstance(merges[0], str):
        merges = map(methodcaller("split", " "), merges)
    if not FALLBACK_TOKENS.isdisjoint(chain.from_iterable(merges)):
        raise UnsupportedTokenizerError("a merge joins tokens of its byte fallback")


def _require_honest_ids(
    entries: list[_AddedEntry], added: dict[str, AddedToken], vocab: dict[str, int]
) -> None:
    for entry in entries:
        if entry.content and added[entry.content].id != entry.id:
            raise UnsupportedTokenizerError(
                f"added token {entry.content[:40]!r} has id {entry.id} in the file, "
                f"but the tokenizers library gives it {added[entry.content].id}"
            )
    outside = [token.id for token in added.values() if token.content not in vocab]
    taken = set(vocab.values())
    if any(id_ in taken for id_ in outside):
        raise UnsupportedTokenizerError("an added token shares its id with a token of the vocabulary")


def _require_clear_normalized(line: Pipeline, added: dict[str, AddedToken]) -> None:
    # Metaspace replaces spaces after these tokens are looked for, a normalizer before: the spec says only
    # the latter.
    if line.replaces_spaces != "pre_tokenizer":
        return
    for token in added.values():
        if token.normalized and (token.lstrip or token.rstrip or set(token.content) & {" ", SPACE_MARK}):
            raise UnsupportedTokenizerError(
                f"added token {token.content[:40]!r} takes spaces that Metaspace replaces"
            )


def _fingerprint_parts(model: _Model, sections: list[Any], added: dict[str, AddedToken]) -> str:
    values = {
        name: value for name, value in msgspec.structs.asdict(model).items() if value not in (None, "", False)
    }
    values["type"] = _kind(model)
    if model.merges is not None:
        values["merges"] = merges_bytes(model.merges)  # type: ignore[arg-type]
    tokens = sorted(added.values(), key=lambda token: token.id)
    return fingerprint_plain("tokenizer.json", (values, _without_nulls(sections), tokens))


def _without_nulls(value: Any) -> Any:
    # Library versions differ in whether they write an absent option as null.
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _byte_characters() -> dict[int, str]:
    """GPT-2's character for each byte that occurs in UTF-8."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return {byte: char for byte, char in sorted(table.items()) if byte not in (0xC0, 0xC1) and byte < 0xF5}


BYTE_CHARACTERS = _byte_characters()
FALLBACK_TOKENS = frozenset(f"<0x{byte:02X}>" for byte in range(256))
