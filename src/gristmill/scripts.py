"""Scripts of text, told by code points: coarse, and quick on flat buffers."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

# Where each stretch of code points begins, and its script. Scripts of few pieces are "other".
RANGES: tuple[tuple[int, str], ...] = (
    *((0x0, "symbols"), (0x30, "digits"), (0x3A, "symbols"), (0x41, "Latin"), (0x5B, "symbols")),
    *((0x61, "Latin"), (0x7B, "symbols"), (0xC0, "Latin"), (0xD7, "symbols"), (0xD8, "Latin")),
    *((0xF7, "symbols"), (0xF8, "Latin"), (0x2B0, "symbols"), (0x370, "Greek"), (0x400, "Cyrillic")),
    *((0x530, "Armenian"), (0x590, "Hebrew"), (0x600, "Arabic"), (0x700, "other"), (0x750, "Arabic")),
    *((0x780, "other"), (0x8A0, "Arabic"), (0x900, "Devanagari"), (0x980, "Bengali"), (0xA00, "Indic")),
    *((0xE00, "Thai"), (0xE80, "other"), (0x10A0, "Georgian"), (0x1100, "Hangul"), (0x1200, "Ethiopic")),
    *((0x13A0, "other"), (0x1E00, "Latin"), (0x1F00, "Greek"), (0x2000, "symbols"), (0x2C00, "other")),
    *((0x2E80, "Han"), (0x3000, "symbols"), (0x3040, "Kana"), (0x3100, "other"), (0x3130, "Hangul")),
    *((0x3190, "other"), (0x31F0, "Kana"), (0x3200, "symbols"), (0x3400, "Han"), (0x4DC0, "symbols")),
    *((0x4E00, "Han"), (0xA000, "other"), (0xAC00, "Hangul"), (0xD800, "other"), (0xF900, "Han")),
    *((0xFB00, "Latin"), (0xFB13, "Armenian"), (0xFB1D, "Hebrew"), (0xFB50, "Arabic"), (0xFE00, "symbols")),
    *((0xFE70, "Arabic"), (0xFEFF, "symbols"), (0xFF21, "Latin"), (0xFF5B, "symbols"), (0xFF66, "Kana")),
    *((0xFFA0, "Hangul"), (0xFFE0, "symbols"), (0x10000, "other"), (0x1F000, "symbols"), (0x20000, "Han")),
    (0x40000, "other"),
)
SCRIPTS = tuple(sorted({script for _, script in RANGES}))
_STARTS = np.array([start for start, _ in RANGES], np.int64)
_SCRIPT_OF_RANGE = np.array([SCRIPTS.index(script) for _, script in RANGES], np.int64)
LOOKED_AT_BYTES = 256
"""Of a document, from its beginning."""


def main_scripts(text: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[str]:
    """The script most letters of each document's beginning are of; "symbols" where there are none."""
    stops = np.minimum(ends, starts + LOOKED_AT_BYTES)
    begins = [
        text[start:stop].tobytes().decode("utf-8", "ignore")  # its last character may be cut
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    owners = np.repeat(np.arange(len(begins)), [len(begin) for begin in begins])
    points = np.frombuffer("".join(begins).encode("utf-32-le"), np.uint32)
    scripts = _script_table()[np.minimum(points, RANGES[-1][0])]
    counts = np.bincount(owners * len(SCRIPTS) + scripts, minlength=len(begins) * len(SCRIPTS))
    counts = counts.reshape(len(begins), len(SCRIPTS))
    counts[:, [SCRIPTS.index("symbols"), SCRIPTS.index("digits")]] = 0
    chosen = np.where(counts.any(axis=1), counts.argmax(axis=1), SCRIPTS.index("symbols"))
    return [SCRIPTS[script] for script in chosen.tolist()]


@cache
def _script_table() -> NDArray[np.uint8]:
    """Index in SCRIPTS of every code point up to the last range."""
    sizes = np.diff(_STARTS, append=RANGES[-1][0] + 1)
    return np.repeat(_SCRIPT_OF_RANGE.astype(np.uint8), sizes)


def script_at(text: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index in SCRIPTS of the characters that begin at these bytes; three more bytes follow each."""
    lead, b1, b2, b3 = (text[at + i] & (0xFF if i == 0 else 0x3F) for i in range(4))
    points = np.select(
        [lead < 0x80, lead < 0xE0, lead < 0xF0],
        [lead, (lead & 0x1F) << 6 | b1, (lead & 0x0F) << 12 | b1 << 6 | b2],
        (lead & 0x07) << 18 | b1 << 12 | b2 << 6 | b3,
    )
    return _SCRIPT_OF_RANGE[np.searchsorted(_STARTS, points, side="right") - 1]
