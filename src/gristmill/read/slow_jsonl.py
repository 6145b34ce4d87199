"""Stand-in for the native parser of JSON Lines, with its contract."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from gristmill.batch import pack_texts
from gristmill.engines import Bytes, Offsets


class _BadError(Exception):
    pass


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _find(value: Any, path: list[bytes]) -> Any:
    for raw in path:
        if not isinstance(value, dict):
            raise _BadError("wrong_type", "no object")
        if raw.decode() not in value:
            raise _BadError("missing_field", ", ".join(list(value)[:8]))
        value = value[raw.decode()]
    return value


def _text(record: Any, paths: list[list[bytes]], join: str) -> str:
    parts, first = [], None
    for path in paths:
        try:
            value = _find(record, path)
            if value is None:
                raise _BadError("null", "null")
        except _BadError as error:
            if error.args[0] == "wrong_type":
                raise
            first = first or error
            continue
        if not isinstance(value, str):
            raise _BadError("wrong_type", "no string")
        parts.append(value)
    if not parts:
        assert first is not None
        raise first
    text = join.join(parts)
    if not text:
        raise _BadError("empty", "empty")
    return text


def _parse_line(
    line: bytes, paths: list[list[bytes]], join: str, id_path: list[bytes] | None
) -> tuple[bytes, bytes]:
    try:
        record = json.loads(line.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise _BadError("bad_utf8", f"byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise _BadError("bad_json", str(error)) from error
    if not isinstance(record, dict):
        raise _BadError("wrong_type", "no object")
    name: Any = None
    if id_path is not None:
        try:
            name = _find(record, id_path)
        except _BadError as error:
            if error.args[0] == "wrong_type":
                raise
    if isinstance(name, dict | list):
        raise _BadError("wrong_type", "id")
    shown = "" if name is None else name if isinstance(name, str) else json.dumps(name)
    try:
        return _text(record, paths, join).encode(), shown.encode()
    except UnicodeEncodeError as error:
        raise _BadError("lone_surrogate", str(error.start)) from error


def parse_json_lines(
    buffer: Bytes, text_paths: list[list[bytes]], join: bytes, id_path: list[bytes] | None
) -> tuple[
    Bytes,
    Offsets,
    Offsets,
    Offsets,
    tuple[Bytes, Offsets] | None,
    list[tuple[int, int, str, str]],
    int,
]:
    """Documents of the lines of a buffer."""
    content = buffer.tobytes()
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    texts: list[str | bytes] = []
    names: list[str | bytes] = []
    numbers, positions, bad, position = [], [], [], 0
    for number, line in enumerate(lines):
        if line.strip(b" \t\r"):
            try:
                text, name = _parse_line(line, text_paths, join.decode(), id_path)
                texts.append(text)
                names.append(name)
                numbers.append(number)
                positions.append(position)
            except _BadError as error:
                bad.append((number, position, *error.args))
        position += len(line) + 1
    flat, offsets = pack_texts(texts, errors="strict")
    named = None if id_path is None else pack_texts(names, errors="strict")
    where = np.array(numbers, np.int64), np.array(positions, np.int64)
    return flat, offsets, *where, named, bad, len(lines)
