"""After learning: the new tokenizer measured on the sample that counting kept."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gristmill.engines.native import NativeEngine, Program
from gristmill.plan import CountPlan
from gristmill.read.documents import keep_documents
from gristmill.run.folder import read_any_plan, read_records
from gristmill.spec import MergeModel, Normalization, TokenizerSpec
from gristmill.text_sample import TextSample, read_sample
from gristmill.training.counting import PieceCounter
from gristmill.training.cut import Cut
from gristmill.training.fit import Fit, SourcePieces, Usage, measure_fit
from gristmill.training.merging import Merges

MAX_SOURCES = 32
OTHERS = "others"
COUNTER_BYTES = 64 << 20
EXPECTED = 4
"""Times as many pieces in a byte of so little text as in one of much."""


class CutSample(NamedTuple):
    """The sample of a count, as pieces."""

    sources: list[SourcePieces]
    num_documents: int
    is_held_out: bool


def cut_sample(folder: Path, cut: Cut) -> CutSample | None:
    """The sample that a count kept, if any; it needs no merges, so it can be cut while they are learned."""
    plan = read_any_plan(folder)
    if not isinstance(plan, CountPlan):
        return None
    samples = _read_samples(folder, plan)
    num_documents = sum(len(sample.files) for sample in samples)
    if num_documents == 0:
        return None
    names = _name_sources([file.path for file in plan.files], samples)
    sources = list(_pieces_by_source(samples, names, cut))
    return CutSample(sources, num_documents, plan.config.count.held_out > 0)


def assess(
    sample: CutSample, merges: Merges, *, num_special: int, takes_whole: bool, num_threads: int
) -> Fit:
    """How well the merges fit the sample of a count.

    `takes_whole`: a piece that is a token is that token, whatever the merges say."""
    engine = engine_of(merges, takes_whole=takes_whole, num_threads=num_threads)
    return measure_fit(
        Usage(engine, merges.num_tokens, num_threads=num_threads),
        merges,
        sample.sources,
        num_documents=sample.num_documents,
        num_special=num_special,
        is_held_out=sample.is_held_out,
    )


def engine_of(merges: Merges, *, takes_whole: bool, num_threads: int) -> NativeEngine:
    """What encodes pieces, which are cut already."""
    if merges.symbols == "bytes":
        model = merges.compile_bytes(takes_whole=takes_whole, num_threads=num_threads)
        return NativeEngine(Program([("set_model", (model,))], strips_prefix=False))
    return NativeEngine(spec_of(merges, takes_whole=takes_whole))


def spec_of(merges: Merges, *, takes_whole: bool) -> TokenizerSpec:
    """The same by way of texts, for any symbols."""
    is_bytes = merges.symbols == "bytes"
    model = MergeModel(
        vocab={token: id_ for id_, token in enumerate(merges.tokens) if token},
        merges=merges.pairs,
        token_text="byte_level" if is_bytes else "plain",
        byte_fallback=not is_bytes,
        ignore_merges=takes_whole,
    )
    return TokenizerSpec(model=model, normalization=Normalization(replace_spaces=not is_bytes))


def _read_samples(folder: Path, plan: CountPlan) -> list[TextSample]:
    records = read_records(folder, plan)
    paths = [file.path for unit in sorted(records) for file in records[unit].sidecars]
    return [read_sample(folder / path) for path in paths if path.endswith(".sample")]


def _name_sources(paths: list[str], samples: list[TextSample]) -> list[str]:
    """The source of each file: its folder, or itself where all are in one; small ones are one together."""
    folders = [path.rpartition("/")[0] for path in paths]
    names = folders if len(set(folders)) > 1 else [path.rpartition("/")[2] for path in paths]
    sizes: Counter[str] = Counter()
    for sample in samples:
        for file, size in zip(sample.files.tolist(), np.diff(sample.offsets).tolist(), strict=True):
            sizes[names[file]] += size
    kept = {name for name, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:MAX_SOURCES]}
    return [name if name in kept else OTHERS for name in names]


def _pieces_by_source(
    samples: list[TextSample], names: list[str], cut: Cut
) -> Iterator[SourcePieces]:
    for source in sorted({names[file] for sample in samples for file in sample.files.tolist()}):
        with tempfile.TemporaryDirectory() as scratch:
            text_bytes = EXPECTED * sum(len(sample.text) for sample in samples)
            counter = PieceCounter(cut, Path(scratch), max_bytes=COUNTER_BYTES, text_bytes=text_bytes)
            for sample in samples:
                kept = np.array([names[file] == source for file in sample.files.tolist()], np.bool_)
                counter.add(*keep_documents(sample.text, sample.offsets, kept))
            yield SourcePieces.of(source, counter.take())
