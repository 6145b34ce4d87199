"""Read whole files as the run does, slice by slice, and give what came out as plain values."""

from __future__ import annotations

import tracemalloc
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gristmill.config import ReadConfig
from gristmill.errors import BadFileError
from gristmill.read import Blocks, list_inputs, read_slice, slice_file

BLOCKS = Blocks(block_bytes=1 << 20, max_document_bytes=1 << 20, memory_map=False, read_ahead=False)
WHOLE = 1 << 40


class Everything(NamedTuple):
    texts: list[str]
    records: list[int]
    positions: list[int]
    names: list[str] | None
    bad: list[tuple]
    num_records: int
    fault: tuple[str, str] | None

    @property
    def reasons(self):
        return [bad.reason for bad in self.bad]


def unpack(buffer, offsets):
    assert offsets[0] == 0
    assert offsets[-1] == len(buffer)
    return [buffer[start:stop].tobytes().decode() for start, stop in pairwise(offsets.tolist())]


def read_part(file, part, config, blocks):
    """What one slice gives, its fault included; record numbers are those of the slice."""
    texts, records, positions, names, bad, num_records = [], [], [], [], [], 0
    fault = None
    try:
        for batch in read_slice(file, part, config, blocks):
            found = unpack(batch.text, batch.offsets)
            assert len(found) == len(batch.records) == len(batch.positions) == len(batch)
            assert len(batch) + len(batch.bad) <= batch.num_records
            numbers = sorted([*batch.records.tolist(), *[one.record for one in batch.bad]])
            assert len(set(numbers)) == len(numbers)
            assert all(num_records <= number < num_records + batch.num_records for number in numbers)
            texts += found
            records += batch.records.tolist()
            positions += batch.positions.tolist()
            names += unpack(*batch.names) if batch.names else []
            bad += batch.bad
            num_records += batch.num_records
    except BadFileError as error:
        fault = (error.reason, error.detail)
    return Everything(texts, records, positions, names if config.id_field else None, bad, num_records, fault)


def read_all(path, config=None, *, blocks=BLOCKS, unit_bytes=WHOLE, **options):
    """All of a file; records are numbered through its slices."""
    config = config or ReadConfig(inputs=(str(path),), **options)
    [file] = list_inputs(config)
    total = Everything([], [], [], [] if config.id_field else None, [], 0, None)
    for part in slice_file(0, file, config, unit_bytes):
        found = read_part(file, part, config, blocks)
        first = total.num_records
        total = Everything(
            total.texts + found.texts,
            total.records + [first + record for record in found.records],
            total.positions + found.positions,
            None if total.names is None else total.names + found.names,
            total.bad + [bad._replace(record=bad.record + first) for bad in found.bad],
            total.num_records + found.num_records,
            total.fault or found.fault,
        )
    return total


@contextmanager
def peak_bytes():
    """A function that gives the most memory that was held at once, arrays included."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path
