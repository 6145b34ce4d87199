"""What holds a run up: the stage that takes most of the time, and one sentence of advice."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MIN_SECONDS = 0.5
"""Of stages in all: less says nothing."""
STAGES: dict[str, tuple[str, str]] = {
    "wait": (
        "waiting for storage",
        "Faster or nearer storage helps most; run.read_ahead=true reads the next block while one is encoded.",
    ),
    "read": ("reading", "Faster storage, plain or zstd files, and run.read_ahead=true help."),
    "decompress": (
        "decompressing",
        "zstd decompresses several times faster than gzip, bz2 and xz; plain files not at all.",
    ),
    "parse": (
        "parsing",
        "Fewer, larger files, records with fewer fields beside the text, or Parquet are read faster.",
    ),
    "encode": ("encoding", "This is the work itself: more cores (run.workers) make it faster."),
    "count": ("counting", "This is the work itself: more cores (run.workers) make it faster."),
    "pack": ("packing", "pack.mode concat is the fastest; a smaller pack.lookahead makes best_fit faster."),
    "write": (
        "writing",
        "Fewer formats and columns, no write.compression or a faster disk help; run.write_behind=true, "
        "which preset extreme has, writes while the next block is encoded.",
    ),
}
"""Of each stage: what it is called, and what would help where it takes most of the time."""
COUNTING = {
    "write": "A faster disk helps; with a larger run.memory more is counted before it is written.",
}
"""What would help a count, which writes no shards."""


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """The stage that takes most of the time."""

    stage: str
    name: str
    """In words."""
    share: float
    """Of the time of all stages."""
    advice: str


def find_bottleneck(
    stage_s: Mapping[str, float], *, is_count: bool = False, why_not_native: str = ""
) -> Bottleneck | None:
    """The stage with the most seconds; None while too little is known. `is_count`: of a training."""
    total = sum(stage_s.values())
    if total < MIN_SECONDS:
        return None
    stage = max(stage_s, key=lambda name: (stage_s[name], name))
    name, advice = STAGES.get(stage, (stage, ""))
    if is_count:
        advice = COUNTING.get(stage, advice)
    if stage == "encode" and why_not_native:
        advice = f"The native engine, which is many times faster, is not used: {why_not_native}."
    return Bottleneck(stage=stage, name=name, share=round(stage_s[stage] / total, 3), advice=advice)
