"""Thrift's compact protocol, as much of it as the metadata of a Parquet file needs to be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Value(NamedTuple):
    """A value with the code of its type."""

    code: int
    content: bytes


def varint(number: int) -> bytes:
    """Seven bits a byte, lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def i32(number: int) -> Value:
    """A number of 32 bits."""
    return Value(5, _zigzag(number))


def i64(number: int) -> Value:
    """A number of 64 bits."""
    return Value(6, _zigzag(number))


def text(content: bytes) -> Value:
    """Text or bytes."""
    return Value(8, varint(len(content)) + content)


def array(items: Sequence[Value]) -> Value:
    """Values of one type; at least one."""
    code, count = items[0].code, len(items)
    head = bytes([count << 4 | code]) if count < 15 else bytes([0xF0 | code]) + varint(count)
    return Value(9, head + b"".join(item.content for item in items))


def struct(fields: Mapping[int, Value]) -> Value:
    """Fields by their ids."""
    out, last = bytearray(), 0
    for key, value in sorted(fields.items()):
        assert 0 < key - last < 16
        out.append((key - last) << 4 | value.code)
        out += value.content
        last = key
    return Value(12, bytes(out) + b"\0")


def _zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)
