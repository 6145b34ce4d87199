"""One driver and very many units: planning, driving and ending a run of up to a million, and what they cost.

    python benchmarks/scale.py [--units 10000 100000 1000000] [--workers 4096] [--unit-s 5] [--real-time]
        [--work FOLDER] [--output FILE]

Inputs are real files, sparse, a GB each; units have 100 MB. The plan, the run folder, the loop that drives a
cluster, the ledger and the manifest are the real ones. Only the cluster is made up: its workers sleep a drawn
time, fail now and then, are lost now and then, and write the record of a unit as a worker would, without
shards. Their sleep passes at once, and what they cost is measured and left out, which shows what the driver
could do at most; with --real-time they sleep, and all of it counts. Every size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from gristmill.config import TokenizeConfig
from gristmill.job import make_job
from gristmill.layout import Layout
from gristmill.plan import Plan, cut_units
from gristmill.read import find_inputs
from gristmill.records import VERSION, FileRecord, Ledger, ShardRecord, UnitRecord
from gristmill.report.view import render_line
from gristmill.run import tokenize
from gristmill.run.cluster import ClusterBackend
from gristmill.run.done import DoneUnits
from gristmill.run.folder import each_record, prepare_folder
from gristmill.run.messages import Done, Failed, Prepare, Task
from gristmill.run.nodes import Reply, Room
from gristmill.run.remote_worker import Answer, Hello, News
from gristmill.run.resume import plan_or_resume
from gristmill.run.settle import TokenizerFacts, identity_of
from gristmill.run.tokenize import RunResult
from gristmill.sidecars import FOLDER
from gristmill.store import LocalFolder

FILE_BYTES = 10**9
UNIT_BYTES = 10**8
FAILURES = 0.002
LOSSES = 0.002
OWN_VERSION = version("gristmill")
AT_ONCE = 64
"""Replies that come together at most."""
FACTS = TokenizerFacts(
    name="made",
    fingerprint="0" * 64,
    vocab_size=50257,
    bos_id=None,
    eos_id=0,
    pad_id=0,
    special_tokens={},
    engine="native",
    why_not_native=None,
)
LAYOUT = Layout(
    mode="documents",
    sequence_length=None,
    formats=("megatron",),
    dtype="uint16",
    bos_id=None,
    eos_id=0,
    pad_id=None,
    tokenizer="made",
    fingerprint="0" * 64,
    vocab_size=50257,
    mask_first_token=False,
)


class Result(msgspec.Struct, kw_only=True):
    """What a run of one size cost."""

    units: int
    workers: int
    unit_s: float
    """Mean of the times that units take."""
    is_real_time: bool
    retries: int = 0
    list_s: float = 0.0
    """Finding the inputs."""
    plan_s: float = 0.0
    """Cutting units, writing the plan."""
    drive_s: float = 0.0
    """All units; without what the made-up workers took, unless time is real."""
    finish_s: float = 0.0
    """Reading all records, writing the manifest."""
    resume_s: float = 0.0
    """Reading all records again."""
    driver_cpu_us_per_unit: float = 0.0
    """From the first unit to the manifest."""
    units_per_s: float = 0.0
    """While driving."""
    peak_memory_mb: float = 0.0
    plan_mb: float = 0.0
    ledger_mb: float = 0.0
    """Records of all units."""
    manifest_mb: float = 0.0
    events_mb: float = 0.0


class MadeCluster:
    """Workers that take a drawn time, which passes at once unless time is real."""

    def __init__(self, num_workers: int, unit_name: Any, *, unit_s: float, is_real_time: bool) -> None:
        self._random = random.Random(1)
        self._unit_s = unit_s
        self._num_workers = num_workers
        self._unit_name = unit_name
        self._next_worker = 0
        self._is_real_time = is_real_time
        self._passed = 0.0
        self._events: list[tuple[float, int, int, str, bytes]] = []
        self._number = 0
        self.own_s = self.own_cpu_s = 0.0
        self.num_retries = 0

    def room(self) -> Room:
        """A large cluster."""
        return Room(self._num_workers, 4 << 30)

    def start(self, *, memory_bytes: int) -> int:
        """A worker is a number."""
        self._next_worker += 1
        return self._next_worker

    def call(self, worker: int, method: str, *arguments: bytes) -> None:
        """The reply comes after a drawn time."""
        delay = self._random.expovariate(1 / self._unit_s) if method == "run" else 0.01
        self._number += 1
        event = (self._now() + delay, self._number, worker, method, b"\0".join(arguments))
        heapq.heappush(self._events, event)

    def heard(self, timeout_s: float) -> list[Reply]:
        """The replies of the next moment."""
        start, used = time.perf_counter(), time.thread_time()
        heard: list[Reply] = []
        due = self._sleep(timeout_s) if self._is_real_time else self._events[0][0] + timeout_s
        while self._events and self._events[0][0] <= due and len(heard) < AT_ONCE:
            self._passed, _, worker, method, arguments = heapq.heappop(self._events)
            heard.append(self._reply(worker, method, arguments))
        self.own_s += time.perf_counter() - start
        self.own_cpu_s += time.thread_time() - used
        return heard

    def _now(self) -> float:
        return time.monotonic() if self._is_real_time else self._passed

    def _sleep(self, timeout_s: float) -> float:
        """Until the first reply is due, or for so long; the time it is then."""
        first = self._events[0][0] - time.monotonic() if self._events else timeout_s
        time.sleep(max(0.0, min(first, timeout_s)))
        return time.monotonic()

    def is_lost(self, node: str) -> bool:
        """Half of those that do not answer are lost with their node."""
        return self._random.random() < 0.5

    def end(self, worker: int) -> None:
        """Its replies are not heard any more."""

    def close(self) -> None:
        """Nothing runs on."""

    def _reply(self, worker: int, method: str, arguments: bytes) -> Reply:
        if method == "load":
            host = f"node-{worker % 64}"
            hello = Hello(facts=FACTS, resident_bytes=1 << 28, node=host, host=host, gristmill=OWN_VERSION)
            return Reply(worker, method, msgspec.json.encode(hello), "")
        if method == "tell":
            return Reply(worker, method, msgspec.json.encode(News(blocks={}, resident_bytes=1 << 28)), "")
        drawn = self._random.random()
        if drawn < LOSSES:
            self.num_retries += 1
            return Reply(worker, method, None, "the worker is gone")
        prepare, task = arguments.split(b"\0")
        unit = msgspec.json.decode(task, type=Task).unit
        message: Done | Failed
        if drawn < LOSSES + FAILURES:
            self.num_retries += 1
            message = Failed("OSError", "made up", is_users=False, unit=unit)
        else:
            record = made_record(unit, self._unit_name(unit))
            folder = Path(msgspec.json.decode(prepare, type=Prepare).folder)
            (folder / FOLDER / f"{self._unit_name(unit)}.json").write_bytes(msgspec.json.encode(record))
            message = Done(record)
        return Reply(worker, method, msgspec.json.encode(Answer(message=message, resident_bytes=1 << 28)), "")


def made_record(unit: int, name: str) -> UnitRecord:
    """The record of a unit as a run of megatron shards has it."""
    digest = f"{unit:064x}"
    paths = {"megatron": [f"megatron/shard-{name}-000.{end}" for end in ("bin", "idx")]}
    shard = ShardRecord(
        name=f"{name}-000",
        num_documents=20_000,
        num_rows=0,
        num_tokens=25_000_000 + unit,
        num_padding=0,
        files={
            kind: [FileRecord(path=path, num_bytes=50_000_000 + unit, blake3=digest) for path in found]
            for kind, found in paths.items()
        },
    )
    ledger = Ledger(
        documents_read=20_000,
        documents_encoded=20_000,
        bytes_read=UNIT_BYTES,
        bytes_encoded=95_000_000,
        tokens_encoded=25_000_000 + unit,
        tokens_written=25_000_000 + unit,
        rows=20_000,
    )
    sidecar = FileRecord(path=f"{FOLDER}/{name}.documents", num_bytes=800_000, blake3=digest)
    return UnitRecord(
        unit=unit,
        ledger=ledger,
        slice_records=(20_000,),
        shards=(shard,),
        sidecars=(sidecar,),
        stage_s={"read": 0.1, "encode": 1.2, "write": 0.3},
    )


def make_inputs(folder: Path, num_files: int) -> None:
    """Files of a GB each that take no room."""
    folder.mkdir(parents=True)
    for number in range(num_files):
        with open(folder / f"part-{number:07d}.jsonl", "wb") as file:
            file.truncate(FILE_BYTES)


def make_config(work: Path, num_workers: int) -> TokenizeConfig:
    """The job of a run."""
    return make_job(
        {
            "tokenizer": "made",
            "read": {"inputs": [str(work / "inputs")], "unit_bytes": UNIT_BYTES},
            "write": {"output": str(work / "run")},
            "run": {"backend": "ray", "workers": num_workers, "memory": f"{num_workers}GB"},
        }
    )


def make_plan(config: TokenizeConfig, result: Result) -> Plan:
    """The plan of the run, written to its folder."""
    start = time.perf_counter()
    files = tuple(find_inputs(config.read).files)
    result.list_s = time.perf_counter() - start
    start = time.perf_counter()
    folder = Path(config.write.output)
    folder.mkdir()
    plan = Plan(
        version=VERSION,
        identity=identity_of(config, LAYOUT, files),
        config=config,
        layout=LAYOUT,
        files=files,
        units=cut_units(config.read, files),
        max_document_bytes=1 << 26,
    )
    plan = plan_or_resume(LocalFolder(folder), plan, force=False)
    prepare_folder(folder, LAYOUT.formats)
    result.plan_s = time.perf_counter() - start
    return plan


def run_timed(plan: Plan, store: LocalFolder, backend: ClusterBackend, result: Result) -> RunResult:
    """The run, shown as in a terminal; its end is timed apart."""
    finish = tokenize.finish

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return finish(*arguments)
        finally:
            result.finish_s = time.perf_counter() - start

    def show(snapshot: Any) -> None:
        render_line(snapshot)

    tokenize.finish = timed
    try:
        return tokenize._run(plan, store, backend, show, facts=FACTS, loading_s=0.0)
    finally:
        tokenize.finish = finish


def measure(num_units: int, arguments: argparse.Namespace) -> Result:
    """One run of a size, from its inputs to its manifest."""
    work, is_real_time = arguments.work, arguments.real_time
    shutil.rmtree(work, ignore_errors=True)
    make_inputs(work / "inputs", num_units * UNIT_BYTES // FILE_BYTES)
    result = Result(
        units=num_units, workers=arguments.workers, unit_s=arguments.unit_s, is_real_time=is_real_time
    )
    config = make_config(work, arguments.workers)
    plan = make_plan(config, result)
    assert len(plan.units) == num_units
    folder = Path(config.write.output)
    cluster = MadeCluster(
        arguments.workers, plan.unit_name, unit_s=arguments.unit_s, is_real_time=is_real_time
    )
    backend = ClusterBackend(config, cluster)
    backend.facts()
    start, used = time.perf_counter(), time.process_time()
    outcome = run_timed(plan, LocalFolder(folder), backend, result)
    wall, cpu = time.perf_counter() - start, time.process_time() - used
    assert outcome.manifest is not None
    assert len(outcome.manifest.shards) == num_units
    assert outcome.last is not None
    result.drive_s = wall - result.finish_s - (0.0 if is_real_time else cluster.own_s)
    result.retries = cluster.num_retries
    result.driver_cpu_us_per_unit = (cpu - cluster.own_cpu_s) / num_units * 1e6
    result.units_per_s = num_units / result.drive_s
    start = time.perf_counter()
    assert len(DoneUnits(num_units, each_record(folder, plan))) == num_units
    result.resume_s = time.perf_counter() - start
    result.peak_memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    backend.close()
    names = {"plan_mb": "plan.json", "manifest_mb": "manifest.json", "events_mb": "events.jsonl"}
    for field, name in names.items():
        setattr(result, field, (folder / name).stat().st_size / 1e6)
    result.ledger_mb = sum(entry.stat().st_size for entry in os.scandir(folder / FOLDER)) / 1e6
    shutil.rmtree(work)
    return result


def main() -> None:
    """Measure every size in a fresh process, and print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--units", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--workers", type=int, default=4096)
    parser.add_argument("--unit-s", type=float, default=5.0, help="mean of the times drawn")
    parser.add_argument("--real-time", action="store_true", help="workers sleep the time they draw")
    parser.add_argument("--work", type=Path, default=Path("build/scale"))
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        result = measure(arguments.units[0], arguments)
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
        return
    results = []
    for num_units in arguments.units:
        command = [sys.executable, __file__, "--one", "--units", str(num_units)]
        command += ["--workers", str(arguments.workers), "--work", str(arguments.work)]
        command += ["--unit-s", str(arguments.unit_s)]
        command += ["--real-time"] * arguments.real_time
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        results.append(msgspec.json.decode(done.stdout, type=Result))
        print(" ".join(f"{key}={value:.6g}" for key, value in msgspec.structs.asdict(results[-1]).items()))
    if arguments.output:
        arguments.output.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


if __name__ == "__main__":
    main()
