"""What a run did, on one screen."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from gristmill.errors import GristmillError
from gristmill.read import is_remote
from gristmill.records import Ledger, Manifest
from gristmill.report.view import workers_of
from gristmill.report.words import duration, of_bytes, of_count, plural, printable
from gristmill.run.bottleneck import STAGES, find_bottleneck
from gristmill.run.folder import EVENTS, QUARANTINE, committed_units, read_any_plan
from gristmill.run.progress import Snapshot
from gristmill.run.tokenize import RunResult

LOADING = {
    "megatron": 'IndexedDataset("{folder}/{stem}")  # megatron.core.datasets.indexed_dataset',
    "nanogpt": 'np.memmap("{folder}/{stem}.bin", dtype="{dtype}", mode="r")',
    "llmc": '-i "{folder}/*.bin"  # train_gpt2cu of llm.c; or the pattern of modded-nanogpt',
    "olmo": 'paths=["{folder}/*.npy"]  # NumpyFSLDatasetConfig of olmo_core.data',
    "datatrove": 'DatatroveFolderDataset("{folder}", seq_len=2048, token_size={width})',
    "arrow": 'datasets.load_from_disk("{folder}")',
    "parquet": 'datasets.load_dataset("parquet", data_files="{folder}/*.parquet", split="train")',
    "mds": 'StreamingDataset(local="{folder}", remote=None, batch_size=8)  # streaming',
    "litdata": 'StreamingDataset("{folder}", item_loader=TokensLoader(block_size={block}))  # litdata',
    "pt": 'torch.load("{folder}/{stem}.input_ids.pt", weights_only=True, mmap=True)',
    "npy": 'np.load("{folder}/{stem}.input_ids.npy", mmap_mode="r")',
    "webdataset": 'wds.WebDataset(sorted(glob("{folder}/*.tar")), shardshuffle=False).decode()',
}

SHARD_BY_SHARD = ("megatron", "nanogpt", "pt", "npy")
"""Formats whose readers open one shard at a time."""


def render_result(result: RunResult) -> str:
    """The summary of a run, or of what went wrong with it."""
    if result.manifest is None:
        units = "\n".join(f"  unit {unit}: {why}" for unit, why in sorted(result.failed.items())[:10])
        return (
            f"{plural(len(result.failed), 'unit')} FAILED, the others are done; "
            f"run the same command again to try again\n{units}"
        )
    facts = _facts(result.manifest, result.folder)
    if result.last is None:
        facts["time"] = "finished before; nothing to do"
    else:
        facts["resumed"] = _resumed(result.last)
        facts |= {"time": _time(result.last, result.loading_s), "stages": _stages(result.last.stage_s)}
        if result.last.num_retries:
            facts["retried"] = f"{plural(result.last.num_retries, 'unit')}; {EVENTS} says why"
        facts["slowest"] = render_bottleneck(result.last.stage_s, result.last.advice)
        if result.last.peak_memory_bytes:  # nothing was measured where only the end was left to do
            facts["memory"] = f"{of_bytes(result.last.peak_memory_bytes)} at most, all processes"
    facts["warnings"] = render_warnings(result.warnings)
    return _render(facts)


def render_warnings(warnings: Iterable[str]) -> str:
    """Warnings, a line each."""
    return f"\n{'':<12}".join(map(printable, warnings))


def render_interrupted(where: str | os.PathLike[str]) -> str:
    """What a run that was told to end leaves behind."""
    again = "run the same command again to go on"
    if is_remote(os.fspath(where)):
        return f"interrupted; units that are done are in {where}; {again}"
    folder = Path(where)
    try:
        plan = read_any_plan(folder)
        done = sum(unit < len(plan.units) for unit in committed_units(folder, plan)) if plan else 0
    except GristmillError:
        plan = None
    if plan is None:
        return f"interrupted before any unit was done; {again}"
    return f"interrupted; {done:,} of {plural(len(plan.units), 'unit')} are done; {again}"


def render_manifest(manifest: Manifest, folder: str) -> str:
    """What a finished run holds."""
    return _render(_facts(manifest, folder))


def render_conversion(manifest: Manifest, folder: Path, run: str) -> str:
    """What a conversion of a run has made: the manifest's files lie in the folder itself."""
    (name,) = manifest.formats
    first = manifest.shards[0].files[name][0].path if manifest.shards else ""
    loading = [render_loading(name, folder, first.split(".")[0], manifest)] if first else []
    loading += _other_shards(name, folder, len(manifest.shards), run)
    facts = {
        "tokens": _tokens(manifest),
        "rows": _rows(manifest),
        "shards": _shards(manifest),
        "output": str(folder),
        "load with": f"\n{'':<12}".join(loading),
    }
    return _render(facts)


def _render(facts: Mapping[str, str]) -> str:
    return "\n".join(f"{name:<11} {value}" for name, value in facts.items() if value)


def _facts(manifest: Manifest, folder: str) -> dict[str, str]:
    ledger = manifest.ledger
    facts = {
        "documents": _documents(ledger),
        "tokens": _tokens(manifest),
        "rows": _rows(manifest),
        "dropped": _dropped(ledger),
        "shards": _shards(manifest),
        "output": folder,
        "load with": f'gristmill.open("{folder}")' if is_remote(folder) else _loading(manifest, Path(folder)),
    }
    has_bad = any(file.path.endswith(".quarantine") for file in manifest.sidecars)
    if has_bad if is_remote(folder) else (Path(folder) / QUARANTINE).exists():
        facts["quarantine"] = f"{folder}/{QUARANTINE}"
    return facts


def _documents(ledger: Ledger) -> str:
    text = f"{ledger.documents_encoded:,} encoded of {ledger.documents_read:,} read"
    text += f", {of_bytes(ledger.bytes_encoded)}"
    return text + (f"; bad files: {_by_reason(ledger.bad_files)}" if ledger.bad_files else "")


def _tokens(manifest: Manifest) -> str:
    ledger = manifest.ledger
    per_byte = ledger.tokens_encoded / max(ledger.bytes_encoded, 1)
    text = f"{ledger.tokens_written:,} written, {per_byte:.4f} tokens a byte, {manifest.dtype}"
    ends = {"BOS": manifest.bos_id, "EOS": manifest.eos_id}
    text += "".join(f", {name} {id_}" for name, id_ in ends.items() if id_ is not None)
    return text


def _rows(manifest: Manifest) -> str:
    ledger = manifest.ledger
    if manifest.sequence_length is None:
        return ""
    cells = max(ledger.rows * manifest.sequence_length, 1)
    text = f"{ledger.rows:,} of {manifest.sequence_length} tokens ({manifest.mode})"
    text += f", {ledger.padding / cells:.3%} padding"
    if ledger.tokens_repeated:
        text += f", {ledger.tokens_repeated:,} tokens repeated by overlap"
    return f"{text}, documents cut {ledger.documents_cut:,} times"


def _dropped(ledger: Ledger) -> str:
    parts = []
    if ledger.documents_dropped:
        parts.append(f"documents: {_by_reason(ledger.documents_dropped)}")
    if ledger.tokens_dropped:
        parts.append(f"tokens: {_by_reason(ledger.tokens_dropped)}")
    return "; ".join(parts) or "nothing"


def _shards(manifest: Manifest) -> str:
    # What formats share is one file on disk under several names.
    found = {
        (shard.name, file.blake3): file.num_bytes
        for shard in manifest.shards
        for files in shard.files.values()
        for file in files
    }
    size = of_bytes(sum(found.values()))
    return f"{len(manifest.shards):,} as {', '.join(manifest.formats)}, {size}"


def _loading(manifest: Manifest, folder: Path) -> str:
    if not manifest.shards:
        return ""
    stem = f"shard-{manifest.shards[0].name}"
    lines = []
    for name in manifest.formats:
        lines.append(render_loading(name, folder / name, stem, manifest))
        lines += _other_shards(name, folder / name, len(manifest.shards), str(folder))
    return f"\n{'':<12}".join(lines)


def _other_shards(name: str, folder: Path, num_shards: int, run: str) -> list[str]:
    """How the rest is loaded, of a format whose line above loads one shard of several."""
    if num_shards < 2 or name not in SHARD_BY_SHARD:
        return []
    command = f"gristmill convert {shlex.quote(run)} --to {name} --single-file"
    lines = [f"# that is 1 of {num_shards:,} shards; one file of them all: {command}"]
    if name == "megatron":
        stems = f"$(ls {shlex.quote(str(folder))}/*.idx | sed 's/.idx$//')"
        lines.append(f"--data-path {stems}  # all of them, in Megatron-LM")
    return lines


def render_loading(name: str, folder: Path, stem: str, manifest: Manifest) -> str:
    """How shards of a format that lie in a folder are loaded."""
    dtype, block = manifest.dtype, manifest.sequence_length or 2049
    width = 2 if dtype == "uint16" else 4
    return LOADING[name].format(folder=folder, stem=stem, dtype=dtype, width=width, block=block)


def _resumed(last: Snapshot) -> str:
    if not last.units_before:
        return ""
    done = f"{last.units_before:,} of {plural(last.units_total, 'unit')}"
    return f"{done} were done before; the times are of the rest"


def _time(last: Snapshot, loading_s: float) -> str:
    took = duration(last.elapsed_s + loading_s)
    took += f" ({duration(loading_s)} of it loading)" if loading_s else ""
    if last.units_before == last.units_total:
        return f"{took}; only the end of the run was left to do"
    rate = f"{of_bytes(last.bytes_per_s)} of input/s, {of_count(last.tokens_per_s)} tokens/s"
    return f"{took}, {rate}, {workers_of(last)}"


def _stages(stage_s: Mapping[str, float]) -> str:
    total = sum(stage_s.values()) or 1.0
    ordered = sorted(stage_s.items(), key=lambda item: list(STAGES).index(item[0]))
    return ", ".join(f"{stage} {seconds / total:.0%}" for stage, seconds in ordered)


def render_bottleneck(stage_s: Mapping[str, float], advice: str = "") -> str:
    """What took most of the time, and what would help: as is told, else as is usual."""
    found = find_bottleneck(stage_s)
    return f"{found.name}, {found.share:.0%} of the time. {advice or found.advice}" if found else ""


def _by_reason(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.items())
