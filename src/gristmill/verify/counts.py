"""The ledger balances, for each unit and for the run, and its counts are those of shards and sidecars."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from gristmill.errors import LedgerError
from gristmill.finished import FinishedRun, num_items
from gristmill.ledger import add_up, check_balance
from gristmill.measure import RowCosts, bucketed, row_costs, trimmed
from gristmill.records import Ledger, Measured, UnitRecord
from gristmill.run.settle import differences
from gristmill.verify.findings import Findings


def check_ledgers(run: FinishedRun) -> Findings:
    """Add everything up again."""
    faults: list[str] = []
    for unit, record in sorted(run.records.items()):
        what = f"unit {unit}"
        faults += _unbalanced(record.ledger, what)
        faults += [f"{what}: {fault}" for fault in _check_unit(run, record)]
    total = _total(run)
    faults += _unbalanced(run.manifest.ledger, "manifest.json")
    changes = differences(msgspec.to_builtins(total), msgspec.to_builtins(run.manifest.ledger))
    faults += [f"manifest.json: the ledger is not the sum of the units': {change}" for change in changes]
    return Findings(f"ledgers of {len(run.records):,} units and of the run", faults)


def _unbalanced(ledger: Ledger, what: str) -> list[str]:
    try:
        check_balance(ledger, what=what)
    except LedgerError as error:
        return [str(error)]
    return []


def _total(run: FinishedRun) -> Ledger:
    """The units' ledgers, what they passed on among themselves left out."""
    total = add_up(record.ledger for record in run.records.values())
    lost = total.tokens_carried - total.tokens_received
    if lost and any(record.is_limited for record in run.records.values()):
        dropped = total.tokens_dropped | {"limit": total.tokens_dropped.get("limit", 0) + lost}
        total = msgspec.structs.replace(total, tokens_dropped=dropped)
    return msgspec.structs.replace(total, tokens_carried=0, tokens_received=0)


def _check_unit(run: FinishedRun, record: UnitRecord) -> Iterator[str]:
    """What the ledger says, as shards and sidecars have it."""
    ledger = record.ledger
    documents = run.documents(record.unit)
    found = {
        "rows": (ledger.rows, sum(map(num_items, record.shards)), "its shards"),
        "tokens written": (
            ledger.tokens_written + ledger.tokens_repeated,
            sum(shard.num_tokens for shard in record.shards),
            "its shards",
        ),
        "padding": (ledger.padding, sum(shard.num_padding for shard in record.shards), "its shards"),
        "documents encoded": (ledger.documents_encoded, len(documents), "its table of documents"),
        "tokens encoded": (
            ledger.tokens_encoded,
            int(documents["num_tokens"].sum(dtype=np.int64)),
            "its table of documents",
        ),
    }
    for what, (said, there, where) in found.items():
        if said != there:
            yield f"its ledger says {said} {what}, {where} {there}"
    length = run.layout.sequence_length
    cells = ledger.rows * (length or 0)
    if length and cells != ledger.tokens_written + ledger.tokens_repeated + ledger.padding:
        yield f"{ledger.rows} rows of {length} are not its tokens and padding together"
    yield from _check_slices(run, record)
    if record.measured != Measured():  # an earlier version measured nothing
        yield from _check_measured(run, record)


def _check_measured(run: FinishedRun, record: UnitRecord) -> Iterator[str]:
    """What the record says of the lengths of documents, as the table of documents and the ledger have it."""
    documents, measured, ledger = run.documents(record.unit), record.measured, record.ledger
    num_tokens = documents["num_tokens"].astype(np.int64)
    length = run.plan.config.pack.sequence_length
    costs = RowCosts(measured.full_rows, measured.documents_over, measured.tokens_over)
    said = {
        "tokens by length": measured.document_tokens == trimmed(bucketed(num_tokens)),
        "bytes by length": sum(measured.document_bytes) == ledger.documents_encoded,
        "bytes by slice": sum(measured.slice_bytes) == ledger.bytes_encoded,
        "tokens by slice": sum(measured.slice_tokens) == ledger.tokens_encoded,
        "rows": costs == row_costs(num_tokens, length),
    }
    for what, is_so in said.items():
        if not is_so:
            yield f"it has measured other {what} than its documents have"


def _check_slices(run: FinishedRun, record: UnitRecord) -> Iterator[str]:
    """Documents lie in the slices of the unit, in order, and each slice has as many records as they need."""
    documents = run.documents(record.unit)
    slices, numbers = documents["slice"].astype(np.int64), documents["record"].astype(np.int64)
    num_slices = len(record.slice_records)
    steps, further = np.diff(slices), np.diff(numbers)
    if len(slices) and (slices.min() < 0 or slices.max() >= num_slices or numbers.min() < 0):
        yield "its table of documents names slices that it does not have"
    elif np.any(steps < 0) or np.any(further[steps == 0] <= 0):
        yield "its table of documents is not in the order of the input"
    elif np.any(numbers >= np.array([*record.slice_records, 0], np.int64)[slices]):
        yield "its table of documents has records past the end of their slice"
    if sum(record.slice_records) < record.ledger.documents_read:
        yield f"its slices have {sum(record.slice_records)} records, {record.ledger.documents_read} documents"
