"""Both automata together cut where the transducer does, for every text, and their monoids are monoids."""

import itertools
import random

import numpy as np
import pytest

from gristmill.pattern import PATTERNS, compile_splits
from gristmill.pattern.bimachine import bimachine, monoid
from gristmill.spec import Split

DEEPSEEK = (r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", PATTERNS["llama3"])
SPLITS = {name: (pattern,) for name, pattern in PATTERNS.items()} | {"in three stages": DEEPSEEK}


def transducer(name):
    dialect = "oniguruma" if name == "in three stages" else "rust"
    splits = [Split(pattern=pattern, dialect=dialect) for pattern in SPLITS[name]]
    found = compile_splits(splits).transducer
    assert found is not None
    return found


def cuts_of_transducer(machine, classes):
    config, ends = 0, []
    for at, cls in enumerate([*classes, machine.num_classes]):
        entry = int(machine.table[config, 128 + cls])
        del ends[len(ends) - (entry >> 1 & 127) :]
        ends += [at] * (entry & 1)
        config = entry >> 8
    return {at for at in ends if 0 < at < len(classes)}


def cuts_of_both(both, classes):
    before = [0]
    for cls in classes:
        before.append(both.forward[before[-1], cls])
    state, cuts = 0, set()
    for at in range(len(classes) - 1, 0, -1):
        state = both.backward[state, classes[at]]
        if both.ends[before[at], state]:
            cuts.add(at)
    return cuts


@pytest.mark.parametrize("name", SPLITS)
def test_every_short_text_is_cut_alike(name):
    machine = transducer(name)
    both = bimachine(machine)
    length = 3 if machine.num_classes > 12 else 4
    for size in range(1, length + 1):
        for classes in itertools.product(range(machine.num_classes), repeat=size):
            assert cuts_of_both(both, classes) == cuts_of_transducer(machine, classes), classes


@pytest.mark.parametrize("name", SPLITS)
def test_long_texts_with_runs_are_cut_alike(name):
    machine = transducer(name)
    both = bimachine(machine)
    chance = random.Random(name)
    for _ in range(1500):
        few = chance.sample(range(machine.num_classes), chance.randint(2, machine.num_classes))
        classes = [chance.choice(few)]
        for _ in range(chance.randint(1, 60)):
            classes.append(classes[-1] if chance.random() < 0.6 else chance.choice(few))
        assert cuts_of_both(both, classes) == cuts_of_transducer(machine, classes), classes


@pytest.mark.parametrize("name", SPLITS)
def test_elements_join_as_texts_do(name):
    both = bimachine(transducer(name))
    for automaton in (both.forward, both.backward):
        own = monoid(automaton)
        chance = np.random.default_rng(1)
        for _ in range(300):
            text = chance.integers(0, automaton.shape[1] + 1, chance.integers(1, 30))
            element, states = 0, np.arange(len(automaton))
            for cls in text:
                element = own.compose[element, own.of_class[cls]]
                states = automaton[states, cls] if cls < automaton.shape[1] else np.zeros_like(states)
            assert own.elements[element].tolist() == states.tolist()
            first, then, last = chance.integers(0, len(own.elements), 3)
            left = own.compose[own.compose[first, then], last]
            assert left == own.compose[first, own.compose[then, last]]
