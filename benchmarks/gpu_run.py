"""Whole runs on a machine with a GPU: files in the page cache to megatron shards, engines native and cuda.

    python benchmarks/gpu_run.py --tokenizers DIR --texts DIR [--gb 2 12] [--only llama3] [--work /dev/shm]

Texts are those of gpu.py; the mix of all is written as JSON Lines and as Parquet, in shuffled rounds. Runs
alternate between the engines, each in a process of its own; shards must be the same, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from gpu import RESULTS
from gpu_texts import read_sets
from sources import tokenizer_sources

NUM_FILES = 8
ROW_GROUP_BYTES = 32 << 20


def write_jsonl(docs, total, folder):
    lines = [json.dumps({"text": doc.decode()}, ensure_ascii=False).encode() + b"\n" for doc in docs]
    for number in range(NUM_FILES):
        with (folder / f"{number}.jsonl").open("wb") as file:
            for part in rounds(lines, total // NUM_FILES, number):
                file.write(b"".join(part))


def write_parquet(docs, total, folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number in range(NUM_FILES):
        schema = pa.schema([("text", pa.string())])
        with pq.ParquetWriter(folder / f"{number}.parquet", schema, compression="zstd") as writer:
            for part in rounds(docs, total // NUM_FILES, number):
                texts = pa.array([doc.decode() for doc in part])
                writer.write_table(pa.table({"text": texts}))


def rounds(items, total, seed):
    """Items in shuffled order, in parts of about a row group, up to so many bytes."""
    chance = np.random.default_rng(seed)
    num_bytes, part, part_bytes = 0, [], 0
    while num_bytes < total:
        for i in chance.permutation(len(items)):
            part.append(items[i])
            num_bytes += len(items[i])
            part_bytes += len(items[i])
            if part_bytes >= ROW_GROUP_BYTES or num_bytes >= total:
                yield part
                part, part_bytes = [], 0
            if num_bytes >= total:
                return


def run(source, eos_id, engine, folder, out):
    """One run in a process of its own: seconds, and what its own page says of them."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "gristmill", "tokenize", str(folder), "-t", str(source), "-o", str(out)]
    command += ["--eos-id", str(eos_id), "--format", "megatron", "--engine", engine, "--quiet"]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.perf_counter() - started
    if done.returncode:
        print(done.stderr[-2000:], flush=True)
    return took, done.returncode, stage_seconds(out)


def stage_seconds(out):
    """Seconds that all workers together were in each stage, and the run's own first and last moment."""
    total = {}
    for path in (out / "units").glob("*.json") if (out / "units").is_dir() else []:
        for stage, seconds in json.loads(path.read_bytes()).get("stage_s", {}).items():
            total[stage] = round(total.get(stage, 0) + seconds, 3)
    return total


def shard_hash(out):
    """One number for all shards, from the hashes that the run has kept of them."""
    found = hashlib.sha256()
    for path in sorted((out / "units").glob("*.json")):
        for shard in json.loads(path.read_bytes())["shards"]:
            for file in shard["files"]["megatron"]:
                found.update(f"{file['path']} {file['num_bytes']} {file['blake3']}\n".encode())
    return found.hexdigest()[:32]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizers", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["llama3"])
    parser.add_argument("--gb", nargs="*", type=float, default=[2, 12])
    parser.add_argument("--formats", nargs="*", choices=("jsonl", "parquet"), default=("jsonl", "parquet"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    docs = read_sets(arguments.texts)["mix"][1]
    rows = []
    for form in arguments.formats:
        for size in arguments.gb:
            folder = arguments.work / "gpu_run_input"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            {"jsonl": write_jsonl, "parquet": write_parquet}[form](docs, int(size * 1e9), folder)
            for name, source in tokenizer_sources(arguments.tokenizers, only=arguments.only).items():
                rows += compare(name, source, form, size, folder, arguments)
            shutil.rmtree(folder)
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "whole_run.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    is_equal = all(row["is_equal"] for row in rows)
    print("ALL EQUAL" if is_equal else "NOT EQUAL", flush=True)
    return 0 if is_equal else 1


def compare(name, source, form, size, folder, arguments):
    rows, hashes = [], set()
    for _ in range(arguments.rounds):
        for engine in ("native", "cuda"):
            out = arguments.work / "gpu_run_output"
            took, status, stages = run(source, 0, engine, folder, out)
            hashes.add(shard_hash(out))
            row = {
                "tokenizer": name,
                "input": form,
                "gb_of_text": size,
                "engine": engine,
                "cores": os.cpu_count(),
                "s": round(took, 3),
                "gb_per_s": round(size / took, 3),
                "stage_s": stages,
                "is_equal": status == 0 and len(hashes) == 1,
            }
            print(" ", row, flush=True)
            rows.append(row)
            shutil.rmtree(out, ignore_errors=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
