"""The slow twins of the native splitters, and the meaning of the tables: a few lines of Python each."""

from __future__ import annotations

import numpy as np

from gristmill.pattern.tables import CompiledSplits, PlainSplitter, Transducer


def split_plain(compiled: CompiledSplits, text: str) -> list[str]:
    """The pieces of a text, by the chain of DFAs."""
    pieces = [text] if text else []
    for stage in compiled.stages:
        pieces = [part for piece in pieces for part in _split_once(stage, piece)]
    return pieces


def split_online(transducer: Transducer, text: str) -> list[str]:
    """The pieces of a text, by the transducer."""
    classes = _classes(transducer, text)
    columns = [ord(char) if char < "\x80" else 128 + cls for char, cls in zip(text, classes, strict=False)]
    columns.append(128 + transducer.num_classes)
    config = 0
    ends: list[int] = []
    for position, column in enumerate(columns):
        entry = int(transducer.table[config, column])
        config, pops = entry >> 8, entry >> 1 & 127
        if pops:
            del ends[-pops:]
        if entry & 1:
            ends.append(position)
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _classes(table: PlainSplitter | Transducer, text: str) -> list[int]:
    """The class of every character, and that of the end of text."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)
    blocks = table.stage1[points >> 8].astype(np.int64)
    return [*table.stage2[blocks * 256 + (points & 255)].tolist(), table.num_classes]


def _split_once(stage: PlainSplitter, text: str) -> list[str]:
    classes = _classes(stage, text)
    pieces: list[str] = []
    start = gap_start = 0
    while start < len(text):
        state, position, end = 0, start, -1
        while state != 0xFFFF:
            cls = classes[position]
            if stage.match[state, cls]:
                end = position
            state = int(stage.next_state[state, cls])
            position += 1
        if end < 0:
            start += 1
            continue
        pieces += _kept(stage, text, gap_start, start, end)
        start = gap_start = end
    return pieces + _kept(stage, text, gap_start, start, start)


def _kept(stage: PlainSplitter, text: str, gap_start: int, start: int, end: int) -> list[str]:
    """The gap before a match and the match, where they are not empty and are to be kept."""
    gap = [text[gap_start:start]] if stage.keep_gaps and gap_start < start else []
    return gap + ([text[start:end]] if stage.keep_matches and start < end else [])
