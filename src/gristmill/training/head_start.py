"""The first blocks of a JSON Lines file, read and counted in native code while modules are imported.

Imports next to nothing: NumPy alone takes as long as most of what is gained."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from gristmill import _native
from gristmill.engine_cache import Steps
from gristmill.training.first_size import expected_pieces

if TYPE_CHECKING:
    from gristmill.batch import DocumentBatch

BLOCK_BYTES = 4 << 20
COUNTER_BYTES = 256 << 20
"""The counter may have more once it is known how much there is."""
MOST_BYTES = 48 << 20
"""Read before anybody asks: the text is held until then."""
LEAST_FILE_BYTES = 16 << 20
"""Less is counted sooner than it is handed over."""


class Begun(NamedTuple):
    """What was read and counted of a file, from its start."""

    batches: list[DocumentBatch]
    stop: int
    """Of the last batch, in the file: a line begins there."""
    counted: list[int]
    """Documents of each batch, the first ones, that are in the counter."""
    counter: _native.PieceCounter


class HeadStart:
    """A thread on its way through a file."""

    def __init__(self, path: str, text_field: str, steps: Steps) -> None:
        """`text_field` is a name at the top of a record, `steps` say how text is cut."""
        self._path = os.path.abspath(path)
        status = os.stat(path)
        self._file = (self._path, status.st_size, str(status.st_mtime_ns))
        build = _native.Build()
        for name, arguments in steps:
            getattr(build, name)(*arguments)
        self._native: _native.HeadStart | None = _native.HeadStart(
            os.fsencode(self._path),
            text_field.encode(),
            build,
            max_bytes=COUNTER_BYTES,
            num_expected=expected_pieces(status.st_size),
            block_bytes=BLOCK_BYTES,
            most_bytes=min(MOST_BYTES, status.st_size // 2),
        )

    def take(
        self, path: str, num_bytes: int, version: str, *, stop: int, max_document_bytes: int
    ) -> Begun | None:
        """Stop it and have what it did, once; None where that is not the start of this slice of this file."""
        native, self._native = self._native, None
        taken = native.take() if native is not None else None
        if taken is None or (path, num_bytes, version) != self._file or max_document_bytes < BLOCK_BYTES:
            return None
        blocks, counter = taken
        *_, end, _ = blocks[-1] if blocks else (stop, 0)
        if end >= stop:
            return None
        batches: list[DocumentBatch] = []
        num_records = 0
        for block in blocks:
            batches.append(_batch_of(block, num_records))
            num_records += batches[-1].num_records
        return Begun(batches, end, [num_counted for *_, num_counted in blocks], counter)

    def end(self) -> None:
        """Stop it; what it did is of no use."""
        self._native = None


def _batch_of(block: tuple[Any, ...], num_records: int) -> DocumentBatch:
    from gristmill.batch import DocumentBatch

    text, offsets, lines, positions, num_lines, begin, end, _ = block
    return DocumentBatch(
        text=text,
        offsets=offsets,
        records=lines + num_records,
        positions=positions + begin,
        num_records=num_lines,
        num_bytes=end - begin,
    )
