"""Files -> slices that can be read apart, found without reading content."""

from __future__ import annotations

import math

from gristmill.config import ReadConfig
from gristmill.errors import BadFileError
from gristmill.hub.names import is_pinned
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.lines import END_OF_FILE
from gristmill.read.storage import is_remote, serves_ranges


def slice_file(index: int, file: InputFile, config: ReadConfig, unit_bytes: int) -> list[Slice]:
    """Slices of about `unit_bytes` that make up the file; one alone where it cannot be cut or opened."""
    if is_pinned(file.path) and file.format in ("parquet", "arrow"):
        return _slice_unseen(index, file, unit_bytes)
    try:
        if file.format == "parquet":
            from gristmill.read.parquet import row_group_sizes

            return _gather_parts(index, row_group_sizes(file), unit_bytes)
        if file.format == "arrow":
            from gristmill.read.arrow import count_batches

            num_batches = max(count_batches(file), 1)
            return _gather_parts(index, [math.ceil(file.num_bytes / num_batches)] * num_batches, unit_bytes)
    except BadFileError:
        # Reading it says what is wrong.
        return [_whole(index, file)]
    is_lines = file.format == "jsonl" or (file.format == "text" and config.document == "line")
    if not is_lines or file.compression != "none":
        return [_whole(index, file)]
    if is_remote(file.path) and (file.num_bytes == 0 or not _serves_ranges(file)):
        # All lines of a file that can be read from its start only, or whose size is not known.
        return [Slice(file=index, start=0, stop=END_OF_FILE, num_bytes=file.num_bytes)]
    return _slice_bytes(index, file, unit_bytes, is_share=False)


def _slice_unseen(index: int, file: InputFile, unit_bytes: int) -> list[Slice]:
    """Slices of a file of a dataset, which is fetched when it is needed and not to plan: a dataset may have
    ten thousand files of which a limit needs one."""
    if file.format == "parquet":
        return _slice_bytes(index, file, unit_bytes, is_share=True)
    return [Slice(file=index, start=0, stop=END_OF_FILE, num_bytes=file.num_bytes)]


def _slice_bytes(index: int, file: InputFile, unit_bytes: int, *, is_share: bool) -> list[Slice]:
    starts = range(0, max(file.num_bytes, 1), unit_bytes)
    stops = [*starts[1:], max(file.num_bytes, 1)]
    return [
        Slice(
            file=index, start=start, stop=stop, num_bytes=min(stop, file.num_bytes) - start, is_share=is_share
        )
        for start, stop in zip(starts, stops, strict=True)
    ]


def _serves_ranges(file: InputFile) -> bool:
    try:
        return serves_ranges(file.path)
    except Exception:  # reading it says what is wrong
        return False


def _whole(index: int, file: InputFile) -> Slice:
    return Slice(file=index, start=0, stop=1, num_bytes=file.num_bytes)


def _gather_parts(index: int, sizes: list[int], unit_bytes: int) -> list[Slice]:
    """Neighbouring parts together, as long as they do not exceed a unit."""
    slices = []
    start, num_bytes = 0, 0
    for part, size in enumerate(sizes):
        if part > start and num_bytes + size > unit_bytes:
            slices.append(Slice(file=index, start=start, stop=part, num_bytes=num_bytes))
            start, num_bytes = part, 0
        num_bytes += size
    slices.append(Slice(file=index, start=start, stop=max(len(sizes), 1), num_bytes=num_bytes))
    return slices
