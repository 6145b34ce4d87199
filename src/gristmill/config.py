"""What a user can set, as frozen structs: every default lives here, and every value is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from gristmill.errors import ConfigError

Section = TypeVar("Section", bound=msgspec.Struct)
Count = Annotated[int, msgspec.Meta(ge=1)]

DEFAULT_CACHE_BYTES = 64 << 20
"""Of pieces that each thread of the native engine remembers."""
MAX_THREADS = 1024


class BenchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `gristmill bench` measures."""

    tokenizer: str | None = None
    """A path or hub name; absent: one trained on the embedded text."""
    texts: tuple[str, ...] = ()
    """Plain text or JSONL files; none: the embedded text."""
    num_docs: Count = 1000
    rounds: Count = 3
    threads: Annotated[int, msgspec.Meta(ge=1, le=MAX_THREADS)] | None = None
    """Threads of the parallel methods; absent: all cores."""
    is_repeated: bool = False
    """Also time a second pass over the same documents in the same process."""


def check_section(kind: type[Section], values: Mapping[str, object], *, name: str) -> Section:
    """Build a config section from plain values, or say which of them is wrong."""
    try:
        return msgspec.convert(dict(values), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error).replace("$", name)) from error
