"""What a training did, and what an inventory holds, for people."""

from __future__ import annotations

import msgspec

from gristmill.report.words import duration, of_bytes, of_count, printable
from gristmill.run.folder import REPORT
from gristmill.run.train import TrainResult
from gristmill.training.figures import ScriptShare, measure_growth, script_shares, top_pieces
from gristmill.training.fit import Fit, Share
from gristmill.training.inventory import Inventory, Summary

MAX_SHOWN = 40
"""Characters of a token."""
MAX_SHARES = 6
GROWTH_SHOWN = 5
CHOSEN = {
    "held out": "held out to measure the fit",
    "not sampled": "not sampled (count.sample)",
    "limit": "beyond count.max_documents",
}
"""Why documents were not counted though nothing was wrong with them."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """An inventory in figures."""

    path: str
    summary: Summary
    num_hapax: int
    distinct: tuple[tuple[float, float], ...]
    """Distinct pieces expected in samples of the text: its share, and how many."""
    scripts: dict[str, ScriptShare]
    top: list[tuple[str, int]]


def describe_counts(inventory: Inventory, *, num_top: int) -> Counts:
    """The figures of an inventory."""
    growth = measure_growth(inventory)
    top = top_pieces(inventory, num_top)
    return Counts(
        path=str(inventory.path),
        summary=inventory.summary,
        num_hapax=growth.num_hapax,
        distinct=growth.distinct,
        scripts=script_shares(inventory),
        top=[(piece.decode("utf-8", "backslashreplace"), count) for piece, count in top],
    )


def render_counts(counts: Counts) -> str:
    """The figures of an inventory on a screen."""
    summary = counts.summary
    text_bytes = sum(share.text_bytes for share in counts.scripts.values()) or 1
    lines = [
        f"{counts.path}",
        f"pieces      {summary.num_pieces:,} distinct of {summary.total_count:,}, "
        f"{of_bytes(summary.total_bytes)} in all, the longest {of_bytes(summary.longest_piece)}",
        f"once only   {counts.num_hapax:,} ({counts.num_hapax / max(summary.num_pieces, 1):.0%})",
        "growth      by share of the text: "
        + ", ".join(f"{share:.0%} {of_count(number)}" for share, number in counts.distinct[-GROWTH_SHOWN:]),
        "scripts     "
        + f"\n{'':<12}".join(
            f"{name} {share.text_bytes / text_bytes:.1%} of bytes, {share.num_pieces:,} pieces"
            for name, share in sorted(counts.scripts.items(), key=lambda item: -item[1].text_bytes)[:8]
        ),
    ]
    if summary.max_undercount:
        lines.append(f"error       counts are at most {summary.max_undercount:,} too low")
    lines += [f"{count:>14,}  {piece!r}" for piece, count in counts.top]
    return "\n".join(lines)


def _shortened(token: str) -> str:
    """A token as it is shown: a long one by its beginning, and how long it is."""
    return repr(token) if len(token) <= MAX_SHOWN else f"{token[:MAX_SHOWN]!r}… ({len(token)} characters)"


def render_training(result: TrainResult, *, plot: str | None = None) -> str:
    """What a training did, on a screen; `plot` is the file it was drawn in."""
    facts = {}
    if result.counted is not None:
        ledger = result.counted.ledger
        facts["text"] = f"{ledger.documents_encoded:,} documents, {of_bytes(ledger.bytes_encoded)}"
        if ledger.bad_files:
            facts["bad files"] = ", ".join(f"{why} {n:,}" for why, n in ledger.bad_files.items())
        chosen = {why: n for why, n in ledger.documents_dropped.items() if why in CHOSEN}
        bad = {why: n for why, n in ledger.documents_dropped.items() if why not in CHOSEN}
        if chosen:
            facts["not counted"] = ", ".join(f"{n:,} {CHOSEN[why]}" for why, n in chosen.items())
        if bad:
            facts["dropped"] = ", ".join(f"{why} {n:,}" for why, n in bad.items())
    facts["pieces"] = f"{result.num_pieces:,} distinct"
    if result.left_out is not None:
        left_out = result.left_out
        scripts = ", ".join(f"{name} {of_bytes(n)}" for name, n in list(result.left_out_bytes.items())[:5])
        facts["left out"] = (
            f"{left_out.num_dropped:,} rare pieces, there {left_out.dropped_count:,} times: {scripts}"
        )
    facts["tokens"] = f"{result.vocab_size:,}, made by {result.num_merges:,} merges"
    if result.longest_tokens:
        shown: dict[str, str] = {}
        for token in result.longest_tokens:
            shown.setdefault(token[:MAX_SHOWN], _shortened(token))
        facts["longest"] = ", ".join(list(shown.values())[:3])
    if result.fit is not None:
        facts |= _render_fit(result.fit)
    elif result.counted is None:
        facts["fit"] = "not measured: counts hold no documents; train from the text for that"
    facts["time"] = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in result.stage_s.items())
    facts["memory"] = ", ".join(f"{stage} {of_bytes(n)}" for stage, n in result.stage_peak_bytes.items())
    if result.counted is not None:
        facts["counts"] = f"{result.folder} (train again from them: --from-counts)"
        facts["report"] = f"{result.folder}/report.html, and {REPORT} beside it"
    else:
        facts["report"] = f"{result.folder}/{REPORT}"
    if plot is not None:
        facts["plot"] = plot
    facts["output"] = result.output
    return "\n".join(f"{name:<11} {printable(value)}" for name, value in facts.items())


def _render_fit(fit: Fit) -> dict[str, str]:
    what = "held out" if fit.is_held_out else "also counted: --held-out leaves some out"
    shown = {
        "sample": f"{fit.num_documents:,} documents, {of_bytes(fit.text.num_bytes)} ({what})",
        "fit": f"{fit.text.bytes_per_token:.2f} bytes a token; {_render_shares(fit.scripts)}",
        "unused": f"{fit.unused_share:.1%} of the tokens ({fit.num_unused:,}) in this sample",
    }
    if len(fit.sources) > 1:
        shown["sources"] = _render_shares(fit.sources)
    return shown


def _render_shares(shares: dict[str, Share]) -> str:
    shown = list(shares.items())[:MAX_SHARES]
    more = f" and {len(shares) - MAX_SHARES} more" if len(shares) > MAX_SHARES else ""
    return ", ".join(f"{name} {share.bytes_per_token:.2f}" for name, share in shown) + more
