"""The end of a run: the ledger balances, leftovers are gone, and the manifest says what there is."""

from __future__ import annotations

import msgspec

from gristmill.errors import LedgerError
from gristmill.formats import finish_run
from gristmill.ledger import add_up, check_balance
from gristmill.plan import Plan
from gristmill.records import FileRecord, Ledger, Manifest, ShardRecord, UnitRecord
from gristmill.run.folder import MANIFEST, QUARANTINE, remove_unnamed, write_json
from gristmill.run.quarantine import first_fault, merge_quarantine
from gristmill.run.work import check_bad_fraction
from gristmill.sidecars import FOLDER, find_sidecar
from gristmill.store import RunFolder
from gristmill.versions import version_of

MANIFEST_VERSION = 1


def finish(plan: Plan, store: RunFolder, records: dict[int, UnitRecord]) -> Manifest:
    """The ledger of the whole run balances, leftovers are gone, and the manifest says what there is."""
    folder = store.path
    ordered = [records[unit] for unit in sorted(records)]
    kept = (find_sidecar(record.sidecars, "quarantine") for record in ordered)
    store.fetch([file for file in kept if file is not None])
    cause = first_fault(folder, plan, ordered)
    check_bad_fraction(ordered, plan.config.run.max_bad_fraction, is_end=True, cause=cause)
    ledger = _balance(ordered)
    shards = tuple(shard for record in ordered for shard in record.shards)
    sidecars = [file for record in ordered for file in record.sidecars if not file.path.endswith(".tail")]
    of_all = [
        file
        for name in plan.layout.formats
        for file in finish_run(folder, name, shards, plan.config.write, plan.layout)
    ]
    sidecars += of_all
    named = {file.path for shard in shards for files in shard.files.values() for file in files}
    named |= {file.path for file in sidecars}
    named |= {f"{FOLDER}/{plan.unit_name(unit)}.json" for unit in records}
    merge_quarantine(folder, plan, ordered)
    manifest = _manifest(plan, ledger, shards, tuple(sidecars))
    store.put(QUARANTINE, *(file.path for file in of_all))
    remove_unnamed(store, named, plan.layout.formats)
    write_json(folder / MANIFEST, manifest)
    store.put(MANIFEST)
    return manifest


def _balance(records: list[UnitRecord]) -> Ledger:
    total = add_up(record.ledger for record in records)
    if total.tokens_carried != total.tokens_received:
        is_limited = any(record.is_limited for record in records)
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


def _manifest(
    plan: Plan, ledger: Ledger, shards: tuple[ShardRecord, ...], sidecars: tuple[FileRecord, ...]
) -> Manifest:
    layout = plan.layout
    return Manifest(
        version=MANIFEST_VERSION,
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
        shards=shards,
        sidecars=sidecars,
    )
