"""What a check gives back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Findings:
    """What was looked at, and what is wrong with it."""

    what: str
    faults: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    is_looked_at: bool = True
    """At least in part."""
