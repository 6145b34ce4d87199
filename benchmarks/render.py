"""Writes README's speed tables from the raw results; with --check, only says whether README is up to date.

python benchmarks/render.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

import run_report
from gristmill.bench import BenchReport, Measurement, median_s
from gristmill.files import write_whole

ROOT = Path(__file__).parents[1]
START, END = "<!-- bench:start -->", "<!-- bench:end -->"
RIVALS = ("gigatoken", "tiktoken", "sentencepiece", "tokenizers batch 1000")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    readme = ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    new = put_between_markers(old, render(load_reports(arguments.results)))
    if run_report.START in new and run_report.END_TO_END.exists():
        table = run_report.render_run(run_report.load_run_report())
        new = put_between_markers(new, table, start=run_report.START, end=run_report.END)
    if arguments.check:
        print("README is up to date" if new == old else "README differs: run benchmarks/render.py")
        return int(new != old)
    write_whole(readme, new.encode())
    return 0


def load_reports(folder: Path) -> list[tuple[str, BenchReport]]:
    """Read (text, report) pairs, in the order of their file names."""
    return [
        (path.stem.rpartition(".")[2], msgspec.json.decode(path.read_bytes(), type=BenchReport))
        for path in sorted(folder.glob("*.*.json"))  # TOKENIZER.TEXT.json; other benchmarks lie beside them
    ]


def put_between_markers(readme: str, table: str, *, start: str = START, end: str = END) -> str:
    """Replace what stands between the markers."""
    before, _, rest = readme.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n{table}\n{end}{after}"


def render(reports: list[tuple[str, BenchReport]]) -> str:
    """One line a tokenizer and text: MB/s of one pass on one thread, and of repeated text after a slash."""
    if not reports:
        return "Not measured yet."
    header = ["tokenizer", "text", "MB", "gristmill", *RIVALS, "against the fastest", "2 threads"]
    rows = [_row(text, report) for text, report in reports]
    filled = [column for column in range(len(header)) if any(row[column] for row in rows)]
    header, *rows = [[row[column] for column in filled] for row in [header, *rows]]
    lines = ["| " + " | ".join(header) + " |", "|---|---|" + "---:|" * (len(header) - 2)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    machines = sorted({f"{r.machine}, {r.num_cores} cores, Python {r.python}" for _, r in reports})
    rounds = sorted({len(m.once_s) for _, r in reports for m in r.measurements if m.once_s})
    note = (
        "MB/s of one pass / of the same text again, one thread. "
        f"Medians of {' or '.join(map(str, rounds))} fresh processes on {'; '.join(machines)}. "
        "«differs»: its ids are not those of the reference, so it has no time."
    )
    return "\n".join([*lines, "", note])


def _row(text: str, report: BenchReport) -> list[str]:
    by_plan = {(m.method, m.threads): m for m in report.measurements}
    ours = by_plan.get(("native", 1))
    rivals = [by_plan.get((rival, 1)) for rival in RIVALS]
    fastest_s = min((median_s(m.once_s) for m in rivals if m and m.once_s), default=None)
    ratio = f"{fastest_s / median_s(ours.once_s):.2f}x" if fastest_s and ours and ours.once_s else ""
    cells = [_cell(report, m) for m in (ours, *rivals)]
    return [report.tokenizer, text, f"{report.num_bytes / 1e6:.1f}", *cells, ratio, _scaling(by_plan)]


def _cell(report: BenchReport, measurement: Measurement | None) -> str:
    if measurement is None or measurement.status in ("absent", "failed"):
        return ""
    if measurement.status == "mismatch":
        return "differs"
    once, repeated = (
        f"{report.num_bytes / median_s(times) / 1e6:.1f}" if times else "?"
        for times in (measurement.once_s, measurement.repeated_s)
    )
    return f"{once} / {repeated}"


def _scaling(by_plan: dict[tuple[str, int], Measurement]) -> str:
    one, two = by_plan.get(("native", 1)), by_plan.get(("native", 2))
    return (
        f"{median_s(one.once_s) / median_s(two.once_s):.2f}x"
        if one and two and one.once_s and two.once_s
        else ""
    )


if __name__ == "__main__":
    sys.exit(main())
