"""What the benchmarks of a run keep, and the table that README shows of it."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

RESULTS = Path(__file__).parent / "results" / "run"
END_TO_END = RESULTS / "end_to_end.json"
MEMORY = RESULTS / "memory.json"
START, END = "<!-- run:start -->", "<!-- run:end -->"
OUTPUTS = {"megatron": "Megatron", "parquet": "Parquet, packed", "megatron of 20 files": "Megatron, 20 files"}
RIVALS = ("datatrove", "datasets")
BARE = ("bare", "bare whole")
COMMAND, CALLED = "gristmill", "called"


class Timing(msgspec.Struct, kw_only=True):
    """All rounds of one side on one input; lists have an entry a round."""

    tokenizer: str
    input: str
    side: str
    """gristmill (the command), called (its run in a program), bare, bare whole, datatrove or datasets."""
    output: str = ""
    """What gristmill writes."""
    text_bytes: int = 0
    """UTF-8 of the documents this side was given: a share of the input where `is_share`."""
    is_share: bool = False
    wall_s: list[float] = []
    """Of the whole process."""
    work_s: list[float] = []
    """Without imports; of a called run the call, of the bare encoder encoding alone."""
    cpu_s: list[float] = []
    """Of all processes of gristmill, called or not, and of the bare encoder, with all that comes before the
    work."""
    stage_s: list[dict[str, float]] = []
    """Of gristmill: seconds of all workers together."""
    load_average: list[float] = []
    """Of the machine in the minute before: others may have used it too."""
    first_s: list[float] = []
    """What its rate is made of, of the process before each of these: the first after another side."""


class RunReport(msgspec.Struct, kw_only=True):
    """All that was timed, with what it was timed on."""

    machine: str
    num_cores: int
    python: str
    versions: dict[str, str]
    rounds: int
    checks: list[str]
    """Which ids were found equal before anything was timed."""
    timings: list[Timing]


def mb_per_s(timing: Timing) -> float:
    """Text of the median round."""
    return rate(timing, counted(timing))


def rate(timing: Timing, seconds: list[float]) -> float:
    """MB of text a second, of the median."""
    return timing.text_bytes / statistics.median(seconds) / 1e6


def counted(timing: Timing) -> list[float]:
    """What its rate is made of: the work alone, but for commands the whole process."""
    return timing.wall_s if timing.side == COMMAND else timing.work_s


def load_run_report(path: Path = END_TO_END) -> RunReport:
    """The raw results."""
    return msgspec.json.decode(path.read_bytes(), type=RunReport)


def render_run(report: RunReport) -> str:
    """A line for each tokenizer, input and output: MB/s of each side, and how gristmill compares."""
    header = ["tokenizer", "input", "output", "command", "call", "bare encoder"]
    header += ["command / bare", "call / bare"]
    header += [cell for rival in RIVALS for cell in (rival, "faster")]
    lines = ["| " + " | ".join(header) + " |", "|---|---|---|" + "---:|" * (len(header) - 3)]
    rows = [_row(report, timing) for timing in report.timings if timing.side == COMMAND and timing.wall_s]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", _note(report)])


def _row(report: RunReport, ours: Timing) -> list[str]:
    called = _fastest(report, ours, (CALLED,), output=ours.output)
    bare = _fastest(report, ours, BARE)
    cells = [ours.tokenizer, ours.input, OUTPUTS[ours.output]]
    cells += [f"{mb_per_s(timing):.1f}" if timing else "" for timing in (ours, called, bare)]
    cells += [f"{mb_per_s(t) / mb_per_s(bare):.2f}" if t and bare else "" for t in (ours, called)]
    for rival in RIVALS:
        other = _fastest(report, ours, (rival,))
        cells += [f"{mb_per_s(other):.1f}", f"{mb_per_s(ours) / mb_per_s(other):.1f}x"] if other else ["", ""]
    return cells


def _fastest(report: RunReport, ours: Timing, sides: tuple[str, ...], *, output: str = "") -> Timing | None:
    place = (ours.tokenizer, ours.input, output)
    found = [
        timing
        for timing in report.timings
        if (timing.tokenizer, timing.input, timing.output) == place and timing.side in sides and timing.wall_s
    ]
    return max(found, key=mb_per_s, default=None)


def _firsts(report: RunReport) -> str:
    """The share of the bare encoder where each side comes right after another."""
    shares = []
    firsts = [timing for timing in report.timings if timing.first_s]
    for ours in firsts:
        place = (ours.tokenizer, ours.input)
        bare = [rate(t, t.first_s) for t in firsts if (t.tokenizer, t.input) == place and t.side in BARE]
        if ours.side == COMMAND and bare:
            shares.append(rate(ours, ours.first_s) / max(bare))
    if not shares:
        return ""
    return (
        " Where a side was given several processes in a row, the last counts; by those that came right after "
        f"another side, a command is {min(shares):.2f} to {max(shares):.2f} of the bare encoder."
    )


def _note(report: RunReport) -> str:
    rounds = sorted({len(t.wall_s) for t in report.timings if t.wall_s})
    shares = sorted({round(t.text_bytes / 1e6) for t in report.timings if t.is_share and t.wall_s})
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    share = (
        f" Rivals were given the first {' or '.join(map(str, shares))} MB of an input where it has more."
        if shares
        else ""
    )
    return (
        "MB of text a second, two workers. Command: the whole process, from the start of Python to its end. "
        "Call: `gristmill.tokenize` in a program that has done a run of one document before; it loads the "
        "tokenizer. Rivals are timed like that, without their imports. Bare encoder: encoding alone, two "
        "threads, text in memory, in blocks or whole as is faster. "
        f"Medians of {' or '.join(map(str, rounds))} alternated rounds on "
        f"{report.machine}, {report.num_cores} cores, Python {report.python}; {versions}.{share}"
        f"{_firsts(report)}"
    )
