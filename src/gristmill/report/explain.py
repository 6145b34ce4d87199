"""Why a run would have the workers, blocks and units it has: what decides each, and what would help."""

from __future__ import annotations

from collections import Counter

from gristmill.config import TokenizeConfig
from gristmill.job import byte_size
from gristmill.plan import MAX_UNIT_BYTES, MIN_UNIT_BYTES, Unit, choose_unit_bytes
from gristmill.read import InputFile
from gristmill.report.sampling import Sample
from gristmill.report.words import of_bytes, plural
from gristmill.run.budget import BLOCK_BYTES, BLOCK_COST, DOCUMENT_SHARE, Budget
from gristmill.run.process import STREAMING_BYTES
from gristmill.run.resources import available_memory, memory_limit, num_cores

ONE_UNIT = "a compressed or CSV file is one unit"
SPLIT_IT = "split it, or store it plain or as Parquet"
PACKED = ("gzip", "bz2", "xz")
"""Compressions that cost more time than zstd does."""


def explain_run(
    config: TokenizeConfig,
    budget: Budget,
    files: tuple[InputFile, ...],
    units: tuple[Unit, ...],
    sample: Sample,
) -> dict[str, str]:
    """Of each size: what decides it, and what would change it; in the order people ask."""
    return {
        "workers": _workers(budget, files, units),
        "memory": _memory(config, budget),
        "blocks": _blocks(config, budget),
        "units": _units(config, files, units),
        "documents": _documents(config, budget, sample),
        "input": _input(files, budget),
    }


def _workers(budget: Budget, files: tuple[InputFile, ...], units: tuple[Unit, ...]) -> str:
    number, cores = budget.num_workers, num_cores()
    if budget.backend == "ray":
        return "run.workers, or the CPUs of all nodes; the time is that of the cores of this machine"
    if len(units) < min(number, cores):
        is_whole = _are_whole(units, files)
        advice = f"{ONE_UNIT}; {SPLIT_IT}" if is_whole else "smaller read.unit_bytes give more"
        return f"{len(units)} of {number} have something to do: there are no more units, and {advice}"
    why = {
        "run.workers": "run.workers asks for it",
        "cores": f"one for each of the {plural(cores, 'core')} this process may use; more cores help",
        "memory": f"the memory holds no more, and there are {cores} cores; raise run.memory",
        "one": "the preset streaming or the backend inline has one; run.preset ultra takes all cores",
    }
    text = f"{number} ({budget.backend}): {why[budget.workers_limit]}"
    if number > cores:
        text += f"; more workers than the {plural(cores, 'core')} do not help; the default is one for each"
    elif budget.workers_limit == "run.workers" and number < cores:
        text += f"; there are {plural(cores, 'core')}, and the default is one worker for each"
    return text


def _memory(config: TokenizeConfig, budget: Budget) -> str:
    given = of_bytes(budget.memory_bytes)
    if config.run.memory is not None and budget.backend == "ray":
        return f"{given}: run.memory asks for it, of all nodes together"
    if config.run.memory is not None:
        limit, available = memory_limit(), available_memory()
        if limit is not None and budget.memory_bytes < byte_size(config.run.memory, name="run.memory"):
            asked = f"run.memory asks for {config.run.memory}"
            return f"{given}: {asked}, and the container has {of_bytes(limit)}"
        if budget.memory_bytes > available:
            return f"{given}: run.memory asks for it, and only {of_bytes(available)} are available now"
        return f"{given}: run.memory asks for it; {of_bytes(available)} are available now"
    if budget.memory_bytes == STREAMING_BYTES and config.run.preset == "streaming":
        return f"{given}: the preset streaming takes no more; run.memory sets it"
    return f"{given}: the default, from what is available now; run.memory sets it"


def _blocks(config: TokenizeConfig, budget: Budget) -> str:
    batch = config.run.batch_size
    most = f"; encoded {plural(batch, 'document')} at a time at most (run.batch_size)" if batch else ""
    return _block_size(config, budget) + most


def _block_size(config: TokenizeConfig, budget: Budget) -> str:
    size, usual = of_bytes(budget.blocks.block_bytes), of_bytes(BLOCK_BYTES[config.run.preset])
    if budget.block_limit == "run.block_bytes":
        return f"{size}: run.block_bytes asks for it; the preset {config.run.preset} has {usual}"
    if budget.block_limit == "preset":
        return f"{size}: the preset {config.run.preset}; larger ones hardly go faster"
    return (
        f"{size}: what a worker's share of the memory holds, {BLOCK_COST} bytes for each byte of a block; "
        f"raise run.memory, or take fewer run.workers, for the usual {usual}"
    )


def _units(config: TokenizeConfig, files: tuple[InputFile, ...], units: tuple[Unit, ...]) -> str:
    if units and _are_whole(units, files):
        return f"{len(units):,}: {ONE_UNIT}; for more, {SPLIT_IT}"
    total = sum(file.num_bytes for file in files)
    size = choose_unit_bytes(config.read, total)
    if config.read.unit_bytes is not None:
        why = "read.unit_bytes asks for it"
    elif size == MIN_UNIT_BYTES:
        why = "the smallest that pays"
    elif size == MAX_UNIT_BYTES:
        why = "the largest, so that little is lost when a worker is"
    else:
        why = "so many that workers end at about the same time, and none too small to pay"
    largest = max((unit.num_bytes for unit in units), default=0)
    text = f"{len(units):,} of about {of_bytes(size)}: {why}"
    if largest > 2 * size:
        text += f"; the largest has {of_bytes(largest)}, because {ONE_UNIT}: {SPLIT_IT}"
    return text


def _are_whole(units: tuple[Unit, ...], files: tuple[InputFile, ...]) -> bool:
    """Whether every unit is one file that cannot be cut, so that no size of units would give more."""

    def is_whole(unit: Unit) -> bool:
        file = files[unit.slices[0].file]
        return len(unit.slices) == 1 and (file.compression != "none" or file.format == "csv")

    return all(map(is_whole, units))


def _documents(config: TokenizeConfig, budget: Budget, sample: Sample) -> str:
    size = of_bytes(budget.blocks.max_document_bytes)
    why = (
        "read.max_document_bytes"
        if config.read.max_document_bytes is not None
        else f"a {DOCUMENT_SHARE}th of the memory; raise run.memory or read.max_document_bytes"
    )
    documents = sum(found.num_documents for found in sample.kinds.values())
    text = sum(found.text_bytes for found in sample.kinds.values())
    seen = f"; the sample's have {of_bytes(text / documents)} on average" if documents else ""
    return f"up to {size}: {why}{seen}"


def _input(files: tuple[InputFile, ...], budget: Budget) -> str:
    stored = Counter({file.compression: 0 for file in files})
    for file in files:
        stored[file.compression] += file.num_bytes
    slow = [name for name in PACKED if name in stored]
    ahead = "the next block is read while one is encoded" if budget.blocks.read_ahead else ""
    advice = f"{', '.join(slow)} takes longer to decompress than zstd" if slow else ""
    return "; ".join(filter(None, (ahead, advice)))
