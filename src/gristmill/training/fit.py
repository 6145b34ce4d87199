"""How well a tokenizer fits a sample: bytes a token, by source and by script, and tokens never used."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gristmill import _native
from gristmill.engines import Engine
from gristmill.scripts import SCRIPTS
from gristmill.training.figures import scripts_of
from gristmill.training.inventory import Pieces
from gristmill.training.merging import Merges
from gristmill.training.start import spelling

CURVE_POINTS = 64
NUM_LONGEST = 10


class Share(NamedTuple):
    """Text, and the tokens it became."""

    num_bytes: int
    num_tokens: int

    @property
    def bytes_per_token(self) -> float:
        """How much text a token holds."""
        return self.num_bytes / self.num_tokens if self.num_tokens else 0.0


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What a sample tells of a tokenizer."""

    is_held_out: bool
    """The sample was not counted: what it tells holds for new text."""
    num_documents: int
    text: Share
    sources: dict[str, Share]
    scripts: dict[str, Share]
    num_unused: int
    """Tokens that no text of the sample needed, special tokens not among them."""
    unused_share: float
    curve: list[tuple[int, float]]
    """Size of the vocabulary, and bytes a token had the training ended there."""


def longest_tokens(merges: Merges) -> list[str]:
    """The learned tokens with the most characters of the alphabet, longest first."""
    learned = merges.tokens[len(merges.tokens) - len(merges.counts) :]
    longest = heapq.nlargest(NUM_LONGEST, learned, key=len)
    return [spelling(token, merges.symbols).decode("utf-8", "backslashreplace") for token in longest]


def merge_counts(merges: Merges) -> list[tuple[int, int]]:
    """Sizes of the vocabulary, and how often the pair that was merged there occurred."""
    num_new = len(merges.counts)
    chosen = sorted({*np.linspace(0, max(num_new - 1, 0), CURVE_POINTS).astype(int).tolist()})
    first = merges.num_tokens - num_new + 1
    return [(first + i, int(merges.counts[i])) for i in chosen if i < num_new]


class SourcePieces(NamedTuple):
    """The pieces of a source, and the script of each."""

    name: str
    pieces: Pieces
    scripts: NDArray[np.int64]

    @classmethod
    def of(cls, name: str, pieces: Pieces) -> SourcePieces:
        """Find out what scripts they are of."""
        return cls(name, pieces, scripts_of(pieces))


class Usage:
    """Adds up what the pieces of one source after another become."""

    def __init__(self, engine: Engine, num_tokens: int, *, num_threads: int) -> None:
        self._engine = engine
        self._num_threads = num_threads
        self.by_token = np.zeros(num_tokens, np.int64)
        self._scripts = np.zeros((len(SCRIPTS), 2), np.int64)

    def add(self, source: SourcePieces) -> Share:
        """Encode pieces, each as often as it occurs."""
        pieces = source.pieces
        ids, ends = self._engine.encode_batch(
            pieces.text, pieces.offsets, special_tokens="text", num_threads=self._num_threads
        )
        counts = pieces.counts.astype(np.int64)
        lengths = np.diff(ends)
        used = np.bincount(ids, weights=np.repeat(counts, lengths), minlength=len(self.by_token))
        self.by_token += used.astype(np.int64)
        amounts = np.stack([np.diff(pieces.offsets) * counts, lengths * counts], axis=1)
        for column in range(2):
            sums = np.bincount(source.scripts, weights=amounts[:, column], minlength=len(SCRIPTS))
            self._scripts[:, column] += sums.astype(np.int64)
        return Share(*map(int, amounts.sum(axis=0)))

    def scripts(self) -> dict[str, Share]:
        """Shares of the text by script, largest first."""
        shares = {name: Share(*map(int, row)) for name, row in zip(SCRIPTS, self._scripts, strict=True)}
        return dict(sorted(shares.items(), key=lambda item: -item[1].num_bytes))


def measure_fit(
    usage: Usage,
    merges: Merges,
    sources: Iterable[SourcePieces],
    *,
    num_documents: int,
    num_special: int,
    is_held_out: bool,
) -> Fit:
    """The fit of a tokenizer to the pieces of each source."""
    by_source = {source.name: usage.add(source) for source in sources}
    text = Share(
        sum(share.num_bytes for share in by_source.values()),
        sum(share.num_tokens for share in by_source.values()),
    )
    num_unused = int(np.count_nonzero(usage.by_token == 0)) - num_special
    return Fit(
        is_held_out=is_held_out,
        num_documents=num_documents,
        text=text,
        sources=dict(sorted(by_source.items(), key=lambda item: -item[1].num_bytes)),
        scripts={name: share for name, share in usage.scripts().items() if share.num_bytes},
        num_unused=max(num_unused, 0),
        unused_share=max(num_unused, 0) / max(merges.num_tokens - num_special, 1),
        curve=compression_curve(usage.by_token, merges, text),
    )


def compression_curve(by_token: NDArray[np.int64], merges: Merges, text: Share) -> list[tuple[int, float]]:
    """Bytes a token for vocabularies that end earlier.

    A vocabulary that lacks the last merges gives the two halves where this one gives a merged token: so the
    merges are taken back one by one, and each costs as many tokens as it had made."""
    num_new = len(merges.counts)
    num_before = merges.num_tokens - num_new
    learned = np.ascontiguousarray(merges.rules[len(merges.rules) - num_new :])
    made = np.concatenate([[0], np.cumsum(_native.take_back_rules(learned, by_token))])
    num_tokens = (text.num_tokens + made[-1] - made).tolist()
    shown = sorted({*np.linspace(0, num_new, CURVE_POINTS).astype(int).tolist()})
    return [
        (num_before + number, round(text.num_bytes / num_tokens[number], 4))
        for number in shown
        if num_tokens[number]
    ]
