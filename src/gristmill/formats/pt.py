"""Tensors as `torch.save` keeps them, a column a file, written and read without torch.

A .pt file is a zip archive whose members are stored as they are: a pickle that describes the tensor, three
small ones, and the numbers. The numbers lie on a multiple of 64 bytes, so that `torch.load(mmap=True)` can
use them where they are. The pickle names what a tensor is built with and nothing else, so that
`weights_only=True` takes it. We never load a pickle: what stands round the numbers follows from their count
and checksum, and is compared with that.
"""

from __future__ import annotations

import math
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.drafts import Scratch
from gristmill.errors import RunError
from gristmill.formats.arrays import (
    ArrayWriter,
    Container,
    check_arrays,
    map_arrays,
    read_arrays,
)
from gristmill.formats.payload import map_file

STORAGES = {"int8": b"CharStorage", "int32": b"IntStorage", "int64": b"LongStorage"}
ALIGNMENT = 64
PADDING_ID = 0x4246
"""Of the extra field that moves the numbers to a multiple of 64: the one torch uses."""
ZIP64_ID, ZIP64_VERSION = 1, 45
FULL = 0xFFFFFFFF
"""In a field of 32 bits: the number stands in the zip64 extra field. Always so for the numbers, so that one
of more than 4 GiB takes no other path."""
NUMBERS = b"archive/data/0"
LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
END = struct.Struct("<4s4H2IH")
DATE = (1 << 5) | 1
"""1 January 1980, the first there is."""


class Member(NamedTuple):
    """A file in the archive."""

    name: bytes
    num_bytes: int
    crc: int
    offset: int
    is_large: bool
    """Its size stands in the zip64 extra field."""


def _wrap(scratch: Scratch, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, bytes]:
    crc = 0
    for block in scratch.blocks():
        crc = zlib.crc32(block, crc)
    return envelope(dtype, shape, crc)


def envelope(dtype: np.dtype[Any], shape: tuple[int, ...], crc: int) -> tuple[bytes, bytes]:
    """The bytes before and after the numbers of a tensor."""
    head, members = b"", []
    small = {b"data.pkl": pickled(dtype, shape), b"byteorder": b"little", b"version": b"3\n"}
    for name, content in small.items():
        member = Member(b"archive/" + name, len(content), zlib.crc32(content), len(head), False)
        head += _local(member, b"") + content
        members.append(member)
    numbers = Member(NUMBERS, dtype.itemsize * math.prod(shape), crc, len(head), True)
    head += _local(numbers, _padding(len(head) + len(_local(numbers, b""))))
    members.append(numbers)
    return head, _tail(members, len(head) + numbers.num_bytes)


def pickled(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The pickle of a contiguous tensor whose numbers are member data/0, in protocol 2."""
    strides = (shape[1], 1) if len(shape) == 2 else (1,)
    storage = b"ctorch\n" + STORAGES[dtype.name] + b"\n"
    place = b"(" + _text(b"storage") + storage + _text(b"0") + _text(b"cpu") + _int(math.prod(shape))
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        + place
        + b"tQ"
        + _int(0)
        + _tuple(shape)
        + _tuple(strides)
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


def _text(content: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(content)) + content


def _int(number: int) -> bytes:
    return b"J" + struct.pack("<i", number) if number < 1 << 31 else b"\x8a\x08" + struct.pack("<q", number)


def _tuple(numbers: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_int, numbers)) + b"t"


def _padding(at: int) -> bytes:
    """An extra field that ends on a multiple of 64, if it begins at this byte."""
    size = -(at + 4) % ALIGNMENT
    return struct.pack("<2H", PADDING_ID, size) + bytes(size)


def _sizes(member: Member) -> tuple[int, bytes]:
    """What stands in the fields of 32 bits, and the zip64 extra field."""
    if not member.is_large:
        return member.num_bytes, b""
    return FULL, struct.pack("<2H2Q", ZIP64_ID, 16, member.num_bytes, member.num_bytes)


def _local(member: Member, padding: bytes) -> bytes:
    size, extra = _sizes(member)
    extra += padding
    version = ZIP64_VERSION if member.is_large else 0
    fields = (version, 0, 0, 0, DATE, member.crc, size, size, len(member.name), len(extra))
    return LOCAL.pack(b"PK\3\4", *fields) + member.name + extra


def _central(member: Member) -> bytes:
    size, extra = _sizes(member)
    version = ZIP64_VERSION if member.is_large else 0
    fields = (version, version, 0, 0, 0, DATE, member.crc, size, size, len(member.name), len(extra))
    return CENTRAL.pack(b"PK\1\2", *fields, 0, 0, 0, 0, member.offset) + member.name + extra


def _tail(members: list[Member], at: int) -> bytes:
    directory = b"".join(map(_central, members))
    count, size, end = len(members), len(directory), at + len(directory)
    return (
        directory
        + END64.pack(b"PK\6\6", END64.size - 12, ZIP64_VERSION, ZIP64_VERSION, 0, 0, count, count, size, at)
        + LOCATOR.pack(b"PK\6\7", 0, end, 1)
        + END.pack(b"PK\5\6", 0, 0, count, count, size, FULL, 0)
    )


TAIL_BYTES = len(envelope(np.dtype("int32"), (1,), 0)[1])
"""The same for every tensor."""
SIZE_AT = TAIL_BYTES - (END.size + LOCATOR.size + END64.size) - 16
"""In the tail: the size of the numbers ends the directory, twice."""
CRC_AT = SIZE_AT - 4 - len(NUMBERS) - CENTRAL.size + 16
"""In the tail: their checksum."""


def _unwrap(path: Path, dtype: np.dtype[Any], row_length: int | None) -> NDArray[Any]:
    num_bytes = path.stat().st_size if path.is_file() else 0
    if num_bytes < TAIL_BYTES:
        raise RunError(f"{path}: is missing or too short")
    tail = map_file(path, np.dtype("u1"), offset=num_bytes - TAIL_BYTES).tobytes()
    (size,), (crc,) = struct.unpack_from("<Q", tail, SIZE_AT), struct.unpack_from("<I", tail, CRC_AT)
    count = min(size, num_bytes) // dtype.itemsize
    shape = (count // row_length, row_length) if row_length else (count,)
    head, expected = envelope(dtype, shape, crc)
    found = map_file(path, np.dtype("u1"), count=min(len(head), num_bytes)).tobytes()
    if (found, tail, len(head) + size + TAIL_BYTES) != (head, expected, num_bytes):
        raise RunError(f"{path}: is not the archive of a tensor of {shape} numbers of {dtype.name}")
    return map_file(path, dtype, offset=len(head), count=count)


CONTAINER = Container(".pt", lambda _: np.dtype("<i4"), _wrap, _unwrap)
PtWriter = partial(ArrayWriter, CONTAINER)
read = partial(read_arrays, CONTAINER)
map_rows = partial(map_arrays, CONTAINER)
check = partial(check_arrays, CONTAINER)
