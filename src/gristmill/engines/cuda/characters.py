"""What the kernels know of a character: its class, and whether a document with it must go to the CPU."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import UnsupportedTokenizerError
from gristmill.pattern.tables import Transducer

MARK = 0x40
FLAG = 0x80
MAX_PREFIXES = 32
NUM_POINTS = 0x110000


def class_bytes(machine: Transducer, form: str | None, is_missing: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """A byte for every code point: class, mark, flag. `is_missing`: bytes without a token."""
    classes = machine.stage2.reshape(-1, 256)[machine.stage1].reshape(-1).copy()
    if form is not None:
        classes |= _normalization_bits(form)
    if is_missing[:128].any():
        raise UnsupportedTokenizerError("an ASCII character has no token")
    if is_missing[128:].any():
        classes[128:] |= _has_byte(is_missing)
    return classes


def _has_byte(is_wanted: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """FLAG for every code point from 128 on whose UTF-8 has one of the bytes."""
    points = np.arange(128, NUM_POINTS)
    tail = is_wanted[0x80 | points & 63]
    second = is_wanted[0x80 | points >> 6 & 63] & (points >= 0x800)
    third = is_wanted[0x80 | points >> 12 & 63] & (points >= 0x10000)
    lead = np.where(
        points < 0x800,
        0xC0 | points >> 6,
        np.where(points < 0x10000, 0xE0 | points >> 12, 0xF0 | points >> 18),
    )
    flags: NDArray[np.uint8] = ((tail | second | third | is_wanted[lead]) * FLAG).astype(np.uint8)
    return flags


@lru_cache(maxsize=2)
def _normalization_bits(form: str) -> NDArray[np.uint8]:
    """FLAG: what normalising may change, alone or beside others. MARK: what it may move where two stand
    side by side.

    A code point that Python's tables do not have yet is flagged, so that it does not matter how old they
    are."""
    bits = np.zeros(NUM_POINTS, np.uint8)
    name: Literal["NFC", "NFKC"] = "NFC" if form == "nfc" else "NFKC"
    for point in range(0x80, NUM_POINTS):
        if 0xAC00 <= point < 0xD7A4 or 0xD800 <= point < 0xE000:
            continue
        char = chr(point)
        if unicodedata.category(char) == "Cn" or unicodedata.normalize(name, char) != char:
            bits[point] = FLAG
        elif unicodedata.combining(char):
            bits[point] = MARK
        parts = unicodedata.decomposition(char).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            bits[int(parts[1], 16)] = FLAG  # joins what stands before it
    bits[0x1161:0x1176] = FLAG
    bits[0x11A8:0x11C3] = FLAG
    return bits


def first_bytes(
    contents: Iterable[str], byte_class: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Class bytes that flag what added tokens begin with, and (mask, value) of their first four bytes.

    Where there are many, fewer bytes are compared; documents are then sent to the CPU more often."""
    flagged = byte_class.copy()
    tokens = [content.encode() for content in contents if content]
    for size in (4, 3, 2, 1):
        prefixes = sorted({token[:size] for token in tokens})
        if len(prefixes) <= MAX_PREFIXES:
            break
    rows = [
        (int.from_bytes(b"\xff" * len(prefix), "little"), int.from_bytes(prefix, "little"))
        for prefix in prefixes[:MAX_PREFIXES]
    ]
    if len(prefixes) > MAX_PREFIXES:
        rows = [(0, 0)]
    for prefix in prefixes:
        flagged[prefix[0]] |= FLAG
    return flagged, np.array(rows, np.uint32).reshape(-1, 2)
