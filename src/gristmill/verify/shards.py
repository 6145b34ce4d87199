"""Every shard is whole in the eyes of its format."""

from __future__ import annotations

from collections.abc import Callable

from gristmill.config import OutputFormat
from gristmill.finished import FinishedRun
from gristmill.formats import check_shard
from gristmill.report.words import plural
from gristmill.verify.findings import Findings
from gristmill.verify.hashes import fetch_faults


class Sound(set[tuple[str, OutputFormat]]):
    """Shards, by name and format, whose structure was found sound: these can be read without care."""


def left_out(run: FinishedRun, sound: Sound) -> list[str]:
    """Shards that nothing can be compared with, in as many words."""
    number = sum((shard.name, name) not in sound for _, shard in run.shards for name in run.layout.formats)
    return [f"{plural(number, 'shard')} in which something is wrong"] if number else []


def check_shards(run: FinishedRun, sound: Sound, on_step: Callable[[str], None]) -> Findings:
    """Check the structure of every shard in every format; those without a fault are added to `sound`."""
    faults = []
    for number, (_, shard) in enumerate(run.shards):
        on_step(f"shards: {number:,} of {len(run.shards):,}")
        for name in run.layout.formats:
            found = fetch_faults(run, shard.files.get(name, []))
            found = found or check_shard(run.folder, shard, name, run.layout)
            faults += found
            if not found:
                sound.add((shard.name, name))
    formats = ", ".join(run.layout.formats)
    return Findings(f"structure and dtype of {len(run.shards):,} shards as {formats}", faults)
