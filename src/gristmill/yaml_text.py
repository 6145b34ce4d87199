"""Settings as YAML that people can read and change, in PyYAML's own layout.

PyYAML reads what people write. Writing plain settings needs a page of code, and importing PyYAML for it takes
as long as a fiftieth of a small run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*")
NOT_PLAIN = re.compile(r"(y|n|yes|no|on|off|true|false|null|\.+[a-z]*|[.+-]*[0-9].*)", re.IGNORECASE)
"""Words that YAML takes for something else than text, or may."""


def render_yaml(values: Mapping[str, Any]) -> str:
    """Nested mappings and lists of plain values; text with line ends stands as "\\n"."""
    return "".join(f"{line}\n" for line in _mapping(values, ""))


def _mapping(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{_scalar(key)}:"
            yield from _mapping(value, f"{indent}  ")
        elif isinstance(value, (list, tuple)) and value:
            yield f"{indent}{_scalar(key)}:"
            yield from (f"{indent}- {_scalar(item)}" for item in value)
        else:
            yield f"{indent}{_scalar(key)}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return _text(value)
    if value in ([], (), {}):
        return "{}" if value == {} else "[]"
    if not isinstance(value, int):
        raise TypeError(f"{type(value).__name__} is no plain value")
    return str(value)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")  # else YAML takes 1e-05 for text


def _text(value: str) -> str:
    if PLAIN.fullmatch(value) and not NOT_PLAIN.fullmatch(value):
        return value
    return f'"{"".join(map(_quoted, value))}"'


def _quoted(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(character)
    return known.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\U{code:08x}")
