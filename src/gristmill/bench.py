"""Times the ways to encode a text: every method in a fresh process, in alternated rounds, ids compared first.

A pass reads every document once, with the text already in memory when the clock starts. Before any round is
timed, a process of its own shows each method's ids; one that differs from the reference is not timed.
"""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from gristmill.batch import DocumentBatch
from gristmill.bench_methods import METHODS, REFERENCES, Ids, Offsets, check_documents
from gristmill.bench_worker import Job, Outcome
from gristmill.config import BenchConfig, ReadConfig
from gristmill.errors import BadFileError, InputError, TokenizerFormatError, UnsupportedTokenizerError
from gristmill.load.folder import explain_absence, find_tokenizer_file
from gristmill.load.hub import download_tokenizer, looks_like_hub_name
from gristmill.read import Blocks, find_inputs, read_slice, slice_file
from gristmill.read.find import COMPRESSIONS, FORMATS
from gristmill.run.machine import processor_name
from gristmill.sample import made_documents, train_sample_tokenizer

BASELINES = ("tokenizers one by one", *REFERENCES)
NUM_REPEATS = 3
"""Passes after the first: some engines remember what they see again."""


class Plan(NamedTuple):
    """One line of the table: a method and how many threads it gets."""

    method: str
    threads: int


class Measurement(msgspec.Struct, kw_only=True):
    """What was seen of one plan; times are empty unless the status is ok."""

    method: str
    threads: int
    status: Literal["ok", "mismatch", "absent", "failed"] = "ok"
    reason: str = ""
    load_s: list[float] = []
    once_s: list[float] = []
    repeated_s: list[float] = []


class BenchReport(msgspec.Struct, kw_only=True):
    """All that a run measured, with what it was measured on."""

    tokenizer: str
    reference: str
    num_docs: int
    num_bytes: int
    num_tokens: int
    python: str
    machine: str
    num_cores: int
    measurements: list[Measurement]


class Workplace(NamedTuple):
    """The files that the worker processes of one benchmark share."""

    folder: Path
    source: str
    num_passes: int


def run_bench(config: BenchConfig, *, on_step: Callable[[str], None]) -> BenchReport:
    """Measure every method that applies to the user's tokenizer on the user's text."""
    documents = load_documents(config)
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as folder:
        path = find_tokenizer(config.tokenizer) if config.tokenizer else train_sample_tokenizer(Path(folder))
        plans = all_plans(config.threads or available_cores())
        report = measure(str(path), documents, plans, config=config, on_step=on_step)
    report.tokenizer = config.tokenizer or "embedded"
    return report


def find_tokenizer(name: str) -> Path:
    """Return the one file that all methods read: as it is, or the right one of a folder or hub name."""
    path = Path(name)
    if path.is_dir():
        return find_tokenizer_file(path)
    if path.exists():
        return path
    if looks_like_hub_name(name):
        return download_tokenizer(name, revision=None, token=None, cache_dir=None)
    raise TokenizerFormatError(explain_absence(name))


BLOCK_BYTES = 4 << 20
MAX_DOCUMENT_BYTES = 1 << 30
WHOLE_FILE = 1 << 62


def all_plans(threads: int) -> list[Plan]:
    """List every method, on one thread and on several where it can use them."""
    plans = []
    for method in METHODS:
        if method.startswith("tokenizers batch"):
            plans.append(Plan(method, threads))
        elif method in ("slow", "tokenizers one by one"):
            plans.append(Plan(method, 1))
        else:
            plans += [Plan(method, n) for n in sorted({1, threads})]
    return plans


def available_cores() -> int:
    """Count the cores this process may use, which in a container are often fewer than the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_documents(config: BenchConfig) -> list[str]:
    """Read up to `num_docs` documents from the user's files, or make them from the embedded text."""
    if not config.texts:
        return made_documents(config.num_docs)
    files = (read_input(text, config.text_field) for text in config.texts)
    found = itertools.chain.from_iterable(files)
    documents = list(itertools.islice(found, config.num_docs))
    if not documents:
        raise InputError(f"{', '.join(config.texts)}: no text in it")
    check_documents(documents)
    return documents


def read_input(given: str, text_field: str = "text") -> Iterator[str]:
    """Yield documents: of a plain text file its paragraphs, and of all else those that a run would read."""
    path = Path(given)
    if path.is_file() and path.suffix not in COMPRESSIONS and FORMATS.get(path.suffix, "text") == "text":
        yield from _read_paragraphs(path)
        return
    config = ReadConfig(inputs=(given,), text_field=text_field)
    blocks = Blocks(BLOCK_BYTES, MAX_DOCUMENT_BYTES, memory_map=False, read_ahead=False)
    for index, file in enumerate(find_inputs(config).files):
        for part in slice_file(index, file, config, WHOLE_FILE):
            try:
                for batch in read_slice(file, part, config, blocks):
                    yield from _good_documents(batch, file.path)
            except BadFileError as error:
                raise InputError(f"{file.path}: {error}") from error


def _good_documents(batch: DocumentBatch, path: str) -> Iterator[str]:
    """Yield what comes before the first bad record, which is refused."""
    bad = next((each for each in batch.bad if each.reason != "empty"), None)
    ends = itertools.pairwise(batch.offsets.tolist())
    for record, (begin, end) in zip(batch.records.tolist(), ends, strict=True):
        if bad is not None and bad.record < record:
            break
        yield batch.text[begin:end].tobytes().decode()
    if bad is not None:
        remedy = "; --text-field names the field" if bad.reason == "missing_field" else ""
        raise InputError(f"{path}, record {bad.record}: {bad.detail}{remedy}")


def _read_paragraphs(path: Path) -> Iterator[str]:
    """Yield the paragraphs of a text file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            yield from (paragraph for paragraph in file.read().split("\n\n") if paragraph.strip())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}; convert it first") from error


def measure(
    source: str,
    documents: list[str],
    plans: list[Plan],
    *,
    config: BenchConfig,
    on_step: Callable[[str], None],
) -> BenchReport:
    """Time the plans on the documents, in `rounds` alternated rounds."""
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as folder:
        place = Workplace(Path(folder), source, 1 + NUM_REPEATS if config.is_repeated else 1)
        (place.folder / "documents.json").write_bytes(msgspec.json.encode(documents))
        on_step("reference ids")
        reference, expected = _reference(place)
        measurements = [Measurement(method=plan.method, threads=plan.threads) for plan in plans]
        for measurement in measurements:
            on_step(f"ids: {measurement.method}")
            _run_checked(measurement, place, expected, num_passes=1)
        for number in range(config.rounds):
            for measurement in measurements:
                if measurement.status == "ok":
                    on_step(f"round {number + 1} of {config.rounds}: {measurement.method}")
                    _time_once(measurement, place, expected)
    return BenchReport(
        tokenizer=source,
        reference=reference,
        num_docs=len(documents),
        num_bytes=sum(len(document.encode()) for document in documents),
        num_tokens=len(expected[0]),
        python=platform.python_version(),
        machine=processor_name(),
        num_cores=available_cores(),
        measurements=measurements,
    )


def _reference(place: Workplace) -> tuple[str, tuple[Ids, Offsets]]:
    reasons = []
    for method in REFERENCES:
        outcome = _run_worker(place, Plan(method, available_cores()), num_passes=1)
        if outcome.status == "ok":
            return method, _take_ids(place)
        reasons.append(f"{method}: {outcome.reason}")
    raise UnsupportedTokenizerError(f"{place.source}: no reference library reads it ({'; '.join(reasons)})")


def _time_once(measurement: Measurement, place: Workplace, expected: tuple[Ids, Offsets]) -> None:
    outcome = _run_checked(measurement, place, expected, num_passes=place.num_passes)
    if measurement.status == "ok":
        measurement.load_s.append(outcome.load_s)
        measurement.once_s.append(outcome.passes_s[0])
        measurement.repeated_s.extend(outcome.passes_s[1:])


def _run_checked(
    measurement: Measurement, place: Workplace, expected: tuple[Ids, Offsets], *, num_passes: int
) -> Outcome:
    """Run a fresh process; the measurement says afterwards whether it gave the reference's ids."""
    outcome = _run_worker(place, Plan(measurement.method, measurement.threads), num_passes=num_passes)
    if outcome.status != "ok":
        measurement.status, measurement.reason = outcome.status, outcome.reason
        return outcome
    wrong = first_difference(expected, _take_ids(place))
    if wrong is not None:
        measurement.status = "mismatch"
        measurement.reason = f"ids differ from the reference first in document {wrong}"
        measurement.load_s, measurement.once_s, measurement.repeated_s = [], [], []
    return outcome


def _take_ids(place: Workplace) -> tuple[Ids, Offsets]:
    path = place.folder / "ids.npz"
    with np.load(path) as arrays:
        found = arrays["ids"], arrays["offsets"]
    path.unlink()
    return found


def first_difference(expected: tuple[Ids, Offsets], found: tuple[Ids, Offsets]) -> int | None:
    """Return the number of the first document whose ids differ, or None where all are equal."""
    if np.array_equal(expected[0], found[0]) and np.array_equal(expected[1], found[1]):
        return None
    for number, (start, end) in enumerate(itertools.pairwise(expected[1])):
        if number + 1 >= len(found[1]) or not np.array_equal(
            expected[0][start:end], found[0][found[1][number] : found[1][number + 1]]
        ):
            return number
    return len(expected[1]) - 1


def _run_worker(place: Workplace, plan: Plan, *, num_passes: int) -> Outcome:
    outcome_path = place.folder / "outcome.json"
    outcome_path.unlink(missing_ok=True)
    job = Job(
        source=place.source,
        method=plan.method,
        threads=plan.threads,
        num_passes=num_passes,
        documents=str(place.folder / "documents.json"),
        outcome=str(outcome_path),
        ids=str(place.folder / "ids.npz"),
    )
    job_path = place.folder / "job.json"
    job_path.write_bytes(msgspec.json.encode(job))
    # The rivals' pools read these two; with one thread they must not use more than native does.
    pools = {"RAYON_NUM_THREADS": str(plan.threads), "TOKENIZERS_PARALLELISM": str(plan.threads > 1).lower()}
    command = [sys.executable, "-m", "gristmill.bench_worker", str(job_path)]
    process = subprocess.run(command, env=os.environ | pools, capture_output=True, text=True, check=False)
    if outcome_path.exists():
        return msgspec.json.decode(outcome_path.read_bytes(), type=Outcome)
    last = (process.stderr.strip().splitlines() or ["no message"])[-1]
    return Outcome(status="failed", reason=f"worker ended with {process.returncode}: {last}")


def median_s(times_s: list[float]) -> float:
    """Return the median of some times."""
    return statistics.median(times_s)


def baseline(report: BenchReport) -> Measurement | None:
    """Return the measurement that speedups are given against: what a user would run instead."""
    measured = {m.method: m for m in report.measurements if m.status == "ok"}
    return next((measured[method] for method in BASELINES if method in measured), None)
