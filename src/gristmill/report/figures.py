"""Figures of a run as the page shows them: plain values, each from one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from gristmill.errors import LedgerError
from gristmill.ledger import LEFT_OUT, check_balance
from gristmill.plan import CountPlan, Plan
from gristmill.records import Ledger
from gristmill.report.history import Event
from gristmill.sidecars import Quarantined

DEFAULT_ROW = 2048
MAX_WHY = 1000
"""Characters of an error that are shown."""


def describe_plan(plan: Plan | CountPlan) -> dict[str, Any]:
    """What the run is to do."""
    facts: dict[str, Any] = {
        "job": "tokenize" if isinstance(plan, Plan) else "count",
        "num_files": len(plan.files),
        "num_units": len(plan.units),
        "num_bytes": plan.num_bytes,
        "max_document_bytes": plan.max_document_bytes,
        "kinds": sorted({f"{file.format} {file.compression}".removesuffix(" none") for file in plan.files}),
    }
    if isinstance(plan, CountPlan):
        pattern = plan.identity.get("count.pattern")
        return facts | {"pattern": pattern, "vocab_size": plan.config.learn.vocab_size}
    layout = msgspec.to_builtins(plan.layout)
    names = ("tokenizer", "fingerprint", "vocab_size", "mode", "sequence_length", "formats", "dtype")
    facts |= {name: layout[name] for name in (*names, "bos_id", "eos_id", "pad_id")}
    return facts | {"row_length": plan.config.pack.sequence_length}


def balance(ledger: Ledger) -> dict[str, Any]:
    """Both sides of the ledger, and whether they are equal."""
    try:
        check_balance(ledger, what="the run")
        why = ""
    except LedgerError as error:
        why = str(error)
    return {
        "documents": {
            "in": {"read": ledger.documents_read},
            "out": {"encoded": ledger.documents_encoded, **_dropped(ledger.documents_dropped)},
        },
        "tokens": {
            "in": {"encoded": ledger.tokens_encoded, "received": ledger.tokens_received},
            "out": {
                "written": ledger.tokens_written,
                "carried": ledger.tokens_carried,
                **_dropped(ledger.tokens_dropped),
            },
        },
        "is_balanced": not why,
        "why_not": why,
    }


def _dropped(counts: Mapping[str, int]) -> dict[str, int]:
    return {
        f"{'left out' if reason in LEFT_OUT else 'dropped'}: {reason}": count
        for reason, count in counts.items()
    }


def left_out(ledger: Ledger) -> dict[str, int]:
    """Sound documents that were not to be encoded or counted, by reason."""
    return {reason: count for reason, count in ledger.documents_dropped.items() if reason in LEFT_OUT}


def bad(ledger: Ledger) -> dict[str, int]:
    """Bad documents and files, by reason."""
    documents = {r: count for r, count in ledger.documents_dropped.items() if r not in LEFT_OUT}
    return dict(Counter(documents) + Counter(ledger.bad_files))


def source_figures(sources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rates and tokens a byte of each source."""
    return [
        source
        | {
            "bytes_per_worker_s": _ratio(source["text_bytes"], source["seconds"]),
            "tokens_per_byte": _ratio(source["tokens"], source["text_bytes"]),
        }
        for source in sources
    ]


def script_figures(scripts: Mapping[str, list[int]]) -> list[dict[str, Any]]:
    """Tokens a byte of each script in the sample, the commonest first."""
    ordered = sorted(scripts.items(), key=lambda item: (-item[1][1], item[0]))
    return [
        {
            "name": name,
            "documents": documents,
            "text_bytes": text_bytes,
            "tokens": tokens,
            "tokens_per_byte": _ratio(tokens, text_bytes),
        }
        for name, (documents, text_bytes, tokens) in ordered
    ]


def lengths_of(lengths: Mapping[str, list[int]]) -> dict[str, list[list[int]]]:
    """Of each histogram: where each bucket begins, and how many documents are in it."""
    return {
        name: [[1 << bucket >> 1, count] for bucket, count in enumerate(counts)]
        for name, counts in lengths.items()
    }


def modes_of(plan: Mapping[str, Any], ledger: Ledger, packing: Mapping[str, int]) -> list[dict[str, Any]]:
    """What each way of packing costs: exact for the run's own, and for the others what follows from the
    lengths of its documents alone."""
    length = plan.get("row_length") or DEFAULT_ROW
    tokens = ledger.tokens_encoded
    if plan.get("job") != "tokenize" or not tokens or not packing.get("full_rows"):
        return []
    full_rows = packing["full_rows"]
    rest = full_rows * length - tokens
    cuts = full_rows - ledger.documents_encoded
    rows = -(-tokens // length)
    found: dict[str, dict[str, Any]] = {
        "concat": _mode("concat", rows, rows * length - tokens, rows - 1, 0, length, "at most"),
        "best_fit": _mode("best_fit", None, None, max(cuts, 0), 0, length, "at least"),
        "pad": _mode("pad", full_rows, rest, max(cuts, 0), 0, length, ""),
        "cut off": _mode(
            "cut off",
            ledger.documents_encoded,
            ledger.documents_encoded * length - tokens + packing.get("tokens_over", 0),
            packing.get("documents_over", 0),
            packing.get("tokens_over", 0),
            length,
            "",
        ),
    }
    own = plan.get("mode")
    if own in found:
        lost = sum(ledger.tokens_dropped.values())
        found[own] = _mode(own, ledger.rows, ledger.padding, ledger.documents_cut, lost, length, "")
        found[own]["is_own"] = True
    return list(found.values())


def _mode(
    name: str, rows: int | None, padding: int | None, cuts: int, lost: int, length: int, bound: str
) -> dict[str, Any]:
    share = None if rows is None or padding is None else _ratio(padding, rows * length)
    return {
        "name": name,
        "rows": rows,
        "padding_share": share,
        "documents_cut": cuts,
        "bound": bound,
        "tokens_lost": lost,
        "is_own": False,
    }


def sample_of(entry: Quarantined) -> dict[str, Any]:
    """A bad record or file, with where it is."""
    if entry.is_file:
        place = "the file"
    elif entry.offset is not None and entry.offset >= 0:
        place = f"byte {entry.offset:,}"
    else:
        place = f"record {entry.record:,} of its part"
    return {
        "file": entry.file,
        "place": place,
        "reason": entry.reason,
        "detail": entry.detail,
        "excerpt": entry.excerpt,
    }


def problem(event: Event) -> dict[str, Any]:
    """A retry or a unit that was given up."""
    return {
        "time": event.time,
        "event": "worker lost" if event.event == "retry" else event.event,
        "unit": event.unit,
        "worker": event.worker,
        "why": event.why[:MAX_WHY],
    }


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None
