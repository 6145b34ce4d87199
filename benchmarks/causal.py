"""CausalLMTokenizer against `dataset.map(batched=True)` with nested loops: rows first, then time and memory.

    python benchmarks/causal.py --fast DIR... --slow DIR --corpus FILE.jsonl --work FOLDER [--rounds 3]
        [--documents 5000] [--slow-documents 5000] [--memory-copies 10]
        [--parts check time memory]

Rows of 5,000 documents are compared with transformers and a plain loop, for overlap 0 and 128 and every kind
of dataset, before anything is timed; a difference ends the run. Then both sides make rows of 2,048 from the
same documents on disk, each in a fresh process, alternated, with the tokenizer loaded before; the rows of
both must have the same digest. The slow tokenizer gets num_proc=2 on our side and one process on the
other. Raw results go to benchmarks/results/causal.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import datasets
import msgspec

from causal_sides import Job, Outcome
from gristmill.files import write_whole
from gristmill.run.machine import processor_name

SIDES = Path(__file__).with_name("causal_sides.py")
RESULTS = Path(__file__).parent / "results" / "causal.json"
OVERLAPS = (0, 128)
PARTS = ("check", "time", "memory")


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Rows compared with the loop's."""

    tokenizer: str
    overlap: int
    num_documents: int
    num_rows: int
    differs: list[str]


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides on the same documents."""

    tokenizer: str
    num_proc: int | None
    num_rows: int
    text_bytes: int
    ours: list[Outcome]
    theirs: list[Outcome]
    load_average: list[float]
    faster: float
    """Median of theirs over median of ours."""


class Report(msgspec.Struct, kw_only=True):
    """All of it."""

    machine: str
    python: str
    versions: dict[str, str]
    checks: list[Checked]
    timings: list[Timed]
    memory: list[Outcome]


def main() -> int:
    arguments = read_arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    place = make_dataset(arguments.corpus, arguments.work / "texts")
    report = read_report(arguments.results)
    if "check" in arguments.parts:
        folders = [*arguments.fast, arguments.slow]
        report.checks = [checked(one, place, overlap, arguments) for one in folders for overlap in OVERLAPS]
        if any(one.differs for one in report.checks):
            return 1
    if "time" in arguments.parts:
        report.timings = [timed(folder, place, arguments, num_proc=None) for folder in arguments.fast]
        report.timings.append(timed(arguments.slow, place, arguments, num_proc=2))
    if "memory" in arguments.parts:
        report.memory = [memory(arguments.fast[0], place, n) for n in (1, arguments.memory_copies)]
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    write_whole(arguments.results, msgspec.json.format(msgspec.json.encode(report)))
    return 0


def read_report(path: Path) -> Report:
    """What was found before on this machine; parts that are done again take its place."""
    about = {
        "machine": processor_name(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("datasets", "transformers", "tokenizers", "pyarrow")},
    }
    if path.exists():
        found = msgspec.json.decode(path.read_bytes(), type=Report)
        if all(getattr(found, key) == value for key, value in about.items()):
            return found
    return Report(**about, checks=[], timings=[], memory=[])


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", type=Path, nargs="+", required=True, help="folders with tokenizer.json")
    parser.add_argument("--slow", type=Path, required=True, help="folder of a Python tokenizer")
    parser.add_argument("--corpus", type=Path, required=True, help="JSONL, field `text`")
    parser.add_argument("--work", type=Path, required=True, help="datasets are made here")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--slow-documents", type=int, default=5000)
    parser.add_argument("--memory-copies", type=int, default=10, help="of the corpus, for the larger run")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def make_dataset(corpus: Path, place: Path) -> Path:
    """The corpus as people have it: a dataset in Arrow files."""
    if not (place / "state.json").exists():
        with corpus.open(encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in lines]
        datasets.Dataset.from_dict({"text": texts}).save_to_disk(place)
    return place


def checked(folder: Path, place: Path, overlap: int, arguments: argparse.Namespace) -> Checked:
    """Compare rows, and say so."""
    is_slow = folder == arguments.slow
    job = Job(
        side="check",
        tokenizer=str(folder),
        dataset=str(place),
        overlap=overlap,
        num_documents=arguments.documents,
        num_proc=2 if is_slow else None,
    )
    found = run_side(job)
    verdict = f"DIFFER: {', '.join(found.differs)}" if found.differs else "equal, every kind of dataset"
    name = folder.resolve().name
    what = f"{found.num_rows:,} rows of {arguments.documents:,} documents"
    print(f"{name}, overlap {overlap}: {what}, {verdict}", flush=True)
    return Checked(
        tokenizer=name,
        overlap=overlap,
        num_documents=arguments.documents,
        num_rows=found.num_rows,
        differs=found.differs,
    )


def timed(folder: Path, place: Path, arguments: argparse.Namespace, *, num_proc: int | None) -> Timed:
    """Both sides, alternated; the rows of each must be the same."""
    number = arguments.slow_documents if num_proc else arguments.documents
    job = Job(
        side="map", tokenizer=str(folder), dataset=str(place), num_documents=number, num_proc=num_proc
    )
    ours, theirs, load = [], [], []
    for _ in range(arguments.rounds):
        load.append(round(os.getloadavg()[0], 2))
        theirs.append(run_side(job))
        ours.append(run_side(msgspec.structs.replace(job, side="gristmill")))
    assert len({one.digest for one in [*ours, *theirs]}) == 1, f"{folder}: the rows differ"
    medians = [statistics.median(one.wall_s for one in side) for side in (theirs, ours)]
    faster = round(medians[0] / medians[1], 2)
    print(f"{folder.name}: map {medians[0]:.2f} s, ours {medians[1]:.2f} s, {faster}x, same rows", flush=True)
    return Timed(
        tokenizer=folder.resolve().name,
        num_proc=num_proc,
        num_rows=ours[0].num_rows,
        text_bytes=ours[0].text_bytes,
        ours=ours,
        theirs=theirs,
        load_average=load,
        faster=faster,
    )


def memory(folder: Path, place: Path, copies: int) -> Outcome:
    """Memory of a run over so many copies of the corpus; short rows, so that little disk is needed."""
    job = Job(
        side="memory",
        tokenizer=str(folder),
        dataset=str(place),
        context_length=512,
        copies=copies,
        dtype="int32",
    )
    found = run_side(job)
    mb = found.peak_anonymous_bytes / 1e6
    print(f"{found.text_bytes / 1e6:,.0f} MB of text: {mb:,.0f} MB at most, {found.wall_s:.1f} s", flush=True)
    return found


def run_side(job: Job) -> Outcome:
    """What a fresh process finds; its failure is the benchmark's."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    environment.pop("TOKENIZERS_PARALLELISM", None)
    ended = subprocess.run(
        [sys.executable, SIDES, msgspec.json.encode(job).decode()],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    return msgspec.json.decode(ended.stdout.strip().splitlines()[-1], type=Outcome)


if __name__ == "__main__":
    sys.exit(main())
