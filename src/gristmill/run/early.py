"""What a command starts of a run before it imports the rest of it: its workers take longest to come."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from gristmill.config import CountConfig, RunJob, TokenizeConfig, TrainConfig
from gristmill.engine_cache import Steps, recall_cut, tried
from gristmill.head_start import LEAST_FILE_BYTES, CountedStart, EncodedStart
from gristmill.run.loading import Recalling
from gristmill.run.process import (
    WORKER_BYTES,
    WorkerProcess,
    choose_backend,
    is_frugal,
    memory_of,
    start_gpus,
    start_worker,
    tokenizer_to_load,
)
from gristmill.run.resources import num_cores

if TYPE_CHECKING:
    from gristmill.run.work import Backend


class Early(NamedTuple):
    """Workers that are on their way: processes, what drives a cluster, or the tokenizer of this one."""

    processes: tuple[WorkerProcess, ...] = ()
    gpus: tuple[WorkerProcess, ...] = ()
    backend: Backend | None = None
    recalling: Recalling | None = None
    steps: Steps | None = None
    """How the text of a training is cut, where that was compiled before."""
    head_start: CountedStart | EncodedStart | None = None
    since: float | None = None
    """When it was begun, by the clock that never goes back."""

    def end(self) -> None:
        """Whatever of it is still there ends now."""
        for process in (*self.processes, *self.gpus):
            process.end()
        if self.backend is not None:
            self.backend.close()
        if self.head_start is not None:
            self.head_start.end()


NOTHING = Early()


def start_early(config: RunJob) -> Early:
    """Workers that a job will need, if it needs any; a run that looks finished may need none."""
    folder = config.write.output if isinstance(config, TokenizeConfig) else ""
    is_finished = bool(folder) and "://" not in folder and os.path.exists(f"{folder}/manifest.json")
    backend, since = choose_backend(config), time.monotonic()
    if is_finished:
        return NOTHING
    if backend == "inline" and isinstance(config, TrainConfig):
        return _start_counting(config)
    if backend == "inline":
        assert isinstance(config, TokenizeConfig)
        return _start_encoding(config)._replace(since=since)
    if backend == "ray":
        from gristmill.run.ray import open_ray

        return Early(backend=open_ray(config, is_last=True), since=since)
    fitting = max(1, memory_of(config.run) // WORKER_BYTES)
    num_workers = min(config.run.workers or num_cores(), fitting)
    gpus = start_gpus(config, num_workers)
    workers = tuple(start_worker(config) for _ in range(num_workers))
    return Early(processes=workers, gpus=gpus, since=since)


def names_of_cut(config: TrainConfig) -> tuple[str | None, str | None]:
    """What the user calls the way text is cut, where no other tokenizer says it."""
    return config.count.pattern, config.count.form


def _start_encoding(config: TokenizeConfig) -> Early:
    head_start = None
    policy, output = config.encode.special_tokens, config.write.output
    # A run that is taken up again need not begin with the first block; a memory that is set is all planned.
    is_new = "://" not in output and not os.path.exists(output) and config.run.memory is None
    is_native = config.tokenizer.engine in ("auto", "native")
    if is_new and is_native and policy != "error" and _is_worth_a_head_start(config):
        path, field = config.read.inputs[0], config.read.text_field
        assert isinstance(field, str)
        head_start = tried(lambda: EncodedStart(path, field, policy))
    return Early(recalling=Recalling(tokenizer_to_load(config), head_start), head_start=head_start)


def _start_counting(config: TrainConfig) -> Early:
    from gristmill.training.output import Output

    if config.learn.extend is not None:
        return NOTHING
    steps = recall_cut(*names_of_cut(config))
    folder = config.count.folder or Output.of(config.learn.output).run_folder
    plain = CountConfig(pattern=config.count.pattern, form=config.count.form, folder=config.count.folder)
    # A count that is taken up again, or all done, need not begin with the first block.
    is_new = not os.path.exists(folder) and config.count == plain
    if steps is None or not is_new or not _is_worth_a_head_start(config):
        return Early(steps=steps)
    path, field = config.read.inputs[0], config.read.text_field
    assert isinstance(field, str)
    return Early(steps=steps, head_start=tried(lambda: CountedStart(path, field, steps)))


def _is_worth_a_head_start(config: TokenizeConfig | TrainConfig) -> bool:
    """A core would be idle, and all documents of one plain file are wanted, each once."""
    read, run = config.read, config.run
    is_plain = read.compression in ("auto", "none") and isinstance(read.text_field, str)
    return (
        (run.workers or num_cores()) > 1
        and not is_frugal(run)
        and run.max_rows is None
        and run.max_tokens is None
        and is_plain
        and not set(read.text_field) & set(".\\")
        and read.id_field is None
        and read.dataset is None
        and len(read.inputs) == 1
        and _is_large_jsonl(read.inputs[0], read.format)
    )


def _is_large_jsonl(path: str, format: str) -> bool:
    is_named_so = format == "jsonl" or (format == "auto" and path.lower().endswith((".jsonl", ".ndjson")))
    return is_named_so and os.path.isfile(path) and os.path.getsize(path) >= LEAST_FILE_BYTES
