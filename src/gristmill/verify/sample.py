"""Some documents, spread over the run, are read and encoded again with the tokenizer's own library."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gristmill.config import OutputFormat, ReadConfig
from gristmill.errors import GristmillError, UnsupportedTokenizerError
from gristmill.finished import FinishedRun, find_item, find_occurrences, source_of
from gristmill.formats.protocol import ShardView
from gristmill.read import Blocks, InputFile, Slice, describe_file, is_pinned, read_slice
from gristmill.read.storage import is_remote
from gristmill.run.loading import load_configured
from gristmill.tokenizer import Tokenizer
from gristmill.verify.findings import Findings
from gristmill.verify.shards import Sound, left_out

BLOCK_BYTES = 256 << 10


class UnreadError(Exception):
    """A part of the input that cannot be read again, and why."""


class Chosen(NamedTuple):
    """A document of the sample."""

    unit: int
    number: int
    slice: int
    record: int
    """In the slice."""
    position: int


def check_sample(run: FinishedRun, sound: Sound, *, num_documents: int, seed: int) -> Findings:
    """Compare the ids of some documents with the reference's."""
    chosen = choose(run, num_documents, seed)
    found = Findings("")
    num_checked = 0
    try:
        tokenizer = load_reference(run) if chosen else None
    except GristmillError as error:
        found.not_checked.append(f"the tokenizer cannot be loaded: {error}")
        tokenizer = None
    if tokenizer is not None and tokenizer.fingerprint != run.manifest.fingerprint:
        found.not_checked.append(f"the tokenizer {run.tokenizer.source} has changed since the run")
        tokenizer = None
    if tokenizer is not None:
        ids = _Ids(run, sound)
        for (unit, part), group in groupby(chosen, key=lambda one: (one.unit, one.slice)):
            try:
                for one, text in read_again(run, unit, part, list(group)):
                    expected = encode_plainly(run, tokenizer, text)
                    found.faults += ids.differences(one, expected)
                    num_checked += 1
            except UnreadError as error:
                found.not_checked.append(str(error))
    engine = f" with {tokenizer.engine_name}" if tokenizer is not None else ""
    total = sum(len(run.documents(unit)) for unit in run.records)
    found.what = f"{num_checked:,} of {total:,} documents encoded again{engine}"
    found.not_checked += left_out(run, sound) if chosen else []
    found.is_looked_at = (num_checked > 0 and bool(sound)) or not chosen
    return found


def choose(run: FinishedRun, num_documents: int, seed: int) -> list[Chosen]:
    """Documents spread evenly over the run, one at random in each stretch of it; in order."""
    units = sorted(run.records)
    ends = np.cumsum([len(run.documents(unit)) for unit in units]).astype(np.int64)
    total = int(ends[-1]) if len(ends) else 0
    count = min(num_documents, total)
    numbers = random.Random(seed)
    chosen = []
    for i in range(count):
        at = numbers.randrange(i * total // count, (i + 1) * total // count)
        index = int(np.searchsorted(ends, at, side="right"))
        table = run.documents(units[index])
        number = at - int(ends[index]) + len(table)
        entry = table[number]
        places = (int(entry[name]) for name in ("slice", "record", "position"))
        chosen.append(Chosen(units[index], number, *places))
    return chosen


def load_reference(run: FinishedRun) -> Tokenizer:
    """The run's tokenizer, run by its own library whatever the run used."""
    config = run.tokenizer
    try:
        return load_configured(msgspec.structs.replace(config, engine="tokenizers"))
    except UnsupportedTokenizerError:
        return load_configured(msgspec.structs.replace(config, engine="slow"))


def encode_plainly(run: FinishedRun, tokenizer: Tokenizer, text: bytes) -> list[int]:
    """Ids of a document as they should stand in the shards."""
    layout = run.layout
    ids = tokenizer.encode(text, special_tokens=run.plan.config.encode.special_tokens).tolist()
    bos = [] if layout.bos_id is None else [layout.bos_id]
    eos = [] if layout.eos_id is None else [layout.eos_id]
    return [*bos, *ids, *eos]


def read_again(
    run: FinishedRun, unit: int, part: int, wanted: list[Chosen]
) -> Iterator[tuple[Chosen, bytes]]:
    """Texts of documents of one slice, from the input; `UnreadError` where it is gone or changed."""
    whole = run.plan.units[unit].slices[part]
    file = run.plan.files[whole.file]
    try:
        if not is_remote(file.path) and not os.path.exists(file.path):
            raise UnreadError(f"{file.path}: is not there any more")
        if not is_pinned(file.path) and describe_file(file.path) != (file.num_bytes, file.version):
            raise UnreadError(f"{file.path}: has changed since the run")
        left = []
        for one in wanted:
            text = _read_line(run, file, whole, one)
            if text is None:
                left.append(one)
            else:
                yield one, text
        yield from _read_slice(run, file, whole, left)
    except UnreadError:
        raise
    except Exception as error:  # a store's package raises what it likes
        raise UnreadError(f"{file.path}: cannot be read again ({error or type(error).__name__})") from error


def _read_line(run: FinishedRun, file: InputFile, whole: Slice, one: Chosen) -> bytes | None:
    """The text of the one line that begins at a byte; None where lines cannot be found so."""
    config = _read_config(run)
    is_lines = file.format == "jsonl" or (file.format == "text" and config.document == "line")
    if not is_lines or file.compression != "none" or one.position < 0 or whole.stop > file.num_bytes + 1:
        return None
    part = Slice(file=whole.file, start=one.position, stop=one.position + 1, num_bytes=1)
    with closing(read_slice(file, part, config, _blocks(run))) as batches:
        for batch in batches:
            if len(batch) and int(batch.positions[0]) == one.position:
                return batch.text[batch.offsets[0] : batch.offsets[1]].tobytes()
    return None


def _read_slice(
    run: FinishedRun, file: InputFile, whole: Slice, wanted: list[Chosen]
) -> Iterator[tuple[Chosen, bytes]]:
    """Texts of some records of a slice, read from its start as far as the last of them."""
    left = {one.record: one for one in wanted}
    if not left:
        return
    with closing(read_slice(file, whole, _read_config(run), _blocks(run))) as batches:
        for batch in batches:
            for i in np.flatnonzero(np.isin(batch.records, list(left))).tolist():
                one = left.pop(int(batch.records[i]))
                yield one, batch.text[batch.offsets[i] : batch.offsets[i + 1]].tobytes()
            if not left:
                return
    raise UnreadError(f"{file.path}: gives no document for {len(left)} records that were documents")


def _read_config(run: FinishedRun) -> ReadConfig:
    """Few documents are read again: of a dataset that is not in the cache any more, no more than those."""
    read = run.plan.config.read
    return msgspec.structs.replace(read, streaming=True) if read.dataset else read


def _blocks(run: FinishedRun) -> Blocks:
    return Blocks(
        block_bytes=BLOCK_BYTES,
        max_document_bytes=run.plan.max_document_bytes,
        memory_map=False,
        read_ahead=False,
    )


class _Ids:
    """Ids of documents as the shards have them, in every format."""

    def __init__(self, run: FinishedRun, sound: Sound) -> None:
        self._run = run
        self._sound = sound
        self._view = lru_cache(maxsize=8)(self._open)
        self._shards = {shard.name: shard for _, shard in run.shards}

    def differences(self, one: Chosen, expected: list[int]) -> Iterator[str]:
        """Where a document is not what it should be."""
        key = (one.unit << 32) + one.number
        parts = list(self._parts(key, len(expected)))
        source = source_of(self._run, key)
        for name in self._run.layout.formats:
            for item, begin, start, length in parts:
                place = find_item(self._run, item)
                if (place.shard.name, name) not in self._sound:
                    continue
                ids = self._view(place.shard.name, name).ids(place.item_in_shard)
                fault = _first_difference(ids[begin : begin + length], expected[start : start + length])
                if fault is not None:
                    yield (
                        f"{self._run.folder / name}, shard {place.shard.name}, item {place.item_in_shard}: "
                        f"{source.file} record {source.record}, token {start + fault} is not the reference's"
                    )
        if source.num_tokens != len(expected):
            yield (
                f"{source.file} record {source.record}: {source.num_tokens} tokens were written, "
                f"the reference gives {len(expected)}"
            )

    def _parts(self, key: int, num_tokens: int) -> Iterator[tuple[int, int, int, int]]:
        """Items a document is in: item, place in it, place in the document, tokens."""
        if self._run.has_rows:
            yield from find_occurrences(self._run, key)
        else:
            yield self._run.unit_starts[key >> 32] + (key & 0xFFFFFFFF), 0, 0, num_tokens

    def _open(self, shard_name: str, name: OutputFormat) -> ShardView:
        return self._run.read(self._shards[shard_name], name)


def _first_difference(found: NDArray[Any], expected: list[int]) -> int | None:
    if len(found) != len(expected):
        return min(len(found), len(expected))
    wrong = np.flatnonzero(found.astype(np.int64) != np.array(expected, np.int64))
    return int(wrong[0]) if len(wrong) else None
