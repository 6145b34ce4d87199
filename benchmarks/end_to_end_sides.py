"""What `end_to_end` times against a whole command, one fresh process each: a run that a program calls, the
bare encoder, datatrove, datasets.

Started as `python benchmarks/end_to_end_sides.py JOB`, where JOB is JSON; prints what it measured as JSON.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from corpora import files_of, texts_of

SEQUENCE_LENGTH = 2048
BLOCK_BYTES = 4 << 20
"""That the bare encoder takes at a time: as much as a worker of a run does."""


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
    format: str = ""
    """That the called run writes."""
    eos_id: int = 0
    is_kept: bool = False
    """The bare encoder leaves its ids in the output folder."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the work itself: without imports and, for the bare encoder, without reading and loading."""

    work_s: float


def called(job: Job) -> Outcome:
    """A run as a program asks for it, after one of one document, so that modules are loaded."""
    import gristmill

    first = Path(f"{job.output}.cache")
    first.mkdir()
    (first / "one.jsonl").write_text('{"text": "Threads start and modules load on this line, 1 2 3."}\n')
    config = {
        "tokenizer": job.tokenizer,
        "read": {"inputs": [str(first / "one.jsonl")]},
        "encode": {"eos_id": job.eos_id},
        "pack": {"sequence_length": SEQUENCE_LENGTH},
        "write": {"output": str(first / "one"), "format": job.format},
        "run": {"workers": job.workers},
    }
    gristmill.tokenize(config)
    config |= {"read": {"inputs": [job.input]}, "write": {"output": job.output, "format": job.format}}
    start = time.perf_counter()
    gristmill.tokenize(config)
    return Outcome(work_s=time.perf_counter() - start)


def bare(job: Job) -> Outcome:
    """The native encoder alone, text in memory, a block at a time; ids are let go unless asked for."""
    return _encode_alone(job, block_bytes=BLOCK_BYTES)


def bare_whole(job: Job) -> Outcome:
    """The same in one call: on large inputs the kernel's time for fresh memory is a good part of it."""
    return _encode_alone(job, block_bytes=1 << 62)


def _encode_alone(job: Job, *, block_bytes: int) -> Outcome:
    from gristmill import load_tokenizer

    documents = [text.encode() for text in texts_of(files_of(Path(job.input)))]
    offsets = np.cumsum([0, *map(len, documents)])
    text = np.frombuffer(b"".join(documents), dtype=np.uint8)
    del documents
    cuts = list(_cuts(offsets, block_bytes))
    tokenizer = load_tokenizer(job.tokenizer, engine="native")
    tokenizer.encode_batch([b"Threads start and modules load on this line, 1 2 3."], num_threads=job.workers)
    kept = []
    start = time.perf_counter()
    for first, stop in cuts:
        block = text[offsets[first] : offsets[stop]], offsets[first : stop + 1] - offsets[first]
        tokens = tokenizer.encode_batch(block, num_threads=job.workers)
        if job.is_kept:
            kept.append(np.insert(tokens.ids, tokens.offsets[1:], tokenizer.special_tokens[job.eos]))
    work_s = time.perf_counter() - start
    if job.is_kept:
        Path(job.output).mkdir()
        np.save(Path(job.output) / "ids.npy", np.concatenate(kept))
    return Outcome(work_s=work_s)


def _cuts(offsets: np.ndarray, block_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of documents that are about a block."""
    first = 0
    while first < len(offsets) - 1:
        fitting = int(np.searchsorted(offsets, offsets[first] + block_bytes, side="right")) - 1
        yield first, max(first + 1, fitting)
        first = max(first + 1, fitting)


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


SIDES: dict[str, Callable[[Job], Outcome]] = {
    "called": called,
    "bare": bare,
    "bare whole": bare_whole,
    "datatrove": datatrove,
    "datasets": datasets,
}


def main() -> None:
    """Do the job that the only argument describes."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    print(msgspec.json.encode(SIDES[job.side](job)).decode())


if __name__ == "__main__":
    main()
