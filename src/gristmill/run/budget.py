"""How many workers, and how much each may take at a time: what follows from cores, memory and preset."""

from __future__ import annotations

from typing import NamedTuple

from gristmill.config import Backend, RunConfig, TokenizeConfig
from gristmill.errors import ConfigError
from gristmill.job import byte_size
from gristmill.read import Blocks
from gristmill.run.resources import available_memory, num_cores

RUN_BYTES = 110 << 20
"""Held by the process that runs the workers."""
WORKER_BYTES = 170 << 20
"""Held by a worker before it reads anything: Python, Arrow, a tokenizer, the pieces it remembers."""
BLOCK_COST = 12
"""Bytes held for each byte of a block: the input, the text, ids, rows, and what is being written."""
DOCUMENT_COST = 6
MIN_BLOCK_BYTES = 256 << 10
BLOCK_BYTES = {"streaming": 1 << 20, "ultra": 4 << 20, "extreme": 16 << 20}
STREAMING_BYTES = 500 * 10**6


class Budget(NamedTuple):
    """What a run may use."""

    backend: Backend
    num_workers: int
    memory_bytes: int
    """Of all processes together."""
    blocks: Blocks
    write_behind: bool


def settle_budget(config: TokenizeConfig) -> Budget:
    """Workers and block sizes that stay within the memory; explicit options win over the preset's."""
    run = config.run
    backend = run.backend or _default_backend(config)
    memory = _memory(run)
    num_workers = _num_workers(run, backend, memory)
    share = (memory - RUN_BYTES) // num_workers if backend == "local" else memory
    spare = max(share - WORKER_BYTES, 0)
    wanted = (
        byte_size(run.block_bytes, name="run.block_bytes")
        if run.block_bytes is not None
        else max(MIN_BLOCK_BYTES, min(BLOCK_BYTES[run.preset], spare // BLOCK_COST))
    )
    is_extreme = run.preset == "extreme"
    return Budget(
        backend=backend,
        num_workers=num_workers,
        memory_bytes=memory,
        blocks=Blocks(
            block_bytes=wanted,
            max_document_bytes=_max_document_bytes(config, spare),
            memory_map=is_extreme if run.memory_map is None else run.memory_map,
            read_ahead=is_extreme if run.read_ahead is None else run.read_ahead,
        ),
        write_behind=is_extreme if run.write_behind is None else run.write_behind,
    )


def _default_backend(config: TokenizeConfig) -> Backend:
    # What only this process can see must be read by this process.
    is_here_only = any(path.startswith("memory://") for path in config.read.inputs)
    return "inline" if config.run.preset == "streaming" or is_here_only else "local"


def _memory(run: RunConfig) -> int:
    if run.memory is not None:
        memory = byte_size(run.memory, name="run.memory")
        least = RUN_BYTES + WORKER_BYTES
        if memory < least:
            raise ConfigError(f"run.memory is {run.memory}; a run needs at least {least // 10**6}MB")
        return memory
    half = available_memory() // 2
    return min(half, STREAMING_BYTES) if run.preset == "streaming" else half


def _num_workers(run: RunConfig, backend: Backend, memory: int) -> int:
    if run.workers is not None:
        return run.workers
    if backend == "inline":
        return 1
    return max(1, min(num_cores(), (memory - RUN_BYTES) // (WORKER_BYTES + MIN_BLOCK_BYTES * BLOCK_COST)))


def _max_document_bytes(config: TokenizeConfig, spare: int) -> int:
    if config.read.max_document_bytes is not None:
        return byte_size(config.read.max_document_bytes, name="read.max_document_bytes")
    return max(spare // DOCUMENT_COST, MIN_BLOCK_BYTES)
