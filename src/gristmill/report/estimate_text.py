"""An estimate on one screen."""

from __future__ import annotations

from gristmill.report.estimate import Estimate
from gristmill.report.words import duration, of_bytes, of_count, plural, printable


def render_estimate(estimate: Estimate) -> str:
    """What a run would do, and what would stop it, for people."""
    facts = {
        "inputs": _inputs(estimate),
        "tokenizer": _tokenizer(estimate),
        "sample": _sample(estimate),
        "documents": _documents(estimate),
        "tokens": f"{_about(estimate, estimate.tokens)}, {estimate.tokens_per_byte:.4f} tokens a byte, "
        f"{estimate.layout.dtype}",
        "rows": _rows(estimate),
        "disk": _disk(estimate),
        "memory": _memory(estimate),
        "time": f"about {duration(estimate.time_s)}, {_workers(estimate)}",
        "warnings": _listed(estimate.warnings),
        "would FAIL": _listed(estimate.problems),
    }
    return "\n".join(f"{name:<11} {value}" for name, value in facts.items() if value)


def render_explanation(estimate: Estimate) -> str:
    """What decides each size, and what would help."""
    lines = [f"{name:<11} {value}" for name, value in estimate.explanation.items() if value]
    return "\n".join(["what decides:", *lines])


def _inputs(estimate: Estimate) -> str:
    kinds = [
        f"{kind.num_files:,} {kind.format}"
        + (f" ({kind.compression})" if kind.compression != "none" else "")
        + f", {of_bytes(kind.num_bytes)}"
        for kind in estimate.inputs
    ]
    return f"{'; '.join(kinds)}; in {plural(estimate.num_units, 'unit')}"


def _tokenizer(estimate: Estimate) -> str:
    facts = estimate.tokenizer
    return f"{printable(facts.name)}, {facts.vocab_size:,} tokens, engine {facts.engine}"


def _sample(estimate: Estimate) -> str:
    text = f"{plural(estimate.sample_documents, 'document')}, {of_bytes(estimate.sample_bytes)} of text"
    return f"{text}: all there is" if estimate.is_exact else text


def _about(estimate: Estimate, number: int) -> str:
    return f"{number:,}" if estimate.is_exact else f"about {of_count(_rounded(number))}"


def _rounded(number: int) -> int:
    """Three digits: more would look like knowledge."""
    return round(number, 3 - len(str(number))) if number > 999 else number


def _documents(estimate: Estimate) -> str:
    text = f"{_about(estimate, estimate.documents)}, {of_bytes(estimate.text_bytes)} of text"
    return text + (f"; bad: {_about(estimate, estimate.bad_documents)}" if estimate.bad_documents else "")


def _rows(estimate: Estimate) -> str:
    if estimate.rows is None:
        return ""
    text = f"{_about(estimate, estimate.rows)} of {estimate.layout.sequence_length} tokens"
    text += f" ({estimate.layout.mode})"
    return text + f", {estimate.padding_fraction:.2%} padding" if estimate.padding_fraction else text


def _disk(estimate: Estimate) -> str:
    sizes = ", ".join(f"{name} {of_bytes(size)}" for name, size in estimate.disk_bytes.items())
    return f"about {of_bytes(estimate.disk_total_bytes)} in all: {sizes}"


def _memory(estimate: Estimate) -> str:
    return (
        f"about {of_bytes(estimate.memory_bytes)} of the {of_bytes(estimate.memory_budget_bytes)} allowed, "
        f"blocks of {of_bytes(estimate.block_bytes)}, documents up to {of_bytes(estimate.max_document_bytes)}"
    )


def _workers(estimate: Estimate) -> str:
    return f"{plural(estimate.num_workers, 'worker')} ({estimate.backend})"


def _listed(sentences: tuple[str, ...]) -> str:
    return f"\n{'':<12}".join(map(printable, sentences))
