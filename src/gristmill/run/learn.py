"""The second half of training: merges learned from an inventory, within the memory, with checkpoints."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gristmill.config import TrainConfig
from gristmill.count_pipeline import describe
from gristmill.errors import ResumeError, RunError
from gristmill.files import open_without_waiting, write_whole
from gristmill.plain_arrays import read_array
from gristmill.run.budget import RUN_BYTES
from gristmill.run.cutting import check_special_tokens, load_base, settle_cut
from gristmill.run.folder import CHECKPOINT
from gristmill.run.learning_events import LearningEvents, count_characters
from gristmill.run.process import is_frugal, memory_of
from gristmill.run.resources import available_memory, num_cores
from gristmill.training.cut import SPACES, build_cut
from gristmill.training.inventory import Inventory, Pieces
from gristmill.training.merging import Learning, Merges, Progress, memory_needed, resume
from gristmill.training.output import base_file
from gristmill.training.start import Start, check_room, new_start, start_from

CHECKPOINT_EVERY_S = 20.0
NO_PIECES = Pieces(np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.uint64))
OnLearning = Callable[[int, int], None]
"""Called with the tokens there are and the tokens wanted."""


class Begun(NamedTuple):
    """Pieces in memory, ready for the first merge."""

    learning: Learning
    num_symbols: int
    """Of all pieces, each as often as it occurs."""


def learn_merges(
    config: TrainConfig,
    folder: Path,
    inventory: Inventory,
    *,
    begun: Begun | None,
    on_learning: OnLearning | None,
) -> Merges:
    """Learn from an inventory, or go on from a checkpoint in the folder; what would not fit is refused.

    `begun`: its pieces are in memory already, and there was no checkpoint."""
    if inventory.summary.num_pieces == 0:
        raise RunError(f"{inventory.path}: holds no pieces; there is nothing to learn from")
    vocab_size = config.learn.vocab_size
    assert vocab_size is not None
    key = cache(lambda: _learning_key(config, inventory))
    learning, num_symbols = begun or _load_and_begin(config, folder, inventory, key)
    events = LearningEvents(
        folder, vocab_size=vocab_size, text_bytes=learning.text_bytes, num_symbols=num_symbols
    )
    written = time.monotonic()

    def report(progress: Progress) -> None:
        nonlocal written
        if on_learning is not None:
            on_learning(progress.num_tokens, vocab_size)
        if events.is_due():
            events.note(progress.num_tokens, learning.counts())
        if time.monotonic() - written >= CHECKPOINT_EVERY_S:
            _write_checkpoint(folder, key, progress.rules())
            written = time.monotonic()

    merges = learning.run(report)
    events.end(merges.num_tokens, merges.counts)
    return merges


def begin_learning(
    config: TrainConfig, pieces: Pieces, *, is_marked: bool, resumed: Callable[[Start], Start] | None = None
) -> Begun:
    """Take the pieces for learning; what would not fit is refused.

    `resumed` gives the start after merges that were learned before."""
    learn = config.learn
    assert learn.vocab_size is not None
    check_memory(config, num_pieces=len(pieces.counts), total_bytes=len(pieces.text))
    start = _start(config, pieces, is_marked=is_marked)
    learning = Learning(
        pieces,
        resumed(start) if resumed else start,
        vocab_size=learn.vocab_size,
        min_frequency=learn.min_frequency,
        max_token_length=learn.max_token_length,
        tie_break=learn.tie_break,
        num_threads=num_learners(config),
    )
    return Begun(learning, count_characters(pieces) if is_marked else learning.text_bytes)


def num_learners(config: TrainConfig) -> int:
    """Threads that learn."""
    return config.run.workers or num_cores()


def _load_and_begin(
    config: TrainConfig, folder: Path, inventory: Inventory, key: Callable[[], bytes]
) -> Begun:
    summary = inventory.summary
    check_memory(config, num_pieces=summary.num_pieces, total_bytes=summary.total_bytes)
    return begin_learning(
        config,
        inventory.load(),
        is_marked=inventory.cut.marks,
        resumed=lambda start: _resumed(folder, key, start),
    )


def check_training(config: TrainConfig) -> None:
    """Refuse what could only fail, before hours are spent on counting."""
    learn, count = config.learn, config.count
    assert learn.vocab_size is not None
    check_special_tokens(learn)
    check_memory(config, num_pieces=0, total_bytes=0)  # whatever is counted
    if not learn.from_counts:
        build_cut(settle_cut(config))
    # Of the alphabet, what is there whatever the text.
    check_room(_start(config, NO_PIECES, is_marked=count.pattern == SPACES), learn.vocab_size)


def _start(config: TrainConfig, pieces: Any, *, is_marked: bool) -> Start:
    learn = config.learn
    if learn.extend is not None:
        return start_from(load_base(learn.extend))
    return new_start(
        pieces,
        symbols="characters" if is_marked else "bytes",
        special_tokens=learn.special_tokens,
        is_whole_alphabet=learn.initial_alphabet == "bytes",
        max_alphabet=learn.max_alphabet if is_marked else None,
    )


def check_memory(config: TrainConfig, *, num_pieces: int, total_bytes: int) -> None:
    """Refuse before starting what would not fit."""
    assert config.learn.vocab_size is not None
    arrays = total_bytes + 16 * num_pieces
    needed = RUN_BYTES + arrays + memory_needed(
        num_pieces=num_pieces,
        num_symbols=total_bytes,
        vocab_size=config.learn.vocab_size,
        num_threads=num_learners(config),
    )
    allowed = memory_of(config.run) if is_frugal(config.run) else available_memory()
    if needed > allowed:
        what = f"learning from {num_pieces:,} pieces" if num_pieces else "learning so many tokens"
        remedy = ", or leave rare pieces out with learn.min_count" if num_pieces else ""
        raise RunError(
            f"{what} needs about {needed // 10**6:,} MB{'' if num_pieces else ' and more'}, and "
            f"{allowed // 10**6:,} MB are allowed; raise run.memory (--memory){remedy}"
        )


def _learning_key(config: TrainConfig, inventory: Inventory) -> bytes:
    """All that decides which merges are learned: files by their content, whatever their names."""
    learn = msgspec.structs.replace(config.learn, output="", from_counts=(), extend=None)
    files = [inventory.path] + ([base_file(config.learn.extend)] if config.learn.extend else [])
    return msgspec.json.encode((learn, [describe(path, path.name).blake3 for path in files]))


def _write_checkpoint(folder: Path, key: Callable[[], bytes], rules: Any) -> None:
    content = io.BytesIO()
    np.save(content, np.frombuffer(key(), np.uint8), allow_pickle=False)
    np.save(content, rules, allow_pickle=False)
    write_whole(folder / CHECKPOINT, content.getvalue())


def _resumed(folder: Path, key: Callable[[], bytes], start: Start) -> Start:
    """The start, after the merges that an earlier process has learned, where it left any."""
    path = folder / CHECKPOINT
    try:
        with open_without_waiting(path) as file:
            before, rules = read_array(file).tobytes(), read_array(file)
        if rules.dtype != np.uint32 or rules.ndim != 2 or rules.shape[1] != 3:
            raise ValueError("it holds no merges")
    except FileNotFoundError:
        return start
    except (OSError, ValueError) as error:
        raise ResumeError(f"{path}: cannot be read ({error}); delete it") from error
    return resume(start, rules) if before == key() else start
