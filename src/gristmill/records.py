"""What the run folder holds, as structs: files, shards, and the record that commits a unit."""

from __future__ import annotations

import msgspec


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the run folder."""

    path: str
    """Relative to the run folder."""
    num_bytes: int
    sha256: str


class ShardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A shard: the same documents or rows in each format asked for."""

    name: str
    """unit and part, such as 00012-000: the stem of its files."""
    num_documents: int
    """Documents of a shard of documents; 0 for rows."""
    num_rows: int
    num_tokens: int
    """Without padding; what overlap repeats included."""
    num_padding: int
    files: dict[str, list[FileRecord]]
    """Of each format."""
