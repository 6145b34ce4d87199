"""What each side of benchmarks/causal.py does, in a fresh process: a job as JSON in, figures as JSON out."""

from __future__ import annotations

import hashlib
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

import datasets
import msgspec
import numpy as np

NAMES = ("input_ids", "attention_mask", "labels")
IGNORED = -100


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and with what."""

    side: str
    tokenizer: str
    dataset: str
    context_length: int = 2048
    overlap: int = 0
    pad_id: int = 0
    num_proc: int | None = None
    num_documents: int | None = None
    copies: int = 1
    dtype: str = "int64"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    num_rows: int = 0
    text_bytes: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    digest: str = ""
    """Of all rows, in order."""
    peak_anonymous_bytes: int = 0
    """Memory that is no file's, sampled; 0 where it was not looked at."""
    differs: list[str] = []
    """Kinds of dataset whose rows are not those of the loop."""


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    datasets.disable_caching()
    datasets.disable_progress_bars()
    dataset = datasets.load_from_disk(job.dataset)
    if job.num_documents is not None:
        dataset = dataset.select(range(min(job.num_documents, len(dataset))))
    if job.copies > 1:
        dataset = datasets.concatenate_datasets([dataset] * job.copies)
    outcome = {"gristmill": time_ours, "map": time_map, "check": check, "memory": watch_memory}[job.side]
    print(msgspec.json.encode(outcome(job, dataset)).decode())


def time_ours(job: Job, dataset: Any) -> Outcome:
    """Our side; of a slow tokenizer, processes are started within the time."""
    import gristmill

    tokenizer = gristmill.CausalLMTokenizer(config_of(job))
    return timed(lambda: tokenizer.tokenize(dataset), dataset)


def time_map(job: Job, dataset: Any) -> Outcome:
    """What people write: a batched map whose rows and labels are nested loops, in one process."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.tokenizer)

    def to_rows(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return loop_rows(tokenizer(batch["text"], verbose=False)["input_ids"], job)

    columns = dataset.column_names
    return timed(lambda: dataset.map(to_rows, batched=True, remove_columns=columns), dataset)


def loop_rows(documents: list[list[int]], job: Job) -> dict[str, list[list[int]]]:
    """Windows of documents, their masks and labels, a token at a time."""
    rows: dict[str, list[list[int]]] = {name: [] for name in NAMES}
    for ids in documents:
        start = 0
        while start < len(ids):
            window = ids[start : start + job.context_length]
            padding = job.context_length - len(window)
            input_ids = window + [job.pad_id] * padding
            mask = [1] * len(window) + [0] * padding
            labels = []
            for id_, is_token in zip(input_ids, mask, strict=True):
                labels.append(id_ if is_token else IGNORED)
            for name, values in zip(NAMES, (input_ids, mask, labels), strict=True):
                rows[name].append(values)
            if start + job.context_length >= len(ids):
                break
            start += job.context_length - job.overlap
    return rows


def timed(make: Any, dataset: Any) -> Outcome:
    started, used = time.perf_counter(), cpu_s()
    made = make()
    wall_s, spent = time.perf_counter() - started, cpu_s() - used
    return Outcome(
        num_rows=len(made),
        text_bytes=text_bytes(dataset),
        wall_s=round(wall_s, 3),
        cpu_s=round(spent, 3),
        digest=digest_of(made),
    )


def cpu_s() -> float:
    """Of this process and of those that it has waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


def text_bytes(dataset: Any) -> int:
    return sum(len(text.encode()) for text in dataset["text"])


def digest_of(made: Any) -> str:
    """The same for the same rows, whatever the record batches."""
    digest = hashlib.sha256()
    for batch in made.with_format("arrow").iter(500):
        for name in NAMES:
            values = batch.column(name).combine_chunks().flatten().to_numpy()
            digest.update(values.astype(np.int64).tobytes())
    return digest.hexdigest()


def check(job: Job, dataset: Any) -> Outcome:
    """Rows of every kind of dataset against the loop's."""
    from transformers import AutoTokenizer

    import gristmill

    reference = AutoTokenizer.from_pretrained(job.tokenizer)
    ids = reference(dataset["text"][:], verbose=False)["input_ids"]
    half = len(ids) // 2
    parts = [loop_rows(part, job) for part in (ids, ids[:half], ids[half:])]
    whole, first, last = ({name: np.array(rows[name]) for name in NAMES} for rows in parts)
    tokenizer = gristmill.CausalLMTokenizer(config_of(job))
    train, test = dataset.select(range(half)), dataset.select(range(half, len(dataset)))
    stream, streams = dataset.to_iterable_dataset(), (train.to_iterable_dataset(), test.to_iterable_dataset())
    split = tokenizer.tokenize(datasets.DatasetDict(train=train, test=test))
    splits = tokenizer.tokenize(datasets.IterableDatasetDict(train=streams[0], test=streams[1]))
    found = {
        "Dataset": same(tokenizer.tokenize(dataset), whole),
        "IterableDataset": same(tokenizer.tokenize(stream), whole),
        "DatasetDict": same(split["train"], first) and same(split["test"], last),
        "IterableDatasetDict": same(splits["train"], first) and same(splits["test"], last),
    }
    differs = [kind for kind, is_same in found.items() if not is_same]
    return Outcome(num_rows=len(whole["labels"]), text_bytes=text_bytes(dataset), differs=differs)


def same(made: Any, rows: dict[str, Any]) -> bool:
    number = 0
    for row in made.with_format("numpy"):
        if number == len(rows["labels"]):
            return False
        if not all(np.array_equal(row[name], rows[name][number]) for name in NAMES):
            return False
        number += 1
    return number == len(rows["labels"])


def watch_memory(job: Job, dataset: Any) -> Outcome:
    """Memory over a large dataset, sampled while rows are made."""
    import gristmill

    peak, is_done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_done.wait(0.05):
            peak = max(peak, anonymous_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    started = time.perf_counter()
    made = gristmill.CausalLMTokenizer(config_of(job)).tokenize(dataset)
    wall_s = time.perf_counter() - started
    is_done.set()
    thread.join()
    size = int(dataset.data.column("text").nbytes)
    return Outcome(
        num_rows=len(made), text_bytes=size, wall_s=round(wall_s, 3), peak_anonymous_bytes=peak
    )


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def config_of(job: Job) -> dict[str, Any]:
    return {
        "tokenizer_name": os.path.abspath(job.tokenizer),
        "context_length": job.context_length,
        "overlap": job.overlap,
        "pad_id": job.pad_id,
        "num_proc": job.num_proc,
        "dtype": job.dtype,
        "show_progress": False,
        "verbose_level": "ERROR",
    }


if __name__ == "__main__":
    main()
