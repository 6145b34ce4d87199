"""Split patterns compiled to tables: text is cut into pieces exactly as the reference libraries cut it.

parse (with classes, charset) reads a pattern; automaton makes it a DFA over character classes; transducer
turns that, or several of them, into a machine that needs one table step a character; reference runs
both, slowly.
"""

from gristmill.pattern.compile import compile_splits
from gristmill.pattern.named import PATTERNS
from gristmill.pattern.parse import escape
from gristmill.pattern.reference import split_online, split_plain
from gristmill.pattern.tables import CompiledSplits, PlainSplitter, Transducer

__all__ = [
    "PATTERNS",
    "CompiledSplits",
    "PlainSplitter",
    "Transducer",
    "compile_splits",
    "escape",
    "split_online",
    "split_plain",
]
