"""The end of a run: the ledger balances, leftovers are gone, and the manifest says what there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from gristmill.errors import LedgerError, RunError
from gristmill.formats import finish_run
from gristmill.ledger import LedgerSum, check_balance
from gristmill.plan import Plan
from gristmill.records import VERSION, Ledger, Manifest, UnitRecord
from gristmill.run.done import DoneUnits
from gristmill.run.folder import MANIFEST, QUARANTINE, each_record, remove_unnamed
from gristmill.run.manifest import ManifestDraft
from gristmill.run.quarantine import QuarantineDraft
from gristmill.run.work import check_bad_fraction
from gristmill.sidecars import FOLDER, find_sidecar
from gristmill.store import RunFolder
from gristmill.versions import version_of

RECORDS_AT_ONCE = 256
"""Whose quarantine is fetched together from a store."""


def finish(plan: Plan, store: RunFolder, done: DoneUnits) -> Manifest:
    """The ledger of the whole run balances, leftovers are gone, and the manifest says what there is."""
    draft = ManifestDraft(store.path)
    try:
        total = LedgerSum()
        quarantine = QuarantineDraft(store.path, plan, _take(plan, store, done, draft, total))
        try:
            return _finish(plan, store, done, draft, total.total(), quarantine)
        finally:
            quarantine.discard()
    finally:
        draft.discard()


def _finish(
    plan: Plan,
    store: RunFolder,
    done: DoneUnits,
    draft: ManifestDraft,
    total: Ledger,
    quarantine: QuarantineDraft,
) -> Manifest:
    cause = quarantine.first_fault
    check_bad_fraction(total, plan.config.run.max_bad_fraction, cause=cause)
    ledger = _balance(total, is_limited=done.is_limited)
    draft.flush()
    of_all = [
        file
        for name in plan.layout.formats
        for file in finish_run(store.path, name, draft.shards, plan.config.write, plan.layout)
    ]
    draft.add_sidecars(of_all)
    quarantine.commit()
    store.put(QUARANTINE, *(file.path for file in of_all))
    draft.names.add(f"{FOLDER}/{plan.unit_name(unit)}.json" for unit in done)
    remove_unnamed(store, draft.names, plan.layout.formats)
    manifest = draft.write(_manifest(plan, ledger), is_kept=not store.is_remote)
    store.put(MANIFEST)
    return manifest


def _take(
    plan: Plan, store: RunFolder, done: DoneUnits, draft: ManifestDraft, total: LedgerSum
) -> Iterator[UnitRecord]:
    """The records of a run, each noted on the way, with their quarantine at hand."""
    num_read = 0
    records = each_record(store.path, plan, done)
    while some := list(islice(records, RECORDS_AT_ONCE)):
        kept = (find_sidecar(record.sidecars, "quarantine") for record in some)
        store.fetch([file for file in kept if file is not None])
        for record in some:
            draft.add(record)
            total.add(record.ledger)
        num_read += len(some)
        yield from some
    if num_read != len(done):
        num_gone = len(done) - num_read
        raise RunError(f"{store}: {num_gone} records of units are gone; run the same command again")


def _balance(total: Ledger, *, is_limited: bool) -> Ledger:
    if total.tokens_carried != total.tokens_received:
        if not is_limited:
            raise LedgerError(
                f"units carried {total.tokens_carried} tokens over, "
                f"but {total.tokens_received} were packed at the end"
            )
        dropped = total.tokens_dropped | {
            "limit": total.tokens_dropped.get("limit", 0) + total.tokens_carried - total.tokens_received
        }
        total = msgspec.structs.replace(total, tokens_dropped=dropped)
    total = msgspec.structs.replace(total, tokens_carried=0, tokens_received=0)
    check_balance(total, what="the run")
    return total


def _manifest(plan: Plan, ledger: Ledger) -> Manifest:
    """What comes before the shards."""
    layout = plan.layout
    return Manifest(
        version=VERSION,
        gristmill=version_of("gristmill") or "",
        tokenizer=layout.tokenizer,
        fingerprint=layout.fingerprint,
        vocab_size=layout.vocab_size,
        dtype=layout.dtype,
        formats=layout.formats,
        mode=layout.mode,
        sequence_length=layout.sequence_length,
        eos_id=layout.eos_id,
        bos_id=layout.bos_id,
        pad_id=layout.pad_id,
        mask_first_token=layout.mask_first_token,
        ledger=ledger,
        shards=(),
        sidecars=(),
    )
