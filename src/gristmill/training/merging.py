"""Learns merges from counted pieces: the same merges in the same order as `tokenizers`, in native code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import Thread
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill import _native
from gristmill.errors import ConfigError, InputError
from gristmill.training.inventory import Pieces
from gristmill.training.start import Start, Symbols, check_room, spelling, token_text, token_texts

TieBreak = Literal["tokenizers", "bytes"]
"""Which of several pairs with the same count comes first: that with the smaller ids, left then right, as in
`tokenizers`; or that whose left token, then right token, has the smaller bytes."""

REPORT_S = 0.25


class Merges:
    """What was learned, and what it was learned on top of; texts are made when they are asked for."""

    def __init__(self, learner: _native.Learner, start: Start) -> None:
        self._learner = learner
        self._start = start
        self.symbols: Symbols = start.symbols
        self.num_tokens = learner.num_tokens
        self.rules: NDArray[np.uint32] = np.concatenate([start.known, learner.rules()])
        """All merges in order, known ones first, a row each: left id, right id, id of the merged token."""
        self.counts = learner.counts()
        """How often the pair of each learned merge occurred when it was merged."""

    @cached_property
    def tokens(self) -> list[str]:
        """By id, as tokenizer.json writes them."""
        before = self._start.tokens
        return before + token_texts(*self._learner.tokens(len(before)), self.symbols)

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The merges as tokenizer.json writes them."""
        left, right = (map(self.tokens.__getitem__, self.rules[:, side].tolist()) for side in (0, 1))
        return list(zip(left, right, strict=True))

    def compile_bytes(self, *, takes_whole: bool, num_threads: int) -> _native.Model:
        """What encodes pieces, where symbols are bytes: no text is made for it."""
        assert self.symbols == "bytes"
        return self._learner.model(takes_whole, num_threads)


class Progress(NamedTuple):
    """How far learning is."""

    num_tokens: int
    rules: Callable[[], NDArray[np.uint32]]
    """All merges so far: what it takes to go on from here later."""


class Learning:
    """Merges being learned; holds its own copy of the pieces, so that the caller's may go.

    Neither `num_threads` nor `floor` (the count below which pairs are not followed at first) changes what is
    learned."""

    def __init__(
        self,
        pieces: Pieces,
        start: Start,
        *,
        vocab_size: int,
        min_frequency: int = 0,
        max_token_length: int | None = None,
        tie_break: TieBreak = "tokenizers",
        num_threads: int = 1,
        floor: int = 0,
    ) -> None:
        check_room(start, vocab_size)
        if min_frequency < 0 or (max_token_length is not None and max_token_length < 0):
            raise ConfigError("min_frequency and max_token_length are not negative")
        self._start = start
        try:
            self._learner = _native.Learner(
                *pieces,
                symbols=start.symbols,
                alphabet=np.array(list(start.alphabet), np.uint32),
                alphabet_ids=np.array(list(start.alphabet.values()), np.uint32),
                tokens=[spelling(token, start.symbols) for token in start.tokens],
                known=start.known,
                vocab_size=vocab_size,
                min_frequency=min_frequency,
                max_token_length=max_token_length,
                tie_break=tie_break,
                num_threads=num_threads,
                first_floor=floor,
            )
        except ValueError as error:
            raise InputError(f"no merges can be learned from these pieces: {error}") from error

    def advance(self, seconds: float) -> bool:
        """Learn for about so long, so that `run` has less to do; whether there is nothing left."""
        return self._learner.advance(seconds)

    def run(self, report: Callable[[Progress], None] | None = None) -> Merges:
        """Learn to the end, after which the pieces are gone; `report` is called a few times a second and may
        raise to stop."""
        while not self._learner.advance(REPORT_S):
            if report is not None:
                report(Progress(self._learner.num_tokens, self.rules))
        # Giving the memory of many pieces back takes a while, and nobody need wait for it.
        Thread(target=self._learner.forget_pieces, name="forget").start()
        return Merges(self._learner, self._start)

    @property
    def text_bytes(self) -> int:
        """Of all pieces, each as often as it occurs."""
        return self._learner.text_bytes

    def counts(self) -> NDArray[np.int64]:
        """How often the pair of each merge learned so far occurred when it was merged."""
        return self._learner.counts()

    def rules(self) -> NDArray[np.uint32]:
        """All merges so far, known ones first."""
        return np.concatenate([self._start.known, self._learner.rules()])


def resume(start: Start, rules: NDArray[np.uint32]) -> Start:
    """A start after merges that an earlier, stopped training has learned from the same start."""
    tokens = [spelling(token, start.symbols) for token in start.tokens]
    for left, right, token in rules[len(start.known) :].tolist():
        if max(left, right) >= len(tokens) or token > len(tokens):
            raise InputError("the merges to resume from are damaged, or belong to another training")
        if token == len(tokens):
            tokens.append(tokens[left] + tokens[right])
    new = [token_text(spelled, start.symbols) for spelled in tokens[len(start.tokens) :]]
    return start._replace(tokens=start.tokens + new, known=np.ascontiguousarray(rules, np.uint32))


def memory_needed(*, num_pieces: int, num_symbols: int, vocab_size: int, num_threads: int = 1) -> int:
    """About how many bytes learning holds at its peak, the caller's arrays not counted."""
    return _native.training_memory(num_pieces, num_symbols, vocab_size, num_threads)
