"""The plan: which units of input there are, as a pure function of the inputs and the config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gristmill.config import SMALL_BYTES, ReadConfig, TokenizeConfig, TrainConfig
from gristmill.errors import ConfigError
from gristmill.job import byte_size
from gristmill.layout import Layout
from gristmill.read import InputFile, Slice, slice_file

MIN_UNIT_BYTES = 8 << 20
MAX_UNIT_BYTES = 256 << 20
UNITS_WANTED = 64
"""Enough that workers end at about the same time."""
EASY_UNIT_BYTES = 32 << 20
"""Up to this size half as many do: below it the cost of a unit by itself shows. Of small input a few do, as
threads that have none left help the others, which processes do not."""
UNITS_AT_ONCE = 4
"""Units are a multiple of so many, where each can have its size: two or four workers then end together."""
MAX_SLICES = 512
"""Of a unit, so that many tiny files keep every worker busy."""
MAX_SMALL_UNITS = 200_000
SMALL_UNIT_BYTES = 1_000_000
"""So many units of less than this are no job anybody means: each has files of its own."""


class Unit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of the input that is read, encoded, packed, written and committed as a whole."""

    index: int
    slices: tuple[Slice, ...]

    @property
    def num_bytes(self) -> int:
        """What reading it costs, as far as is known before."""
        return sum(part.num_bytes for part in self.slices)


class UnitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What any job over units needs, and `identity`: what may not change before it is resumed."""

    version: int
    identity: dict[str, Any]
    files: tuple[InputFile, ...]
    units: tuple[Unit, ...]
    max_document_bytes: int
    commit: str = ""
    """Of the dataset, where the job names one: a branch that moves later moves no run."""

    @property
    def num_bytes(self) -> int:
        """What reading all of it costs, as far as is known before."""
        return sum(unit.num_bytes for unit in self.units)

    def unit_name(self, index: int) -> str:
        """The stem of a unit's files; names sort as the units do, and the tails' come last."""
        return f"{index:0{max(5, len(str(len(self.units))))}d}"


class Plan(UnitPlan, frozen=True, kw_only=True, tag_field="job", tag="tokenize"):
    """All that a worker or a resumed run must know."""

    config: TokenizeConfig
    layout: Layout
    tokenizer_path: str = ""
    """Absolute, where the tokenizer is a local file or folder."""
    tokenizer_files: dict[str, str] = {}
    """Its files by absolute path, with what changes when they do."""


class CountPlan(UnitPlan, frozen=True, kw_only=True, tag_field="job", tag="count"):
    """The plan of a run that counts pieces."""

    config: TrainConfig
    cut: str = ""
    """How text is cut into pieces, as inventories have it (`training.cut`)."""


def cut_units(
    config: ReadConfig, files: tuple[InputFile, ...], *, least_bytes: int = MIN_UNIT_BYTES
) -> tuple[Unit, ...]:
    """The units that files are read in."""
    unit_bytes = choose_unit_bytes(config, sum(file.num_bytes for file in files), least_bytes)
    slices = (
        part for index, file in enumerate(files) for part in slice_file(index, file, config, unit_bytes)
    )
    return tuple(gather(slices, unit_bytes))


def choose_unit_bytes(config: ReadConfig, total_bytes: int, least_bytes: int = MIN_UNIT_BYTES) -> int:
    """Many units, but none so small that committing it would cost more than encoding it."""
    if config.unit_bytes is not None:
        size = byte_size(config.unit_bytes, name="read.unit_bytes")
        if total_bytes // size > MAX_SMALL_UNITS and size < SMALL_UNIT_BYTES:
            raise ConfigError(
                f"read.unit_bytes={config.unit_bytes} cuts the input into {total_bytes // size:,} units, "
                f"each with files of its own; set it to {SMALL_UNIT_BYTES:,} or more, or leave it out"
            )
        return size
    num_easy = UNITS_AT_ONCE if total_bytes < SMALL_BYTES else UNITS_WANTED // 2
    easy_bytes = min(total_bytes // num_easy, EASY_UNIT_BYTES)
    size = min(max(total_bytes // UNITS_WANTED, easy_bytes, least_bytes), MAX_UNIT_BYTES)
    num_units = total_bytes // size // UNITS_AT_ONCE * UNITS_AT_ONCE
    return -(-total_bytes // num_units) if num_units and size < MAX_UNIT_BYTES else size


def gather(slices: Iterable[Slice], unit_bytes: int) -> Iterator[Unit]:
    """Neighbouring slices together, as long as a unit stays within its size."""
    gathered: list[Slice] = []
    index = gathered_bytes = 0
    for part in slices:
        is_full = gathered_bytes + part.num_bytes > unit_bytes or len(gathered) == MAX_SLICES
        if gathered and is_full:
            yield Unit(index=index, slices=tuple(gathered))
            index, gathered, gathered_bytes = index + 1, [], 0
        gathered.append(part)
        gathered_bytes += part.num_bytes
    if gathered:
        yield Unit(index=index, slices=tuple(gathered))
