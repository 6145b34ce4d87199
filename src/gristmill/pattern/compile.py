"""Splits -> tables: every split as a DFA, and all of them as one transducer where that is possible."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.errors import UnsupportedTokenizerError
from gristmill.pattern.automaton import Automaton, compile_node
from gristmill.pattern.charset import complement, two_stage
from gristmill.pattern.parse import parse
from gristmill.pattern.syntax import Chain, Chars, Choice, Node, Repeat, as_chars
from gristmill.pattern.tables import CompiledSplits, PlainSplitter, Transducer
from gristmill.pattern.transducer import compose, laid_out, online
from gristmill.spec import Split


def compile_splits(splits: Sequence[Split]) -> CompiledSplits:
    """The tables of splits that apply one after the other, each inside the pieces of the last."""
    automata = [_automaton(split) for split in splits]
    stages = tuple(_plain(split, dfa) for split, dfa in zip(splits, automata, strict=True))
    return CompiledSplits(stages, _transducer(stages, automata))


def _automaton(split: Split) -> Automaton:
    if split.over != "characters":
        raise UnsupportedTokenizerError(f"a split over {split.over} is not supported: {split.pattern!r}")
    node = parse(split.pattern, split.dialect)
    if split.behavior not in ("isolated", "removed"):
        node = _as_isolated(node, split)
    return compile_node(node, split.pattern, split.dialect)


def _as_isolated(node: Node, split: Split) -> Node:
    """A pattern whose isolated matches are the pieces that the behavior makes, for single characters."""
    chars = as_chars(node)
    if chars is None or (split.invert and split.behavior != "contiguous"):
        raise UnsupportedTokenizerError(
            f"a split with behavior {split.behavior!r} is supported for patterns of one character that are "
            f"not inverted only: {split.pattern!r}"
        )
    others = Chars(complement(chars.charset))
    between = Repeat(others, 1, None)
    if split.behavior == "contiguous":
        return Repeat(chars, 1, None)
    if split.behavior == "merged_with_previous":
        return Choice((Chain((Repeat(others, 0, None), chars)), between))
    return Choice((Chain((chars, Repeat(others, 0, None))), between))


def _plain(split: Split, dfa: Automaton) -> PlainSplitter:
    stage1, stage2 = two_stage(dfa.parts)
    drops = split.behavior == "removed"
    return PlainSplitter(
        num_classes=dfa.parts.num_classes,
        next_state=dfa.next_state,
        match=dfa.match,
        stage1=stage1,
        stage2=stage2,
        keep_matches=not drops or split.invert,
        keep_gaps=not drops or not split.invert,
        never_gaps=dfa.is_total,
    )


def _transducer(stages: tuple[PlainSplitter, ...], automata: list[Automaton]) -> Transducer | None:
    """One machine for all stages, unless text is dropped or a stage cannot be followed in one pass."""
    if not stages or not all(s.keep_matches and (s.keep_gaps or s.never_gaps) for s in stages):
        return None
    machines = []
    for dfa in automata:
        machine = online(dfa)
        if machine is None:
            return None
        machines.append(machine)
    whole = compose(machines)
    return None if whole is None else laid_out(whole)
