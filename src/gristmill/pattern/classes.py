"""Character classes, properties and escapes of a pattern: text in, sets of code points out."""

from __future__ import annotations

import re

from gristmill.pattern.charset import (
    Charset,
    complement,
    intersection,
    named_set,
    property_set,
    single,
    union,
)
from gristmill.pattern.syntax import refuse
from gristmill.spec import Dialect

MAX_CLASS_NESTING = 20

_HEX_DIGITS: Charset = (48, 58, 65, 71, 97, 103)
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7, "e": 27}
_HEX_FORMS = re.compile(r"\\(?:x\{([0-9A-Fa-f]{1,8})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4}))")
_PROPERTY = re.compile(r"\\([pP])\{(\^?)([^{}^]*)\}")
# Punctuation that stands for itself after a backslash in every dialect.
_PLAIN_ESCAPES = frozenset("!\"#$%&'()*+,-./:;=?@[\\]^_`{|}~ ")


def parse_unit(pattern: str, start: int) -> tuple[int, int]:
    """The code point that an escape stands for, and the position after it."""
    found = _HEX_FORMS.match(pattern, start)
    if found is not None:
        point = int(next(group for group in found.groups() if group), 16)
        if point >= 0x110000 or 0xD800 <= point < 0xE000 or (found.group(2) and point >= 0x80):
            refuse(pattern, start, "an escape that is no character")
        return point, found.end()
    char = pattern[start + 1 : start + 2]
    if char in _CONTROLS:
        return _CONTROLS[char], start + 2
    if char and char in _PLAIN_ESCAPES:
        return ord(char), start + 2
    return refuse(pattern, start, f"the escape \\{char} is not supported")


def parse_shorthand(pattern: str, start: int, dialect: Dialect, *, in_class: bool) -> Charset | None:
    """The set of \\s \\d \\w \\h or their complements at this position, or None if it is another escape."""
    char = pattern[start + 1 : start + 2]
    if not char or char not in "sSdDwWhH":
        return None
    word = "w" if in_class else "lone w"
    name = {"s": "s", "d": "Nd", "w": word}.get(char.lower())
    charset = _HEX_DIGITS if name is None else named_set(dialect, name)
    if charset is None:
        refuse(pattern, start, f"\\{char} is not known in the dialect {dialect}")
    return charset if char.islower() else complement(charset)


def parse_property(pattern: str, start: int, dialect: Dialect) -> tuple[Charset, int]:
    """The set of \\p{..} or \\P{..}, and the position after it."""
    found = _PROPERTY.match(pattern, start)
    if found is None:
        refuse(pattern, start, "a property is written \\p{Name} or \\P{Name}")
    letter, caret, name = found.groups()
    charset = property_set(dialect, name)
    if charset is None:
        refuse(pattern, start, f"the property {name!r} is not known in the dialect {dialect}")
    is_negated = (letter == "P") != bool(caret)
    return complement(charset) if is_negated else charset, found.end()


def parse_class(pattern: str, start: int, dialect: Dialect, ignores_case: bool) -> tuple[Charset, int]:
    """The set of a bracket expression, and the position after it."""
    if ignores_case and pattern.startswith("[^", start):
        refuse(pattern, start, "a negated class where case is ignored")
    return _Class(pattern, dialect).parse(start, 0)


class _Class:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self.pattern = pattern
        self.dialect = dialect

    def parse(self, start: int, depth: int) -> tuple[Charset, int]:
        """Unions of items, intersected where && stands between them; ^ negates the whole."""
        if depth > MAX_CLASS_NESTING:
            refuse(self.pattern, start, f"classes nested deeper than {MAX_CLASS_NESTING}")
        position = start + 1
        is_negated = self.pattern.startswith("^", position)
        position += is_negated
        # Inside another class, [: and [= may be POSIX forms.
        if self.pattern.startswith("]" if depth == 0 else ("]", ":", "="), position):
            refuse(self.pattern, position, "a class that begins with this character (escape it)")
        operands: list[Charset] = []
        items: list[Charset] = []
        while not self.pattern.startswith("]", position):
            if self.pattern.startswith("&&", position):
                operands.append(self.operand(items, position))
                items, position = [], position + 2
                continue
            item, position = self.item(position, start, depth)
            items.append(item)
        result = self.operand(items, position)
        for operand in operands:
            result = intersection(operand, result)
        return complement(result) if is_negated else result, position + 1

    def operand(self, items: list[Charset], position: int) -> Charset:
        if not items:
            refuse(self.pattern, position, "an empty class or operand of &&")
        return union(items)

    def item(self, position: int, start: int, depth: int) -> tuple[Charset, int]:
        """One character, range, shorthand, property or nested class, and the position after it."""
        char = self.pattern[position : position + 1]
        if not char:
            refuse(self.pattern, start, "unmatched [")
        if char == "[":
            return self.parse(position, depth + 1)
        if char == "\\":
            if self.pattern.startswith(("p", "P"), position + 1):
                return parse_property(self.pattern, position, self.dialect)
            shorthand = parse_shorthand(self.pattern, position, self.dialect, in_class=True)
            if shorthand is not None:
                return shorthand, position + 2
        low, after = self.unit(position)
        if not self.pattern.startswith("-", after) or self.pattern.startswith("-]", after):
            return single(low), after
        if self.pattern.startswith(("-[", "-&&", "--"), after):
            refuse(self.pattern, after, "a '-' that is no range (escape it)")
        high, end = self.unit(after + 1)
        if high < low:
            refuse(self.pattern, position, "a range whose limits are reversed")
        return (low, high + 1), end

    def unit(self, position: int) -> tuple[int, int]:
        char = self.pattern[position : position + 1]
        if char == "\\":
            return parse_unit(self.pattern, position)
        if not char:
            refuse(self.pattern, position, "unmatched [")
        if self.pattern.startswith(("--", "~~"), position):
            refuse(self.pattern, position, f"{char * 2} in a class (escape it)")
        return ord(char), position + 1
