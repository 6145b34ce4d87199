"""Runs as Prometheus reads them: text, a line a figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gristmill.report.run_watch import STATES, RunWatch

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PASSING = ("tokens_carried", "tokens_received")
"""Of the ledger, what is nothing again when the run has ended."""
GAUGES = {
    "bytes_done": ("bytes_done", "Input gone through, as the plan counts it."),
    "bytes_total": ("bytes_planned", "Input there is, as the plan counts it."),
    "bytes_per_s": ("bytes_per_second", "Input a second, since the run was taken up."),
    "tokens_per_s": ("tokens_per_second", "Tokens a second, since the run was taken up."),
    "memory_bytes": ("memory_bytes", "Held by all processes together."),
    "memory_budget_bytes": ("memory_budget_bytes", "What all processes together may hold."),
    "num_workers": ("workers", "Workers there are."),
    "num_nodes": ("nodes", "Machines that they are on."),
    "units_done": ("units_done", "Units that are committed."),
    "units_total": ("units", "Units there are."),
    "units_failed": ("units_failed", "Units that were given up."),
    "time": ("last_event_timestamp_seconds", "When the run was last heard of."),
}
"""Of a run's last moment: name and meaning of each figure."""
Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def render_metrics(watches: Iterable[RunWatch]) -> str:
    """Every figure of every run."""
    families: dict[tuple[str, str, str], list[Sample]] = {}
    for watch in watches:
        for name, kind, meaning, labels, value in _samples(watch):
            labels = {"run": str(watch.folder), **labels}
            families.setdefault((name, kind, meaning), []).append((labels, value))
    lines = []
    for (name, kind, meaning), samples in families.items():
        lines += [f"# HELP gristmill_{name} {meaning}", f"# TYPE gristmill_{name} {kind}"]
        lines += [f"gristmill_{name}{_render_labels(labels)} {value!r}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _samples(watch: RunWatch) -> Iterator[tuple[str, str, str, Labels, float]]:
    for name, value in msgspec.structs.asdict(watch.ledger()).items():
        words = name.replace("_", " ")
        if isinstance(value, Mapping):
            for reason, number in value.items():
                yield f"{name}_total", "counter", f"Ledger: {words}.", {"reason": reason}, number
        elif name in PASSING:
            yield name, "gauge", f"Ledger: {words}.", {}, value
        else:
            yield f"{name}_total", "counter", f"Ledger: {words}.", {}, value
    for stage, seconds in watch.stage_s().items():
        yield "stage_seconds_total", "counter", "Time of all workers by stage.", {"stage": stage}, seconds
    yield "workers_lost_total", "counter", "Workers that ended early.", {}, watch.history.num_retries
    last = watch.history.last
    for field, (name, meaning) in GAUGES.items() if last is not None else ():
        yield name, "gauge", meaning, {}, getattr(last, field)
    state = watch.state()
    for other in STATES:
        yield "state", "gauge", "1 for the state the run is in.", {"state": other}, int(state == other)


def _render_labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
