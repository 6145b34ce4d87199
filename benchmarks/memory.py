"""Peak memory of a run: all its processes together, for inputs of several sizes and formats.

    python benchmarks/memory.py --tokenizers DIR... --corpus FILE.jsonl --work FOLDER [--memory 1GB]
        [--copies 10]

Each case is a `gristmill tokenize` with two workers and the given run.memory, sampled every few milliseconds
from /proc (Linux only): resident memory of the process and all its descendants, added up, which counts shared
pages once a process, and now and then their proportional share (PSS), which counts them once. `marks` are the
kernel's own high-water marks, added up: no moment escapes them, but they need not be of the same moment.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from corpora import as_parquet, dealt, shuffled_copies, with_long_document
from end_to_end import WORKERS, Source, fresh, open_source
from gristmill.files import write_whole
from gristmill.run.machine import processor_name
from run_report import MEMORY

SAMPLE_S = 0.01
PSS_EVERY = 8
"""Samples: the kernel walks all pages for it, which takes milliseconds."""
LONG_BYTES = 300_000_000
ZSTD_FILES = 4
"""So that both workers have something to do: a compressed file is not split."""


class Peak(msgspec.Struct, kw_only=True):
    """What was seen of one run; sizes in bytes."""

    tokenizer: str
    case: str
    input_bytes: int
    wall_s: float
    rss: int
    pss: int
    marks: int
    num_samples: int
    reported: int
    """What the run itself says its peak was."""
    status: str
    dropped: dict[str, int]
    """Documents that the run left out, by reason."""
    retries: list[str]


class MemoryReport(msgspec.Struct, kw_only=True):
    """All cases, with what they were run on."""

    machine: str
    python: str
    memory: str
    output: str
    peaks: list[Peak]


class Sample(NamedTuple):
    """All processes of a run at a moment."""

    rss: int
    pss: int
    marks: dict[int, int]


def main() -> int:
    arguments = read_arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    cases = make_cases(arguments)
    report = MemoryReport(
        machine=processor_name(),
        python=platform.python_version(),
        memory=arguments.memory,
        output=arguments.format,
        peaks=[],
    )
    for folder in arguments.tokenizers:
        source = open_source(folder)
        for case, place in cases.items():
            report.peaks.append(measure(source, case, place, arguments))
            print(in_words(report.peaks[-1]), flush=True)
            arguments.results.parent.mkdir(parents=True, exist_ok=True)
            write_whole(arguments.results, msgspec.json.format(msgspec.json.encode(report)))
    print(render_memory(report))
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizers", type=Path, nargs="+", required=True)
    parser.add_argument("--corpus", type=Path, required=True, help="JSONL, field `text`")
    parser.add_argument("--work", type=Path, required=True, help="inputs are made and outputs written here")
    parser.add_argument("--copies", type=int, default=10, help="of the larger input")
    parser.add_argument("--memory", default="1GB", help="run.memory")
    parser.add_argument("--format", default="megatron", help="what is written")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="WORD", help="cases with one of these in them"
    )
    parser.add_argument("--results", type=Path, default=MEMORY)
    return parser.parse_args()


def make_cases(arguments: argparse.Namespace) -> dict[str, Path]:
    """Inputs by name; those that are not wanted are not made."""
    work, corpus = arguments.work, arguments.corpus
    name = f"{corpus.stem}.{arguments.copies}"
    copies = shuffled_copies(corpus, work / f"{name}.jsonl", copies=arguments.copies)
    makers: dict[str, Callable[[], Path]] = {}
    for size, file in (("small", corpus), ("large", copies)):
        makers |= makers_of(size, file, work)
    makers[f"jsonl with a document of {LONG_BYTES // 10**6} MB"] = lambda: with_long_document(
        corpus, work / "memory.long.jsonl", long_bytes=LONG_BYTES
    )
    wanted = {case: make for case, make in makers.items() if _is_wanted(case, arguments.only)}
    return {case: make() for case, make in wanted.items()}


def makers_of(size: str, file: Path, work: Path) -> dict[str, Callable[[], Path]]:
    """How the same documents are made in every format."""
    stem = f"{work}/memory.{size}"
    return {
        f"jsonl, {size}": lambda: file,
        f"zstd, {size}": lambda: dealt(file, Path(f"{stem}.zstd"), num_files=ZSTD_FILES, compressed=True),
        f"parquet, {size}": lambda: as_parquet(file, Path(f"{stem}.parquet")),
        f"parquet of one row group, {size}": lambda: as_parquet(
            file, Path(f"{stem}.group.parquet"), row_group=1 << 30
        ),
    }


def _is_wanted(case: str, words: list[str]) -> bool:
    return not words or any(word in case for word in words)


def measure(source: Source, case: str, place: Path, arguments: argparse.Namespace) -> Peak:
    """Run one case and watch it."""
    output = fresh(arguments.work / "output")
    command = [sys.executable, "-m", "gristmill", "tokenize", place, "-t", source.file, "-o", output]
    command += ["--format", arguments.format, "--workers", WORKERS, "--memory", arguments.memory, "--quiet"]
    command.append(f"encode.eos_id={source.specials[source.eos]}")
    start = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    peak, num_samples = watch(process)
    wall_s = time.perf_counter() - start
    said = process.stderr.read().strip() if process.stderr else ""
    events = [msgspec.json.decode(line) for line in _lines(output / "events.jsonl")]
    manifest = _lines(output / "manifest.json")
    ledger = msgspec.json.decode(b"".join(manifest))["ledger"] if manifest else {}
    fresh(output)
    return Peak(
        tokenizer=source.name,
        case=case,
        input_bytes=sum(path.stat().st_size for path in (place.iterdir() if place.is_dir() else [place])),
        wall_s=round(wall_s, 2),
        rss=peak.rss,
        pss=peak.pss,
        marks=sum(peak.marks.values()),
        num_samples=num_samples,
        reported=max((event["peak_memory_bytes"] for event in events), default=0),
        status="ok" if process.returncode == 0 else f"{process.returncode}: {said.splitlines()[-1:]}",
        dropped=ledger.get("documents_dropped", {}),
        retries=[event["why"] for event in events if event["event"] == "retry"],
    )


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def watch(process: subprocess.Popen[str]) -> tuple[Sample, int]:
    """The largest of each kind while the process lives."""
    rss = pss = number = 0
    marks: dict[int, int] = {}
    while process.poll() is None:
        sample = look(process.pid, with_pss=number % PSS_EVERY == 0)
        rss, pss = max(rss, sample.rss), max(pss, sample.pss)
        marks |= sample.marks
        number += 1
        time.sleep(SAMPLE_S)
    return Sample(rss, pss, marks), number


def look(pid: int, *, with_pss: bool) -> Sample:
    """A process and its descendants now; one that has just ended counts nothing."""
    rss = pss = 0
    marks = {}
    for member in family(pid):
        status = _fields(Path(f"/proc/{member}/status"))
        rss += status.get("VmRSS", 0)
        if "VmHWM" in status:
            marks[member] = status["VmHWM"]
        if with_pss:
            pss += _fields(Path(f"/proc/{member}/smaps_rollup")).get("Pss", 0)
    return Sample(rss, pss, marks)


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    found, waiting = [], [pid]
    while waiting:
        member = waiting.pop()
        found.append(member)
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                waiting += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def _fields(path: Path) -> dict[str, int]:
    """Sizes in bytes that a file of /proc names in kB."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines if line.endswith(" kB"))
    return {pair[0].rstrip(":"): int(pair[1]) * 1024 for pair in pairs}


def in_words(peak: Peak) -> str:
    sizes = ", ".join(
        f"{name} {getattr(peak, name) / 1e6:.0f}" for name in ("rss", "pss", "marks", "reported")
    )
    more = "".join(f"; {name} {value}" for name in ("dropped", "retries") if (value := getattr(peak, name)))
    return f"{peak.tokenizer}, {peak.case}: MB: {sizes}; {peak.wall_s:.1f} s, {peak.status}{more}"


def render_memory(report: MemoryReport) -> str:
    """A line a case: peaks in MB."""
    lines = ["| tokenizer | input | MB of input | RSS | PSS | marks | seconds |", "|---|---|" + "---:|" * 5]
    for peak in report.peaks:
        cells = [peak.tokenizer, peak.case]
        cells += [f"{size / 1e6:.0f}" for size in (peak.input_bytes, peak.rss, peak.pss, peak.marks)]
        lines.append(f"| {' | '.join([*cells, f'{peak.wall_s:.1f}'])} |")
    note = (
        f"Peak MB of all processes together, run.memory {report.memory}, {WORKERS} workers, {report.output}, "
        f"on {report.machine}, Python {report.python}. RSS counts shared pages once a process, PSS once; "
        "marks are the kernel's high-water marks of each process, added up."
    )
    return "\n".join([*lines, "", note])


if __name__ == "__main__":
    sys.exit(main())
