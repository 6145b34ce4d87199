"""What Ray costs: the same run by local workers and by actors of a cluster of one node, and what Ray holds.

    python benchmarks/ray_overhead.py --tokenizer DIR --eos-id ID --input FILE [--work FOLDER] [--rounds 3]
        [--format megatron] [--dispatch 20000] [--output FILE]

Both sides have two workers on the same two cores, a fresh process each, and every other round the other side
comes first; the cluster is started before, as a user's is. Outputs are compared first. Two pairs are timed:
whole commands, `gristmill tokenize` as a user types it, which on Ray pay for importing it and joining; and
the call `gristmill.tokenize` alone in a program that has imported gristmill and joined the cluster, whichever
backend it then uses, as a program that works on a cluster has. Of whole commands the time in which units are
done is taken from their events too, and a program is timed that only joins the cluster, starts two actors and
ends: what Ray itself takes. A first round is not timed: in it the object store of the cluster is looked at
every few milliseconds, which takes work from the two cores. Then the loop that drives a cluster is timed with
actors that do nothing: how many units a second it can give out over real Ray.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray._private.internal_api import get_memory_info_reply, get_state_from_address
from ray.cluster_utils import Cluster

from gristmill.config import RunConfig
from gristmill.job import as_training
from gristmill.plan import Unit, UnitPlan
from gristmill.records import VERSION, Ledger, UnitRecord
from gristmill.run.cluster import ClusterBackend
from gristmill.run.done import DoneUnits
from gristmill.run.machine import processor_name
from gristmill.run.messages import Done, Task
from gristmill.run.progress import Progress
from gristmill.run.ray import RayCluster
from gristmill.run.remote_worker import Answer, Hello, News
from gristmill.store import LocalFolder

WORKERS = 2
IDLE_ACTORS = 8
LOOK_EVERY_S = 0.02
EMPTY = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
class Empty:
    def answer(self):
        return 1
actors = [ray.remote(Empty).remote() for _ in range(int(sys.argv[2]))]
ray.get([actor.answer.remote() for actor in actors])
"""
JOINED = """
import json, sys, time
import gristmill, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
tokenize = gristmill.tokenize
start = time.perf_counter()
tokenize(json.loads(sys.argv[2]))
print(time.perf_counter() - start)
"""


class Report(msgspec.Struct, kw_only=True):
    """All that was measured; seconds of each round."""

    machine: str
    ray: str
    input_bytes: int
    workers: int
    local_s: list[float] = []
    ray_s: list[float] = []
    overhead: float = 0.0
    """Of the medians, as a share."""
    local_units_s: list[float] = []
    ray_units_s: list[float] = []
    """Of it, from the first unit to the manifest."""
    overhead_of_units: float = 0.0
    local_joined_s: list[float] = []
    ray_joined_s: list[float] = []
    """The call alone, in a program that has joined the cluster before."""
    overhead_of_joined: float = 0.0
    empty_s: list[float] = []
    """A program that starts as many actors and does nothing."""
    object_store_bytes: int = 0
    """The most that Ray's object store held."""
    num_looks: int = 0
    units_per_s: float = 0.0
    """Given out to idle actors, and taken back."""


class StoreWatch:
    """Looks at the object store of a cluster until it is told to stop."""

    def __init__(self, address: str) -> None:
        self.most = self.num_looks = 0
        self._state = get_state_from_address(address)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> StoreWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_EVERY_S):
            stats = get_memory_info_reply(self._state).store_stats
            self.most = max(self.most, stats.object_store_bytes_used)
            self.num_looks += 1


def run_side(arguments: argparse.Namespace, output: Path, *options: str) -> float:
    """Seconds of one run, from its command line to its end."""
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "gristmill", "tokenize", str(arguments.input), "-o", str(output)]
    command += ["-t", str(arguments.tokenizer), "--eos-id", str(arguments.eos_id), "--quiet"]
    command += ["--format", arguments.format]
    start = time.perf_counter()
    subprocess.run([*command, "--workers", str(WORKERS), *options], check=True)
    return time.perf_counter() - start


def run_joined(arguments: argparse.Namespace, output: Path, address: str, backend: str) -> float:
    """Seconds of the same run as a call, in a program that has joined the cluster."""
    shutil.rmtree(output, ignore_errors=True)
    job = {
        "read": {"inputs": [str(arguments.input)]},
        "tokenizer": {"source": str(arguments.tokenizer)},
        "encode": {"eos_id": arguments.eos_id},
        "write": {"output": str(output), "format": arguments.format},
        "run": {"backend": backend, "workers": WORKERS},
    }
    command = [sys.executable, "-c", JOINED, address, msgspec.json.encode(job).decode()]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def digest(folder: Path, format_: str) -> str:
    """Of every shard and the manifest."""
    found = hashlib.sha256()
    for path in sorted([folder / "manifest.json", *folder.glob(f"{format_}/*")]):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def compare_sides(arguments: argparse.Namespace, address: str, report: Report) -> None:
    """Both sides in turn, after their outputs were compared."""
    sides = {"local": ("--backend", "local"), "ray": ("--backend", "ray", "--ray-address", address)}
    folders = {side: arguments.work / side for side in sides}
    with StoreWatch(address) as watch:
        for side, options in sides.items():
            run_side(arguments, folders[side], *options)
    report.object_store_bytes, report.num_looks = watch.most, watch.num_looks
    found = [digest(folder, arguments.format) for folder in folders.values()]
    for side, folder in folders.items():
        run_joined(arguments, folder, address, side)
        found.append(digest(folder, arguments.format))
    assert len(set(found)) == 1, "the outputs differ"
    for number in range(arguments.rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", EMPTY, address, str(WORKERS)], check=True)
        report.empty_s.append(round(time.perf_counter() - start, 3))
        for side in sorted(sides, reverse=bool(number % 2)):
            seconds = run_side(arguments, folders[side], *sides[side])
            getattr(report, f"{side}_s").append(round(seconds, 3))
            getattr(report, f"{side}_units_s").append(units_seconds(folders[side]))
        for side in sorted(sides, reverse=bool(number % 2)):
            seconds = run_joined(arguments, folders[side], address, side)
            getattr(report, f"{side}_joined_s").append(round(seconds, 3))
    report.overhead = share_over(report.ray_s, report.local_s)
    report.overhead_of_units = share_over(report.ray_units_s, report.local_units_s)
    report.overhead_of_joined = share_over(report.ray_joined_s, report.local_joined_s)
    for folder in folders.values():
        shutil.rmtree(folder)


def units_seconds(folder: Path) -> float:
    """From the first unit of a run to its manifest, as its events say."""
    last = (folder / "events.jsonl").read_bytes().splitlines()[-1]
    return float(msgspec.json.decode(last)["elapsed_s"])


def share_over(ours: list[float], theirs: list[float]) -> float:
    """How much more the median is, as a share."""
    return round(statistics.median(ours) / statistics.median(theirs) - 1, 4)


class IdleWorker:
    """Does nothing, at once."""

    def load(self, _message: bytes) -> bytes:
        hello = Hello(facts=None, resident_bytes=0, node="node", host="host", gristmill=version("gristmill"))
        return msgspec.json.encode(hello)

    def run(self, _prepare: bytes, task: bytes) -> bytes:
        unit = msgspec.json.decode(task, type=Task).unit
        record = UnitRecord(
            unit=unit, ledger=Ledger(), slice_records=(1,), shards=(), sidecars=(), stage_s={"read": 0.1}
        )
        return msgspec.json.encode(Answer(message=Done(record), resident_bytes=0))

    def tell(self) -> bytes:
        return msgspec.json.encode(News(blocks={}, resident_bytes=0))


class IdleActors(RayCluster):
    """Actors that take no CPU, so that a small machine has many."""

    def start(self, *, memory_bytes: int) -> Any:
        return ray.remote(IdleWorker).options(num_cpus=0, max_concurrency=3).remote()


def time_dispatch(num_units: int, work: Path) -> float:
    """Units a second that the driver gives out and takes back."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "units").mkdir(parents=True)
    (work / "plan.json").touch()
    job = as_training(
        {
            "read": {"inputs": ["made.jsonl"]},
            "learn": {"output": "made.json", "vocab_size": 300},
            "run": {"backend": "ray", "workers": IDLE_ACTORS, "memory": "8GB"},
        }
    )
    units = tuple(Unit(index=index, slices=()) for index in range(num_units))
    plan = UnitPlan(version=VERSION, identity={}, files=(), units=units, max_document_bytes=1)
    backend = ClusterBackend(job, IdleActors(RunConfig(backend="ray")))
    backend.facts()
    backend.prepare(LocalFolder(work), num_tasks=num_units)
    with closing(Progress(plan, DoneUnits(num_units), work / "events.jsonl", None)) as progress:
        start = time.perf_counter()
        num_done = sum(1 for _ in backend.run([Task(index) for index in range(num_units)], progress))
        seconds = time.perf_counter() - start
    assert num_done == num_units
    shutil.rmtree(work)
    return num_units / seconds


def main() -> None:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--eos-id", type=int, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/ray"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", default="megatron", help="of the shards")
    parser.add_argument("--dispatch", type=int, default=20_000)
    parser.add_argument("--output", type=Path, help="write the report as JSON")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled where a user installs them
    report = Report(
        machine=processor_name(),
        ray=version("ray"),
        input_bytes=arguments.input.stat().st_size,
        workers=WORKERS,
    )
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": WORKERS, "object_store_memory": 200 << 20}
    )
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        compare_sides(arguments, cluster.address, report)
        report.units_per_s = round(time_dispatch(arguments.dispatch, arguments.work / "dispatch"), 1)
    finally:
        ray.shutdown()
        cluster.shutdown()
    text = msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"
    sys.stdout.buffer.write(text)
    if arguments.output:
        arguments.output.write_bytes(text)


if __name__ == "__main__":
    main()
