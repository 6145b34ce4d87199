"""The ways to turn text into ids that `bench` compares: one function a library, and the table of them.

Each opens a tokenizer as a user of that library would, and says by a GristmillError why it does not apply.
"""

from __future__ import annotations

import importlib
import itertools
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.config import EngineChoice
from gristmill.errors import InputError, MissingPackageError, UnsupportedTokenizerError
from gristmill.tokenizer import load_tokenizer

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


class Encoder(NamedTuple):
    """A library with its tokenizer loaded; only `encode` is timed."""

    prepare: Callable[[list[str]], Any]
    """Documents in the form the library takes fastest."""
    encode: Callable[[Any], Any]
    flatten: Callable[[Any], tuple[Ids, Offsets]]


def open_native(source: str, threads: int) -> Encoder:
    """Gristmill's own engine."""
    return _open_gristmill(source, threads, engine="native")


def open_slow(source: str, threads: int) -> Encoder:
    """The Python tokenizer of the source."""
    return _open_gristmill(source, threads, engine="slow")


def _open_gristmill(source: str, threads: int, *, engine: EngineChoice) -> Encoder:
    tokenizer = load_tokenizer(source, engine=engine)
    return Encoder(
        prepare=_as_bytes,
        encode=partial(tokenizer.encode_batch, num_threads=threads),
        flatten=lambda batch: (batch.ids, batch.offsets),
    )


def open_tokenizers(source: str, _threads: int, *, batch_size: int) -> Encoder:
    """The `tokenizers` library in batches; its threads are set by the worker's environment."""
    tokenizer = _rival("tokenizers").Tokenizer.from_str(_tokenizer_json(source).read_text(encoding="utf-8"))
    tokenizer.encode_special_tokens = True
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def encode(documents: list[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(documents), batch_size):
            batch = documents[start : start + batch_size]
            ids += [encoding.ids for encoding in tokenizer.encode_batch(batch, add_special_tokens=False)]
        return ids

    def encode_singly(documents: list[str]) -> list[list[int]]:
        return [tokenizer.encode(document, add_special_tokens=False).ids for document in documents]

    return Encoder(list, encode if batch_size > 1 else encode_singly, _from_lists)


def open_tiktoken(source: str, threads: int) -> Encoder:
    """The `tiktoken` library: a rank file, or a tokenizer.json that says the same as one."""
    encoding, is_normalized = _tiktoken_encoding(source)

    def encode(documents: list[str]) -> list[list[int]]:
        if is_normalized:
            documents = [unicodedata.normalize("NFC", document) for document in documents]
        ids: list[list[int]] = encoding.encode_ordinary_batch(documents, num_threads=threads)
        return ids

    return Encoder(list, encode, _from_lists)


def open_gigatoken(source: str, threads: int) -> Encoder:
    """The `gigatoken` library, on one thread or on its own pool."""
    gigatoken = _rival("gigatoken")
    awkward = _rival("awkward")
    path = Path(source)
    try:
        if path.suffix == ".tiktoken":
            tokenizer = gigatoken.Tokenizer.from_tiktoken(path)
        elif path.suffix == ".model":
            tokenizer = gigatoken.Tokenizer.from_sentencepiece(path)
        else:
            tokenizer = gigatoken.Tokenizer(str(_tokenizer_json(source)))
    except (ValueError, TypeError, RuntimeError) as error:
        raise UnsupportedTokenizerError(f"gigatoken cannot load it: {_first_line(error)}") from error

    def flatten(ragged: Any) -> tuple[Ids, Offsets]:
        lengths = awkward.to_numpy(awkward.num(ragged))
        return awkward.to_numpy(awkward.flatten(ragged)).astype(np.uint32), _offsets(lengths)

    return Encoder(_as_bytes, partial(tokenizer.encode_batch, parallel=threads > 1), flatten)


def open_sentencepiece(source: str, threads: int) -> Encoder:
    """The `sentencepiece` library."""
    if Path(source).suffix != ".model":
        raise UnsupportedTokenizerError("sentencepiece reads .model files only")
    try:
        processor = _rival("sentencepiece").SentencePieceProcessor(model_file=source)
    except (RuntimeError, OSError) as error:
        raise UnsupportedTokenizerError(f"sentencepiece cannot load it: {_first_line(error)}") from error
    return Encoder(list, partial(processor.encode, out_type=int, num_threads=threads), _from_lists)


METHODS: dict[str, Callable[[str, int], Encoder]] = {
    "native": open_native,
    "tokenizers one by one": partial(open_tokenizers, batch_size=1),
    "tokenizers batch 32": partial(open_tokenizers, batch_size=32),
    "tokenizers batch 64": partial(open_tokenizers, batch_size=64),
    "tokenizers batch 100": partial(open_tokenizers, batch_size=100),
    "tokenizers batch 1000": partial(open_tokenizers, batch_size=1000),
    "tiktoken": open_tiktoken,
    "sentencepiece": open_sentencepiece,
    "gigatoken": open_gigatoken,
    "slow": open_slow,
}

REFERENCES = ("tokenizers batch 1000", "tiktoken", "sentencepiece", "slow")
"""The first of these that applies to a source says which ids are right."""


def _rival(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(f"{name} is not installed") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _as_bytes(documents: list[str]) -> list[bytes]:
    return [document.encode() for document in documents]


def _from_lists(lists: list[list[int]]) -> tuple[Ids, Offsets]:
    offsets = _offsets([len(ids) for ids in lists])
    flat = np.fromiter((i for ids in lists for i in ids), dtype=np.uint32, count=int(offsets[-1]))
    return flat, offsets


def _offsets(lengths: Iterable[int]) -> Offsets:
    return np.concatenate(([0], np.cumsum(np.asarray(lengths, dtype=np.int64)))).astype(np.int64)


def _tokenizer_json(source: str) -> Path:
    path = Path(source) / "tokenizer.json" if Path(source).is_dir() else Path(source)
    if path.suffix != ".json" or not path.is_file():
        raise UnsupportedTokenizerError("the source has no tokenizer.json")
    if b'"model"' not in path.read_bytes():
        raise UnsupportedTokenizerError(f"{path.name} is no tokenizer.json")
    return path


def _tiktoken_encoding(source: str) -> tuple[Any, bool]:
    tiktoken = _rival("tiktoken")
    path = Path(source)
    if path.suffix == ".tiktoken":
        name = path.stem
        ranks = importlib.import_module("tiktoken.load").load_tiktoken_bpe(str(path))
        pattern, is_normalized = _published_pattern(name), False
    else:
        ranks, pattern, is_normalized = _ranks_of_tokenizer_json(_tokenizer_json(source))
        name = "converted"
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}), is_normalized


def _published_pattern(name: str) -> str:
    """Ask tiktoken itself for an encoding's pattern, without the download its constructor would start."""
    published: Any = importlib.import_module("tiktoken_ext.openai_public")
    constructor = published.ENCODING_CONSTRUCTORS.get(name)
    if constructor is None:
        raise UnsupportedTokenizerError(f"tiktoken publishes no encoding {name!r}")
    download = published.load_tiktoken_bpe
    try:
        published.load_tiktoken_bpe = lambda *_args, **_options: {}
        pattern: str = constructor()["pat_str"]
    finally:
        published.load_tiktoken_bpe = download
    return pattern


def _ranks_of_tokenizer_json(path: Path) -> tuple[dict[bytes, int], str, bool]:
    content = json.loads(path.read_bytes())
    model, normalizer = content["model"], content.get("normalizer") or {"type": None}
    if model.get("type", "BPE") != "BPE" or normalizer["type"] not in (None, "NFC"):
        raise UnsupportedTokenizerError("tiktoken cannot say this model or normalizer")
    pattern = _single_pattern(content.get("pre_tokenizer") or {})
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    merged = [model["vocab"].get(left + right, -1) for left, right in merges]
    if any(a > b for a, b in itertools.pairwise(merged)):
        raise UnsupportedTokenizerError("tiktoken needs ids in merge order")
    alphabet = _byte_of_character()
    names = model["vocab"] if model.get("ignore_merges") else [*alphabet, *("".join(m) for m in merges)]
    vocab = model["vocab"]
    ranks = {bytes(alphabet[c] for c in name): vocab[name] for name in names if name in vocab}
    return ranks, pattern, normalizer["type"] == "NFC"


def _single_pattern(pre_tokenizer: dict[str, Any]) -> str:
    steps = list(_steps(pre_tokenizer))
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1].get("add_prefix_space"):
        raise UnsupportedTokenizerError("tiktoken has byte-level BPE without a prefix space only")
    if len(steps) == 1 and steps[0].get("use_regex", True):
        return GPT2_PATTERN
    if len(steps) == 2 and steps[0]["type"] == "Split" and not steps[1].get("use_regex", True):
        pattern: str | None = steps[0]["pattern"].get("Regex")
        if pattern and steps[0]["behavior"] in ("Isolated", "Removed") and _keeps_matches(steps[0]):
            return pattern
    raise UnsupportedTokenizerError("tiktoken has one split pattern only")


def _keeps_matches(split: dict[str, Any]) -> bool:
    is_removed: bool = split["behavior"] == "Removed"
    return is_removed == bool(split.get("invert"))


def _steps(pre_tokenizer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if pre_tokenizer.get("type") == "Sequence":
        for step in pre_tokenizer["pretokenizers"]:
            yield from _steps(step)
    elif pre_tokenizer:
        yield pre_tokenizer


def _byte_of_character() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 bytes stand for themselves, the others for U+0100 onwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in sorted(printable)} | {chr(0x100 + i): b for i, b in enumerate(hidden)}


def check_documents(documents: list[str]) -> None:
    """Refuse text that not every library can take, so that all of them see the same bytes."""
    for number, document in enumerate(documents):
        try:
            document.encode()
        except UnicodeEncodeError as error:
            place = f"document {number}, character {error.start}"
            raise InputError(f"{place}: a lone surrogate, which is no text; remove it") from error
