"""Starting worker processes: imports next to nothing, so that they start before the run is imported."""

from __future__ import annotations

import glob
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from types import MappingProxyType
from typing import IO

import msgspec

from gristmill.config import (
    SMALL_BYTES,
    Backend,
    ReadConfig,
    RunConfig,
    RunJob,
    TokenizeConfig,
    TokenizerConfig,
    TrainConfig,
)
from gristmill.errors import ConfigError, MissingPackageError
from gristmill.job import byte_size
from gristmill.run.resources import available_memory, memory_limit, num_cores

LOG_LINES = 5
WORKER_BYTES = 110 << 20
"""Held by a worker that has loaded a small tokenizer: what is reckoned with until it is known."""
STREAMING_BYTES = 500 * 10**6
CONTAINER_SHARE = 94
"""Per cent of a container's memory that a run may be told to take: the rest is the system's."""
SMALL_SHARE = 80
"""Per cent of what is available that a run takes where half of it is little."""
GPU_INPUT_BYTES = 512 << 20
"""Of input, for every core: with less, most of it is done before a GPU is open."""
GPU_EXPANSION = 2
"""Rather too little than too much: a GPU that is opened is waited for."""
MAX_FILES_SEEN = 10_000
PLAIN = (".jsonl", ".ndjson", ".json", ".txt", ".csv", ".tsv")
UNKNOWN_BYTES = 1 << 60
EXPANSION = 5
"""Bytes of text in a byte of a file that may be compressed, as a rule."""
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from gristmill.run.worker import main; main()"
"""Finds modules where this process does; `-m` would look in the working directory first, and run a random.py
that a corpus holds."""
NVIDIA_GPUS = "/proc/driver/nvidia/gpus"
GPU_PROGRAM = PROGRAM.replace(".worker", ".gpu")
MOST_THREADS = 4
"""That count: more would wait for the thread that reads."""
ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1"}
"""Every worker has a core of its own."""
FRUGAL = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": str(4 << 20)}
"""Blocks go back to the system when they are done with: a fifth less memory, which does not grow with the
input, for a tenth more time."""


class WorkerProcess:
    """A worker process, or that of a GPU, its pipes, and what it prints."""

    def __init__(
        self, *, is_frugal: bool, program: str = PROGRAM, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`settings` are added to its environment."""
        import subprocess  # neither is needed by a run of threads
        import tempfile

        settings = ONE_THREAD | (FRUGAL if is_frugal else {}) | dict(settings)
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in a terminal reaches the run alone
            env=os.environ | settings | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.orders: IO[bytes] = self._process.stdin
        self.answers: IO[bytes] = self._process.stdout
        self.pid = self._process.pid

    def last_words(self) -> str:
        """How it ended, and the end of what it printed."""
        status = self._process.wait()
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        self._words.seek(0)
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()[-LOG_LINES:]
        return f"a worker ended {how}{': ' + ' | '.join(lines) if lines else ''}"

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Let it end now."""
        self._process.kill()

    def end(self) -> None:
        """Kill it if it is still there, and let go of its pipes."""
        self._process.kill()
        self._process.wait()
        for stream in (self.orders, self.answers, self._words):
            with suppress(BrokenPipeError):
                stream.close()


def memory_of(run: RunConfig) -> int:
    """Bytes that all processes of a run together may hold."""
    if run.memory is not None:
        asked = byte_size(run.memory, name="run.memory")
        # A container that is exceeded is killed; what nodes of a cluster have is another matter.
        limit = None if run.backend == "ray" else memory_limit()
        return asked if limit is None else min(asked, limit * CONTAINER_SHARE // 100)
    available = available_memory()
    half = max(available // 2, min(available * SMALL_SHARE // 100, STREAMING_BYTES))
    return min(half, STREAMING_BYTES) if run.preset == "streaming" else half


def is_frugal(run: RunConfig) -> bool:
    """Whether memory matters more than the last per cent of speed: it is set, or the preset promises it."""
    return run.memory is not None or run.preset == "streaming"


def choose_backend(config: RunJob) -> Backend:
    """The backend asked for, or the one that suits."""
    # What only this process can see must be read by this process.
    is_here_only = bool(_here_only(config))
    # One process reads as fast as a few threads count, and they need no start and no merging of files.
    is_light = isinstance(config, TrainConfig) and (config.run.workers or num_cores()) <= MOST_THREADS
    is_streamed = config.run.preset == "streaming"
    is_inline = is_streamed or is_here_only or is_light or is_small(config)
    default: Backend = "inline" if is_inline else "local"
    return config.run.backend or default


def encodes_on_gpu(config: RunJob) -> bool:
    """Asked for, and worth it."""
    if not isinstance(config, TokenizeConfig) or config.tokenizer.engine != "cuda":
        return False
    return not _holds_less(config.read, GPU_INPUT_BYTES * num_cores(), expansion=GPU_EXPANSION)


def tokenizer_to_load(config: TokenizeConfig) -> TokenizerConfig:
    """The tokenizer a job names, with the engine that encodes first; on one machine the GPU is opened beside
    it, and little input is done before that."""
    tokenizer = config.tokenizer
    if tokenizer.engine != "cuda":
        return tokenizer
    if importlib.util.find_spec("cupy") is None:
        raise MissingPackageError(
            "engine 'cuda' needs an NVIDIA GPU and CuPy: pip install 'gristmill[gpu]'; or set engine native"
        )
    return msgspec.structs.replace(tokenizer, engine="native")


def _here_only(config: RunJob) -> list[str]:
    """Inputs and output that are in the memory of this process."""
    output = config.write.output if isinstance(config, TokenizeConfig) else ""
    return [path for path in (*config.read.inputs, output) if path.startswith("memory://")]


def check_reachable(config: RunJob) -> None:
    """Refuse workers that could not see what they are to read or write."""
    if choose_backend(config) != "inline" and (paths := _here_only(config)):
        raise ConfigError(f"{paths[0]}: is in the memory of this process alone; set run.backend inline")


def default_workers(config: RunJob) -> int:
    """Processes or threads of a job that does not say how many: all cores, unless it is to be one process."""
    if choose_backend(config) != "inline":
        return num_cores()
    is_own_choice = config.run.backend is None and config.run.preset != "streaming"
    most = num_cores() if isinstance(config, TokenizeConfig) else MOST_THREADS
    return min(num_cores(), most) if is_own_choice else 1


def is_small(config: RunJob) -> bool:
    """Threads would have done the job while worker processes are starting.

    A set memory is kept to by ending processes, so it needs some."""
    if config.run.backend is not None or config.run.preset != "ultra" or config.run.memory is not None:
        return False
    return _holds_less(config.read, SMALL_BYTES)


def _holds_less(read: ReadConfig, most: int, *, expansion: int = EXPANSION) -> bool:
    """Is there surely less input than so many bytes?"""
    if read.dataset is not None:
        return False
    num_bytes = 0
    for num_seen, size in enumerate(_sizes(read.inputs, expansion)):
        num_bytes += size
        if num_bytes >= most or num_seen >= MAX_FILES_SEEN:
            return False
    return True


def _sizes(inputs: Iterable[str], expansion: int) -> Iterator[int]:
    """About what local files, folders and patterns hold; anything else may hold much."""
    for given in inputs:
        found = [given] if os.path.lexists(given) else glob.glob(given, recursive=True)
        for path in found or [given]:
            if os.path.isdir(path):
                for folder, _, names in os.walk(path):
                    yield from (_size(f"{folder}/{name}", expansion) for name in names)
            else:
                yield _size(path, expansion)


def _size(path: str, expansion: int) -> int:
    if not os.path.isfile(path):
        return UNKNOWN_BYTES
    return os.path.getsize(path) * (1 if path.endswith(PLAIN) else expansion)


def start_gpus(config: RunJob, num_workers: int) -> tuple[WorkerProcess, ...]:
    """What will drive each GPU for the workers of a job, where GPUs encode."""
    if not encodes_on_gpu(config):
        return ()
    return tuple(
        WorkerProcess(is_frugal=False, program=GPU_PROGRAM, settings=settings)
        for settings in gpu_settings()[:num_workers]
    )


def gpu_settings() -> list[dict[str, str]]:
    """What lets a process see one GPU, for each; at least one, which says what is missing."""
    name = "CUDA_VISIBLE_DEVICES"
    named = [each.strip() for each in os.environ.get(name, "").split(",")]
    found = list(takewhile(lambda each: each not in ("", "-1"), named))  # as the driver reads it
    if name not in os.environ:
        with suppress(OSError):
            found = [str(number) for number in range(len(os.listdir(NVIDIA_GPUS)))]
    return [{name: each} for each in found] or [{}]


def start_worker(config: RunJob) -> WorkerProcess:
    """A worker for a job."""
    return WorkerProcess(is_frugal=is_frugal(config.run))
