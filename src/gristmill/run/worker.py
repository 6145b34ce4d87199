"""A worker process: loads the tokenizer once, then processes the units it is told to, until its input ends.

Started as a program of its own, so that nothing of the caller's is imported again."""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from gristmill.errors import GristmillError
from gristmill.limits import Block
from gristmill.plan import CountPlan
from gristmill.records import UnitRecord
from gristmill.run.folder import each_record, read_any_plan
from gristmill.run.loading import load_configured
from gristmill.run.messages import (
    Done,
    Failed,
    FromWorker,
    Load,
    Loaded,
    Prepare,
    Task,
    ToWorker,
    Worked,
    Written,
)
from gristmill.run.resources import keep_few_blocks, keep_what_is_left, resident_bytes
from gristmill.run.settle import facts_of
from gristmill.store import RemoteFolder, open_folder

if TYPE_CHECKING:
    from gristmill.count_pipeline import CountJob
    from gristmill.pipeline import Job
    from gristmill.tokenizer import Tokenizer

REPORT_EVERY_S = 0.2
MAX_COMMITTING = 2
"""Units that wait for the disk while another is worked at."""


def main() -> None:
    """Serve until standard input ends; whatever is printed goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when to stop
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    inbox: queue.SimpleQueue[ToWorker] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, inbox), daemon=True).start()

    turn = threading.Lock()

    def answer(message: FromWorker) -> None:
        with turn:
            answers.write(msgspec.json.encode(message) + b"\n")

    try:
        serve(inbox.get, answer)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        try:
            answer(failure_of(error))
        finally:
            os._exit(1)  # a thread waits for standard input, which the interpreter cannot end beside


def serve(receive: Callable[[], ToWorker], answer: Callable[[FromWorker], None]) -> None:
    """Load, prepare, then a unit at a time."""
    load = receive()
    assert isinstance(load, Load)
    tokenizer = load_configured(load.tokenizer) if load.tokenizer else None
    gc.freeze()
    if tokenizer and load.gpu:
        from gristmill.tokenizer import share_gpu

        tokenizer = share_gpu(tokenizer, load.gpu.address, load.gpu.batch_bytes)
    facts = facts_of(tokenizer, load.tokenizer.source) if tokenizer and load.tokenizer else None
    answer(Loaded(facts, resident_bytes()))
    prepare = receive()
    assert isinstance(prepare, Prepare)
    keep_few_blocks()
    job = make_job_of(prepare, tokenizer)
    room = threading.Semaphore(MAX_COMMITTING)

    written: queue.SimpleQueue[tuple[Task, Commit]] = queue.SimpleQueue()

    def commit_what_comes() -> None:
        while True:
            task, commit = written.get()
            try:
                answer(Done(commit()))
            except BaseException as error:
                answer(failure_of(error, task.unit))
            finally:
                room.release()

    threading.Thread(target=commit_what_comes, daemon=True).start()
    while True:
        task = receive()
        assert isinstance(task, Task)
        try:
            commit = run_task(job, task, _reporter(answer, tokenizer if prepare.is_frugal else None))
        except (GristmillError, MemoryError, OSError) as error:
            answer(failure_of(error, task.unit))
            continue
        room.acquire()
        answer(Written(task.unit))
        written.put((task, commit))


def make_job_of(prepare: Prepare, tokenizer: Tokenizer | None) -> Job | CountJob:
    """The job of a run folder; of what counts and what encodes, only one is imported."""
    store = open_folder(prepare.folder, stage=prepare.stage, token=prepare.token)
    if isinstance(store, RemoteFolder) and not prepare.stage:
        store.pull_plan()
    plan = read_any_plan(store.path)
    assert plan is not None
    # Settled when the run was planned: it decides which documents are too large.
    blocks = prepare.blocks._replace(max_document_bytes=plan.max_document_bytes)
    if isinstance(plan, CountPlan):
        from gristmill.count_pipeline import CountJob

        return CountJob(
            plan=plan,
            folder=store.path,
            blocks=blocks,
            counter_bytes=prepare.counter_bytes,
            num_threads=prepare.num_threads,
            lease=prepare.token,
        )
    from gristmill.pipeline import Job

    return Job(
        config=plan.config,
        plan=plan,
        store=store,
        tokenizer=tokenizer,
        blocks=blocks,
        num_threads=lambda: prepare.num_threads,
        write_behind=prepare.write_behind,
    )


Commit = Callable[[], UnitRecord]
"""Lets what a task gave be seen."""


def run_task(job: Job | CountJob, task: Task, on_block: Callable[[Block], None]) -> Commit:
    """Process the unit, or the tails of all; it remains to be committed."""
    if isinstance(job.plan, CountPlan):
        from gristmill.count_pipeline import CountJob, count_unit

        assert isinstance(job, CountJob)
        unit = job.plan.units[task.unit]
        record = count_unit(job.with_blocks(task.block_bytes), unit, limit=task.limit, on_block=on_block)
        return lambda: record
    from gristmill.pipeline import Job, pack_tails, process_unit

    assert isinstance(job, Job)
    if task.unit == len(job.plan.units):
        if isinstance(job.store, RemoteFolder):
            job.store.pull_records()
        before = (record for record in each_record(job.folder, job.plan) if record.unit < task.unit)
        return pack_tails(job, before, limit=task.limit).commit
    unit = job.plan.units[task.unit]
    return process_unit(job.with_blocks(task.block_bytes), unit, limit=task.limit, on_block=on_block).commit


def _reporter(
    answer: Callable[[FromWorker], None], growing: Tokenizer | None
) -> Callable[[Block], None]:
    """Gathers blocks, so that a report is made now and then rather than for each; what a tokenizer remembers
    may take memory from blocks, where one is given."""
    waiting = Block(0, 0, 0, 0)
    reported = time.monotonic()

    def report(block: Block) -> None:
        nonlocal waiting, reported
        if growing is not None:
            keep_what_is_left(growing.remembered_bytes)
        waiting = Block(*map(sum, zip(waiting, block, strict=True)))
        if time.monotonic() - reported >= REPORT_EVERY_S:
            answer(Worked(waiting))
            waiting, reported = Block(0, 0, 0, 0), time.monotonic()

    return report


def _listen(stream: BinaryIO, inbox: queue.SimpleQueue[ToWorker]) -> None:
    """Pass messages on; end the process at once when the run is gone, whatever it is doing."""
    decoder = msgspec.json.Decoder(ToWorker)
    for line in stream:
        inbox.put(decoder.decode(line))
    os._exit(0)


def failure_of(error: BaseException, unit: int | None = None) -> Failed:
    """What the run is told of an error."""
    return Failed(
        kind=type(error).__name__,
        message=str(error) or type(error).__name__,
        is_users=isinstance(error, GristmillError),
        unit=unit,
    )
