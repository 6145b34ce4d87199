"""Rows a second out of a finished run: `ds[i]`, the loader, and torch's DataLoader with and without workers.

    python benchmarks/loading.py --tokenizer DIR --eos-id ID --corpus FILE.jsonl --work FOLDER [--rounds 3]
        [--rows 60000] [--ways "ds[i],DataLoader"]

A run of 2048-token rows is made once, in arrow and parquet; ids of both are compared with the shards' own
readers first. Each measurement is a fresh process on the same two cores; sides are alternated within a round.
Rows are drawn at random from the whole run, so many that all of it is in the page cache and mapped before the
time is taken, and every id that is given out is read. `cpu_us` is the time of all processes together, for
each row. Raw results go to benchmarks/results/loading/.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import gristmill
from gristmill.bench import available_cores
from gristmill.dataset.items import find_run
from gristmill.files import write_whole
from gristmill.formats import read_shard
from gristmill.run.machine import processor_name
from gristmill.store import open_finished

RESULTS = Path(__file__).parent / "results" / "loading" / "loading.json"
SEQUENCE_LENGTH = 2048
FORMATS = ("parquet", "arrow")
COLUMNS = {
    "ids": ["input_ids"],
    "ids, labels": ["input_ids", "labels"],
    "all": ["input_ids", "labels", "attention_mask", "position_ids", "segment_ids"],
}


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One way to read rows."""

    way: str
    """ds[i], loader or DataLoader."""
    format: str
    columns: str
    dtype: str | None = "int64"
    batch_size: int = 1
    workers: int = 0


class Measured(msgspec.Struct, kw_only=True):
    """A side, with what each round gave."""

    side: Side
    rows_per_s: list[float] = []
    cpu_us: list[float] = []


class Report(msgspec.Struct, kw_only=True):
    """All sides, with what they were run on."""

    machine: str
    num_cores: int
    torch: str
    num_rows: int
    shard_bytes: dict[str, int]
    load: list[float] = []
    """Of the machine, as each round began: other work going on."""
    sides: list[Measured]


def all_sides() -> list[Side]:
    sides = []
    for name in FORMATS:
        sides += [Side(way="ds[i]", format=name, columns="ids", dtype=None)]
        sides += [Side(way="ds[i]", format=name, columns=columns) for columns in COLUMNS]
        sides += [Side(way="loader", format=name, columns="ids, labels", batch_size=64)]
    for batch_size in (64, 256):
        for columns in ("ids, labels", "all"):
            sides += [
                Side(way="DataLoader", format="parquet", columns=columns, batch_size=batch_size, workers=n)
                for n in (0, 2)
            ]
    return sides


def main() -> int:
    arguments = read_arguments()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    if arguments.side:
        print(msgspec.json.encode(measure(arguments)).decode())
        return 0
    folder = make_run(arguments)
    compare(folder)
    from importlib.metadata import version

    sizes = {name: sum(file.stat().st_size for file in (folder / name).glob(f"*.{name}")) for name in FORMATS}
    wanted = [side for side in all_sides() if not arguments.ways or side.way in arguments.ways.split(",")]
    report = Report(
        machine=processor_name(),
        num_cores=available_cores(),
        torch=version("torch"),
        num_rows=len(gristmill.open(folder)),
        shard_bytes=sizes,
        sides=[Measured(side=side) for side in wanted],
    )
    for _ in range(arguments.rounds):
        report.load.append(os.getloadavg()[0])
        for measured in report.sides:
            rate, cpu_us = in_fresh_process(measured.side, folder, arguments.rows)
            measured.rows_per_s.append(rate)
            measured.cpu_us.append(cpu_us)
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        write_whole(arguments.results, msgspec.json.format(msgspec.json.encode(report)))
    print(in_words(report))
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--eos-id", type=int)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="where the run is made, and kept")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000, help="timed, of each side")
    parser.add_argument("--ways", help="only these, such as ds[i],DataLoader")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    return parser.parse_args()


def make_run(arguments: argparse.Namespace) -> Path:
    """The run, made where it is not there; an unfinished one is finished."""
    folder: Path = arguments.work / "run"
    if arguments.corpus is not None:
        gristmill.tokenize(
            {
                "tokenizer": str(arguments.tokenizer),
                "read": {"inputs": [str(arguments.corpus)]},
                "encode": {"eos_id": arguments.eos_id},
                "pack": {"mode": "concat", "sequence_length": SEQUENCE_LENGTH},
                "write": {"output": str(folder), "format": list(FORMATS)},
            }
        )
    return folder


def compare(folder: Path) -> None:
    """Refuse to time rows that are not those of the shards' own readers."""
    for name in FORMATS:
        dataset, first = gristmill.open(folder, format=name), 0
        run = find_run(open_finished(folder), name)
        for shard in run.manifest.shards[:3] + run.manifest.shards[-1:]:
            view = read_shard(folder, shard, name, run.layout)
            start = sum(one.num_rows for one in run.manifest.shards[: run.manifest.shards.index(shard)])
            for row in range(0, shard.num_rows, 97):
                if not np.array_equal(dataset[start + row]["input_ids"], view.ids(row)):
                    raise SystemExit(f"{name}: row {start + row} DIFFERS")
                first += 1
        print(f"{name}: {first} rows are those of the shards' own reader", flush=True)


def in_fresh_process(side: Side, folder: Path, num_rows: int) -> tuple[float, float]:
    command = [sys.executable, "-W", "ignore", __file__, "--work", str(folder.parent)]
    command += ["--rows", str(num_rows), "--side", msgspec.json.encode(side).decode()]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rate, cpu_us = msgspec.json.decode(done.stdout, type=tuple[float, float])
    print(f"{side_in_words(side)}: {rate:,.0f} rows/s, {cpu_us:.1f} us of CPU a row", flush=True)
    return rate, cpu_us


def measure(arguments: argparse.Namespace) -> tuple[float, float]:
    """Rows a second, and microseconds of CPU a row, of one side in this process."""
    side = msgspec.json.decode(arguments.side, type=Side)
    dataset = gristmill.open(
        arguments.work / "run", columns=COLUMNS[side.columns], dtype=side.dtype, format=side.format
    )
    rows: Iterator[Any] = {"ds[i]": one_by_one, "loader": in_batches, "DataLoader": by_torch}[side.way](
        dataset, side
    )
    skip_rows(rows, len(dataset))
    workers = worker_ids()
    cpu, start = cpu_s(workers), time.perf_counter()
    num_rows = skip_rows(rows, arguments.rows)
    wall = time.perf_counter() - start
    return num_rows / wall, (cpu_s(workers) - cpu) / num_rows * 1e6


def skip_rows(batches: Iterator[int], num_rows: int) -> int:
    done = 0
    while done < num_rows:
        done += next(batches)
    return done


def one_by_one(dataset: Any, side: Side) -> Iterator[int]:
    random = np.random.default_rng(0)
    room = np.empty(SEQUENCE_LENGTH, dataset[0]["input_ids"].dtype)
    while True:
        for index in random.integers(0, len(dataset), 1000).tolist():
            ids = dataset[index]["input_ids"]
            if side.dtype is None:  # a view: nothing has been read yet
                room[:] = ids
        yield 1000


def in_batches(dataset: Any, side: Side) -> Iterator[int]:
    loader = dataset.loader(seed=0, batch_size=side.batch_size)
    while True:
        for batch in loader:
            yield len(batch["input_ids"])


def by_torch(dataset: Any, side: Side) -> Iterator[int]:
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    loader = DataLoader(
        dataset,
        batch_size=side.batch_size,
        shuffle=True,
        num_workers=side.workers,
        persistent_workers=side.workers > 0,
    )
    while True:
        for batch in loader:
            batch["input_ids"].sum()
            yield len(batch["input_ids"])


def worker_ids() -> list[int]:
    """This process and its children."""
    own = os.getpid()
    children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
    return [own, *map(int, children)]


def cpu_s(processes: list[int]) -> float:
    """Seconds that processes have used so far."""
    total = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def side_in_words(side: Side) -> str:
    more = f", batches of {side.batch_size}" if side.way != "ds[i]" else ""
    more += f", {side.workers} workers" if side.way == "DataLoader" else ""
    return f"{side.way}, {side.format}, {side.columns} as {side.dtype or 'stored'}{more}"


def in_words(report: Report) -> str:
    lines = [f"{report.num_rows:,} rows of {SEQUENCE_LENGTH}; load {report.load}"]
    for measured in report.sides:
        rate, cpu_us = statistics.median(measured.rows_per_s), statistics.median(measured.cpu_us)
        lines.append(f"{side_in_words(measured.side)}: {rate:,.0f} rows/s, {cpu_us:.1f} us of CPU a row")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
