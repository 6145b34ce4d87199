"""Regular expressions as tokenizers write them, read in the dialect of Oniguruma or of Rust's fancy-regex.

Only what both the dialect and this parser understand in the same way is accepted; everything else is refused
with its position. Possessive repetitions of a set are exact: S++ is S+ followed by (?!S).
"""

from __future__ import annotations

import re
from typing import NoReturn

from gristmill.pattern.charset import EMPTY, Charset, complement, folded, named_set, single
from gristmill.pattern.classes import parse_class, parse_property, parse_shorthand, parse_unit
from gristmill.pattern.syntax import (
    Ahead,
    Chain,
    Chars,
    Choice,
    Node,
    Repeat,
    as_ahead,
    as_chars,
    can_be_empty,
    possessive,
    refuse,
)
from gristmill.spec import Dialect

MAX_LENGTH = 10_000
MAX_NESTING = 40
MAX_COUNT = 1_000

_ASCII_END = 0x80
_COUNT = re.compile(r"\{(\d{0,9})(?:(,)(\d{0,9}))?\}")
_SIMPLE_COUNTS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


def parse(pattern: str, dialect: Dialect) -> Node:
    """The tree of a pattern."""
    if len(pattern) > MAX_LENGTH:
        refuse(pattern, MAX_LENGTH, f"longer than {MAX_LENGTH} characters")
    parser = _Parser(pattern, dialect)
    node = parser.choice(0)
    if parser.position < len(pattern):
        parser.refuse("unmatched )")
    return node


def escape(text: str) -> str:
    """A pattern that matches exactly this text, in every dialect."""
    return "".join(rf"\x{{{ord(c):X}}}" if c in r"\.[]{}()*+?|^$&-~# " or c < " " else c for c in text)


class _Parser:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self.pattern = pattern
        self.dialect = dialect
        self.position = 0
        self.ignores_case = False

    def refuse(self, reason: str) -> NoReturn:
        refuse(self.pattern, self.position, reason)

    def take(self, text: str) -> bool:
        """Whether the text comes next; if so, it is consumed."""
        if not self.pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def choice(self, depth: int) -> Node:
        if depth > MAX_NESTING:
            self.refuse(f"groups nested deeper than {MAX_NESTING}")
        options = [self.chain(depth)]
        while self.take("|"):
            options.append(self.chain(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def chain(self, depth: int) -> Node:
        items: list[Node] = []
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            items.append(self.repetition(self.atom(depth)))
        return items[0] if len(items) == 1 else Chain(tuple(items))

    def atom(self, depth: int) -> Node:
        char = self.pattern[self.position]
        if char == "(":
            return self.group(depth)
        if char == "[":
            charset, self.position = parse_class(self.pattern, self.position, self.dialect, self.ignores_case)
            return self.chars(charset)
        if char == "\\":
            return self.escaped()
        if char == "$":
            self.position += 1
            return Ahead(single(ord("\n")) if self.dialect == "oniguruma" else EMPTY, at_end=True)
        if char == ".":
            self.position += 1
            return Chars(complement(single(ord("\n"))))
        if char in "^*+?{":
            self.refuse(f"{char!r} is not supported here (escape it if the character is meant)")
        self.position += 1
        return self.chars(single(ord(char)))

    def chars(self, charset: Charset) -> Node:
        """A set, folded where case is ignored; only the folds of ASCII characters are known here."""
        if not self.ignores_case:
            return Chars(charset)
        if charset and charset[-1] > _ASCII_END:
            if charset in (space := self.space(), complement(space)):
                return Chars(charset)
            self.refuse("a set with other than ASCII characters where case is ignored")
        return Chars(folded(self.dialect, charset), ignores_case=True)

    def space(self) -> Charset:
        return named_set(self.dialect, "s") or EMPTY

    def escaped(self) -> Node:
        following = self.pattern[self.position + 1 : self.position + 2]
        if following in ("p", "P"):
            charset, self.position = parse_property(self.pattern, self.position, self.dialect)
            return self.chars(charset)
        shorthand = parse_shorthand(self.pattern, self.position, self.dialect, in_class=False)
        if shorthand is not None:
            self.position += 2
            return self.chars(shorthand)
        if following == "z":
            self.position += 2
            return Ahead(EMPTY, at_end=True)
        point, self.position = parse_unit(self.pattern, self.position)
        return self.chars(single(point))

    def group(self, depth: int) -> Node:
        start = self.position
        kept = self.ignores_case
        if self.take("(?i:"):
            self.ignores_case = True
        elif self.take("(?i)"):
            return self.option_to_end(start, depth)
        elif self.take("(?=") or self.take("(?!"):
            return self.lookahead(start, depth)
        elif not self.take("(?:"):
            self.take("(")
            if self.pattern.startswith(("?", "*"), self.position):
                self.refuse("only the groups (..), (?:..), (?i:..), (?i), (?=..) and (?!..) are supported")
        node = self.choice(depth + 1)
        self.close(start)
        self.ignores_case = kept
        return node

    def close(self, start: int) -> None:
        if not self.take(")"):
            refuse(self.pattern, start, "unmatched (")

    def option_to_end(self, start: int, depth: int) -> Node:
        """(?i) to the end of the pattern. Elsewhere the dialects differ in what it covers."""
        if start:
            refuse(self.pattern, start, "(?i) is supported at the start of a pattern only; use (?i:..)")
        self.ignores_case = True
        return self.choice(depth + 1)

    def lookahead(self, start: int, depth: int) -> Node:
        is_negative = self.pattern[self.position - 1] == "!"
        node = as_ahead(self.choice(depth + 1))
        self.close(start)
        if node is None:
            refuse(self.pattern, start, "a lookahead of more than one character")
        return Ahead(complement(node.charset), not node.at_end) if is_negative else node

    def repetition(self, body: Node) -> Node:
        """The body with the quantifier that follows it, if any."""
        start = self.position
        counts = self.counts()
        if counts is None:
            return body
        least, most = counts
        is_interval = self.pattern[start] == "{"
        node: Node = Repeat(body, least, most)
        self.check_body(body, start)
        if self.take("?"):
            if is_interval and self.dialect == "oniguruma":
                refuse(self.pattern, start, "{..}? means different things in different dialects")
            node = Repeat(body, least, most, is_greedy=False)
        elif self.take("+"):
            if is_interval and self.dialect == "oniguruma":
                # Ruby's syntax: no possessive intervals, this repeats the interval.
                self.check_body(node, start)
                node = Repeat(node, 1, None)
            else:
                node = self.possessive(body, least, most, start)
        if self.position < len(self.pattern) and self.counts() is not None:
            refuse(self.pattern, start, "a quantifier after a quantifier")
        return node

    def check_body(self, body: Node, start: int) -> None:
        """Engines differ in how they leave a loop whose body matched nothing."""
        if can_be_empty(body):
            refuse(self.pattern, start, "a repetition of something that can be empty")

    def possessive(self, body: Node, least: int, most: int | None, start: int) -> Node:
        chars = as_chars(body)
        if chars is None:
            refuse(self.pattern, start, "a possessive repetition of more than one character")
        return possessive(chars, least, most)

    def counts(self) -> tuple[int, int | None] | None:
        """The limits of the quantifier that comes next, consumed; None if none does."""
        char = self.pattern[self.position : self.position + 1]
        if char in _SIMPLE_COUNTS:
            self.position += 1
            return _SIMPLE_COUNTS[char]
        if char != "{":
            return None
        found = _COUNT.match(self.pattern, self.position)
        if found is None or found.group(0) in ("{}", "{,}"):
            self.refuse("'{' is not a repetition here; escape it if the character is meant")
        low, comma, high = found.groups()
        least = int(low or 0)
        most = least if comma is None else int(high) if high else None
        if max(least, most or 0) > MAX_COUNT:
            self.refuse(f"a repetition of more than {MAX_COUNT}")
        if most is not None and (most < least or most == 0):
            self.refuse("a repetition whose limits are reversed or zero")
        self.position = found.end()
        return least, most
