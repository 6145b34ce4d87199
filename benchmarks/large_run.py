"""A run folder of any size, as a run would have left it, made without a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gristmill.job import make_job
from gristmill.layout import Layout
from gristmill.plan import Plan, Slice, Unit
from gristmill.read import InputFile
from gristmill.records import (
    VERSION,
    FileRecord,
    Ledger,
    Manifest,
    Measured,
    ScriptCounts,
    ShardRecord,
    UnitRecord,
)
from gristmill.run.folder import write_json

UNIT_BYTES, UNIT_TOKENS, UNIT_DOCUMENTS = 8_000_000, 2_000_000, 4000
UNITS_A_FILE = 100


def make_run(folder: Path, *, num_units: int, hours: float, num_workers: int, is_finished: bool) -> None:
    """Write the folder; a run that is not finished is half done."""
    (folder / "units").mkdir(parents=True)
    plan = made_plan(folder, num_units)
    write_json(folder / "plan.json", plan)
    num_done = num_units if is_finished else num_units // 2
    shards = [write_record(folder, plan, index) for index in range(num_done)]
    with (folder / "events.jsonl").open("wb") as file:
        for event in made_events(num_units, num_done, int(hours * 3600), num_workers):
            file.write(msgspec.json.encode(event) + b"\n")
        if is_finished:
            file.write(msgspec.json.encode(event | {"event": "finished", "new_units": []}) + b"\n")
    if is_finished:
        write_json(folder / "manifest.json", made_manifest(plan, shards))


def made_plan(folder: Path, num_units: int) -> Plan:
    files = [
        InputFile(
            path=f"/data/{number % 20}/part-{number:05}.jsonl",
            num_bytes=UNIT_BYTES * UNITS_A_FILE,
            version="1",
            format="jsonl",
            compression="none",
        )
        for number in range(-(-num_units // UNITS_A_FILE))
    ]
    sections = {"tokenizer": "t", "read": {"inputs": ["/data"]}, "write": {"output": str(folder)}}
    return Plan(
        version=VERSION,
        identity={},
        files=tuple(files),
        units=tuple(Unit(index=index, slices=(made_slice(index),)) for index in range(num_units)),
        max_document_bytes=1 << 28,
        config=make_job(sections, []),
        layout=made_layout(),
    )


def made_slice(index: int) -> Slice:
    file, place = divmod(index, UNITS_A_FILE)
    start = place * UNIT_BYTES
    return Slice(file=file, start=start, stop=start + UNIT_BYTES, num_bytes=UNIT_BYTES)


def made_layout() -> Layout:
    return Layout(
        mode="documents",
        sequence_length=None,
        formats=("megatron",),
        dtype="uint16",
        bos_id=None,
        eos_id=0,
        pad_id=None,
        tokenizer="t",
        fingerprint="f" * 64,
        vocab_size=50257,
        mask_first_token=False,
    )


def made_manifest(plan: Plan, shards: list[ShardRecord]) -> Manifest:
    names = ("tokenizer", "fingerprint", "vocab_size", "dtype", "formats", "mode", "sequence_length")
    facts = {name: getattr(plan.layout, name) for name in (*names, "eos_id", "bos_id", "pad_id")}
    ledger = made_ledger(len(shards))
    return Manifest(version=VERSION, gristmill="0", ledger=ledger, shards=tuple(shards), sidecars=(), **facts)


def made_ledger(num_units: int) -> Ledger:
    documents, text_bytes, tokens = (
        number * num_units for number in (UNIT_DOCUMENTS, UNIT_BYTES, UNIT_TOKENS)
    )
    return Ledger(
        documents_read=documents,
        documents_encoded=documents,
        bytes_read=text_bytes,
        bytes_encoded=text_bytes,
        tokens_encoded=tokens,
        tokens_written=tokens,
        rows=documents,
    )


def write_record(folder: Path, plan: Plan, index: int) -> ShardRecord:
    name = plan.unit_name(index)
    stem = f"megatron/shard-{name}-000"
    shard = ShardRecord(
        name=f"{name}-000",
        num_documents=UNIT_DOCUMENTS,
        num_rows=0,
        num_tokens=UNIT_TOKENS,
        num_padding=0,
        files={"megatron": [made_file(f"{stem}.bin"), made_file(f"{stem}.idx")]},
    )
    record = UnitRecord(
        unit=index,
        ledger=made_ledger(1),
        slice_records=(UNIT_DOCUMENTS,),
        shards=(shard,),
        sidecars=(),
        measured=made_measured(),
        stage_s={"encode": 0.4 + index % 7 * 0.01, "parse": 0.1, "write": 0.1},
    )
    (folder / "units" / f"{name}.json").write_bytes(msgspec.json.encode(record))
    return shard


def made_file(path: str) -> FileRecord:
    return FileRecord(path=path, num_bytes=4_000_000, blake3="a" * 64)


def made_measured() -> Measured:
    return Measured(
        document_bytes=(0,) * 10 + (UNIT_DOCUMENTS,),
        document_tokens=(0,) * 8 + (UNIT_DOCUMENTS,),
        slice_bytes=(UNIT_BYTES,),
        slice_tokens=(UNIT_TOKENS,),
        full_rows=UNIT_DOCUMENTS,
        scripts={"Latin": ScriptCounts(60, 120_000, 30_000), "Han": ScriptCounts(3, 6_000, 3_000)},
    )


def made_events(
    num_units: int, num_done: int, seconds: int, num_workers: int
) -> Iterator[dict[str, object]]:
    """An event a second up to now, as a run of so many workers writes them."""
    begin = time.time() - seconds
    done_before = 0
    for second in range(seconds + 1):
        done = num_done * second // max(seconds, 1)
        at = round(begin + second, 3)
        working = [
            [str(4000 + number), done + number, at - 2, at, 4_000_000, UNIT_BYTES, 190_000_000]
            for number in range(num_workers)
        ]
        yield {
            "event": "progress" if second else "start",
            "time": at,
            "elapsed_s": float(second),
            "units_done": done,
            "units_total": num_units,
            "units_failed": 0,
            "bytes_done": done * UNIT_BYTES,
            "bytes_total": num_units * UNIT_BYTES,
            "bytes_before": 0,
            "units_before": 0,
            "documents": done * UNIT_DOCUMENTS,
            "bad_documents": 0,
            "tokens": done * UNIT_TOKENS,
            "bytes_per_s": done * UNIT_BYTES / max(second, 1),
            "tokens_per_s": done * UNIT_TOKENS / max(second, 1),
            "memory_bytes": 3_000_000_000 + second * 10_000,
            "peak_memory_bytes": 3_400_000_000,
            "num_workers": num_workers,
            "stage_s": {"encode": 0.4 * done, "parse": 0.1 * done, "write": 0.1 * done},
            "memory_budget_bytes": 8_000_000_000,
            "bottleneck": "encoding",
            "advice": "More cores help.",
            "new_units": list(range(done_before, done)),
            "workers": working,
        }
        done_before = done
