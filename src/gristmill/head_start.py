"""The first blocks of a JSON Lines file, read and counted or encoded in native code while modules are
imported.

Imports next to nothing: NumPy alone takes as long as most of what is gained."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from gristmill import _native
from gristmill.engine_cache import Steps, build_of
from gristmill.training.first_size import expected_pieces

if TYPE_CHECKING:
    from gristmill.batch import DocumentBatch, TokenBatch
    from gristmill.config import SpecialTokenPolicy
    from gristmill.read import Blocks, InputFile, Slice

BLOCK_BYTES = 4 << 20
"""As a run reads: what holds one is used again for its own."""
COUNTER_BYTES = 256 << 20
"""The counter may have more once it is known how much there is."""
MOST_COUNTED_BYTES = 48 << 20
"""Read before anybody asks: the text is held until then."""
MOST_ENCODED_BYTES = 24 << 20
"""As a rule the first unit has as many; what goes beyond it is dropped."""
LEAST_FILE_BYTES = 16 << 20
"""Less is done sooner than it is handed over."""

_Block = tuple[Any, ...]


class Begun(msgspec.Struct, frozen=True):
    """What was read of a file, from its start."""

    batches: list[DocumentBatch]
    stop: int
    """Of the last batch, in the file: a line begins there."""


class Counted(msgspec.Struct, frozen=True):
    """The same, counted."""

    read: Begun
    documents: list[int]
    """Of each batch, the first ones, that are in the counter."""
    counter: _native.PieceCounter


class Encoded(msgspec.Struct, frozen=True):
    """The same, encoded."""

    read: Begun
    tokens: list[TokenBatch]
    """Of each batch."""


class CountedStart:
    """A thread that counts its way through a file."""

    def __init__(self, path: str, text_field: str, steps: Steps) -> None:
        """`text_field` is a name at the top of a record, `steps` say how text is cut."""
        self._file = _File(path)
        self._native: _native.CountedStart | None = _native.CountedStart(
            os.fsencode(self._file.path),
            text_field.encode(),
            build_of(steps),
            max_bytes=COUNTER_BYTES,
            num_expected=expected_pieces(self._file.num_bytes),
            block_bytes=BLOCK_BYTES,
            most_bytes=min(MOST_COUNTED_BYTES, self._file.num_bytes // 2),
        )

    def take(self, file: InputFile, part: Slice, blocks: Blocks) -> Counted | None:
        """Stop it and have what it did, once; None where that is not the start of this part of this file."""
        native, self._native = self._native, None
        taken = native.take() if native is not None else None
        if taken is None or not self._file.begins(file, part, blocks):
            return None
        counted, counter = taken
        begun = _begun_of([block for block, _ in counted])
        if not 0 < begun.stop < part.stop:
            return None
        return Counted(begun, [num_documents for _, num_documents in counted], counter)

    def end(self) -> None:
        """Stop it; what it did is of no use."""
        self._native = None


class EncodedStart:
    """Encodes its way through a file, on the thread that runs it."""

    def __init__(self, path: str, text_field: str, special_tokens: SpecialTokenPolicy) -> None:
        """`text_field` is a name at the top of a record."""
        self._file = _File(path)
        self._native = _native.EncodedStart(
            os.fsencode(self._file.path),
            text_field.encode(),
            special_tokens,
            block_bytes=BLOCK_BYTES,
            most_bytes=MOST_ENCODED_BYTES,
        )

    def run(self, engine: _native.Engine) -> None:
        """Until what it did is taken; once."""
        self._native.run(engine)

    def take(self, file: InputFile, part: Slice, blocks: Blocks) -> Encoded | None:
        """Stop it and have what it did, once; None where that is not the start of this part of this file."""
        from gristmill.batch import TokenBatch

        encoded = [(block, tokens) for block, tokens in self._native.take() if block[-1] < part.stop]
        if not encoded or not self._file.begins(file, part, blocks):
            return None
        begun = _begun_of([block for block, _ in encoded])
        return Encoded(begun, [TokenBatch(*tokens) for _, tokens in encoded])

    def end(self) -> None:
        """Stop it; what it did is of no use."""
        self._native.end()


class _File:
    """As it was when the head start was made."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        status = os.stat(path)
        self.num_bytes = status.st_size
        self._version = str(status.st_mtime_ns)

    def begins(self, file: InputFile, part: Slice, blocks: Blocks) -> bool:
        """The part is the start of this file, which is still the same, and could be read in such blocks."""
        is_same = (file.path, file.num_bytes, file.version) == (self.path, self.num_bytes, self._version)
        is_plain = (file.format, file.compression, part.start) == ("jsonl", "none", 0)
        return (
            is_same and is_plain and blocks.max_documents is None and blocks.max_document_bytes >= BLOCK_BYTES
        )


def _begun_of(blocks: list[_Block]) -> Begun:
    from gristmill.batch import DocumentBatch

    batches: list[DocumentBatch] = []
    num_records = stop = 0
    for text, offsets, lines, positions, num_lines, begin, end in blocks:
        batches.append(
            DocumentBatch(
                text=text,
                offsets=offsets,
                records=lines + num_records,
                positions=positions + begin,
                num_records=num_lines,
                num_bytes=end - begin,
            )
        )
        num_records += num_lines
        stop = end
    return Begun(batches, stop)
