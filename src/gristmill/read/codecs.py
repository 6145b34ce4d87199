"""Compressed bytes -> bytes, in steps of bounded size, whatever a file claims about itself.

What comes out before a fault depends on the file alone: decoders are fed pieces of one fixed size, or, of
zstd, one block after the other.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol, cast

import zstandard
from isal import igzip_lib

from gristmill.errors import BadFileError
from gristmill.read.storage import unreadable

FED_BYTES = 1 << 16
STEP_BYTES = 1 << 20
MAX_XZ_MEMORY = 256 << 20
"""xz -9 needs 65 MiB; a header may claim 4 GiB."""
MAX_ZSTD_WINDOW = 128 << 20
"""What the zstd tool decodes when not told otherwise."""
ZSTD_MAGIC = 0xFD2FB528
ZSTD_SKIPPABLE = 0x184D2A50
"""Of the magic numbers of frames that hold no content, all but the last four bits."""
RUN_LENGTH_BLOCK = 1
GzipError = cast(type[Exception], igzip_lib.IsalError)
Take = Callable[[int], bytes]


class Decoder(Protocol):
    """Decodes one member of a compressed file: what bz2, lzma and isal have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int) -> bytes: ...


def decode_file(file: BinaryIO, compression: str) -> Iterator[bytes]:
    """The content of a compressed file in pieces; at a fault `BadFileError`, after what is before it."""

    def take(num_bytes: int) -> bytes:
        return _read_fully(file, num_bytes)

    try:
        yield from CODECS[compression](take)
    except lzma.LZMAError as error:
        if "Memory usage limit" not in str(error):
            raise BadFileError("corrupt", f"{compression}: {error}") from error
        raise BadFileError(
            "large_window",
            f"xz: needs more than {MAX_XZ_MEMORY >> 20} MiB to be decompressed; "
            "write it anew: xz -dc FILE | xz > NEW",
        ) from error
    except (zstandard.ZstdError, GzipError, OSError, EOFError, ValueError) as error:
        raise BadFileError("corrupt", f"{compression}: {error}") from error


def _decode_zstd(take: Take) -> Iterator[bytes]:
    while head := take(5):
        magic = int.from_bytes(head[:4], "little")
        if len(head) == 5 and magic & ~15 == ZSTD_SKIPPABLE:
            _skip(take, int.from_bytes(head[4:] + _take_all(take, 3), "little"))
        elif magic == ZSTD_MAGIC or len(head) < 5:
            yield from _decode_frame(take, head)
        else:
            raise BadFileError("corrupt", "zstd: no frame begins where one should")


def _decode_frame(take: Take, head: bytes) -> Iterator[bytes]:
    # One block of a frame holds 128 KiB at most, so that no step gives more, however small its input.
    if len(head) < 5:
        raise _truncated()
    header = head + _take_all(take, zstandard.frame_header_size(head) - 5)
    window_bytes = zstandard.get_frame_parameters(header).window_size
    if window_bytes > MAX_ZSTD_WINDOW:
        raise BadFileError(
            "large_window",
            f"zstd: needs {window_bytes >> 20} MiB to be decompressed, more than {MAX_ZSTD_WINDOW >> 20}; "
            "write it anew: zstd -d --long=31 < FILE | zstd > NEW",
        )
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).decompressobj()
    yield decoder.decompress(header)
    is_last = False
    while not is_last:
        block = _take_all(take, 3)
        fields = int.from_bytes(block, "little")
        is_last = bool(fields & 1)
        num_bytes = 1 if fields >> 1 & 3 == RUN_LENGTH_BLOCK else fields >> 3
        yield decoder.decompress(block + _take_all(take, num_bytes))
    if head[4] & 4:
        yield decoder.decompress(_take_all(take, 4))


def _decode_members(take: Take, begin: Callable[[], Decoder], *, padding: bytes) -> Iterator[bytes]:
    data = take(FED_BYTES)
    while data:
        decoder = begin()
        while not decoder.eof:
            if decoder.needs_input and not data and not (data := take(FED_BYTES)):
                raise _truncated()
            fed, data = data, b""
            yield decoder.decompress(fed, max_length=STEP_BYTES)
        data = decoder.unused_data.lstrip(padding)
        while not data and (more := take(FED_BYTES)):
            data = more.lstrip(padding)


def _decode_gzip(take: Take) -> Iterator[bytes]:
    return _decode_members(
        take, lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP), padding=b"\0"
    )


def _decode_bz2(take: Take) -> Iterator[bytes]:
    return _decode_members(take, bz2.BZ2Decompressor, padding=b"")


def _decode_xz(take: Take) -> Iterator[bytes]:
    return _decode_members(take, lambda: lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY), padding=b"\0")


CODECS: dict[str, Callable[[Take], Iterator[bytes]]] = {
    "gzip": _decode_gzip,
    "zstd": _decode_zstd,
    "bz2": _decode_bz2,
    "xz": _decode_xz,
}


def _take_all(take: Take, num_bytes: int) -> bytes:
    data = take(num_bytes)
    if len(data) < num_bytes:
        raise _truncated()
    return data


def _skip(take: Take, num_bytes: int) -> None:
    while num_bytes:
        num_bytes -= len(_take_all(take, min(num_bytes, FED_BYTES)))


def _truncated() -> BadFileError:
    return BadFileError("truncated", "the compressed data end before their end mark; fetch the file again")


def _read_fully(file: BinaryIO, num_bytes: int) -> bytes:
    # A raw file or a network may give less than was asked for; where pieces end must not depend on that.
    parts = []
    try:
        while num_bytes and (part := file.read(num_bytes)):
            parts.append(part)
            num_bytes -= len(part)
    except Exception as error:
        raise unreadable(error) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)
