"""Texts for the benchmarks on a GPU: sets of documents, hostile ones, gigabytes drawn from few."""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import adversarial_texts as adversarial


def read_sets(folder):
    sets = {}
    for path in sorted(folder.glob("*.json*")):
        raw = path.read_bytes()
        docs = json.loads(lzma.decompress(raw) if path.suffix == ".xz" else raw)
        docs = [doc.encode() for doc in docs if doc]
        sets[path.name.split(".")[0]] = (docs[: len(docs) * 2 // 5], docs[len(docs) * 2 // 5 :])
    sets["mix"] = tuple([doc for parts in sets.values() for doc in parts[i]] for i in (0, 1))
    return sets


def hostile_sets(num_fuzz):
    """Runs of every class, tiny documents, borders at every offset of a tile, long pieces of all kinds."""
    chance = np.random.default_rng(5)

    def letters(alphabet, count):
        return "".join(np.array(list(alphabet))[chance.integers(0, len(alphabet), count)])

    low, every = "abcdefghijklmnopqrstuvwxyz", "".join(map(chr, range(33, 127)))
    runs = [*"aA1 \n\r\t'./é水の한\u0301🙂١\u00a0s", "ab"]
    points = np.array([*range(33, 0xD800), *range(0xE000, 0x20000)], np.uint32)
    word = "Borders 12 at every's offset\n\n  of a tile, поле 水車 "
    text = (word * 40000).encode()
    whole = [text[i * 993 : (i + 1) * 993].decode("utf-8", "ignore") for i in range(1984)]
    return {
        "fuzz": adversarial.random_texts(num_fuzz, seed=7, parts=("<|endoftext|>", "<|im_start|>")),
        "runs to 100 KB": [
            run * (n // len(run.encode())) + "x"
            for run in runs
            for n in (31, 32, 33, 64, 992, 993, 5000, 65535, 65537, 100000)
        ],
        "runs of 1 MB": [run * (1_000_000 // len(run.encode())) for run in runs],
        "runs of 10 MB": [run * (10_000_000 // len(run.encode())) for run in runs],
        "one-character documents": list(letters(every + " \n", 500_000)),
        "empty documents": ["", "a", "", "", " b", ""] * 50_000,
        "borders at every offset": whole,
        "random ASCII": [letters(every, 8192) for _ in range(1000)],
        "random words": [" ".join(letters(low, n) for n in chance.integers(3, 12, 1000)) for _ in range(500)],
        "random letters, runs of 1000": [letters(low, 1000) for _ in range(8000)],
        "random letters, runs of 4000": [letters(low, 4000) for _ in range(2000)],
        "random letters, runs of 60000": [letters(low, 60_000) for _ in range(200)],
        "random digits, runs of 500": [
            " ".join(letters("0123456789", 500) for _ in range(8)) for _ in range(1000)
        ],
        "spaces and newlines": [letters("  \n\t", 4000) for _ in range(2000)],
        "random code points": [
            points[chance.integers(0, len(points), 2000)].tobytes().decode("utf-32-le") for _ in range(1000)
        ],
    }


def expand(docs, total, seed):
    """Documents in shuffled rounds up to so many bytes, with the order they come in."""
    chance = np.random.default_rng(seed)
    sizes = np.array([len(doc) for doc in docs])
    order = [chance.permutation(len(docs)) for _ in range(int(total // sizes.sum()) + 1)]
    order = np.concatenate(order)
    order = order[: int(np.searchsorted(np.cumsum(sizes[order]), total))]
    buffer = np.frombuffer(b"".join([docs[i] for i in order]), np.uint8)
    return buffer, np.concatenate([[0], np.cumsum(sizes[order])]), order


def gather(ids, ends, order):
    return np.concatenate([ids[ends[i] : ends[i + 1]] for i in order]), np.diff(ends)[order]
