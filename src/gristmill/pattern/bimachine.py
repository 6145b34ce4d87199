"""A transducer that takes ends back -> two automata that never do, for reading a text in many places at once.

The transducer pushes the end of a piece and may take it back later, so whether a piece ends before a
character depends on what follows. A *bimachine* says it with one automaton that reads forwards and one
that reads backwards: a piece ends before a character exactly if `ends[forward state before it, backward
state at it]`.

Forward states are the transducer's configs. A backward state is what the rest of the text does from every
config: how many of the ends it finds on the stack it takes back, and whether it pushes an end at once that
it keeps. Both follow from the table by one rule a character, so nothing is learned and nothing is guessed.

The function that a stretch of text is on the states of an automaton is an element of a finite *monoid*,
small for the patterns in use. Elements compose by a table, so stretches are read side by side and joined
afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.pattern.automaton import equal_rows
from gristmill.pattern.tables import Transducer

MAX_STATES = 4096
MAX_TAKEN = 64
MAX_ELEMENTS = 256

Table = NDArray[np.int64]


class Bimachine(NamedTuple):
    """Both automata over the transducer's classes; state 0 is the one at the start or the end of a
    document."""

    forward: Table
    """[state, class]: the state after a character of the class, read left to right."""
    backward: Table
    """[state, class]: the same, read right to left."""
    ends: NDArray[np.bool_]
    """[forward state before a character, backward state at it]: whether a piece ends between."""


class Monoid(NamedTuple):
    """The functions that texts are on the states of one automaton; element 0 changes nothing."""

    elements: Table
    """[element, state]: the state it leads to."""
    compose: Table
    """[first, then]: the element of reading both."""
    of_class: Table
    """The element of one character of each class, and last the element of starting afresh."""


def bimachine(machine: Transducer) -> Bimachine | None:
    """The bimachine with the same pieces as the transducer, or None where it would be too large."""
    columns = machine.table[:, 128 : 129 + machine.num_classes].astype(np.int64)
    following, pops, push = columns >> 8, columns >> 1 & 127, columns & 1
    found = _backward(following, pops, push)
    if found is None:
        return None
    backward, ends = found
    backward, kept = _merged(backward, ends)
    forward, configs = _merged(following[:, :-1], ends[kept].T)
    return Bimachine(forward, backward, ends[np.ix_(kept, configs)].T)


def _backward(following: Table, pops: Table, push: Table) -> tuple[Table, NDArray[np.bool_]] | None:
    """What the rest of a text does from every config, for every rest there is."""
    end = following.shape[1] - 1
    rests = [(pops[:, end], np.zeros(len(pops), np.bool_))]
    numbers = {rests[0][0].tobytes() + rests[0][1].tobytes(): 0}
    rows = []
    for taken, _ in rests:
        row = []
        for cls in range(end):
            later = taken[following[:, cls]]
            now = pops[:, cls] + np.maximum(later - push[:, cls], 0)
            is_end = (push[:, cls] == 1) & (later == 0)
            if now.max() > MAX_TAKEN:
                return None
            key = now.tobytes() + is_end.tobytes()
            if key not in numbers:
                numbers[key] = len(rests)
                rests.append((now, is_end))
            row.append(numbers[key])
        rows.append(row)
        if len(rests) > MAX_STATES:
            return None
    return np.array(rows, np.int64), np.array([is_end for _, is_end in rests])


def _merged(following: Table, output: NDArray[np.bool_]) -> tuple[Table, NDArray[np.int64]]:
    """States that can be reached and behave differently, the first one first, and which ones they were."""
    reached = [0]
    for state in reached:
        reached.extend(sorted(set(following[state].tolist()).difference(reached)))
    place = np.full(len(following), -1)
    place[reached] = np.arange(len(reached))
    following, output = place[following[reached]], output[reached]
    labels = equal_rows(np.packbits(output, axis=1))
    while True:
        refined = equal_rows(np.column_stack([labels, labels[following]]))
        if refined.max() == labels.max():
            break
        labels = refined
    keep = np.unique(labels, return_index=True)[1]
    return labels[following[keep]], np.array(reached)[keep]


def monoid(following: Table) -> Monoid | None:
    """The monoid of an automaton whose state 0 is also where every document starts afresh."""
    num_states = len(following)
    generators = [*following.T.tolist(), [0] * num_states]
    elements = [tuple(range(num_states))]
    numbers = {elements[0]: 0}
    for element in elements:
        for generator in generators:
            product = tuple(generator[state] for state in element)
            if product not in numbers:
                if len(elements) == MAX_ELEMENTS:
                    return None
                numbers[product] = len(elements)
                elements.append(product)
    whole = np.array(elements, np.int64)
    # Composing is looking up the states of one element in the other, all pairs at once.
    pairs = whole[:, whole].transpose(1, 0, 2).reshape(-1, num_states)
    compose = np.array([numbers[tuple(row)] for row in pairs.tolist()]).reshape(len(whole), -1)
    return Monoid(whole, compose, np.array([numbers[tuple(g)] for g in generators]))
