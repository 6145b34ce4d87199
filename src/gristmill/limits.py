"""What a unit of any run is told, and what it tells: how much it may write, and what it has done so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Limit(NamedTuple):
    """What may still be written; None is no limit."""

    rows: int | None = None
    tokens: int | None = None


class Block(NamedTuple):
    """What was done since the last report, for whoever watches."""

    num_bytes: int
    num_documents: int
    num_bad: int
    num_tokens: int


OnBlock = Callable[[Block], None]
