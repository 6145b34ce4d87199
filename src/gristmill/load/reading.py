"""Bytes from a path nobody vouches for: regular files only, of bounded size, and JSON of a declared shape."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from blake3 import blake3

from gristmill.errors import TokenizerFormatError

MAX_FILE_BYTES = 80 << 20
"""The largest tokenizer.json in use has 35 MB. A string of JSON can need four times its bytes as a Python
one, so this also keeps one absurd token under a gigabyte."""
PART_BYTES = 1 << 20
"""Read at a time where only a hash is wanted."""
MAX_JSON_STRINGS = 3_000_000
"""Gemma-3 has 1.3 million; each costs up to 170 bytes as a dict entry."""
MAX_JSON_COLONS = 1_600_000
"""Bounds the keys, which cost the most time: half a microsecond each. XLM-V, the largest vocabulary known,
has 902,000."""
MAX_TOKEN_CHARACTERS = 1 << 16
MAX_ID = (1 << 22) - 1
"""XLM-V, the largest vocabulary known, has 902,000 tokens."""
MAX_UNUSED_IDS = 1 << 20
MAX_PATTERN_CHARACTERS = 1 << 16

T = TypeVar("T")


def max_id(num_tokens: int) -> int:
    """The largest id believed of a vocabulary of that size: tables have a place for every id up to it, so a
    small file must not name a large one."""
    return min(MAX_ID, 4 * num_tokens + MAX_UNUSED_IDS)


def read_whole(path: Path, *, limit: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes; anything else is refused without waiting for
    it."""
    with _open_regular(path, limit) as file, _named(path):
        room = os.fstat(file.fileno()).st_size + 1  # it may grow meanwhile
        content = file.read(min(room, limit + 1))
        content += file.read(limit + 1 - len(content)) if len(content) == room else b""
    if len(content) > limit:
        raise TokenizerFormatError(f"{path}: has more than {limit:,} bytes")
    return content


def digest_whole(path: Path) -> bytes:
    """A hash of the same content, of which little is held: fresh memory takes longer than hashing it."""
    digest, room = blake3(), memoryview(bytearray(PART_BYTES))
    with _open_regular(path, MAX_FILE_BYTES) as file, _named(path):
        while size := file.readinto(room):
            digest.update(room[:size])
    return digest.digest()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TokenizerFormatError(f"{path}: cannot be read ({error.strerror})") from error


def _open_regular(path: Path, limit: int) -> io.BufferedReader:
    try:
        # Opening a FIFO for reading waits for a writer unless told not to.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise TokenizerFormatError(f"{path}: cannot be read ({reason})") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise TokenizerFormatError(f"{path}: is not a regular file")
    if status.st_size > limit:
        os.close(handle)
        raise TokenizerFormatError(
            f"{path}: has {status.st_size:,} bytes, more than any tokenizer of its kind ({limit:,})"
        )
    return os.fdopen(handle, "rb")


def decode_json(content: bytes, kind: type[T], *, source: str) -> T:
    """JSON as the given type; memory stays bounded because the number of strings is looked at first."""
    if content.count(b'"') > 2 * MAX_JSON_STRINGS or content.count(b":") > MAX_JSON_COLONS:
        raise TokenizerFormatError(
            f"{source}: has more than {MAX_JSON_STRINGS:,} strings or {MAX_JSON_COLONS:,} keys, too many"
        )
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError as error:
        raise TokenizerFormatError(f"{source}: is nested too deeply") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise TokenizerFormatError(f"{source}: is not the JSON expected here: {_short(error)}") from error


def _short(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= 200 else text[:200] + "..."
