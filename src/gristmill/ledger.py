"""The ledger: adds up what went in and what came out, and refuses what does not balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from gristmill.errors import LedgerError
from gristmill.records import Ledger

LEFT_OUT = ("limit", "not sampled", "held out")
"""Reasons for which sound documents are not encoded or counted."""


def count_bad(ledger: Ledger) -> int:
    """Documents that were dropped for what they are."""
    return sum(number for reason, number in ledger.documents_dropped.items() if reason not in LEFT_OUT)


def add_up(ledgers: Iterable[Ledger]) -> Ledger:
    """The sum, field by field and reason by reason."""
    totals: Counter[str] = Counter()
    by_reason: dict[str, Counter[str]] = {}
    for ledger in ledgers:
        for name, value in msgspec.structs.asdict(ledger).items():
            if isinstance(value, Mapping):
                by_reason.setdefault(name, Counter()).update(value)
            else:
                totals[name] += value
    sorted_reasons = {name: dict(sorted(counts.items())) for name, counts in by_reason.items()}
    return msgspec.convert({**totals, **sorted_reasons}, Ledger)


def check_balance(ledger: Ledger, *, what: str) -> None:
    """Documents in are documents out or dropped, tokens likewise; else nothing may be committed."""
    documents = ledger.documents_encoded + sum(ledger.documents_dropped.values())
    if documents != ledger.documents_read:
        raise LedgerError(
            f"{what}: {ledger.documents_read} documents were read, "
            f"but {ledger.documents_encoded} encoded and {documents - ledger.documents_encoded} dropped"
        )
    came = ledger.tokens_encoded + ledger.tokens_received
    dropped = sum(ledger.tokens_dropped.values())
    went = ledger.tokens_written + ledger.tokens_carried + dropped
    if came != went:
        raise LedgerError(
            f"{what}: {came} tokens came in, but {ledger.tokens_written} were written, "
            f"{ledger.tokens_carried} carried and {dropped} dropped"
        )
