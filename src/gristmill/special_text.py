"""Finding the text of special tokens in documents, for the policy that refuses it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gristmill.engines import Bytes, Offsets

CHUNK_BYTES = 1 << 24


def find_special_text(
    buffer: Bytes, offsets: Offsets, specials: Iterable[str]
) -> tuple[int, int, str] | None:
    """Document, byte offset in it, and the special token whose text stands there first (the longest), or
    None."""
    needles = sorted((text.encode() for text in specials), key=len, reverse=True)
    if not needles:
        return None
    key_size = min(2, len(needles[-1]))
    for start in range(0, len(buffer), CHUNK_BYTES):
        # A key across the end of a chunk is seen by reading one byte more.
        chunk = buffer[start : start + CHUNK_BYTES + key_size - 1]
        for at in _candidates(chunk, needles, key_size):
            if found := _match_at(buffer, offsets, start + at, needles):
                return found
    return None


def _candidates(chunk: Bytes, needles: list[bytes], key_size: int) -> Iterable[int]:
    """Positions at which the first bytes of some needle stand."""
    is_first = np.zeros(256, dtype=bool)
    is_first[[needle[0] for needle in needles]] = True
    at = np.flatnonzero(is_first[chunk[: len(chunk) - key_size + 1]])
    if key_size == 2:
        is_key = np.zeros(1 << 16, dtype=bool)
        is_key[[needle[0] << 8 | needle[1] for needle in needles]] = True
        at = at[is_key[chunk[at].astype(np.uint16) << 8 | chunk[at + 1]]]
    positions: list[int] = at.tolist()
    return positions


def _match_at(buffer: Bytes, offsets: Offsets, at: int, needles: list[bytes]) -> tuple[int, int, str] | None:
    document = int(np.searchsorted(offsets, at, side="right")) - 1
    rest = buffer[at : min(int(offsets[document + 1]), at + len(needles[0]))].tobytes()
    for needle in needles:
        if rest.startswith(needle):
            return document, at - int(offsets[document]), needle.decode()
    return None
