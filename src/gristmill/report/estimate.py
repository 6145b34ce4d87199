"""What a run would do, estimated from a sample of its inputs before anything is written."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import msgspec

from gristmill.config import EncodeConfig, OutputFormat, TokenizeConfig
from gristmill.errors import ConfigError
from gristmill.formats import check_formats, formats_of
from gristmill.hub.cache import cache_root, to_fetch
from gristmill.layout import Layout
from gristmill.plan import cut_units
from gristmill.read import InputFile, find_inputs, is_remote
from gristmill.report.disk import Counts, estimate_disk
from gristmill.report.explain import explain_run
from gristmill.report.sampling import Kind, KindCounts, Sample, take_sample
from gristmill.report.words import of_bytes
from gristmill.run.budget import BLOCK_COST, RUN_BYTES, Budget, settle_budget
from gristmill.run.folder import read_manifest, read_plan
from gristmill.run.loading import load_configured
from gristmill.run.process import WORKER_BYTES
from gristmill.run.resources import available_memory, num_cores
from gristmill.run.resume import holds_nothing, settled_commit
from gristmill.run.settle import (
    TokenizerFacts,
    explain_changes,
    facts_of,
    identity_of,
    settle_layout,
    settle_sizes,
)
from gristmill.run.warn import input_warnings, option_warnings

START_S = 1.0
"""Until workers have loaded the tokenizer."""
READ_AND_ENCODE_SHARE = 0.7
"""Of a unit's time; packing and writing take the rest. Seen with megatron and with packed parquet."""


class InputKind(msgspec.Struct, frozen=True, kw_only=True):
    """Input files of one format and compression."""

    format: str
    compression: str
    num_files: int
    num_bytes: int


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would read, write, need and stumble over."""

    inputs: tuple[InputKind, ...]
    num_units: int
    tokenizer: TokenizerFacts
    layout: Layout
    sample_documents: int
    sample_bytes: int
    """Of text."""
    is_exact: bool
    """The sample was all of the input."""
    documents: int
    bad_documents: int
    text_bytes: int
    tokens: int
    tokens_per_byte: float
    rows: int | None
    padding_fraction: float | None
    disk_bytes: dict[OutputFormat, int]
    """Of each format alone, before compression."""
    disk_total_bytes: int
    """Of all: what formats share counts once."""
    backend: str
    num_workers: int
    block_bytes: int
    max_document_bytes: int
    memory_bytes: int
    memory_budget_bytes: int
    time_s: float
    problems: tuple[str, ...]
    """Each would stop the run."""
    warnings: tuple[str, ...]
    explanation: dict[str, str]
    """What decides workers, memory, blocks, units and the largest document, and what would help."""


def estimate_run(config: TokenizeConfig, *, force: bool = False) -> Estimate:
    """Look at the inputs of a job and estimate the rest; nothing is written. What an earlier run left in the
    output folder does not matter with `force`."""
    config = settle_sizes(config)
    budget = settle_budget(config)
    tokenizer = load_configured(config.tokenizer)
    facts = facts_of(tokenizer, config.tokenizer.source)
    layout, problems = _settle(config, facts)
    is_here = not is_remote(config.write.output)
    commit = settled_commit(Path(config.write.output), config.read, force=force) if is_here else ""
    listing = find_inputs(config.read, commit=commit)
    files = tuple(listing.files)
    units = cut_units(config.read, files)
    sample = take_sample(_sampled(config), layout, files, units, tokenizer, budget.blocks)
    counts, num_bad, text_bytes = _scale(config, sample, layout, num_units=len(units))
    disk = estimate_disk(counts, config.write, layout)
    problems += _bad_input(config, sample)
    problems += _no_room(Path(config.write.output), disk.total_bytes) if is_here else []
    fetch_problems, fetch_warnings = _to_fetch(config, files)
    problems += fetch_problems
    problems += _other_run(config, layout, files) if is_here and not force else []
    return Estimate(
        inputs=tuple(_input_kind(kind, found) for kind, found in sample.kinds.items()),
        num_units=len(units),
        tokenizer=facts,
        layout=layout,
        sample_documents=sum(found.num_documents for found in sample.kinds.values()),
        sample_bytes=sum(found.text_bytes for found in sample.kinds.values()),
        is_exact=sample.is_complete,
        documents=round(counts.num_documents),
        bad_documents=round(num_bad),
        text_bytes=round(text_bytes),
        tokens=round(counts.num_tokens),
        tokens_per_byte=counts.num_tokens / text_bytes if text_bytes else 0.0,
        rows=round(counts.num_rows) if layout.sequence_length else None,
        padding_fraction=_padding_fraction(config, counts, sample, layout),
        disk_bytes=disk.formats,
        disk_total_bytes=disk.total_bytes,
        backend=budget.backend,
        num_workers=_busy_workers(budget, len(units)),
        block_bytes=budget.blocks.block_bytes,
        max_document_bytes=budget.blocks.max_document_bytes,
        memory_bytes=_memory(budget, len(units)),
        memory_budget_bytes=budget.memory_bytes,
        time_s=_time(sample, budget, len(units)),
        problems=tuple(problems),
        warnings=(
            *option_warnings(config),
            *_machine_warnings(budget),
            *input_warnings(config.read, listing),
            *_warnings(config, sample, facts),
            *fetch_warnings,
            *(_same_run(config, problems) if is_here and not force else []),
        ),
        explanation=explain_run(config, budget, files, units, sample),
    )


def _settle(config: TokenizeConfig, facts: TokenizerFacts) -> tuple[Layout, list[str]]:
    """The layout, or the nearest that can be settled, with what stands in the way."""
    try:
        layout = settle_layout(config, facts)
    except ConfigError as error:
        pack = msgspec.structs.replace(config.pack, pad_id=config.pack.pad_id or 0)
        bare = msgspec.structs.replace(
            config,
            encode=EncodeConfig(add_eos=False),
            pack=pack,
            write=msgspec.structs.replace(config.write, dtype=None),
        )
        return settle_layout(bare, facts), [str(error)]
    try:
        check_formats(config.write, layout)
    except ConfigError as error:
        return layout, [str(error)]
    return layout, []


def _scale(
    config: TokenizeConfig, sample: Sample, layout: Layout, *, num_units: int
) -> tuple[Counts, float, float]:
    """What is written, bad documents and bytes of text, from what was seen to all there is."""
    factors = {kind: _factor(found) for kind, found in sample.kinds.items()}
    documents, bad, text, tokens = (
        sum(getattr(found, name) * factors[kind] for kind, found in sample.kinds.items())
        for name in ("num_documents", "num_bad", "text_bytes", "num_tokens")
    )
    seen = sum(found.num_tokens for found in sample.kinds.values())
    growth = tokens / seen if seen else 0.0
    rows = sample.num_rows * growth
    if layout.mode == "concat" and layout.sequence_length:
        stride = layout.sequence_length - config.pack.overlap
        rows = math.ceil(max(tokens - config.pack.overlap, 0) / stride)
    limit = _limit(config, layout, documents, tokens, rows)
    segments = sample.num_segments * growth
    counts = Counts(documents * limit, tokens * limit, rows * limit, segments * limit, num_units)
    return counts, bad * limit, text * limit


def _padding_fraction(
    config: TokenizeConfig, counts: Counts, sample: Sample, layout: Layout
) -> float | None:
    """Of the places in rows; tokens that overlap repeats are no padding."""
    if not layout.sequence_length or not sample.num_rows:
        return None
    if layout.mode != "concat":
        return sample.num_padding / (sample.num_rows * layout.sequence_length)
    # Only the last row of the run is padded, and the last of the sample says nothing about it.
    stride = layout.sequence_length - config.pack.overlap
    padding = counts.num_rows * stride + config.pack.overlap - counts.num_tokens
    return max(0.0, padding) / (counts.num_rows * layout.sequence_length)


def _factor(found: KindCounts) -> float:
    return found.planned_bytes / found.seen_bytes if found.seen_bytes else 1.0


def _limit(
    config: TokenizeConfig, layout: Layout, documents: float, tokens: float, rows: float
) -> float:
    """The part of it all that max_rows and max_tokens let through."""
    items = rows if layout.sequence_length else documents
    cells = rows * layout.sequence_length if layout.sequence_length else tokens
    parts = [1.0]
    if config.run.max_rows and items:
        parts.append(config.run.max_rows / items)
    if config.run.max_tokens and cells:
        parts.append(config.run.max_tokens / cells)
    return min(parts)


def _busy_workers(budget: Budget, num_units: int) -> int:
    return max(1, min(budget.num_workers, num_units))


def _memory(budget: Budget, num_units: int) -> int:
    """What is held at a time, as the budget reckons it."""
    num_workers = _busy_workers(budget, num_units)
    num_processes = 1 if budget.backend == "inline" else num_workers
    blocks = num_workers * BLOCK_COST * budget.blocks.block_bytes
    own = 0 if budget.backend == "inline" else RUN_BYTES
    return min(own + num_processes * WORKER_BYTES + blocks, budget.memory_bytes)


def _time(sample: Sample, budget: Budget, num_units: int) -> float:
    work = sum(found.seconds * _factor(found) for found in sample.kinds.values())
    return START_S + work / READ_AND_ENCODE_SHARE / min(_busy_workers(budget, num_units), num_cores())


def _machine_warnings(budget: Budget) -> list[str]:
    """What is asked for and is not there; of a cluster that is not known here."""
    if budget.backend == "ray":
        return []
    found, available = [], available_memory()
    if budget.memory_bytes > available:
        found.append(
            f"run.memory is {of_bytes(budget.memory_bytes)}, and {of_bytes(available)} are available now: "
            "where it takes more, the system ends it"
        )
    return found


def _bad_input(config: TokenizeConfig, sample: Sample) -> list[str]:
    """What bad documents and files of the sample would do to the run."""
    num_documents = sum(found.num_documents for found in sample.kinds.values())
    num_bad = sum(sample.bad_documents.values())
    allowed = config.run.max_bad_fraction
    problems = []
    if num_documents == 0:
        reasons = ", ".join(_explain(sample, reason) for reason in sample.faults) or "there are none"
        problems.append(f"no document of the sample can be used: {reasons}")
    elif num_bad > allowed * (num_documents + num_bad):
        problems.append(f"more documents are bad than run.max_bad_fraction {allowed} allows")
    if num_bad and config.read.on_bad_document == "fail":
        problems.append("read.on_bad_document is fail, and the sample has bad documents")
    if sample.bad_files and config.read.on_bad_file == "fail":
        problems.append("read.on_bad_file is fail, and the sample has bad files")
    return problems


def _sampled(config: TokenizeConfig) -> TokenizeConfig:
    """The job as it is sampled: of a dataset that is not in the cache, no more than the sample is fetched."""
    if config.read.dataset is None:
        return config
    return msgspec.structs.replace(config, read=msgspec.structs.replace(config.read, streaming=True))


def _to_fetch(config: TokenizeConfig, files: tuple[InputFile, ...]) -> tuple[list[str], list[str]]:
    """What stands in the way of fetching the dataset, and what it takes."""
    read = config.read
    if read.dataset is None or read.streaming:
        return [], []
    needed = to_fetch([(file.path, file.num_bytes, file.version) for file in files], read.cache_dir)
    root = cache_root(read.cache_dir)
    if config.run.max_rows or config.run.max_tokens:
        return [], [f"files of the dataset are fetched into {root} as they are needed for the limit"]
    said = f"{of_bytes(needed)} of the dataset are fetched into {root}; --streaming reads without a copy"
    return _no_room(root, needed, "the dataset"), [said] if needed else []


def _no_room(folder: Path, num_bytes: int, what: str = "the output") -> list[str]:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if num_bytes <= free:
        return []
    return [f"{what} takes about {of_bytes(num_bytes)}, and {folder} has {of_bytes(free)} free"]


def _other_run(config: TokenizeConfig, layout: Layout, files: tuple[InputFile, ...]) -> list[str]:
    folder = Path(config.write.output)
    before = read_plan(folder)
    if before is None:
        return []
    changes = explain_changes(before.identity, identity_of(config, layout, files))
    if not changes or holds_nothing(folder, before):
        return []
    return [f"{folder}: holds a run of another job: {changes}; use --force or another folder"]


def _same_run(config: TokenizeConfig, problems: list[str]) -> list[str]:
    folder = Path(config.write.output)
    if problems or read_plan(folder) is None:
        return []
    if read_manifest(folder) is None:
        return [f"{folder}: holds a part of this run; the same command takes it up, and needs less than said"]
    return [f"{folder}: holds this run, finished; the same command answers at once"]


def _warnings(config: TokenizeConfig, sample: Sample, facts: TokenizerFacts) -> list[str]:
    found = []
    for counts, what in ((sample.bad_documents, "documents"), (sample.bad_files, "files")):
        found += [
            f"{number:,} bad {what} in the sample: {_explain(sample, reason)}"
            for reason, number in counts.most_common()
        ]
    if facts.why_not_native:
        found.append(f"the native engine is not used: {facts.why_not_native}")
    if any(not kind.planned_bytes for kind in sample.kinds.values()):
        found.append("the size of some inputs is not known; the estimate leaves out what was not sampled")
    if config.write.compression != "none" and "parquet" in formats_of(config.write):
        found.append(f"parquet is compressed by {config.write.compression}: it will take less than said")
    return found


def _explain(sample: Sample, reason: str) -> str:
    fault = sample.faults[reason]
    is_field = reason == "missing_field" and "; set read." not in fault.detail
    remedy = "; set read.text_field" if is_field else ""
    return f"{reason} ({fault.detail}{remedy}; first in {fault.file})"


def _input_kind(kind: Kind, found: KindCounts) -> InputKind:
    return InputKind(
        format=kind.format,
        compression=kind.compression,
        num_files=found.num_files,
        num_bytes=found.stored_bytes,
    )
