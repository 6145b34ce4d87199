"""A whole training: count the pieces of the inputs, learn merges from the counts, write the tokenizer."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gristmill.config import TrainConfig
from gristmill.errors import ConfigError, ResumeError, RunError
from gristmill.files import check_writable, write_whole
from gristmill.job import byte_size
from gristmill.run.budget import RUN_BYTES
from gristmill.run.count import Counted, count
from gristmill.run.folder import CHECKPOINT, INVENTORY, locked, remove_temporaries
from gristmill.run.process import WorkerProcess
from gristmill.run.progress import OnProgress
from gristmill.run.resources import available_memory, num_cores, peak_resident_bytes
from gristmill.training.inventory import Inventory, MergeReport, merge_inventories
from gristmill.training.merging import Learning, Merges, Progress, memory_needed, resume
from gristmill.training.start import Start, new_start, start_from
from gristmill.training.tokenizer_json import extended_json, new_json

CHECKPOINT_EVERY_S = 20.0
OnLearning = Callable[[int, int], None]
"""Called with the tokens there are and the tokens wanted."""


class TrainResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a training."""

    output: str
    folder: str
    counted: Counted | None
    """Absent where the counts were given."""
    num_pieces: int
    num_merges: int
    vocab_size: int
    left_out: MergeReport | None
    """Pieces below `learn.min_count`."""
    stage_s: dict[str, float]
    peak_memory_bytes: int
    """Of this process, which learns."""


def train(
    config: TrainConfig,
    *,
    force: bool = False,
    on_progress: OnProgress | None = None,
    on_learning: OnLearning | None = None,
    processes: Sequence[WorkerProcess] = (),
) -> TrainResult:
    """Do a job: from the files it names to a tokenizer.json.

    The same call again takes up a count or a learning that was cut short; `force` starts over."""
    output = Path(config.learn.output)
    check_writable(output)
    folder = Path(config.count.folder or f"{output}.run")
    start = time.monotonic()
    with locked(folder):
        try:
            counted = _count(config, folder, force=force, on_progress=on_progress, processes=processes)
            counted_s = time.monotonic() - start
            inventory, left_out = _inventory(config, folder)
            merges = _learn(config, folder, inventory, on_learning)
            write_whole(output, _tokenizer_json(config, inventory, merges))
            (folder / CHECKPOINT).unlink(missing_ok=True)
        finally:
            remove_temporaries(folder)
    return TrainResult(
        output=str(output),
        folder=str(folder),
        counted=counted,
        num_pieces=inventory.summary.num_pieces,
        num_merges=len(merges.rules),
        vocab_size=len(merges.tokens),
        left_out=left_out,
        stage_s={"count": round(counted_s, 3), "learn": round(time.monotonic() - start - counted_s, 3)},
        peak_memory_bytes=peak_resident_bytes(),
    )


def _count(config: TrainConfig, folder: Path, **how: Any) -> Counted | None:
    return None if config.learn.from_counts else count(config, folder, **how)


def _inventory(config: TrainConfig, folder: Path) -> tuple[Inventory, MergeReport | None]:
    """The counts to learn from: those of this run or those given, less what is too rare."""
    given = [Path(path) for path in config.learn.from_counts] or [folder / INVENTORY]
    if len(given) == 1 and config.learn.min_count == 1:
        return Inventory(given[0]), None
    merged = folder / "learned.pieces"
    report = merge_inventories(given, merged, min_count=config.learn.min_count)
    return Inventory(merged), report if config.learn.min_count > 1 else None


def _learn(
    config: TrainConfig, folder: Path, inventory: Inventory, on_learning: OnLearning | None
) -> Merges:
    if inventory.summary.num_pieces == 0:
        raise RunError(f"{inventory.path}: holds no pieces; there is nothing to learn from")
    learn, vocab_size = config.learn, config.learn.vocab_size
    assert vocab_size is not None
    num_threads = config.run.workers or num_cores()
    _check_memory(config, inventory, vocab_size, num_threads)
    pieces = inventory.load()
    key = _learning_key(config, inventory)
    learning = Learning(
        pieces,
        _resumed(folder, key, _start(config, pieces, is_marked=inventory.cut.marks)),
        vocab_size=vocab_size,
        min_frequency=learn.min_frequency,
        max_token_length=learn.max_token_length,
        tie_break=learn.tie_break,
        num_threads=num_threads,
    )
    del pieces  # learning has its own copy
    written = time.monotonic()

    def report(progress: Progress) -> None:
        nonlocal written
        if on_learning is not None:
            on_learning(progress.num_tokens, vocab_size)
        if time.monotonic() - written >= CHECKPOINT_EVERY_S:
            _write_checkpoint(folder, key, progress.rules())
            written = time.monotonic()

    return learning.run(report)


def _start(config: TrainConfig, pieces: Any, *, is_marked: bool) -> Start:
    learn = config.learn
    if learn.extend is not None:
        from gristmill.load.hf_json import load_tokenizer_json
        from gristmill.load.reading import read_whole

        loaded = load_tokenizer_json(read_whole(Path(learn.extend)), source=learn.extend)
        if loaded.spec is None:
            raise ConfigError(f"{learn.extend}: cannot be extended ({loaded.why_not_native})")
        return start_from(loaded.spec)
    return new_start(
        pieces,
        symbols="characters" if is_marked else "bytes",
        special_tokens=learn.special_tokens,
        is_whole_alphabet=learn.initial_alphabet == "bytes",
    )


def _tokenizer_json(config: TrainConfig, inventory: Inventory, merges: Merges) -> bytes:
    if config.learn.extend is not None:
        from gristmill.load.reading import read_whole

        return extended_json(read_whole(Path(config.learn.extend)), merges, source=config.learn.extend)
    cut = inventory.cut
    return new_json(merges, special_tokens=config.learn.special_tokens, splits=cut.splits, form=cut.form)


def _check_memory(config: TrainConfig, inventory: Inventory, vocab_size: int, num_threads: int) -> None:
    """Refuse before starting what would not fit."""
    summary = inventory.summary
    arrays = summary.total_bytes + 16 * summary.num_pieces
    needed = RUN_BYTES + arrays + memory_needed(
        num_pieces=summary.num_pieces,
        num_symbols=summary.total_bytes,
        vocab_size=vocab_size,
        num_threads=num_threads,
    )
    memory = config.run.memory
    allowed = byte_size(memory, name="run.memory") if memory is not None else available_memory()
    if needed > allowed:
        raise RunError(
            f"learning from {summary.num_pieces:,} pieces needs about {needed // 10**6:,} MB, and "
            f"{allowed // 10**6:,} MB are allowed; raise run.memory, or leave rare pieces out with "
            "learn.min_count"
        )


def _learning_key(config: TrainConfig, inventory: Inventory) -> bytes:
    """All that decides which merges are learned."""
    learn = msgspec.structs.replace(config.learn, output="", from_counts=())
    return msgspec.json.encode((learn, inventory.summary, inventory.about.decode()))


def _write_checkpoint(folder: Path, key: bytes, rules: Any) -> None:
    content = io.BytesIO()
    np.save(content, np.frombuffer(key, np.uint8), allow_pickle=False)
    np.save(content, rules, allow_pickle=False)
    write_whole(folder / CHECKPOINT, content.getvalue())


def _resumed(folder: Path, key: bytes, start: Start) -> Start:
    """The start, after the merges that an earlier process has learned, where it left any."""
    try:
        with (folder / CHECKPOINT).open("rb") as file:
            before = np.load(file, allow_pickle=False).tobytes()
            rules = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        return start
    except (OSError, ValueError, EOFError) as error:
        raise ResumeError(f"{folder / CHECKPOINT}: cannot be read ({error}); delete it") from error
    return resume(start, rules) if before == key else start
