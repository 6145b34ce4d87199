"""A benchmark's report as a table, as JSON and as a bar chart."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gristmill.bench import BenchReport, Measurement, baseline, median_s
from gristmill.errors import ConfigError, MissingPackageError
from gristmill.files import check_writable, write_whole

HEADER = ("Method", "Time", "Docs/s", "Tokens/s", "MB/s", "Speedup")
PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def title(measurement: Measurement) -> str:
    """Name a measurement as people read it."""
    threads = "1 thread" if measurement.threads == 1 else f"{measurement.threads} threads"
    return f"{measurement.method}, {threads}"


def render_table(report: BenchReport) -> str:
    """Return the table, what it was measured on, and why methods are missing from it."""
    base = baseline(report)
    is_repeated = any(m.repeated_s for m in report.measurements)
    header = (*HEADER, "MB/s repeated") if is_repeated else HEADER
    shown = [m for m in report.measurements if m.status != "absent"]
    rows = [_row(report, m, base, is_repeated=is_repeated) for m in shown]
    lines = [
        f"{report.num_docs:,} documents, {report.num_bytes / 1e6:.2f} MB, {report.num_tokens:,} tokens; "
        f"tokenizer {report.tokenizer}; {report.num_cores} cores, {report.machine}",
        f"one pass, median of {max((len(m.once_s) for m in shown), default=0)} fresh processes; "
        f"ids equal to: {report.reference}",
        "",
        *align([header, *rows]),
        "",
    ]
    if base is not None:
        lines.append(f"Speedup is against: {title(base)}.")
    reasons = {m.method: f"{m.status}: {m.reason}" for m in report.measurements if m.status != "ok"}
    lines += [f"{method}: {reason}" for method, reason in reasons.items()]
    return "\n".join(lines)


def _row(
    report: BenchReport, measurement: Measurement, base: Measurement | None, *, is_repeated: bool
) -> tuple[str, ...]:
    if measurement.status != "ok":
        return (title(measurement), measurement.status.upper(), *("-",) * (5 if is_repeated else 4))
    once_s = median_s(measurement.once_s)
    cells = (
        title(measurement),
        f"{once_s:.3f} s" if once_s >= 1 else f"{once_s * 1e3:.2f} ms",
        f"{report.num_docs / once_s:,.0f}",
        f"{report.num_tokens / once_s:,.0f}",
        f"{report.num_bytes / once_s / 1e6:.2f}",
        f"{median_s(base.once_s) / once_s:.1f}x" if base else "-",
    )
    if not is_repeated:
        return cells
    return (*cells, f"{report.num_bytes / median_s(measurement.repeated_s) / 1e6:.2f}")


def align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Line up columns: the first to the left, the others to the right, with a rule under the header."""
    first, *rest = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    widths = [-first, *rest]
    lines = [
        "  ".join(f"{c:{'<' if w < 0 else '>'}{abs(w)}}" for c, w in zip(row, widths, strict=True))
        for row in rows
    ]
    return [
        lines[0].rstrip(),
        "  ".join("-" * abs(w) for w in widths),
        *(line.rstrip() for line in lines[1:]),
    ]


def render_json(report: BenchReport) -> bytes:
    """Return all raw times."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def write_plot(report: BenchReport, path: Path) -> None:
    """Draw one bar a method, longest first."""
    check_plot_path(path)
    from matplotlib.figure import Figure

    timed = [m for m in report.measurements if m.once_s]
    measured = sorted((report.num_bytes / median_s(m.once_s) / 1e6, title(m)) for m in timed)
    figure = Figure(figsize=(9, 1 + 0.4 * len(measured)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([name for _, name in measured], [rate for rate, _ in measured])
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.set_xlabel("MB/s, one pass")
    axes.margins(x=0.1)
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix[1:])
    write_whole(path, image.getvalue())


def check_plot_path(path: Path) -> None:
    """Refuse a chart that could not be written, before hours are spent on measuring."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("--plot needs matplotlib: pip install 'gristmill[plot]'") from error
    if path.suffix not in PLOT_SUFFIXES:
        raise ConfigError(f"--plot {path}: name a file that ends in {', '.join(PLOT_SUFFIXES)}")
    check_writable(path)
