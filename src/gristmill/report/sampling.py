"""A look at the inputs of a job before it runs: some of each kind are read, encoded and packed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from gristmill.batch import DocumentBatch, TokenBatch
from gristmill.config import TokenizeConfig
from gristmill.encode import encode_documents
from gristmill.errors import BadFileError
from gristmill.layout import Layout
from gristmill.pack import make_packer
from gristmill.pack.rows import Rows, Segments
from gristmill.pack.windows import split_segments
from gristmill.plan import Unit
from gristmill.read import Blocks, InputFile, Slice, at_hand, read_slice
from gristmill.read.measure import share_read
from gristmill.tokenizer import Tokenizer

SAMPLE_S = 2.0
"""Spent on the sample; at least one slice of each kind is read, however long that takes."""
SLICE_BYTES = 1 << 20
"""Read of each slice at least, about."""
SAMPLE_BYTES = 48 << 20
"""Read in all, where time allows: of few slices, more of each."""
ROWS_AT_A_TIME = 1024


class Kind(NamedTuple):
    """Inputs that are counted together, since a byte of one holds about as much as a byte of another."""

    format: str
    compression: str


class Fault(NamedTuple):
    """The first bad record or file of a reason."""

    file: str
    detail: str


@dataclass
class KindCounts:
    """Of one kind of input: what there is, and what was found in the part of it that was read."""

    num_files: int = 0
    stored_bytes: int = 0
    planned_bytes: int = 0
    """As the plan counts them: row groups uncompressed."""
    seen_bytes: float = 0.0
    """Of the planned ones."""
    num_documents: int = 0
    num_bad: int = 0
    text_bytes: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    """To read and to encode."""


@dataclass
class Sample:
    """What was found."""

    kinds: dict[Kind, KindCounts]
    bad_documents: Counter[str] = field(default_factory=Counter)
    bad_files: Counter[str] = field(default_factory=Counter)
    faults: dict[str, Fault] = field(default_factory=dict)
    """By reason."""
    num_slices: int = 0
    is_complete: bool = True
    """Every byte of the input was read, so that counts are no estimates."""
    num_rows: int = 0
    num_segments: int = 0
    """Of rows."""
    num_padding: int = 0


def take_sample(
    config: TokenizeConfig,
    layout: Layout,
    files: tuple[InputFile, ...],
    units: tuple[Unit, ...],
    tokenizer: Tokenizer,
    blocks: Blocks,
) -> Sample:
    """Read and encode the beginnings of slices, spread over all inputs of each kind."""
    sample = Sample(_count_kinds(files, units))
    looker = _Looker(config, layout, tokenizer, blocks, sample)
    deadline = time.monotonic() + SAMPLE_S
    num_slices = sum(len(unit.slices) for unit in units)
    slice_bytes = max(SLICE_BYTES, SAMPLE_BYTES // max(num_slices, 1))
    for part in spread_slices(files, units):
        if time.monotonic() > deadline and sample.num_slices >= len(sample.kinds):
            sample.is_complete = False
            break
        looker.look_into(files[part.file], part, slice_bytes=slice_bytes, deadline=deadline)
    looker.finish()
    return sample


def spread_slices(files: tuple[InputFile, ...], units: tuple[Unit, ...]) -> Iterator[Slice]:
    """Every slice once, kinds by turns; however few are taken of a kind, they lie far apart."""
    waiting: dict[Kind, list[Slice]] = {}
    for unit in units:
        for part in unit.slices:
            waiting.setdefault(_kind_of(files[part.file]), []).append(part)
    turns = [iter([parts[i] for i in far_apart(len(parts))]) for parts in waiting.values()]
    while turns:
        for turn in list(turns):
            chosen = next(turn, None)
            if chosen is None:
                turns.remove(turn)
            else:
                yield chosen


def far_apart(count: int) -> list[int]:
    """The numbers below `count` in an order whose every beginning is spread over all of them."""
    bits = max(count - 1, 0).bit_length()
    mirrored = (int(f"{number:0{bits}b}"[::-1], 2) if bits else 0 for number in range(1 << bits))
    return [number for number in mirrored if number < count]


class _Looker:
    """Looks into slices, and packs what it finds as a run would."""

    def __init__(
        self, config: TokenizeConfig, layout: Layout, tokenizer: Tokenizer, blocks: Blocks, sample: Sample
    ) -> None:
        self._config = config
        self._layout = layout
        self._tokenizer = tokenizer
        self._sample = sample
        self._blocks = blocks._replace(
            block_bytes=min(blocks.block_bytes, SLICE_BYTES), memory_map=False, read_ahead=False
        )
        self._pack = msgspec.structs.replace(config.pack, mode=layout.mode)
        self._packer = None
        if layout.pad_id is not None:
            self._packer = make_packer(self._pack, pad_id=layout.pad_id, dtype=layout.id_type)

    def look_into(self, file: InputFile, part: Slice, *, slice_bytes: int, deadline: float) -> None:
        """Read a slice for a while."""
        counts = self._sample.kinds[_kind_of(file)]
        num_records = num_bytes = 0
        is_end = True
        start = time.perf_counter()
        try:
            file = at_hand(file, self._config.read)
            for documents in read_slice(file, part, self._config.read, self._blocks):
                num_records += documents.num_records
                num_bytes += documents.num_bytes
                self._add(file, counts, documents)
                if num_bytes >= (SLICE_BYTES if time.monotonic() > deadline else slice_bytes):
                    is_end = False
                    break
        except BadFileError as error:
            self._sample.bad_files[error.reason] += 1
            self._sample.faults.setdefault(error.reason, Fault(file.path, error.detail))
        counts.seconds += time.perf_counter() - start
        share = 1.0 if is_end else self._share(file, part, num_records, num_bytes)
        counts.seen_bytes += share * part.num_bytes
        self._sample.is_complete &= is_end
        self._sample.num_slices += 1

    def finish(self) -> None:
        """Pack what waits."""
        if self._packer is not None:
            self._count_rows(self._packer.finish(is_last=True)[0])

    def _share(self, file: InputFile, part: Slice, num_records: int, num_bytes: int) -> float:
        with suppress(BadFileError):  # what can be read of it was read
            return share_read(file, part, num_records=num_records, num_bytes=num_bytes)
        return 1.0

    def _add(self, file: InputFile, counts: KindCounts, documents: DocumentBatch) -> None:
        documents, tokens = encode_documents(
            documents,
            self._tokenizer,
            self._layout,
            special_tokens=self._config.encode.special_tokens,
            num_threads=1,
        )
        for bad in documents.bad:
            self._sample.bad_documents[bad.reason] += 1
            self._sample.faults.setdefault(bad.reason, Fault(file.path, bad.detail))
        counts.num_documents += len(documents)
        counts.num_bad += len(documents.bad)
        counts.text_bytes += int(documents.offsets[-1] - documents.offsets[0])
        counts.num_tokens += len(tokens.ids)
        self._pack_tokens(tokens)

    def _pack_tokens(self, tokens: TokenBatch) -> None:
        if self._packer is None:
            return
        numbers = np.zeros(len(tokens), np.int64)
        segments = Segments(tokens.ids, tokens.offsets, numbers, numbers)
        for part in split_segments(segments, self._pack, max_rows=ROWS_AT_A_TIME):
            self._count_rows(self._packer.add(part))

    def _count_rows(self, rows: Rows) -> None:
        self._sample.num_rows += len(rows)
        self._sample.num_segments += len(rows.lengths)
        self._sample.num_padding += rows.num_padding


def _kind_of(file: InputFile) -> Kind:
    return Kind(file.format, file.compression)


def _count_kinds(files: tuple[InputFile, ...], units: tuple[Unit, ...]) -> dict[Kind, KindCounts]:
    kinds: dict[Kind, KindCounts] = {}
    for file in files:
        counts = kinds.setdefault(_kind_of(file), KindCounts())
        counts.num_files += 1
        counts.stored_bytes += file.num_bytes
    for unit in units:
        for part in unit.slices:
            kinds[_kind_of(files[part.file])].planned_bytes += part.num_bytes
    return kinds
