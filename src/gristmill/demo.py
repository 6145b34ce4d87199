"""The whole path in a few seconds: train a tokenizer, load it, encode, compare with the reference."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gristmill.bench import first_difference
from gristmill.bench_methods import METHODS
from gristmill.bench_report import align
from gristmill.sample import made_documents, sample_documents, train_sample_tokenizer
from gristmill.tokenizer import Tokenizer, load_tokenizer

NUM_DOCS = 1000
REFERENCE = "tokenizers batch 1000"


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo saw."""

    tokenizer: Tokenizer
    num_docs: int
    num_bytes: int
    num_tokens: int
    first_tokens: list[str]
    load_s: float
    ours_s: float
    reference_s: float
    wrong_document: int | None
    """The first one whose ids differ from the reference."""


def run_demo() -> Demo:
    """Encode the embedded text with a tokenizer trained on the spot, by us and by the reference library."""
    documents = sample_documents() + made_documents(NUM_DOCS)
    with tempfile.TemporaryDirectory(prefix="gristmill-demo-") as folder:
        path = train_sample_tokenizer(Path(folder))
        tokenizer, load_s = _timed(lambda: load_tokenizer(path))
        reference = METHODS[REFERENCE](str(path), 1)
    batch, ours_s = _timed(lambda: tokenizer.encode_batch(documents))
    encoded, reference_s = _timed(lambda: reference.encode(documents))
    return Demo(
        tokenizer=tokenizer,
        num_docs=len(documents),
        num_bytes=sum(len(document.encode()) for document in documents),
        num_tokens=len(batch.ids),
        first_tokens=[tokenizer.decode(batch.ids[i : i + 1]) for i in range(12)],
        load_s=load_s,
        ours_s=ours_s,
        reference_s=reference_s,
        wrong_document=first_difference(reference.flatten(encoded), (batch.ids, batch.offsets)),
    )


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def render_demo(demo: Demo) -> str:
    """Return what the demo saw, for people."""
    rows = [("Engine", "Time", "Tokens/s", "MB/s")]
    ours = f"gristmill ({demo.tokenizer.engine_name})"
    for name, took_s in (("tokenizers", demo.reference_s), (ours, demo.ours_s)):
        rate, speed = demo.num_tokens / took_s, demo.num_bytes / took_s / 1e6
        rows.append((name, f"{took_s * 1e3:.1f} ms", f"{rate:,.0f}", f"{speed:.1f}"))
    verdict = "equal to the reference, every one"
    if demo.wrong_document is not None:
        verdict = f"DIFFERENT from the reference, first in document {demo.wrong_document}"
    lines = [
        f"text        {demo.num_docs:,} documents, {demo.num_bytes / 1e6:.2f} MB, in a dozen languages",
        f"tokenizer   byte-level BPE, {demo.tokenizer.vocab_size:,} tokens, trained just now; "
        f"loaded in {demo.load_s * 1e3:.0f} ms",
        f"first       {' | '.join(demo.first_tokens)}",
        f"ids         {demo.num_tokens:,}, {verdict}",
        "",
        *align(rows),
    ]
    if demo.tokenizer.why_not_native:
        lines += ["", f"native engine not used: {demo.tokenizer.why_not_native}"]
    return "\n".join(lines)
