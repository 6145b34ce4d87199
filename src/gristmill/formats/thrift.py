"""Thrift's compact protocol, as much of it as the metadata of our Parquet files needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct


class Value(Struct, frozen=True):
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


def read_struct(content: bytes) -> dict[int, Any]:
    """Fields by their ids: numbers, bytes, lists and further fields; `ValueError` where it is something
    else."""
    try:
        return _Reader(content).fields()
    except (IndexError, RecursionError) as error:
        raise ValueError("its metadata is damaged") from error


class _Reader:
    """Reads values one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def fields(self) -> dict[int, Any]:
        """Up to the end of a struct."""
        found: dict[int, Any] = {}
        key = 0
        while head := self._byte():
            key += head >> 4
            found[key] = self._value(head & 15)
        return found

    def _value(self, code: int) -> Any:
        if code in (5, 6):
            number = self._varint()
            return number >> 1 ^ -(number & 1)
        if code == 8:
            size = self._varint()
            self._at += size
            return self._content[self._at - size : self._at]
        if code == 9:
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15) for _ in range(count)]
        if code == 12:
            return self.fields()
        raise ValueError("its metadata is damaged")

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) > 0x7F and shift < 70:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | byte << shift

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]
