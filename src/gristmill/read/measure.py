"""How much of a slice was read, told from what came out of it: for estimates, before a file is read whole."""

from __future__ import annotations

from typing import BinaryIO

from gristmill.errors import BadFileError
from gristmill.read import arrow, parquet
from gristmill.read.codecs import decode_file
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.storage import open_input

ROW_COUNTS = {"parquet": parquet.count_rows, "arrow": arrow.count_rows}
MEASURED_BYTES = 4 << 20
"""Of a compressed file, decoded to see how far it expands."""


def share_read(file: InputFile, part: Slice, *, num_records: int, num_bytes: int) -> float:
    """The part of a slice, from 0 to 1, that so many records and decompressed bytes from its start are."""
    if file.format in ROW_COUNTS:
        done, total = float(num_records), ROW_COUNTS[file.format](file, part)
    else:
        done, total = float(num_bytes), part.num_bytes * _expansion(file)
    return min(done / total, 1.0) if total > 0 else 1.0


def _expansion(file: InputFile) -> float:
    """Bytes that a byte of the file becomes, as far as its beginning tells."""
    if file.compression == "none":
        return 1.0
    decoded = 0
    with open_input(file.path) as stream:
        counted = _CountedReads(stream)
        try:
            for piece in decode_file(counted, file.compression):  # type: ignore[arg-type]
                decoded += len(piece)
                if decoded >= MEASURED_BYTES:
                    break
        except BadFileError:
            pass  # what was decoded before the fault tells as much
    return decoded / counted.num_bytes if decoded else 1.0


class _CountedReads:
    """A file that knows how much of it was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.num_bytes = 0

    def read(self, num_bytes: int) -> bytes:
        content = self._file.read(num_bytes)
        self.num_bytes += len(content)
        return content
