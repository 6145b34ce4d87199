"""What `end_to_end` times against a run, one fresh process each: the bare encoder, datatrove, datasets.

Started as `python benchmarks/end_to_end_sides.py JOB`, where JOB is JSON; prints what it measured as JSON.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from corpora import files_of, texts_of

SEQUENCE_LENGTH = 2048


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a side is asked to do."""

    side: str
    tokenizer: str
    """Path of a tokenizer.json."""
    eos: str
    """Put after each document."""
    input: str
    """A JSONL file, or a folder of them."""
    output: str
    """A folder that is not there yet."""
    workers: int
    batch_size: int
    is_kept: bool = False
    """The bare encoder leaves its ids in the output folder."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the work itself: without imports and, for the bare encoder, without reading and loading."""

    work_s: float


def bare(job: Job) -> Outcome:
    """The native encoder alone, documents and ids in memory."""
    from gristmill import load_tokenizer

    documents = [text.encode() for text in texts_of(files_of(Path(job.input)))]
    tokenizer = load_tokenizer(job.tokenizer, engine="native")
    tokenizer.encode_batch([b"Threads start and modules load on this line, 1 2 3."], num_threads=job.workers)
    start = time.perf_counter()
    tokens = tokenizer.encode_batch(documents, num_threads=job.workers)
    work_s = time.perf_counter() - start
    if job.is_kept:
        Path(job.output).mkdir()
        eos_id = tokenizer.special_tokens[job.eos]
        np.save(Path(job.output) / "ids.npy", np.insert(tokens.ids, tokens.offsets[1:], eos_id))
    return Outcome(work_s=work_s)


def datatrove(job: Job) -> Outcome:
    """Its reader and tokenizer as its examples put them together, one task a worker, without shuffling."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    start = time.perf_counter()
    executor = LocalPipelineExecutor(
        pipeline=[
            JsonlReader(job.input),
            DocumentTokenizer(
                output_folder=job.output,
                tokenizer_name_or_path=job.tokenizer,
                eos_token=job.eos,
                batch_size=job.batch_size,
                shuffle_documents=False,
            ),
        ],
        tasks=job.workers,
        workers=job.workers,
        logging_dir=f"{job.output}.log",
    )
    executor.run()
    return Outcome(work_s=time.perf_counter() - start)


def datasets(job: Job) -> Outcome:
    """The recipe of the training examples: map a tokenizer, map group_texts, save; only ids are kept."""
    from datasets import Features, Sequence, Value, load_dataset
    from tokenizers import Tokenizer

    start = time.perf_counter()
    tokenizer = Tokenizer.from_file(job.tokenizer)
    eos_id = tokenizer.token_to_id(job.eos)
    kind = Features({"input_ids": Sequence(Value("int32"))})

    def encode(batch: dict[str, Any]) -> dict[str, Any]:
        found = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"input_ids": [[*encoding.ids, eos_id] for encoding in found]}

    def group_texts(batch: dict[str, Any]) -> dict[str, Any]:
        ids = [i for part in batch["input_ids"] for i in part]
        full = len(ids) // SEQUENCE_LENGTH * SEQUENCE_LENGTH
        return {"input_ids": [ids[i : i + SEQUENCE_LENGTH] for i in range(0, full, SEQUENCE_LENGTH)]}

    files = [str(path) for path in files_of(Path(job.input))]
    how = {"num_proc": job.workers} if job.workers > 1 else {}
    loaded = load_dataset("json", data_files=files, split="train", cache_dir=f"{job.output}.cache", **how)
    options = how | {"batched": True, "batch_size": job.batch_size, "features": kind}
    encoded = loaded.map(encode, remove_columns=loaded.column_names, **options)
    rows = encoded.map(group_texts, **options)
    Path(job.output).mkdir()
    rows.to_parquet(f"{job.output}/rows.parquet")
    return Outcome(work_s=time.perf_counter() - start)


SIDES: dict[str, Callable[[Job], Outcome]] = {"bare": bare, "datatrove": datatrove, "datasets": datasets}


def main() -> None:
    """Do the job that the only argument describes."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    print(msgspec.json.encode(SIDES[job.side](job)).decode())


if __name__ == "__main__":
    main()
