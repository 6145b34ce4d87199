"""Documents begin and end in the shards where the sidecars say: lengths, BOS and EOS, segments, padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.config import OutputFormat
from gristmill.finished import FinishedRun, num_items, rows_of
from gristmill.formats.protocol import ItemBlock
from gristmill.layout import Layout
from gristmill.pack.columns import cu_seqlens
from gristmill.pack.rows import offsets_of
from gristmill.records import ShardRecord
from gristmill.sidecars import SEGMENT
from gristmill.verify.findings import Findings
from gristmill.verify.shards import Sound, left_out

NUMBER_MASK = 0xFFFFFFFF


def check_borders(run: FinishedRun, sound: Sound, on_step: Callable[[str], None]) -> Findings:
    """Compare every sound shard with the tables of documents and segments."""
    faults: list[str] = []
    tails = _tails(run)
    for unit in sorted(run.records):
        on_step(f"borders: unit {unit:,} of {len(run.records):,}")
        if run.has_rows:
            found = list(_check_segments(run, unit))
            faults += found or [*_check_coverage(run, unit, tails), *_check_unit(run, unit, sound)]
        else:
            faults += _check_unit(run, unit, sound)
    what = "segments of rows" if run.has_rows else "documents"
    return Findings(
        f"{what} in the shards, as the sidecars have them",
        faults,
        not_checked=left_out(run, sound),
        is_looked_at=bool(sound) or not run.shards,
    )


def largest_id(layout: Layout) -> int:
    """That a shard may hold."""
    ends = (layout.bos_id, layout.eos_id, layout.pad_id)
    return max(layout.vocab_size - 1, *(id_ for id_ in (*ends, 0) if id_ is not None))


def _check_unit(run: FinishedRun, unit: int, sound: Sound) -> Iterator[str]:
    """All shards of a unit, in each format."""
    tables = _Tables(run, unit)
    first = 0
    for shard in run.records[unit].shards:
        for name in run.layout.formats:
            if (shard.name, name) in sound:
                yield from _check_shard(run, shard, name, tables, first)
        first += num_items(shard)


class _Tables:
    """The sidecars of a unit, with where the segments of each row begin."""

    def __init__(self, run: FinishedRun, unit: int) -> None:
        self.lengths = run.documents(unit)["num_tokens"].astype(np.int64)
        self.segments = run.segments(unit)
        num_rows = run.records[unit].ledger.rows if run.has_rows else 0
        self.bounds = np.searchsorted(self.segments["row"], np.arange(num_rows + 1))


def _check_shard(
    run: FinishedRun, shard: ShardRecord, name: OutputFormat, tables: _Tables, first: int
) -> Iterator[str]:
    where = f"{run.folder / name}, shard {shard.name}"
    for block in run.read(shard, name).blocks():
        last = first + len(block.offsets) - 1
        limit = largest_id(run.layout)
        if len(block.ids) and int(block.ids.max()) > limit:
            yield f"{where}: holds id {int(block.ids.max())}, the largest of the run is {limit}"
        if run.has_rows:
            faults = _check_rows(run, block, tables, first, last)
        else:
            faults = _check_documents(run.layout, block, tables.lengths[first:last])
        yield from (f"{where}, items {first}..{last - 1} of the unit: {fault}" for fault in faults)
        first = last


def _check_documents(layout: Layout, block: ItemBlock, lengths: NDArray[np.int64]) -> Iterator[str]:
    if not np.array_equal(np.diff(block.offsets), lengths):
        yield "lengths of documents differ from the table of documents"
        return
    yield from _check_ends(layout, block.ids, block.offsets[:-1], block.offsets[1:] - 1)


def _check_ends(layout: Layout, ids: NDArray[Any], firsts: Any, lasts: Any) -> Iterator[str]:
    """BOS at the places where documents begin, EOS where they end."""
    for name, id_, places in (("BOS", layout.bos_id, firsts), ("EOS", layout.eos_id, lasts)):
        if id_ is None:
            continue
        wrong = np.flatnonzero(ids[places] != id_)
        if len(wrong):
            yield f"{len(wrong)} documents lack {name} ({id_}), the first at token {int(places[wrong[0]])}"


def _check_rows(run: FinishedRun, block: ItemBlock, tables: _Tables, first: int, last: int) -> Iterator[str]:
    layout, length = run.layout, run.layout.sequence_length
    assert length is not None
    segments = tables.segments[tables.bounds[first] : tables.bounds[last]]
    rows = rows_of(block.ids.reshape(-1, length), segments, first)
    borders, bounds = cu_seqlens(rows)
    if block.borders is not None and not (
        np.array_equal(block.borders[0], borders) and np.array_equal(block.borders[1], bounds)
    ):
        yield "cu_seqlens differ from the table of segments"
        return
    row_of = np.repeat(np.arange(last - first), np.diff(rows.row_offsets))
    stops = np.delete(borders, bounds[:-1]) + row_of * length
    begins = stops - rows.lengths
    is_end = rows.starts + rows.lengths == _document_lengths(run, rows.documents)
    yield from _check_ends(layout, block.ids, begins[rows.starts == 0], stops[is_end] - 1)
    used = borders[bounds[1:] - 1]
    is_padding = np.arange(length) >= used[:, None]
    if np.any(rows.ids[is_padding] != layout.pad_id):
        yield f"padding holds other ids than {layout.pad_id}"


def _document_lengths(run: FinishedRun, keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens of documents, which may be of several units in the rows of the tails."""
    lengths = np.zeros(len(keys), np.int64)
    units = keys >> 32
    for unit in np.unique(units).tolist():
        of_unit = units == unit
        lengths[of_unit] = run.documents(unit)["num_tokens"][keys[of_unit] & NUMBER_MASK]
    return lengths


def _check_segments(run: FinishedRun, unit: int) -> Iterator[str]:
    """The table of segments alone: rows in order, each with segments that fit, of documents that exist."""
    table, num_rows = run.segments(unit), run.records[unit].ledger.rows
    rows, lengths, keys = (table[name].astype(np.int64) for name in ("row", "length", "document"))
    where = f"unit {unit}, table of segments"
    if len(table) == 0:
        yield from [f"{where}: is empty, the unit has {num_rows} rows"] if num_rows else []
        return
    steps = np.diff(rows)
    if rows[0] != 0 or rows[-1] != num_rows - 1 or np.any((steps < 0) | (steps > 1)):
        yield f"{where}: its rows are not 0..{num_rows - 1} in order"
        return
    bounds = np.searchsorted(rows, np.arange(num_rows + 1))
    sums = np.diff(offsets_of(lengths)[bounds])
    if np.any(lengths <= 0) or np.any(sums > run.layout.sequence_length):
        at = int(np.argmax(sums))
        yield f"{where}: row {at} has segments of {int(sums[at])} tokens in all, or one without any"
    num_tokens = sum(shard.num_tokens for shard in run.records[unit].shards)
    if lengths.sum() != num_tokens:
        yield f"{where}: has {int(lengths.sum())} tokens, the shards {num_tokens}"
    is_tails = unit == len(run.plan.units)
    for owner in np.unique(keys >> 32).tolist():
        if owner not in run.records or (owner != unit and not is_tails) or owner == len(run.plan.units):
            yield f"{where}: names documents of unit {owner}"
        elif (numbers := keys[keys >> 32 == owner] & NUMBER_MASK).max() >= len(run.documents(owner)):
            yield f"{where}: names document {int(numbers.max())} of unit {owner}, which is not there"


def _tails(run: FinishedRun) -> NDArray[Any]:
    """Segments that were packed at the end of the run, by document."""
    table = np.array(run.segments(len(run.plan.units)))
    return table[np.argsort(table["document"], kind="stable")]


def _check_coverage(run: FinishedRun, unit: int, tails: NDArray[Any]) -> Iterator[str]:
    """Every token of every document is in a row, once; more often by overlap alone, not at all where the
    ledger says that tokens were dropped."""
    if unit == len(run.plan.units):
        return
    low, high = np.searchsorted(tails["document"], [unit << 32, (unit + 1) << 32])
    table = np.concatenate([np.array(run.segments(unit), SEGMENT), tails[low:high]])
    table = table[np.lexsort((table["start"], table["document"]))]
    numbers, starts = table["document"] & NUMBER_MASK, table["start"]
    stops = starts + table["length"]
    num_tokens = run.documents(unit)["num_tokens"].astype(np.int64)
    if np.any(numbers >= len(num_tokens)):
        yield f"unit {unit}: a segment names document {int(numbers.max())}, which is not there"
        return
    is_first = np.diff(numbers, prepend=-1) != 0
    is_last = np.diff(numbers, append=-1) != 0
    reached = np.where(is_first, 0, np.concatenate([[0], stops[:-1]]))
    has_gap = np.any(starts > reached) or np.any(stops[is_last] != num_tokens[numbers[is_last]])
    has_gap = has_gap or np.count_nonzero(is_first) != np.count_nonzero(num_tokens)
    if has_gap and not run.manifest.ledger.tokens_dropped:
        yield f"unit {unit}: tokens of a document are in no row, and the ledger has none dropped"
    if np.any(starts < 0) or np.any(stops > num_tokens[numbers]):
        yield f"unit {unit}: a segment goes past the end of its document"
    if not run.plan.config.pack.overlap and np.any(starts < reached):
        yield f"unit {unit}: tokens of a document are in two rows, without pack.overlap"
