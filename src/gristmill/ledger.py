"""The ledger: adds up what went in and what came out, and refuses what does not balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from gristmill.errors import LedgerError
from gristmill.records import Ledger

BY_REASON = tuple(name for name, value in msgspec.structs.asdict(Ledger()).items() if isinstance(value, dict))
COUNTS = tuple(name for name in Ledger.__struct_fields__ if name not in BY_REASON)


class LedgerSum:
    """Ledgers added up one by one, field by field and reason by reason."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(COUNTS, 0)
        self._by_reason: dict[str, Counter[str]] = {name: Counter() for name in BY_REASON}

    def add(self, ledger: Ledger) -> None:
        """Take in one more."""
        for name in COUNTS:
            self._counts[name] += getattr(ledger, name)
        for name in BY_REASON:
            if reasons := getattr(ledger, name):
                self._by_reason[name].update(reasons)

    def total(self) -> Ledger:
        """The sum so far."""
        sorted_reasons = {name: dict(sorted(counts.items())) for name, counts in self._by_reason.items()}
        return msgspec.convert({**self._counts, **sorted_reasons}, Ledger)


def add_up(ledgers: Iterable[Ledger]) -> Ledger:
    """The sum, field by field and reason by reason."""
    total = LedgerSum()
    for ledger in ledgers:
        total.add(ledger)
    return total.total()


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
