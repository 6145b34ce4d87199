"""A DFA that looks back at its last match -> a machine that never looks back.

A DFA run may go on after a match in the hope of a longer one, and fall back to the match when it dies.
Instead of going back over the text, the machine keeps the runs that falling back would start: a *config* is a
stack of runs. The first is the attempt from the start of the current piece. Below a run that has a match so
far stands the attempt from the end of that match, fed with the text since; the last run has no match yet.
So on each character:

  a run that matches here    discards all runs below it and their ends, and its own old end; the position
                             becomes its end, and a fresh run starts below it
  a run that dies            leaves: its ends stay, now on behalf of the run above it, or for good
  a run sure to match later  makes all below it pointless: they and their ends are discarded now

Every change is "pop some ends, then push the position or not", a function of config and class alone. There
are few configs for the patterns in use; where they are too many, there is no transducer and the DFA is run.

Text that no match covers forms gaps, and a gap is a piece. That is followed only where a failed attempt has
read one character at most: the character joins the gap, and a fresh run starts where the attempt died.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.pattern.automaton import DEAD, Automaton, equal_rows
from gristmill.pattern.charset import Partition, class_at, merge_classes, rising, two_stage
from gristmill.pattern.tables import Transducer

MAX_CONFIGS = 256
MAX_DEPTH = 6
MAX_POPS = 31
MAX_CLASSES = 120

_GAP = -1


class Run(NamedTuple):
    """One run of a config: a DFA state, or _GAP for a gap that no attempt follows yet."""

    state: int
    num_ends: int = 0
    """Ends that go if this run matches later: its own match and those that fell to it; 0 if it has none."""
    num_read: int = 0
    """Characters read, while the run may still fail: 1, or 2 for more; 0 when it cannot."""
    after_gap: bool = False
    """Whether the end of a gap was pushed where this run began, to be taken back if it fails."""


Config = tuple[Run, ...]


class Step(NamedTuple):
    """What a character does: the next config, and the change to the stack of ends."""

    config: int
    pops: int
    push: bool


class Online(NamedTuple):
    """A transducer before its classes are laid out: a row of steps for every config."""

    parts: Partition
    steps: list[list[Step]]

    @property
    def is_immediate(self) -> bool:
        """Whether an end, once pushed, is never taken back."""
        return all(step.pops == 0 for row in self.steps for step in row)


class _NotOnlineError(Exception):
    """The pattern needs more configs, depth or lookback than a transducer may have."""


def online(dfa: Automaton) -> Online | None:
    """The transducer of one DFA, or None where it would be too large or would have to look back."""
    start: Config = (Run(0),)
    numbers = {start: 0}
    queue = [start]
    steps: list[list[Step]] = []
    num_classes = dfa.parts.num_classes
    try:
        for config in queue:
            row = []
            for cls in range(num_classes + 1):
                following, pops, push = _advance(dfa, config, cls)
                if cls == num_classes:
                    following = start
                if following not in numbers:
                    numbers[following] = len(numbers)
                    queue.append(following)
                if len(queue) > MAX_CONFIGS or len(following) > MAX_DEPTH or pops > MAX_POPS:
                    return None
                row.append(Step(numbers[following], pops, push))
            steps.append(row)
    except _NotOnlineError:
        return None
    return Online(dfa.parts, _merged(steps))


def _advance(dfa: Automaton, config: Config, cls: int) -> tuple[Config, int, bool]:
    """The config after a character of the class, and the ends popped and pushed on the way."""
    kept: list[Run] = []
    for index, run in enumerate(config):
        if run.state == _GAP:
            return _start(dfa, kept, cls, 0, in_gap=True, push=False)
        state = int(dfa.next_state[run.state, cls])
        below = sum(r.num_ends + r.after_gap for r in config[index + 1 :]) + run.num_ends
        if state != DEAD and dfa.certain[state]:
            _leave(kept, int(run.after_gap))
            return (*kept, Run(state)), below, False
        if dfa.match[run.state, cls]:
            _leave(kept, int(run.after_gap))
            if state != DEAD:
                kept.append(Run(state))
            _leave(kept, 1)
            return _start(dfa, kept, cls, below, in_gap=False, push=True)
        if state != DEAD:
            num_read = 0 if run.num_ends else min(run.num_read + 1, 2)
            kept.append(run._replace(state=state, num_read=num_read))
        elif run.num_ends:
            _leave(kept, run.num_ends)
        else:
            return _fail(dfa, kept, run, cls)
    return tuple(kept), 0, False


def _leave(kept: list[Run], num_ends: int) -> None:
    """Ends that no run of their own can take back any more fall to the run above, if there is one."""
    if kept:
        kept[-1] = kept[-1]._replace(num_ends=kept[-1].num_ends + num_ends)


def _fail(dfa: Automaton, kept: list[Run], run: Run, cls: int) -> tuple[Config, int, bool]:
    """The last run dies without a match: what it read is gap."""
    if run.num_read > 1:
        raise _NotOnlineError
    if run.num_read == 0 and cls == dfa.parts.num_classes:
        return (), 0, False
    return _start(dfa, kept, cls, int(run.after_gap), in_gap=run.num_read == 1, push=False)


def _start(
    dfa: Automaton, kept: list[Run], cls: int, pops: int, *, in_gap: bool, push: bool
) -> tuple[Config, int, bool]:
    """A fresh run begins at this character, after a match (its end pushed) or in an open gap."""
    if cls == dfa.parts.num_classes:
        return (), pops, True
    state = int(dfa.next_state[0, cls])
    if state == DEAD:
        return (*kept, Run(_GAP)), pops, push
    if dfa.certain[state]:
        _leave(kept, int(in_gap))
        return (*kept, Run(state)), pops, push or in_gap
    return (*kept, Run(state, num_read=1, after_gap=in_gap)), pops, push or in_gap


def _merged(steps: list[list[Step]]) -> list[list[Step]]:
    """Configs that behave alike made one; config 0 stays the first."""
    cells = np.array(steps, np.int64)
    labels = np.zeros(len(steps), np.int64)
    while True:
        keys = np.column_stack([labels[cells[:, :, 0]], cells[:, :, 1], cells[:, :, 2], labels])
        refined = equal_rows(keys)
        if refined.max() == labels.max():
            break
        labels = refined
    keep = np.unique(labels, return_index=True)[1]
    return [[step._replace(config=int(labels[step.config])) for step in steps[index]] for index in keep]


def compose(stages: Sequence[Online]) -> Online | None:
    """One transducer for splits inside the pieces of splits; all but the last must be immediate.

    Where an earlier stage ends a piece, the later ones see the end of text and start afresh."""
    if not all(stage.is_immediate for stage in stages[:-1]):
        return None
    starts = rising(np.concatenate([stage.parts.starts for stage in stages]))
    columns = np.column_stack([class_at(stage.parts, starts) for stage in stages])
    parts = merge_classes(starts, columns)
    if parts.num_classes > MAX_CLASSES:
        return None
    firsts = np.unique(parts.classes, return_index=True)[1]
    by_class: list[list[int]] = columns[firsts].tolist()
    ends = [stage.parts.num_classes for stage in stages]
    numbers = {(0,) * len(stages): 0}
    queue = [(0,) * len(stages)]
    steps: list[list[Step]] = []
    for configs in queue:
        row = []
        for classes in [*by_class, ends]:
            following, pops, push = _advance_all(stages, configs, classes)
            if following not in numbers:
                numbers[following] = len(numbers)
                queue.append(following)
            if len(queue) > 8 * MAX_CONFIGS:
                return None
            row.append(Step(numbers[following], pops, push))
        steps.append(row)
    merged = _merged(steps)
    return Online(parts, merged) if len(merged) <= MAX_CONFIGS else None


def _advance_all(
    stages: Sequence[Online], configs: tuple[int, ...], classes: list[int]
) -> tuple[tuple[int, ...], int, bool]:
    """One character through all stages."""
    following, pops, push = [], 0, False
    for stage, config, cls in zip(stages, configs, classes, strict=True):
        if push and cls != stage.parts.num_classes:
            pops = stage.steps[config][stage.parts.num_classes].pops
            following.append(stage.steps[0][cls].config)
        else:
            step = stage.steps[config][cls]
            pops, push = step.pops, step.push
            following.append(step.config)
    return tuple(following), pops, push


def laid_out(machine: Online) -> Transducer:
    """The transducer's table, with a column for every ASCII byte and for every class."""
    cells = np.array(machine.steps, np.int64)
    entries = cells[:, :, 0] << 8 | cells[:, :, 1] << 1 | cells[:, :, 2]
    table: NDArray[np.uint16] = np.zeros((len(entries), 256), np.uint16)
    table[:, :128] = entries[:, class_at(machine.parts, np.arange(128))]
    table[:, 128 : 128 + entries.shape[1]] = entries
    stage1, stage2 = two_stage(machine.parts)
    return Transducer(machine.parts.num_classes, len(table), table, stage1, stage2)
