"""What the run folder holds, as structs: files, shards, the record that commits a unit, the manifest."""

from __future__ import annotations

import msgspec

# gc=False: none of them can be part of a cycle, and a run may hold very many.


VERSION = 2
"""Of plans and manifests: what is in them and in the records of units. 2: checksums are BLAKE3."""


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A file of the run folder."""

    path: str
    """Relative to the run folder."""
    num_bytes: int
    blake3: str
    """Of its content, in hexadecimal digits."""


class ShardRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


class Ledger(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What went in and what came out, of a unit or of a run."""

    documents_read: int = 0
    documents_encoded: int = 0
    documents_dropped: dict[str, int] = {}
    """By reason."""
    bytes_read: int = 0
    """Of input, decompressed."""
    bytes_encoded: int = 0
    """Of the text of encoded documents."""
    tokens_encoded: int = 0
    """BOS and EOS included."""
    tokens_written: int = 0
    """In shards; what overlap repeats counts once."""
    tokens_carried: int = 0
    """Put aside to be packed at the end of the run."""
    tokens_received: int = 0
    """Taken from what was put aside."""
    tokens_dropped: dict[str, int] = {}
    """By reason."""
    tokens_repeated: int = 0
    """Written more than once, by overlap."""
    padding: int = 0
    rows: int = 0
    """Rows, or documents where those are what is written."""
    documents_cut: int = 0
    """Times a document goes on in another row."""
    bad_files: dict[str, int] = {}
    """By reason."""


class ScriptCounts(msgspec.Struct, frozen=True, array_like=True):
    """Documents of one script in a sample of a unit's: how many, bytes of their text, and tokens."""

    num_documents: int
    text_bytes: int
    num_tokens: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the documents of a unit are like; nothing in a record of an earlier version."""

    document_bytes: tuple[int, ...] = ()
    """How many documents have a text of 0, 1, 2-3, 4-7, ... bytes: bucket k ends before 2^k."""
    document_tokens: tuple[int, ...] = ()
    """Likewise of tokens, BOS and EOS included."""
    slice_bytes: tuple[int, ...] = ()
    """Of the text of encoded documents, in each slice."""
    slice_tokens: tuple[int, ...] = ()
    """Likewise."""
    full_rows: int = 0
    """Rows it would take to give each document rows of its own."""
    documents_over: int = 0
    """Longer than a row."""
    tokens_over: int = 0
    """Of documents, beyond a row's length: what would be lost if they were cut off there."""
    scripts: dict[str, ScriptCounts] = {}
    """Of every 64th document, by the script that most letters of its beginning are of."""


class UnitRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Commits a unit: once it is there, the unit is done."""

    unit: int
    ledger: Ledger
    slice_records: tuple[int, ...]
    """Records in each slice of the unit, for numbering those of the next."""
    shards: tuple[ShardRecord, ...]
    sidecars: tuple[FileRecord, ...]
    """Where documents and rows came from, tails, quarantine."""
    is_limited: bool = False
    """Cut short by max_rows or max_tokens."""
    measured: Measured = Measured()
    stage_s: dict[str, float]
    """Not part of what is compared: seconds spent in each stage."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished run has written; says nothing about when, or how fast."""

    version: int
    gristmill: str
    tokenizer: str
    fingerprint: str
    vocab_size: int
    dtype: str
    formats: tuple[str, ...]
    mode: str
    sequence_length: int | None
    eos_id: int | None
    bos_id: int | None
    pad_id: int | None
    mask_first_token: bool = False
    """Labels of the first token of each document are -100."""
    ledger: Ledger
    shards: tuple[ShardRecord, ...]
    sidecars: tuple[FileRecord, ...]
