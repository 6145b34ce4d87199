"""What a parsed pattern is: a tree of five kinds of node, with everything else rewritten into them."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from gristmill.errors import UnsupportedTokenizerError
from gristmill.pattern.charset import Charset, complement, union


class Chars(NamedTuple):
    """One character of a set."""

    charset: Charset
    ignores_case: bool = False


class Ahead(NamedTuple):
    """Nothing is consumed; the next character is in the set, or the text ends here and `at_end`."""

    charset: Charset
    at_end: bool


class Chain(NamedTuple):
    """All items, one after the other."""

    items: tuple[Node, ...]


class Choice(NamedTuple):
    """The first option with which the rest can match."""

    options: tuple[Node, ...]


class Repeat(NamedTuple):
    """The body at least and at most so many times (None: no limit), as often as possible or as seldom."""

    body: Node
    least: int
    most: int | None
    is_greedy: bool = True


Node = Chars | Ahead | Chain | Choice | Repeat


def refuse(pattern: str, position: int, reason: str) -> NoReturn:
    """Raise the one error of this package: what cannot be compiled, where, and why."""
    shown = pattern if len(pattern) <= 120 else pattern[:117] + "..."
    raise UnsupportedTokenizerError(f"split pattern {shown!r}, position {position}: {reason}")


def as_chars(node: Node) -> Chars | None:
    """A node that is always exactly one character of a set, as that set; None if it can be anything else."""
    if isinstance(node, Chars):
        return node
    if isinstance(node, Choice):
        found = [as_chars(option) for option in node.options]
        parts = [chars for chars in found if chars is not None]
        if len(parts) == len(found):
            return Chars(union([part.charset for part in parts]), any(part.ignores_case for part in parts))
    return None


def possessive(body: Chars, least: int, most: int | None) -> Node:
    """A repetition of one set that gives nothing back: it ends at `most` or where the set does not go on."""
    run_ends = Ahead(complement(body.charset), at_end=True)
    if most is None:
        return Chain((Repeat(body, least, None), run_ends))
    full = Repeat(body, most, most)
    return Choice((full, Chain((Repeat(body, least, most - 1), run_ends)))) if most > least else full


def as_ahead(node: Node) -> Ahead | None:
    """A lookahead's body as a condition on one character or the end of text, or None if it needs more."""
    chars = as_chars(node)
    if chars is not None:
        return Ahead(chars.charset, at_end=False)
    if isinstance(node, Ahead):
        return node
    if isinstance(node, Repeat) and node.least == 1:
        return as_ahead(node.body)
    if isinstance(node, Choice):
        found = [as_ahead(option) for option in node.options]
        parts = [part for part in found if part is not None]
        if len(parts) == len(found):
            return Ahead(union([part.charset for part in parts]), any(part.at_end for part in parts))
    return None


def can_be_empty(node: Node) -> bool:
    """Whether a node can match without consuming."""
    if isinstance(node, Chars):
        return False
    if isinstance(node, Ahead):
        return True
    if isinstance(node, Chain):
        return all(can_be_empty(item) for item in node.items)
    if isinstance(node, Choice):
        return any(can_be_empty(option) for option in node.options)
    return node.least == 0 or can_be_empty(node.body)
