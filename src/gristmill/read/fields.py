"""Paths of fields in a record, as the config writes them."""

from __future__ import annotations

import re

from gristmill.config import ReadConfig
from gristmill.errors import ConfigError

FieldPath = list[bytes]


def text_paths(config: ReadConfig) -> list[FieldPath]:
    """Where the texts of a record are: names from the outside in."""
    fields = (config.text_field,) if isinstance(config.text_field, str) else config.text_field
    if not fields:
        raise ConfigError("read.text_field names no field")
    return [split_path(field) for field in fields]


def id_path(config: ReadConfig) -> FieldPath | None:
    """Where the id of a record is, if it is asked for."""
    return None if config.id_field is None else split_path(config.id_field)


def split_path(field: str) -> FieldPath:
    """Names in a path such as doc.body.text; a dot after a backslash belongs to a name."""
    if not field:
        raise ConfigError("read.text_field or read.id_field is empty; name a field")
    names = re.split(r"(?<!\\)\.", field)
    return [name.replace("\\.", ".").encode() for name in names]


def show_path(path: FieldPath) -> str:
    """A path as the config writes it."""
    return ".".join(name.decode().replace(".", "\\.") for name in path)
