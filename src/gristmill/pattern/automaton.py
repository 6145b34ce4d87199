"""A pattern's tree -> a DFA over character classes that finds what a backtracking engine finds.

Leftmost-first: a DFA state is a list of NFA states in order of preference. When one of them can end the
match, those after it are forgotten, those before it go on: a match found later replaces it. Lookahead is an
edge that is free or not depending on the class of the next character; the end of text is one more class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.pattern.charset import Partition, classes_of_set, contains, partition
from gristmill.pattern.syntax import Ahead, Chain, Chars, Choice, Node, refuse
from gristmill.spec import Dialect

DEAD = 0xFFFF
MAX_CLASSES = 120
MAX_NFA_STATES = 5_000
MAX_STATES = 1_000
# Bounds the time of hostile patterns; the largest known pattern takes 30,000 steps, about 20 ms.
MAX_STEPS = 600_000
# Oniguruma lets these pairs match one ligature or sharp s when case is ignored.
FOLDED_PAIRS = (("s", "s"), ("s", "t"), ("f", "f"), ("f", "i"), ("f", "l"))


class Automaton(NamedTuple):
    """A DFA over classes; the end of text is the class after the last."""

    parts: Partition
    next_state: NDArray[np.uint16]
    """[state, class]: the state after a character of the class, or DEAD."""
    match: NDArray[np.uint8]
    """[state, class]: 1 where a match ends before a character of the class and no later one is certain."""
    certain: NDArray[np.bool_]
    """[state]: whether a match is sure to end later, whatever follows."""

    @property
    def is_total(self) -> bool:
        """Whether every character of every text is in some match."""
        first = self.next_state[0, :-1]
        return bool((first != DEAD).all() and self.certain[first].all())


class _State(NamedTuple):
    """NFA state: consumes a set, requires a lookahead, splits in order, or ends the match (no successors)."""

    test: Chars | Ahead | None
    successors: tuple[int, ...]


class _Nfa:
    """Built from the end backwards: every construction is given the state that follows it."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.states: list[_State] = []
        self.num_visits = 0

    def add(self, test: Chars | Ahead | None, *successors: int) -> int:
        self.states.append(_State(test, successors))
        return len(self.states) - 1

    def build(self, node: Node, after: int) -> int:
        self.num_visits += 1
        if self.num_visits > MAX_NFA_STATES:
            refuse(self.pattern, 0, f"too large (over {MAX_NFA_STATES} states with repetitions written out)")
        if isinstance(node, Chars | Ahead):
            return self.add(node, after)
        if isinstance(node, Chain):
            for item in reversed(node.items):
                after = self.build(item, after)
            return after
        if isinstance(node, Choice):
            return self.add(None, *[self.build(option, after) for option in node.options])
        if node.most is None:
            start = self.loop(node.body, after, is_greedy=node.is_greedy)
        else:
            start = after
            for _ in range(node.most - node.least):
                start = self.split(self.build(node.body, start), after, is_greedy=node.is_greedy)
        for _ in range(node.least):
            start = self.build(node.body, start)
        return start

    def split(self, more: int, after: int, *, is_greedy: bool) -> int:
        return self.add(None, more, after) if is_greedy else self.add(None, after, more)

    def loop(self, body: Node, after: int, *, is_greedy: bool) -> int:
        start = self.add(None)
        more = self.build(body, start)
        self.states[start] = _State(None, (more, after) if is_greedy else (after, more))
        return start


class _Determinizer:
    """Steps ordered lists of NFA states over classes."""

    def __init__(self, nfa: _Nfa, parts: Partition) -> None:
        self.nfa = nfa
        self.num_steps = 0
        self.end = parts.num_classes
        members: dict[int, list[bool]] = {}
        """By the identity of the set, which may be a long tuple."""
        self.allowed: list[list[bool]] = []
        for state in nfa.states:
            if state.test is None:
                self.allowed.append([])
                continue
            charset = state.test.charset
            if id(charset) not in members:
                members[id(charset)] = classes_of_set(parts, charset)
            at_end = isinstance(state.test, Ahead) and state.test.at_end
            self.allowed.append([*members[id(charset)], at_end])

    def step(self, states: tuple[int, ...], cls: int) -> tuple[tuple[int, ...], bool]:
        """The list after a character of the class, and whether a match ends before it."""
        following: dict[int, None] = {}
        seen = set()
        stack = list(reversed(states))
        while stack:
            index = stack.pop()
            if index in seen:
                continue
            seen.add(index)
            test, successors = self.nfa.states[index]
            if test is None and not successors:
                self.count(len(seen))
                return tuple(following), True
            if test is None:
                stack.extend(reversed(successors))
            elif self.allowed[index][cls]:
                if isinstance(test, Chars):
                    following[successors[0]] = None
                else:
                    stack.append(successors[0])
        self.count(len(seen))
        return tuple(following), False

    def count(self, num_steps: int) -> None:
        self.num_steps += num_steps + 1
        if self.num_steps > MAX_STEPS:
            refuse(self.nfa.pattern, 0, "too large (its automaton takes too long to build)")


def compile_node(node: Node, pattern: str, dialect: Dialect) -> Automaton:
    """The smallest DFA of a parsed pattern; the pattern's text is for errors only."""
    nfa = _Nfa(pattern)
    start = nfa.build(node, nfa.add(None))
    if dialect == "oniguruma":
        _check_folds(nfa)
    parts = partition(list(dict.fromkeys(s.test.charset for s in nfa.states if s.test is not None)))
    if parts.num_classes > MAX_CLASSES:
        refuse(pattern, 0, f"more than {MAX_CLASSES} classes of characters")
    next_state, match = _determinize(nfa, start, parts)
    if match[0].any():
        refuse(pattern, 0, "it can match the empty string")
    certain = _certain(next_state, match)
    # A match that a later one is sure to replace need not be recorded; dropping it makes more states equal.
    match &= ~((next_state != DEAD) & certain[np.where(next_state == DEAD, 0, next_state)]).astype(np.uint8)
    return _minimized(parts, next_state, match)


def _check_folds(nfa: _Nfa) -> None:
    """Refuse two neighbouring letters without case that Oniguruma may match with one character."""
    loose = [
        (state.test.charset, state.successors[0])
        for state in nfa.states
        if isinstance(state.test, Chars) and state.test.ignores_case
    ]
    for charset, after in loose:
        seconds = [b for a, b in FOLDED_PAIRS if contains(charset, ord(a))]
        reached = _next_chars(nfa, after) if seconds else []
        if any(chars.ignores_case and contains(chars.charset, ord(b)) for chars in reached for b in seconds):
            refuse(nfa.pattern, 0, "ss, st, ff, fi or fl where case is ignored may match one other character")


def _next_chars(nfa: _Nfa, index: int) -> list[Chars]:
    found, seen, stack = [], set(), [index]
    while stack:
        index = stack.pop()
        if index in seen:
            continue
        seen.add(index)
        test, successors = nfa.states[index]
        if isinstance(test, Chars):
            found.append(test)
        else:
            stack.extend(successors)
    return found


def _determinize(nfa: _Nfa, start: int, parts: Partition) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    machine = _Determinizer(nfa, parts)
    numbers: dict[tuple[int, ...], int] = {(start,): 0}
    queue: list[tuple[int, ...]] = [(start,)]
    rows: list[list[int]] = []
    ends: list[list[bool]] = []
    for states in queue:
        row, end = [], []
        for cls in range(parts.num_classes + 1):
            following, is_match = machine.step(states, cls)
            end.append(is_match)
            if not following or cls == machine.end:
                row.append(DEAD)
                continue
            if following not in numbers:
                numbers[following] = len(numbers)
                queue.append(following)
            row.append(numbers[following])
        if len(queue) > MAX_STATES:
            refuse(nfa.pattern, 0, f"its automaton has more than {MAX_STATES} states")
        rows.append(row)
        ends.append(end)
    return np.array(rows, np.uint16), np.array(ends, np.uint8)


def _certain(next_state: NDArray[np.uint16], match: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """States from which a match is sure to end: the largest set that every class keeps or ends in a match."""
    certain = np.ones(len(match), np.bool_)
    target = np.where(next_state == DEAD, 0, next_state)
    while True:
        stays = (next_state != DEAD) & certain[target]
        smaller = certain & (stays | (match == 1)).all(axis=1)
        if (smaller == certain).all():
            return certain
        certain = smaller


def _minimized(parts: Partition, next_state: NDArray[np.uint16], match: NDArray[np.uint8]) -> Automaton:
    """Equal states and equal classes merged, both numbered by first appearance."""
    labels = equal_rows(match)
    while True:
        target = np.where(next_state == DEAD, -1, labels[np.where(next_state == DEAD, 0, next_state)])
        refined = equal_rows(np.column_stack([labels, target]))
        if refined.max() == labels.max():
            break
        labels = refined
    keep = np.unique(labels, return_index=True)[1]
    small_next = np.where(target < 0, DEAD, target)[keep].astype(np.uint16)
    small_match = match[keep]
    columns = equal_rows(np.concatenate([small_next, small_match]).T[:-1])
    first = np.append(np.unique(columns, return_index=True)[1], parts.num_classes)
    joined = Partition(parts.starts, columns[parts.classes], int(columns.max()) + 1)
    small_next, small_match = small_next[:, first], small_match[:, first]
    return Automaton(joined, small_next, small_match, _certain(small_next, small_match))


def equal_rows(rows: NDArray[np.generic]) -> NDArray[np.int64]:
    """A number for every row, the same for equal rows, ascending by first appearance."""
    numbers: dict[bytes, int] = {}
    found = [numbers.setdefault(row.tobytes(), len(numbers)) for row in np.ascontiguousarray(rows)]
    return np.array(found, np.int64)
