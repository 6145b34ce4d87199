"""Time and memory of learning merges from an inventory of many made pieces.

    python benchmarks/train_inventory.py [--pieces 10000000] [--vocab-size 50000] [--threads 1 2]

Pieces are made from the embedded text by chains of two bytes of context, with lengths and counts as in real
text (about 13 bytes; counts by Zipf's law, over half of them 1), the same for the same seed. Making and each
measurement are processes of their own; the made arrays are read from a folder, which --folder keeps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gristmill.sample import made_documents
from gristmill.training.inventory import Pieces
from gristmill.training.merging import Learning, memory_needed
from gristmill.training.start import new_start

LONGEST = 48
CHUNK = 1 << 20


def main() -> int:
    arguments = read_arguments()
    if arguments.step == "make":
        save(make_pieces(arguments.pieces, seed=arguments.seed), arguments.folder)
        return 0
    if arguments.step == "measure":
        print(json.dumps(measure(arguments.folder, arguments.vocab_size, arguments.threads[0])))
        return 0
    with tempfile.TemporaryDirectory(prefix="gristmill-inventory-") as temporary:
        folder = arguments.folder or Path(temporary)
        if not (folder / "counts.npy").exists():
            run_step("make", folder, "--pieces", arguments.pieces, "--seed", arguments.seed)
        results = [
            json.loads(
                run_step("measure", folder, "--vocab-size", arguments.vocab_size, "--threads", threads)
            )
            for threads in arguments.threads
        ]
    for result in results:
        print(json.dumps(result))
    return 0 if len({result["sha256"] for result in results}) == 1 else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pieces", type=int, default=10_000_000)
    parser.add_argument("--vocab-size", type=int, default=50_000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the made pieces here, or find them here")
    parser.add_argument("--step", choices=("all", "make", "measure"), default="all", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_step(step: str, folder: Path, *options: object) -> str:
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), *map(str, options)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def make_pieces(num_pieces: int, *, seed: int) -> Pieces:
    """Distinct pieces in the order of their bytes, with counts."""
    chance = np.random.default_rng(seed)
    text = np.frombuffer("\n".join(made_documents(400, seed=seed)).encode(), np.uint8)
    found = np.zeros(0, f"S{LONGEST}")
    while len(found) < num_pieces:
        missing = num_pieces - len(found)
        more = [made_chunk(text, chance, min(CHUNK, missing)) for _ in range(1 + missing // CHUNK)]
        found = np.unique(np.concatenate([found, *more]))
    if len(found) > num_pieces:
        found = np.sort(chance.choice(found, num_pieces, replace=False))
    lengths = np.char.str_len(found).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    buffer = found.view(np.uint8)
    return Pieces(buffer[buffer != 0], offsets, made_counts(lengths, chance))


def made_chunk(text: NDArray[np.uint8], chance: np.random.Generator, size: int) -> NDArray[np.bytes_]:
    """Pieces whose every next byte followed the two before it somewhere in the text."""
    context = text[:-2].astype(np.int32) << 8 | text[1:-1]
    order = np.argsort(context, kind="stable")
    followers = text[2:][order]
    begins = np.searchsorted(context[order], np.arange(1 << 16))
    sizes = np.bincount(context, minlength=1 << 16)
    lengths = np.clip(chance.lognormal(2.45, 0.5, size).round(), 1, LONGEST).astype(np.int64)
    at = chance.integers(0, len(text) - 2, size)
    made = np.zeros((size, LONGEST), np.uint8)
    made[:, 0], made[:, 1] = text[at], text[at + 1]
    for i in range(2, LONGEST):
        before = made[:, i - 2].astype(np.int32) << 8 | made[:, i - 1]
        num = sizes[before]
        picked = begins[before] + (chance.random(size) * num).astype(np.int64)
        made[:, i] = np.where(num > 0, followers[np.minimum(picked, len(followers) - 1)], text[0])
    made[np.arange(LONGEST) >= lengths[:, None]] = 0
    return made.reshape(-1).view(f"S{LONGEST}")


def made_counts(lengths: NDArray[np.int64], chance: np.random.Generator) -> NDArray[np.uint64]:
    """By Zipf's law, with short pieces mostly before long ones."""
    rank = np.argsort(np.argsort(lengths + chance.exponential(8.0, len(lengths))))
    return np.maximum(1, 0.8 * len(lengths) / (rank + 10)).astype(np.uint64)


def save(pieces: Pieces, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(Pieces._fields, pieces, strict=True):
        np.save(folder / f"{name}.npy", array)


def measure(folder: Path, vocab_size: int, num_threads: int) -> dict[str, object]:
    """Seconds and peak memory of learning, in this process, the arrays that come in included."""
    pieces = Pieces(*(np.load(folder / f"{name}.npy") for name in Pieces._fields))
    num_pieces, num_bytes = len(pieces.counts), len(pieces.text)
    began, began_cpu = time.perf_counter(), time.process_time()
    learning = Learning(pieces, new_start(pieces), vocab_size=vocab_size, num_threads=num_threads)
    del pieces
    merges = learning.run()
    return {
        "num_pieces": num_pieces,
        "num_bytes": num_bytes,
        "threads": num_threads,
        "num_merges": len(merges.rules),
        "last_count": int(merges.counts[-1]),
        "wall_s": round(time.perf_counter() - began, 2),
        "cpu_s": round(time.process_time() - began_cpu, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 1_000_000,
        "needed_mb": memory_needed(
            num_pieces=num_pieces, num_symbols=num_bytes, vocab_size=vocab_size, num_threads=num_threads
        )
        // 1_000_000,
        "sha256": hashlib.sha256(merges.rules.tobytes()).hexdigest()[:16],
    }


if __name__ == "__main__":
    sys.exit(main())
