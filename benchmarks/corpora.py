"""Makes the inputs of the benchmarks of a run from a JSONL file, once: copies, shares and other formats."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

SEED = 20_240_601
PARQUET_DOCUMENTS = 2000
"""Of a row group."""


class Record(msgspec.Struct):
    """The part of a line that is encoded."""

    text: str


def made(path: Path, make: Callable[[Path], None]) -> Path:
    """The path, made first where it is not there; a run that is cut short leaves no half of it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".draft-{path.name}")
        make(draft)
        draft.rename(path)
    return path


def texts_of(paths: Iterable[Path]) -> Iterator[str]:
    """The documents of JSONL files."""
    decoder = msgspec.json.Decoder(Record)
    for path in paths:
        with path.open("rb") as lines:
            yield from (decoder.decode(line).text for line in lines if line.strip())


def text_bytes(path: Path) -> int:
    """UTF-8 of all documents: what rates are given in."""
    return sum(len(text.encode()) for text in texts_of([path]))


def files_of(path: Path) -> list[Path]:
    """The file, or those of a folder in the order of their names."""
    return sorted(path.iterdir()) if path.is_dir() else [path]


def shuffled_copies(corpus: Path, path: Path, *, copies: int) -> Path:
    """Some copies of every line, in a seeded random order."""

    def make(draft: Path) -> None:
        lines = corpus.read_bytes().splitlines(keepends=True)
        order = np.random.default_rng(SEED).permutation(len(lines) * copies)
        with draft.open("wb") as file:
            file.writelines(lines[number % len(lines)] for number in order.tolist())

    return made(path, make)


def share(corpus: Path, path: Path, *, max_bytes: int, without: Iterable[str] = ()) -> Path:
    """The first lines, as many as fit; those that spell one of the strings `without` are left out."""
    unwanted = re.compile("|".join(map(re.escape, without)) or r"(?!)")

    def make(draft: Path) -> None:
        with draft.open("wb") as file, corpus.open("rb") as lines:
            for line in lines:
                if unwanted.search(msgspec.json.decode(line, type=Record).text):
                    continue
                if file.tell() + len(line) > max_bytes:
                    break
                file.write(line)

    return made(path, make)


def dealt(corpus: Path, folder: Path, *, num_files: int, compressed: bool = False) -> Path:
    """The lines dealt in turn to some files, so that all of them cost the same to encode."""

    def make(draft: Path) -> None:
        draft.mkdir(exist_ok=True)
        suffix = ".jsonl.zst" if compressed else ".jsonl"
        for number in range(num_files):
            with corpus.open("rb") as lines, (draft / f"part-{number:03d}{suffix}").open("wb") as file:
                part = itertools.islice(lines, number, None, num_files)
                if compressed:
                    with zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False) as writer:
                        for line in part:
                            writer.write(line)
                else:
                    file.writelines(part)

    return made(folder, make)


def as_parquet(corpus: Path, path: Path, *, row_group: int = PARQUET_DOCUMENTS) -> Path:
    """The documents as the column `text`, in row groups of so many."""

    def make(draft: Path) -> None:
        schema = pa.schema([("text", pa.large_string())])
        texts = texts_of([corpus])
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            while group := list(itertools.islice(texts, row_group)):
                writer.write_table(
                    pa.table({"text": pa.array(group, pa.large_string())}), row_group_size=row_group
                )

    return made(path, make)


def with_long_document(corpus: Path, path: Path, *, long_bytes: int) -> Path:
    """The same lines with one document of `long_bytes` in the middle, made of the others' text."""

    def make(draft: Path) -> None:
        lines = corpus.read_bytes().splitlines(keepends=True)
        middle = len(lines) // 2
        text = "\n".join(texts_of([corpus])).encode()
        text = (text * (long_bytes // len(text) + 1))[:long_bytes]
        record = msgspec.json.encode({"text": text.decode("utf-8", "ignore")})
        with draft.open("wb") as file:
            file.writelines(lines[:middle])
            file.write(record + b"\n")
            file.writelines(lines[middle:])

    return made(path, make)
