"""Time from files to shards: `gristmill tokenize` against its own bare encoder, datatrove and datasets.

    python benchmarks/end_to_end.py --tokenizers DIR... --corpus FILE.jsonl --work FOLDER [--rounds 3]
        [--copies 10] [--rivals datatrove,datasets] [--rival-mb 100] [--in-a-row 2]

Every side has two workers on the same two cores, the same documents and the same tokenizer, and each
measurement is a fresh process; sides are alternated within a round. A run of gristmill is timed twice: as a
whole command, from the start of Python to the end of the process, and as a call in a program that has its
modules, which is how rivals and the bare encoder are timed. In a round each side has --in-a-row such
processes and the last counts, for all sides alike: a virtual machine must ask its host for memory that an
earlier process gave back, and which side comes after which should not decide. What the first took is kept
and told below the table. Ids are compared first. Inputs are the corpus and, where --copies is over 1, so
many copies of it with shuffled documents; rivals are given the first --rival-mb of an input, and rates are
MB of text a second. datatrove reads JSON Lines with orjson, which it does not ask for (pip install orjson).
Raw results go to benchmarks/results/run/.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow.parquet as pq

from corpora import dealt, share, shuffled_copies, text_bytes
from end_to_end_sides import SEQUENCE_LENGTH, Job, Outcome
from gristmill import load_tokenizer
from gristmill.bench import available_cores
from gristmill.files import write_whole
from gristmill.run.machine import processor_name
from run_report import (
    BARE,
    CALLED,
    END_TO_END,
    RIVALS,
    RunReport,
    Timing,
    counted,
    mb_per_s,
    rate,
    render_run,
)

WORKERS = 2
BATCH_SIZE = 1000
"""Of the rivals: 100 is slower, 10,000 no faster."""
EOS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
MANY_FILES = 20
SIDES = Path(__file__).with_name("end_to_end_sides.py")


class Source(NamedTuple):
    """A tokenizer to measure with."""

    name: str
    file: Path
    eos: str
    specials: dict[str, int]


class Input(NamedTuple):
    """What the sides read."""

    name: str
    file: Path
    num_bytes: int
    rival_folder: Path
    """The rivals' share, dealt to a file a worker."""
    rival_bytes: int
    many_folder: Path | None


def main() -> int:
    arguments = read_arguments()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled where a user installs them
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:WORKERS])
    arguments.work.mkdir(parents=True, exist_ok=True)
    sources = [open_source(folder) for folder in arguments.tokenizers]
    checks = [line for source in sources for line in check(source, arguments)]
    print("\n".join(checks), flush=True)
    if any("DIFFER" in line for line in checks):
        return 1
    report = RunReport(
        machine=processor_name(),
        num_cores=available_cores(),
        python=platform.python_version(),
        versions={name: version(name) for name in ("gristmill", "tokenizers", *arguments.rivals)},
        rounds=arguments.rounds,
        checks=checks,
        timings=[],
    )
    for input_ in make_inputs(arguments):
        for source in sources:
            report.timings += time_sides(source, input_, arguments)
            arguments.results.parent.mkdir(parents=True, exist_ok=True)
            write_whole(arguments.results, msgspec.json.format(msgspec.json.encode(report)))
    print(render_run(report))
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokenizers", type=Path, nargs="+", required=True, help="folders with tokenizer.json"
    )
    parser.add_argument("--corpus", type=Path, required=True, help="JSONL, field `text`")
    parser.add_argument("--work", type=Path, required=True, help="inputs are made and outputs written here")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-a-row", type=int, default=2, help="of a side in a round; the last counts")
    parser.add_argument("--copies", type=int, default=10, help="of the larger input; 1: the corpus alone")
    parser.add_argument("--rivals", type=_names, default=RIVALS, help="such as datatrove,datasets; none: ''")
    parser.add_argument("--rival-mb", type=float, default=100.0, help="of an input, for rivals")
    parser.add_argument("--rival-rounds", type=int, help="rounds in which rivals take part; default: all")
    parser.add_argument("--check-mb", type=float, default=3.0, help="of the corpus, whose ids are compared")
    parser.add_argument("--results", type=Path, default=END_TO_END)
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def open_source(folder: Path) -> Source:
    """The tokenizer, and what its model was trained to see at the end of a document."""
    specials = load_tokenizer(folder / "tokenizer.json").special_tokens
    eos = next((token for token in EOS if token in specials), None)
    if eos is None:
        raise SystemExit(f"{folder}: names none of {', '.join(EOS)}, so no side could end a document")
    return Source(folder.resolve().name, folder / "tokenizer.json", eos, specials)


def make_inputs(arguments: argparse.Namespace) -> list[Input]:
    """The corpus, and its shuffled copies."""
    inputs = [make_input(arguments.corpus, arguments)]
    if arguments.copies > 1:
        name = f"{arguments.corpus.stem}.{arguments.copies}.jsonl"
        copies = shuffled_copies(arguments.corpus, arguments.work / name, copies=arguments.copies)
        inputs.append(make_input(copies, arguments, num_many=MANY_FILES))
    return inputs


def make_input(file: Path, arguments: argparse.Namespace, *, num_many: int = 0) -> Input:
    """An input, what rivals are given of it and, where asked, the same in many files."""
    work, num_bytes = arguments.work, text_bytes(file)
    part, rival_bytes = file, num_bytes
    if arguments.rival_mb * 1e6 < num_bytes:
        size = int(arguments.rival_mb * 1e6)
        part = share(file, work / f"{file.stem}.{size}.share.jsonl", max_bytes=size)
        rival_bytes = text_bytes(part)
    return Input(
        name=f"{num_bytes / 1e6:.0f} MB",
        file=file,
        num_bytes=num_bytes,
        rival_folder=dealt(part, work / f"{part.stem}.rivals", num_files=WORKERS),
        rival_bytes=rival_bytes,
        many_folder=dealt(file, work / f"{file.stem}.many", num_files=num_many) if num_many else None,
    )


def check(source: Source, arguments: argparse.Namespace) -> list[str]:
    """Compare the ids of all sides on a part of the corpus, in as many words."""
    size = int(arguments.check_mb * 1e6)
    # Libraries differ on what text that spells a special token should become.
    path = arguments.work / f"check.{source.name}.{size}.jsonl"
    part = share(arguments.corpus, path, max_bytes=size, without=source.specials)
    folder = dealt(part, path.with_suffix(".parts"), num_files=WORKERS)
    output = arguments.work / f"check.{source.name}"
    ours = our_ids(source, folder, fresh(output))
    lines = []
    for side in BARE:
        run_side(side, source, folder, fresh(output), is_kept=True)
        lines.append(compared(source, side, ours, np.load(output / "ids.npy")))
    if "datatrove" in arguments.rivals:
        run_side("datatrove", source, folder, fresh(output))
        files = sorted(output.glob("*.ds"))
        theirs = np.concatenate([np.fromfile(file, dtype=ours.dtype) for file in files])
        lines.append(compared(source, "datatrove", ours, theirs))
    if "datasets" in arguments.rivals:
        rows = our_rows(source, folder, fresh(output))
        # One process and one batch, since group_texts drops what is left over of every batch.
        run_side("datasets", source, folder, fresh(output), workers=1, batch_size=1 << 40)
        lines.append(compared(source, "datasets", rows, read_rows([output / "rows.parquet"])))
    fresh(output)
    return lines


def compared(source: Source, side: str, ours: np.ndarray, theirs: np.ndarray) -> str:
    what = "rows" if ours.ndim == 2 else "tokens"
    verdict = "equal" if np.array_equal(ours, theirs) else f"DIFFER ({len(theirs):,} of {side})"
    return f"{source.name}, gristmill and {side}: {len(ours):,} {what}, {verdict}"


def our_ids(source: Source, folder: Path, output: Path) -> np.ndarray:
    run_ours(source, folder, output, "megatron")
    dtype = msgspec.json.decode((output / "manifest.json").read_bytes())["dtype"]
    return np.concatenate(
        [np.fromfile(file, dtype=dtype) for file in sorted((output / "megatron").glob("*.bin"))]
    )


def our_rows(source: Source, folder: Path, output: Path) -> np.ndarray:
    run_ours(source, folder, output, "parquet", "pack.tail=drop", "read.unit_bytes=100GB")
    return read_rows(sorted((output / "parquet").glob("*.parquet")))


def read_rows(files: list[Path]) -> np.ndarray:
    columns = [pq.read_table(file, columns=["input_ids"]).column(0).combine_chunks() for file in files]
    return np.concatenate(
        [column.flatten().to_numpy().astype(np.uint32).reshape(len(column), -1) for column in columns]
    )


def time_sides(source: Source, input_: Input, arguments: argparse.Namespace) -> list[Timing]:
    """All rounds of all sides on one input."""
    outputs = ["megatron", "parquet"] + ([f"megatron of {MANY_FILES} files"] if input_.many_folder else [])
    sides = [(side, output) for output in outputs for side in ("gristmill", CALLED)]
    sides += [(side, "") for side in BARE]
    sides += [(rival, "") for rival in arguments.rivals]
    timings = [
        Timing(
            tokenizer=source.name,
            input=input_.name,
            side=side,
            output=output,
            text_bytes=input_.rival_bytes if side in RIVALS else input_.num_bytes,
            is_share=side in RIVALS and input_.rival_bytes < input_.num_bytes,
        )
        for side, output in sides
    ]
    rival_rounds = arguments.rounds if arguments.rival_rounds is None else arguments.rival_rounds
    for number in range(arguments.rounds):
        for timing in timings:
            if timing.side not in RIVALS or number < rival_rounds:
                time_in_a_row(timing, source, input_, arguments)
    for timing in timings:
        if timing.wall_s:
            print(in_words(timing), flush=True)
    return timings


def time_in_a_row(timing: Timing, source: Source, input_: Input, arguments: argparse.Namespace) -> None:
    """Some fresh processes of a side one after the other: the last is kept, and what the first took."""
    for number in range(arguments.in_a_row):
        one = Timing(**{name: getattr(timing, name) for name in ("tokenizer", "input", "side", "output")})
        time_once(one, source, input_, arguments.work / "output")
        if number == 0 and arguments.in_a_row > 1:
            timing.first_s += counted(one)
    for name in ("wall_s", "work_s", "cpu_s", "stage_s", "load_average"):
        getattr(timing, name).extend(getattr(one, name))


def time_once(timing: Timing, source: Source, input_: Input, output: Path) -> None:
    """One more fresh process; nothing that an earlier one wrote is still on its way to the disk."""
    fresh(output)
    if hasattr(os, "sync"):
        os.sync()
    timing.load_average.append(round(os.getloadavg()[0], 2))
    used = cpu_s()
    start = time.perf_counter()
    place = input_.file
    if timing.output.endswith("files"):
        assert input_.many_folder is not None, "that output is of inputs that are dealt"
        place = input_.many_folder
    format_ = timing.output.partition(" ")[0]
    if timing.side == "gristmill":
        run_ours(source, place, output, format_)
    else:
        place = input_.rival_folder if timing.side in RIVALS else place
        outcome = run_side(timing.side, source, place, output, format_=format_)
        timing.work_s.append(round(outcome.work_s, 4))
    timing.wall_s.append(round(time.perf_counter() - start, 4))
    if timing.side not in RIVALS:  # whose workers nobody waits for, so that they are not counted
        timing.cpu_s.append(round(cpu_s() - used, 3))
    if timing.side == "gristmill":
        timing.stage_s.append(stages(output))
    fresh(output)


def cpu_s() -> float:
    """Of all processes that were started from here and have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def stages(output: Path) -> dict[str, float]:
    """Seconds of each stage, all workers together, and of the run from its first unit to its manifest."""
    last = msgspec.json.decode((output / "events.jsonl").read_bytes().splitlines()[-1])
    return last["stage_s"] | {"units to manifest": last["elapsed_s"]}


def run_ours(source: Source, place: Path, output: Path, format_: str, *options: str) -> None:
    command = ["-m", "gristmill", "tokenize", place, "-t", source.file, "-o", output, "--format", format_]
    command += ["--workers", WORKERS, "--sequence-length", SEQUENCE_LENGTH, "--quiet"]
    run_python(*command, f"encode.eos_id={source.specials[source.eos]}", *options)


def run_side(
    side: str,
    source: Source,
    place: Path,
    output: Path,
    *,
    workers: int = WORKERS,
    batch_size: int = BATCH_SIZE,
    format_: str = "",
    is_kept: bool = False,
) -> Outcome:
    job = Job(
        side=side,
        tokenizer=str(source.file),
        eos=source.eos,
        input=str(place),
        output=str(output),
        workers=workers,
        batch_size=batch_size,
        format=format_,
        eos_id=source.specials[source.eos],
        is_kept=is_kept,
    )
    last = run_python(SIDES, msgspec.json.encode(job).decode()).strip().splitlines()[-1]
    return msgspec.json.decode(last, type=Outcome)


def run_python(*command: object) -> str:
    """What a fresh process prints; its failure is the benchmark's."""
    # A worker process a core: threads of the tokenizers library on top of that only get in each other's way.
    settings = {
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    ended = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{ended.stdout[-1000:]}{ended.stderr[-2000:]}")
    return ended.stdout


def fresh(output: Path) -> Path:
    """The path of a folder that is not there, nor what sides put beside it."""
    for path in (output, output.with_name(f"{output.name}.log"), output.with_name(f"{output.name}.cache")):
        if path.exists():
            shutil.rmtree(path)
    return output


def in_words(timing: Timing) -> str:
    times = ", ".join(f"{seconds:.2f}" for seconds in timing.wall_s)
    work = f"; work {statistics.median(timing.work_s):.2f} s" if timing.work_s else ""
    first = f"; right after another side {rate(timing, timing.first_s):.1f} MB/s" if timing.first_s else ""
    what = f"{timing.tokenizer}, {timing.input}, {timing.side} {timing.output}".strip()
    return f"{what}: {mb_per_s(timing):.1f} MB/s (wall {times} s{work}{first})"


if __name__ == "__main__":
    sys.exit(main())
