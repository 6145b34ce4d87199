"""One method, one fresh process: load, warm up on other text, time the passes, leave ids and times in files.

Started by `bench` as `python -m gristmill.bench_worker JOB`; nothing of one measurement is left for the next.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from gristmill.bench_methods import METHODS
from gristmill.errors import GristmillError

WARM_UP = "Wake up: threads start and modules load on this line, 1 2 3."


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is asked to do; paths are of files."""

    source: str
    method: str
    threads: int
    num_passes: int
    documents: str
    """JSON list of strings."""
    outcome: str
    ids: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker found; absent means that the method does not apply here."""

    status: Literal["ok", "absent", "failed"]
    reason: str = ""
    load_s: float = 0.0
    passes_s: tuple[float, ...] = ()


def run_job(job: Job) -> Outcome:
    """Time one method on the job's documents."""
    start = time.perf_counter()
    try:
        encoder = METHODS[job.method](job.source, job.threads)
    except GristmillError as error:
        return Outcome(status="absent", reason=str(error))
    load_s = time.perf_counter() - start
    documents = encoder.prepare(msgspec.json.decode(Path(job.documents).read_bytes(), type=list[str]))
    encoder.encode(encoder.prepare([WARM_UP]))
    passes_s = []
    gc.collect()
    encoded = None
    for _ in range(job.num_passes):
        encoded = None  # what a pass gave is let go before the next, as in a loop over batches
        start = time.perf_counter()
        encoded = encoder.encode(documents)
        passes_s.append(time.perf_counter() - start)
    ids, offsets = encoder.flatten(encoded)
    np.savez(job.ids, ids=ids, offsets=offsets)
    return Outcome(status="ok", load_s=load_s, passes_s=tuple(passes_s))


def main(argv: list[str]) -> None:
    """Run the job described in the file that the only argument names."""
    job = msgspec.json.decode(Path(argv[1]).read_bytes(), type=Job)
    try:
        outcome = run_job(job)
    except Exception as error:
        outcome = Outcome(status="failed", reason=f"{type(error).__name__}: {error}".partition("\n")[0])
    Path(job.outcome).write_bytes(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main(sys.argv)
