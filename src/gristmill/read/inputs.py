"""What there is to read: every input file, and the slices it can be read in."""

from __future__ import annotations

import msgspec


class InputFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A file to read, as it was when the run was planned."""

    path: str
    """URL, or absolute path."""
    num_bytes: int
    """As stored."""
    version: str
    """Changes when the file does: its time of change, or what the store calls its version."""
    format: str
    compression: str


class Slice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of a file: lines that begin in a range of bytes, row groups, record batches, or all of it."""

    file: int
    """Index of the file in the plan."""
    start: int
    stop: int
    """Bytes of plain text and JSON Lines, row groups of Parquet, record batches of Arrow; 0 and 1 for a file
    that is read as a whole."""
    num_bytes: int
    """What reading it costs, as far as is known before: stored bytes, or the size a footer tells."""
    is_share: bool = False
    """Of Parquet: start and stop are bytes of the file, as if its row groups were spread evenly over it, so
    that a file can be sliced whose footer is not at hand."""
