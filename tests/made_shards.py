"""Small documents, rows and shards for tests of writing."""

import itertools
from pathlib import Path

import numpy as np

from gristmill.config import WriteConfig
from gristmill.layout import Layout
from gristmill.pack.rows import Rows
from gristmill.records import ShardRecord
from gristmill.write import ShardWriter

EOS = 50256
PAYLOAD = ("megatron", "nanogpt", "llmc", "olmo", "datatrove")
TABLES = ("arrow", "parquet")
SAMPLES = ("mds", "litdata", "pt", "npy", "webdataset")
ROW_FORMATS = TABLES + SAMPLES
ROW_LENGTH = 8


def make_layout(**changes) -> Layout:
    values = {
        "mode": "documents",
        "sequence_length": None,
        "formats": (),
        "dtype": "uint16",
        "bos_id": None,
        "eos_id": EOS,
        "pad_id": None,
        "tokenizer": "made",
        "fingerprint": "",
        "vocab_size": EOS + 1,
        "mask_first_token": False,
    }
    return Layout(**(values | changes))


def make_documents(lengths, dtype="uint16", *, seed=0):
    """Lists of ids, each ending in EOS."""
    random = np.random.default_rng(seed)
    largest = EOS if dtype == "uint16" else 128_000
    return [np.append(random.integers(0, largest - 1, n - 1), EOS).astype(dtype) for n in lengths]


def flat(documents, dtype="uint16"):
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in documents])]).astype(np.int64)
    return np.concatenate([np.empty(0, dtype), *documents]), offsets


def make_rows(counts, *, seed=0, dtype="uint16", length=ROW_LENGTH) -> Rows:
    """A row for each list of segment lengths; what they leave is padding (EOS)."""
    random = np.random.default_rng(seed)
    ids = np.full((len(counts), length), EOS, dtype)
    for row, lengths in zip(ids, counts, strict=True):
        row[: sum(lengths)] = random.integers(0, EOS - 1, sum(lengths))
    lengths = np.array(list(itertools.chain(*counts)), np.int64)
    return Rows(
        ids=ids,
        row_offsets=np.cumsum([0] + [len(row) for row in counts]).astype(np.int64),
        lengths=lengths,
        documents=np.arange(len(lengths), dtype=np.int64),
        starts=np.zeros(len(lengths), np.int64),
        repeated=np.zeros(len(counts), np.int64),
    )


def write_documents(
    folder: Path, documents, *, formats, layout, cuts=(), names=None, unit="00012", **options
) -> list[ShardRecord]:
    """Documents written in calls that are cut at some documents, and committed."""
    config = WriteConfig(**({"output": str(folder), "format": formats, "shard_bytes": 1 << 20} | options))
    writer = ShardWriter(folder, unit, config, layout)
    ids, offsets = flat(documents, layout.dtype)
    bounds = [0, *cuts, len(documents)]
    for start, stop in itertools.pairwise(bounds):
        writer.write_documents(
            ids,
            offsets[start : stop + 1],
            source="in/some, file.jsonl",
            positions=np.arange(start, stop, dtype=np.int64) * 100 - 1,
            names=None if names is None else (names[0], names[1][start : stop + 1]),
        )
    shards = writer.finish()
    writer.commit()
    return shards


def write_rows(folder: Path, parts, *, formats, layout, **options) -> list[ShardRecord]:
    """Rows written part by part, and committed."""
    config = WriteConfig(**({"output": str(folder), "format": formats, "shard_bytes": 1 << 20} | options))
    writer = ShardWriter(folder, "00012", config, layout)
    for rows in parts:
        writer.write_rows(rows)
    shards = writer.finish()
    writer.commit()
    return shards


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
