"""Counting by a Counter over the slow splitters, and inventory files by the shortest way."""

import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping

from gristmill import _native
from gristmill.pattern import compile_splits, split_plain
from gristmill.training.cut import Cut

MAGIC = b"GMPIECES"
BLOCK_BYTES = 64 << 10


def prepared(text: str, cut: Cut) -> str:
    if cut.form:
        text = _native.normalize(cut.form, text.encode()).decode()
    if cut.marks:
        text = text.replace("\u2581", " ")
        text = text if text.startswith(" ") or not text else " " + text
    return text


def count_slowly(texts: Iterable[str], cut: Cut, *, weight: int = 1) -> Counter[bytes]:
    """How often each piece is there."""
    compiled = compile_splits(cut.splits)
    counts: Counter[bytes] = Counter()
    for text in texts:
        for piece in split_plain(compiled, prepared(text, cut)):
            counts[piece.encode()] += weight
    return counts


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def block(payload: bytes, num_pieces: int) -> bytes:
    content = struct.pack("<II", len(payload), num_pieces) + payload
    return content + struct.pack("<I", zlib.crc32(content))


def header(about: bytes, *, version: int = 1) -> bytes:
    content = MAGIC + struct.pack("<II", version, len(about)) + about
    return content + struct.pack("<I", zlib.crc32(content))


def footer(*numbers: int) -> bytes:
    content = struct.pack("<6Q", *numbers)
    return content + struct.pack("<I", zlib.crc32(content)) + MAGIC


def inventory_bytes(counts: Mapping[bytes, int], about: bytes) -> bytes:
    """The file that stands for the counts."""
    blocks, payload, num_pieces = [], b"", 0
    for piece, count in sorted(counts.items()):
        if num_pieces and 8 + len(payload) + len(piece) > BLOCK_BYTES:
            blocks.append(block(payload, num_pieces))
            payload, num_pieces = b"", 0
        payload += varint(len(piece)) + piece + varint(count)
        num_pieces += 1
    if num_pieces:
        blocks.append(block(payload, num_pieces))
    sizes = [len(piece) for piece in counts]
    end = footer(len(counts), sum(counts.values()), sum(sizes), max(sizes, default=0), 0, 0)
    return header(about) + b"".join(blocks) + end
