"""How many workers, and how much each may take at a time: what follows from cores, memory and preset."""

from __future__ import annotations

from typing import Literal

import msgspec

from gristmill.config import DEFAULT_CACHE_BYTES, Backend, RunJob, TokenizeConfig
from gristmill.engines.cuda import RUN_BATCH_BYTES
from gristmill.errors import ConfigError
from gristmill.job import byte_size
from gristmill.read import Blocks, is_remote
from gristmill.read.ranges import NUM_AHEAD, PART_BYTES
from gristmill.run.process import (
    WORKER_BYTES,
    choose_backend,
    default_workers,
    encodes_on_gpu,
    gpu_settings,
    memory_of,
)
from gristmill.run.resources import num_cores
from gristmill.store.objects import TRANSFER_BYTES

RUN_BYTES = 80 << 20
"""Held by the process that runs the workers."""
CACHE_BYTES = DEFAULT_CACHE_BYTES + (8 << 20)
"""Of pieces a worker will remember, and the tables round them."""
MIN_COUNTER_BYTES = 24 << 20
MAX_COUNTER_BYTES = 2 << 30
STORE_BYTES = 48 << 20
"""Of the packages that speak with a store, in every process that does."""
READING_BYTES = (NUM_AHEAD + 1) * PART_BYTES
"""Of a file in a store, on its way and at hand."""
BLOCK_COST = 12
"""Bytes held for each byte of a block: the input, the text, ids, rows, and what is being written."""
DOCUMENT_SHARE = 16
"""A document may have this part of the memory: it costs a multiple of its size."""
MIN_BLOCK_BYTES = 256 << 10
FULL = 0.97
"""Of the memory there is for it: whoever holds more is ended."""
GPU_COST = 5
"""Bytes more for each, where they go to a GPU and back."""
GPU_BYTES = 1 << 30
"""Held to drive a GPU, beside what is shared with workers."""
BLOCK_BYTES = {"streaming": 1 << 20, "ultra": 4 << 20, "extreme": 16 << 20}
WorkersLimit = Literal["run.workers", "cores", "memory", "one"]
"""What decides how many workers there are; one: the preset or the backend asks for it."""
BlockLimit = Literal["run.block_bytes", "preset", "memory"]
"""What decides how large a block is."""


class Budget(msgspec.Struct, frozen=True):
    """What a run may use, and which limits decided it."""

    backend: Backend
    num_workers: int
    memory_bytes: int
    """Of all processes together."""
    blocks: Blocks
    write_behind: bool
    counter_bytes: int
    """Of pieces that a worker counts before it spills them."""
    workers_limit: WorkersLimit = "cores"
    block_limit: BlockLimit = "preset"


def settle_budget(config: RunJob, *, worker_bytes: int = WORKER_BYTES) -> Budget:
    """Workers and block sizes that stay within the memory; explicit options win over the preset's.

    `worker_bytes` is what a worker holds once it has loaded the tokenizer."""
    run = config.run
    backend = choose_backend(config)
    memory = memory_of(run)
    gpu_bytes = _gpu_bytes(config, backend)
    workers_memory = memory - RUN_BYTES - gpu_bytes
    num_workers, workers_limit = _num_workers(config, backend, workers_memory, worker_bytes)
    share = _share(backend, workers_memory, num_workers, worker_bytes)
    block_bytes, block_limit = _block_bytes(config, share - _table_bytes(config), is_on_gpu=gpu_bytes > 0)
    counter_bytes = min(share - block_bytes * BLOCK_COST, MAX_COUNTER_BYTES)
    is_extreme = run.preset == "extreme"
    return Budget(
        backend=backend,
        num_workers=num_workers,
        memory_bytes=memory,
        blocks=Blocks(
            block_bytes=block_bytes,
            max_document_bytes=_max_document_bytes(config, backend, memory, num_workers),
            memory_map=is_extreme if run.memory_map is None else run.memory_map,
            read_ahead=_is_ahead(config) if run.read_ahead is None else run.read_ahead,
            max_documents=run.batch_size,
        ),
        write_behind=is_extreme if run.write_behind is None else run.write_behind,
        counter_bytes=max(counter_bytes, MIN_COUNTER_BYTES),
        workers_limit=workers_limit,
        block_limit=block_limit,
    )


def _is_ahead(config: RunJob) -> bool:
    """A store far away is waited for again and again, unless the next block is on its way already."""
    return config.run.preset == "extreme" or any(map(is_remote, config.read.inputs))


def _gpu_bytes(config: RunJob, backend: Backend) -> int:
    """What is held to drive GPUs from beside the workers."""
    if backend == "ray" or not encodes_on_gpu(config):
        return 0
    return GPU_BYTES * (len(gpu_settings()) if backend == "local" else 1)


def _share(backend: Backend, memory: int, num_workers: int, worker_bytes: int) -> int:
    """What a worker may hold beside the tokenizer, which threads have in common."""
    if backend != "inline":
        return memory // num_workers - worker_bytes
    return (memory - worker_bytes) // num_workers


def _table_bytes(config: RunJob) -> int:
    """What a worker's tables will grow to, at least, and what it holds of files in stores."""
    tables = CACHE_BYTES if isinstance(config, TokenizeConfig) else MIN_COUNTER_BYTES
    reads = any(map(is_remote, config.read.inputs))
    writes = isinstance(config, TokenizeConfig) and is_remote(config.write.output)
    return tables + STORE_BYTES * (reads or writes) + READING_BYTES * reads + TRANSFER_BYTES * writes


def _num_workers(
    config: RunJob, backend: Backend, memory: int, worker_bytes: int
) -> tuple[int, WorkersLimit]:
    """As many as asked for, or as there are cores, and no more than the memory holds."""
    least = worker_bytes + _table_bytes(config) + MIN_BLOCK_BYTES * BLOCK_COST
    fitting = memory // least
    if fitting < 1:
        given = memory_of(config.run)
        needed = (given - memory + least) // 10**6 + 1
        said = f"{given // 10**6} MB" if given >= 10**6 else f"{given} bytes"
        raise ConfigError(f"run.memory is {said}; this job needs at least {needed} MB: raise it")
    wanted = config.run.workers or default_workers(config)
    is_alone = wanted == 1 < num_cores()
    limit: WorkersLimit = "run.workers" if config.run.workers else "one" if is_alone else "cores"
    if backend == "inline":  # one tokenizer for all
        fitting = (memory - worker_bytes) // (least - worker_bytes)
    return (wanted, limit) if wanted <= fitting else (fitting, "memory")


def _block_bytes(config: RunJob, spare: int, *, is_on_gpu: bool) -> tuple[int, BlockLimit]:
    run = config.run
    if run.block_bytes is not None:
        return byte_size(run.block_bytes, name="run.block_bytes"), "run.block_bytes"
    fitting, usual = spare // BLOCK_COST, BLOCK_BYTES[run.preset]
    if is_on_gpu and run.preset != "streaming":
        fitting, usual = spare // (BLOCK_COST + GPU_COST), RUN_BATCH_BYTES
    return (usual, "preset") if usual <= fitting else (max(MIN_BLOCK_BYTES, fitting), "memory")


def _max_document_bytes(config: RunJob, backend: Backend, memory: int, num_workers: int) -> int:
    if config.read.max_document_bytes is not None:
        return byte_size(config.read.max_document_bytes, name="read.max_document_bytes")
    if backend == "ray":  # on one machine a worker may have all of the memory, on a cluster its part
        memory = (memory - RUN_BYTES) // num_workers
    elif config.run.memory is not None:  # the same limit in every container
        memory = byte_size(config.run.memory, name="run.memory")
    return max(memory // DOCUMENT_SHARE, MIN_BLOCK_BYTES)
