"""A whole training: count the pieces of the inputs, learn merges from the counts, write the tokenizer."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from gristmill.config import TrainConfig
from gristmill.engine_cache import remember_cut
from gristmill.run.ahead import Ahead
from gristmill.run.assess import CutSample, assess, cut_sample
from gristmill.run.count import Counted, CountOutcome, count
from gristmill.run.cutting import check_counts, load_base, settle_cut
from gristmill.run.early import NOTHING, Early, names_of_cut
from gristmill.run.folder import (
    CHECKPOINT,
    INVENTORY,
    LEARNED,
    REPORT,
    locked,
    remove_temporaries,
    write_json,
)
from gristmill.run.learn import OnLearning, check_training, learn_merges
from gristmill.run.process import is_frugal
from gristmill.run.progress import OnProgress
from gristmill.run.resources import forget_peak, give_back_memory, num_cores, peak_resident_bytes
from gristmill.run.warn import bad_file_warnings, training_warnings, vocabulary_warnings
from gristmill.store import refuse_remote
from gristmill.training.cut import cut_steps, know_cut
from gristmill.training.figures import script_shares
from gristmill.training.fit import Fit, longest_tokens, merge_counts
from gristmill.training.inventory import Inventory, MergeReport, merge_inventories
from gristmill.training.merging import Merges
from gristmill.training.output import Output, base_file, roles_of
from gristmill.training.tokenizer_json import extended_json, new_json


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
    left_out_bytes: dict[str, int]
    """Text that those were, by script."""
    longest_tokens: list[str]
    merge_counts: list[tuple[int, int]]
    """Size of the vocabulary, and how often the pair merged there occurred."""
    fit: Fit | None
    """On the sample; absent where the counts were given."""
    stage_s: dict[str, float]
    stage_peak_bytes: dict[str, int]
    """Of all processes while counting, of this one while learning."""
    warnings: tuple[str, ...] = ()
    """What changed nothing about the training, but may not be what was meant."""


def train(
    config: TrainConfig,
    *,
    force: bool = False,
    on_progress: OnProgress | None = None,
    on_learning: OnLearning | None = None,
    early: Early = NOTHING,
) -> TrainResult:
    """Do a job: from the files it names to a tokenizer.json.

    The same call again takes up a count or a learning that was cut short; `force` starts over."""
    refuse_remote(config.learn.output, "a tokenizer")
    refuse_remote(config.count.folder or "", "a count")
    output = Output.of(config.learn.output)
    if early.steps is not None:
        know_cut(settle_cut(config), early.steps)
    check_training(config)
    folder = Path(config.count.folder or output.run_folder)
    if config.learn.from_counts:
        check_counts(config, _counts(config, folder))
    output.prepare()
    clock = Phases()
    with locked(folder):
        try:
            with ThreadPoolExecutor(1, "aside") as aside, Ahead(config, folder, aside) as ahead:
                how: dict[str, Any] = {"force": force, "on_progress": on_progress, "early": early}
                outcome = _count(config, folder, **how, on_pieces=ahead.offer)
                clock.end("count", outcome.peak_memory_bytes if outcome else None)
                inventory, left_out = _inventory(config, folder)
                if is_frugal(config.run):
                    give_back_memory()
                sample = aside.submit(cut_sample, folder, inventory.cut) if outcome else None
                if outcome and early.steps is None and config.learn.extend is None:
                    aside.submit(_remember_cut, config)
                merges = learn_merges(
                    config, folder, inventory, begun=ahead.begun(), on_learning=on_learning
                )
                clock.end("learn")
                written = aside.submit(_write, output, config, inventory, merges)
                # Native for the most part, while texts are made and written.
                fit = _assess(config, sample.result(), merges) if sample else None
                written.result()
            clock.end("assess")
            result = TrainResult(
                output=str(output.path),
                folder=str(folder),
                counted=outcome.counted if outcome else None,
                num_pieces=inventory.summary.num_pieces,
                num_merges=len(merges.rules),
                vocab_size=len(merges.tokens),
                left_out=left_out,
                left_out_bytes=_left_out_bytes(config, folder, inventory) if left_out else {},
                longest_tokens=longest_tokens(merges),
                merge_counts=merge_counts(merges),
                fit=fit,
                stage_s=clock.seconds,
                stage_peak_bytes=clock.peak_bytes,
                warnings=(
                    *training_warnings(config),
                    *(outcome.warnings if outcome else ()),
                    *(bad_file_warnings(folder, outcome.counted.ledger) if outcome else ()),
                    *vocabulary_warnings(config.learn, merges.tokens),
                ),
            )
            write_json(folder / REPORT, result)
            (folder / CHECKPOINT).unlink(missing_ok=True)
        finally:
            remove_temporaries(folder)
    return result


class Phases:
    """Time and memory of one phase after another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peak_bytes: dict[str, int] = {}
        self._began = time.monotonic()

    def end(self, name: str, peak_bytes: int | None = None) -> None:
        """A phase is over; its memory is this process's unless it is told."""
        now = time.monotonic()
        self.seconds[name] = round(now - self._began, 3)
        self.peak_bytes[name] = peak_bytes or peak_resident_bytes()
        self._began = now
        forget_peak()


def _count(config: TrainConfig, folder: Path, **how: Any) -> CountOutcome | None:
    return None if config.learn.from_counts else count(config, folder, **how)


def _remember_cut(config: TrainConfig) -> None:
    remember_cut(*names_of_cut(config), steps=cut_steps(settle_cut(config)))


def _counts(config: TrainConfig, folder: Path) -> list[Path]:
    """The inventories to learn from; a run folder stands for its own."""
    given = [Path(path) for path in config.learn.from_counts] or [folder]
    return [path / INVENTORY if path.is_dir() else path for path in given]


def _inventory(config: TrainConfig, folder: Path) -> tuple[Inventory, MergeReport | None]:
    """The counts to learn from: those of this run or those given, less what is too rare."""
    given = _counts(config, folder)
    if len(given) == 1 and config.learn.min_count == 1:
        return Inventory(given[0]), None
    merged = folder / LEARNED
    report = merge_inventories(given, merged, min_count=config.learn.min_count)
    return Inventory(merged), report if config.learn.min_count > 1 else None


def _tokenizer_json(config: TrainConfig, inventory: Inventory, merges: Merges) -> bytes:
    if config.learn.extend is not None:
        from gristmill.load.reading import read_whole

        return extended_json(read_whole(base_file(config.learn.extend)), merges, source=config.learn.extend)
    cut = inventory.cut
    return new_json(merges, special_tokens=config.learn.special_tokens, splits=cut.splits, form=cut.form)


def _write(output: Output, config: TrainConfig, inventory: Inventory, merges: Merges) -> None:
    output.write(_tokenizer_json(config, inventory, merges), roles_of(config.learn))


def _assess(config: TrainConfig, sample: CutSample | None, merges: Merges) -> Fit | None:
    if sample is None:
        return None
    num_special, takes_whole = len(set(config.learn.special_tokens)), False
    if config.learn.extend is not None:
        base = load_base(config.learn.extend)
        num_special, takes_whole = len(base.added_tokens), getattr(base.model, "ignore_merges", False)
    return assess(
        sample,
        merges,
        num_special=num_special,
        takes_whole=takes_whole,
        num_threads=config.run.workers or num_cores(),
    )


def _left_out_bytes(config: TrainConfig, folder: Path, kept: Inventory) -> dict[str, int]:
    """How much text `learn.min_count` leaves out, by script: what there was less what is left."""
    sizes: Counter[str] = Counter()
    for path in _counts(config, folder):
        sizes.update({script: share.text_bytes for script, share in script_shares(Inventory(path)).items()})
    sizes.subtract({script: share.text_bytes for script, share in script_shares(kept).items()})
    return {script: size for script, size in sizes.most_common() if size}
