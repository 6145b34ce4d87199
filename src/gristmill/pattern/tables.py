"""What compiling gives: small arrays that the native splitter runs without knowing the pattern."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class PlainSplitter(NamedTuple):
    """One split as a DFA: run it from the start of a piece until it is dead, then cut at the last match.

    A character from which no match starts is part of a gap; neighbouring ones are one gap, and one piece."""

    num_classes: int
    next_state: NDArray[np.uint16]
    """[state, class], 0xFFFF is dead; the last column is the end of text, and state 0 the start."""
    match: NDArray[np.uint8]
    """[state, class]: 1 where a match ends before a character of the class."""
    stage1: NDArray[np.uint16]
    stage2: NDArray[np.uint8]
    """The class of a code point is stage2[stage1[cp >> 8] * 256 + (cp & 255)]."""
    keep_matches: bool
    keep_gaps: bool
    never_gaps: bool


class Transducer(NamedTuple):
    """All splits at once, one table step a character: pop some ends, then push the current position or not.

    Start in config 0 with no ends. After the end of text the ends on the stack are those of the pieces."""

    num_classes: int
    num_configs: int
    table: NDArray[np.uint16]
    """[config, column]: next config << 8 | pops << 1 | push. The column is an ASCII byte, or 128 + the class
    of another character, or 128 + num_classes at the end of text."""
    stage1: NDArray[np.uint16]
    stage2: NDArray[np.uint8]


class CompiledSplits(NamedTuple):
    """The splits of a tokenizer, each applied inside the pieces of the last; the transducer, where there is
    one, does all of them in one pass."""

    stages: tuple[PlainSplitter, ...]
    transducer: Transducer | None
