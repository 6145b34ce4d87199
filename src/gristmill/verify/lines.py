"""What the checks found, a line each."""

from __future__ import annotations

from gristmill.report.words import printable
from gristmill.verify import Check, Verification

MAX_FAULTS = 20
"""Shown of one check."""
REMEDY = "remove the files named and give the command that made them again, or the same with --force"


def render_verification(found: Verification) -> str:
    """A line a check, and under it what is wrong."""
    lines = [line for check in found.checks for line in _render_check(check)]
    num_faults = sum(len(check.faults) for check in found.checks)
    if not found.is_sound:
        verdict = f"is DAMAGED: {num_faults:,} fault{'s' if num_faults > 1 else ''}\n{REMEDY}"
    elif not found.is_complete:
        verdict = "is what it says it is, as far as it could be checked"
    else:
        verdict = "is what it says it is"
    return "\n".join([*lines, f"{found.folder} {verdict}"])


def _render_check(check: Check) -> list[str]:
    lines = [f"{_state(check):<6} {check.name:<8} {check.what}"]
    lines += [f"       {printable(fault)}" for fault in check.faults[:MAX_FAULTS]]
    if len(check.faults) > MAX_FAULTS:
        lines.append(f"       and {len(check.faults) - MAX_FAULTS:,} more")
    if not check.faults:
        lines += [f"       not checked: {printable(why)}" for why in check.not_checked[:MAX_FAULTS]]
    return lines


def _state(check: Check) -> str:
    if check.faults:
        return "FAULT"
    if check.not_checked:
        return "partly" if check.is_looked_at else "-"
    return "ok"
