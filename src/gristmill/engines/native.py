"""Our engine: a tokenizer spec compiled to tables, run by C++ on any number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np

from gristmill import _native
from gristmill.config import DEFAULT_CACHE_BYTES
from gristmill.engines import Bytes, EngineName, Ids, Offsets, SpecialTokens
from gristmill.errors import InputError, UnsupportedTokenizerError
from gristmill.spec import MergeModel, RankModel, ScoreModel, Split, TokenizerSpec

if TYPE_CHECKING:  # patterns are compiled only where no compiled tokenizer is remembered
    from numpy.typing import NDArray

    from gristmill.pattern import CompiledSplits

SPACE_MARK = "▁"


class Program(NamedTuple):
    """A compiled tokenizer: the calls of `_native.Build` that put it together, with the tables they take."""

    steps: list[tuple[str, tuple[Any, ...]]]
    strips_prefix: bool
    """Decoding takes away the space that encoding puts in front."""


class NativeEngine:
    """Encodes with the compiled tables; each thread remembers at most `cache_bytes` of pieces it has seen."""

    name: EngineName = "native"

    def __init__(
        self,
        source: TokenizerSpec | Program,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        native: _native.Engine | None = None,
    ) -> None:
        """`native`: what the program was built to already, with a cache of its own."""
        self.program = source if isinstance(source, Program) else compile_program(source)
        if native is None:
            build = _native.Build()
            for name, arguments in self.program.steps:
                getattr(build, name)(*arguments)
            native = _native.Engine(build, cache_bytes)
        self._engine = native

    def encode_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> tuple[Ids, Offsets]:
        """Ids and offsets of documents in one flat buffer."""
        ids, ends, error = self._engine.encode_flat(
            buffer,
            offsets,
            special_tokens=special_tokens,
            replace_invalid=False,
            count_only=False,
            num_threads=num_threads,
        )
        _raise(error)
        return ids, ends

    def encode_some(
        self,
        buffer: Bytes,
        offsets: Offsets,
        which: Offsets,
        *,
        special_tokens: SpecialTokens,
        num_threads: int,
    ) -> tuple[Ids, Offsets]:
        """The same for some of the documents; errors name them by their numbers among all."""
        first, last = int(which[0]), int(which[-1]) + 1
        if last - first == len(which):  # all side by side
            text, bounds = buffer[offsets[first] : offsets[last]], offsets[first : last + 1] - offsets[first]
        else:
            texts = [buffer[begin:end] for begin, end in zip(offsets[which], offsets[which + 1], strict=True)]
            text, bounds = np.concatenate(texts), np.cumsum([0, *map(len, texts)])
        ids, ends, error = self._engine.encode_flat(
            text,
            bounds.astype(np.int64, copy=False),
            special_tokens=special_tokens,
            replace_invalid=False,
            count_only=False,
            num_threads=num_threads,
        )
        _raise(error and (error[0], int(which[error[1]]), error[2]))
        return ids, ends

    def encode_list(
        self,
        texts: list[Any],
        *,
        special_tokens: SpecialTokens,
        replace_invalid: bool,
        num_threads: int,
    ) -> tuple[Ids, Offsets]:
        """The same for a list, read where it lies."""
        try:
            ids, ends, fault = self._engine.encode_list(
                texts,
                special_tokens=special_tokens,
                replace_invalid=replace_invalid,
                count_only=False,
                num_threads=num_threads,
            )
        except TypeError as error:
            raise InputError(str(error)) from error
        _raise(fault)
        return ids, ends

    def count_batch(
        self, buffer: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens, num_threads: int
    ) -> Offsets:
        """Number of ids of each document."""
        _, ends, error = self._engine.encode_flat(
            buffer,
            offsets,
            special_tokens=special_tokens,
            replace_invalid=False,
            count_only=True,
            num_threads=num_threads,
        )
        _raise(error)
        counts: Offsets = np.diff(ends)
        return counts

    def decode(self, ids: Ids) -> bytes:
        """The bytes of the tokens, one after the other, less the space that encoding puts in front."""
        text: bytes = self._engine.decode(np.ascontiguousarray(ids))
        return text[1:] if self.program.strips_prefix and text.startswith(b" ") else text

    @property
    def model(self) -> Any:
        """The vocabulary as the native core has it."""
        return next(arguments[0] for name, arguments in self.program.steps if name == "set_model")

    @property
    def state_bytes(self) -> int:
        """Memory held by what the threads remember."""
        return int(self._engine.state_bytes)


def compile_native(spec: TokenizerSpec) -> NativeEngine:
    """The engine of a spec; `UnsupportedTokenizerError` says why there is none."""
    try:
        return NativeEngine(spec)
    except ValueError as error:  # ModelError, or a table the core refuses
        raise UnsupportedTokenizerError(str(error)) from error


def compile_program(spec: TokenizerSpec) -> Program:
    """The program of a spec; ValueError, of which `UnsupportedTokenizerError` is one, where there is none."""
    normalization, prefix = spec.normalization, spec.prefix
    steps: list[tuple[str, tuple[Any, ...]]] = [("set_model", (compile_model(spec),))]
    if normalization.form:
        steps.append(("set_form", (normalization.form,)))
    if normalization.replace_spaces:
        steps.append(("set_spaces_as_marks", ()))
    if prefix:
        steps.append(("set_prefix", (prefix.where, prefix.unless_present, prefix.stage == "normalizer")))
    steps += _split_steps(spec)
    if spec.added_tokens:
        steps.append(("set_word_class", _word_class()))
        steps += _token_steps(spec)
    return Program(steps, normalization.replace_spaces and prefix is not None)


def _token_steps(spec: TokenizerSpec) -> list[tuple[str, tuple[Any, ...]]]:
    _require_apart(spec)
    looked_for = [as_looked_for(token.content, spec) for token in spec.added_tokens if token.normalized]
    if len(set(looked_for)) < len(looked_for):
        raise UnsupportedTokenizerError("two added tokens are the same once normalised")
    return [
        (
            "add_token",
            (
                token.id,
                as_looked_for(token.content, spec) if token.normalized else token.content,
                token.special,
                token.normalized,
                token.single_word,
                token.lstrip,
                token.rstrip,
            ),
        )
        for token in spec.added_tokens
    ]


def compile_model(spec: TokenizerSpec) -> Any:
    """The vocabulary of a spec as the native core has it."""
    model: MergeModel | RankModel | ScoreModel = spec.model
    if isinstance(model, RankModel):
        return _native.compile_ranks(model.ranks, model.id_offset)
    if isinstance(model, ScoreModel):
        return _native.compile_scores(
            model.pieces,
            model.ids,
            _ranks_of_scores(model.scores),
            model.byte_ids,
        )
    text: Literal["byte_level", "marks", "plain"] = "byte_level"
    if model.token_text == "plain":
        text = "marks" if spec.normalization.replace_spaces else "plain"
    return _native.compile_merges(model.vocab, model.merges, text, model.byte_fallback, model.ignore_merges)


def _ranks_of_scores(scores: Sequence[float]) -> list[int]:
    values = np.asarray(scores, dtype=np.float64)
    if not np.all(np.isfinite(values)):
        raise UnsupportedTokenizerError("a piece has a score that is no number")
    ranks: list[int] = np.unique(-values, return_inverse=True)[1].ravel().tolist()
    return ranks


def _split_steps(spec: TokenizerSpec) -> list[tuple[str, tuple[Any, ...]]]:
    from gristmill.pattern import compile_splits

    if not spec.splits:
        takes_whole = isinstance(spec.model, RankModel) or (
            isinstance(spec.model, MergeModel) and spec.model.ignore_merges
        )
        # Else pieces may be cut wherever no token reaches across.
        return [] if takes_whole else [("set_word_transducer", ())]
    splits = spec.splits
    if spec.normalization.replace_spaces:
        # The engine keeps spaces as spaces; a pattern that looks for the mark looks for them.
        splits = splits_over_spaces(splits)
    compiled = compile_splits(splits)
    if spec.normalization.replace_spaces:
        require_same_class(compiled)
    return splitting_steps(compiled)


def splitting_steps(compiled: CompiledSplits) -> list[tuple[str, tuple[Any, ...]]]:
    """The calls that hand the tables of a split to a native build."""
    steps: list[tuple[str, tuple[Any, ...]]] = []
    if (machine := compiled.transducer) is not None:
        tables = (machine.stage1, machine.stage2, machine.table, machine.num_classes)
        steps.append(("set_transducer", tables))
    for stage in compiled.stages:
        stage_tables = (stage.stage1, stage.stage2, stage.next_state, stage.match)
        options = (stage.num_classes, stage.keep_matches, stage.keep_gaps)
        steps.append(("add_splitter", (*stage_tables, *options)))
    return steps


def splits_over_spaces(splits: tuple[Split, ...]) -> tuple[Split, ...]:
    """Splits of text with marks as splits of the same text with spaces."""
    return tuple(
        msgspec.structs.replace(split, pattern=f"[ {SPACE_MARK}]") if split.pattern == SPACE_MARK else split
        for split in splits
    )


def require_same_class(compiled: CompiledSplits) -> None:
    """Refuse splits that tell a space from its mark: the core has spaces for both."""
    for stage in compiled.stages:
        of_space, of_mark = (
            stage.stage2[int(stage.stage1[c >> 8]) * 256 + (c & 255)] for c in (0x20, 0x2581)
        )
        if of_space != of_mark:
            raise UnsupportedTokenizerError(
                f"it replaces spaces by {SPACE_MARK} and then splits by a pattern that tells them apart"
            )


def _require_apart(spec: TokenizerSpec) -> None:
    """White space that an added token takes must not be another's text: `tokenizers` fails on that."""
    if any(token.rstrip for token in spec.added_tokens):
        for token in spec.added_tokens:
            if token.content[:1].isspace():
                raise UnsupportedTokenizerError(
                    f"an added token takes the white space after it, and {token.content!r} begins with some"
                )


def as_looked_for(content: str, spec: TokenizerSpec) -> str:
    """An added token as it stands in normalised text."""
    normalization = spec.normalization
    if normalization.form:
        content = _native.normalize(normalization.form, content.encode()).decode()
    if normalization.replace_spaces:
        content = content.replace(SPACE_MARK, " ")
    if spec.prefix and spec.prefix.stage == "normalizer" and content:
        content = " " + content
    return content


@lru_cache(maxsize=1)
def _word_class() -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Bit 0: a word character, bit 1: white space, as Rust's regex has them."""
    from gristmill.pattern.charset import Partition, classes_of_set, named_set, partition, two_stage

    word, space = named_set("rust", "w"), named_set("rust", "s")
    assert word is not None
    assert space is not None
    parts = partition([word, space])
    bits = np.array(classes_of_set(parts, word), np.int64) + 2 * np.array(
        classes_of_set(parts, space), np.int64
    )
    return two_stage(Partition(parts.starts, bits[parts.classes], 4))


def _raise(error: tuple[str, int, int] | None) -> None:
    if error is None:
        return
    kind, document, offset = error
    if kind == "too_large":
        raise InputError(f"document {document} has 4 GB or more; cut it before encoding")
    what = "a lone surrogate" if kind == "lone_surrogate" else "invalid UTF-8"
    raise InputError(f"document {document}: {what} at byte {offset}; errors='replace' puts U+FFFD there")
