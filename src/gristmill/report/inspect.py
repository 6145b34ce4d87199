"""A row or document of a run as people look at it: text, borders, padding, and where each part came from."""

from __future__ import annotations

import os
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gristmill.config import OutputFormat
from gristmill.errors import ConfigError, GristmillError
from gristmill.finished import (
    FinishedRun,
    Place,
    Source,
    find_documents,
    find_item,
    find_occurrences,
    open_run,
    segments_of_rows,
    source_of,
)
from gristmill.records import Ledger
from gristmill.report.summary import render_manifest
from gristmill.report.words import printable
from gristmill.run.loading import load_configured
from gristmill.tokenizer import Tokenizer

MAX_SHOWN_CHARACTERS = 1000
MAX_SHOWN_LINES = 12
MAX_SHOWN_IDS = 16
"""Of a part, where the user did not ask for all of it."""
MAX_SHOWN_PARTS = 12
"""Of a row, likewise."""
MAX_OTHERS = 10


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a document, in a row or whole."""

    name: str | None
    file: str
    record: int
    offset: int | None
    first: int
    """Place in the document of its first token."""
    num_tokens: int
    document_tokens: int
    ids: list[int]
    """None where another document is looked at."""
    text: str | None
    """Without BOS and EOS; absent where the tokenizer is."""
    has_bos: bool
    has_eos: bool
    is_first_masked: bool
    """The label of its first token is -100."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A row, or a document where those are what was written."""

    kind: Literal["row", "document"]
    index: int
    """In the run."""
    shard: str
    format: str
    index_in_shard: int
    parts: list[Part]
    num_tokens: int
    num_padding: int
    pad_id: int | None


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at."""

    folder: str
    formats: tuple[str, ...]
    mode: str
    ledger: Ledger
    items: list[Item]
    notes: list[str]
    summary: str | None
    """Of the run, where nothing was chosen in it."""


class _Lens:
    """How items are looked at: through one format, with a tokenizer where there is one."""

    def __init__(self, run: FinishedRun, format: OutputFormat, tokenizer: Tokenizer | None) -> None:
        self.run = run
        self.format = format
        self.tokenizer = tokenizer

    def item(self, index: int, *, only: int | None = None) -> Item:
        """An item of the run; where `only` is a document's key, ids and text of the others are left out."""
        run, place = self.run, find_item(self.run, index)
        ids = run.read(place.shard, self.format).ids(place.item_in_shard)
        parts = self._row(ids, place, only) if run.has_rows else [self._document(ids, place)]
        num_tokens = sum(part.num_tokens for part in parts)
        return Item(
            kind="row" if run.has_rows else "document",
            index=index,
            shard=place.shard.name,
            format=self.format,
            index_in_shard=place.item_in_shard,
            parts=parts,
            num_tokens=num_tokens,
            num_padding=len(ids) - num_tokens,
            pad_id=run.layout.pad_id,
        )

    def _document(self, ids: NDArray[Any], place: Place) -> Part:
        return self._part(ids, source_of(self.run, (place.unit << 32) + place.item), 0)

    def _row(self, ids: NDArray[Any], place: Place, only: int | None) -> list[Part]:
        parts, begin = [], 0
        for segment in segments_of_rows(self.run, place.unit, place.item, place.item + 1):
            key, length = int(segment["document"]), int(segment["length"])
            stretch = ids[begin : begin + length]
            source = source_of(self.run, key)
            parts.append(self._part(stretch, source, int(segment["start"]), is_shown=only in (None, key)))
            begin += length
        return parts

    def _part(self, ids: NDArray[Any], source: Source, first: int, *, is_shown: bool = True) -> Part:
        layout = self.run.layout
        has_bos = layout.bos_id is not None and first == 0
        has_eos = layout.eos_id is not None and first + len(ids) == source.num_tokens
        body = ids[int(has_bos) : len(ids) - int(has_eos)]
        return Part(
            name=source.name,
            file=source.file,
            record=source.record,
            offset=source.offset,
            first=first,
            num_tokens=len(ids),
            document_tokens=source.num_tokens,
            ids=ids.tolist() if is_shown else [],
            text=_decode(self.tokenizer, body) if is_shown and self.tokenizer is not None else None,
            has_bos=has_bos,
            has_eos=has_eos,
            is_first_masked=layout.mask_first_token and first == 0,
        )


def inspect_run(
    folder: str | os.PathLike[str],
    *,
    row: int | None = None,
    document: str | None = None,
    format: str | None = None,
) -> Inspection:
    """Look at an item of a finished run, by number, or at the document of an id; else at the first item."""
    run = open_run(folder)
    tokenizer, notes = load_matching(run)
    lens = _Lens(run, choose_format(run, format), tokenizer)
    is_overview = row is None and document is None
    if document is not None:
        items, more = _inspect_document(lens, document)
        notes += more
    else:
        is_empty = is_overview and run.starts[-1] == 0
        items = [] if is_empty else [lens.item(row or 0)]
    return Inspection(
        folder=str(run.store),
        formats=run.manifest.formats,
        mode=run.manifest.mode,
        ledger=run.manifest.ledger,
        items=items,
        notes=notes,
        summary=render_manifest(run.manifest, str(run.store)) if is_overview else None,
    )


def choose_format(run: FinishedRun, name: str | None) -> OutputFormat:
    """The format asked for, or the first that was written."""
    formats = run.layout.formats
    for known in formats:
        if name in (None, known):
            return known
    raise ConfigError(f"{run.store}: holds no format {name!r}; it holds {', '.join(formats)}")


def load_matching(run: FinishedRun) -> tuple[Tokenizer | None, list[str]]:
    """The run's own tokenizer, or a note on why there is none."""
    config = run.tokenizer
    try:
        tokenizer = load_configured(config)
    except GristmillError as error:
        return None, [f"ids are shown instead of text: {error}"]
    if tokenizer.fingerprint != run.manifest.fingerprint:
        return None, [
            f"ids are shown instead of text: {config.source} has changed since the run "
            f"(fingerprint {tokenizer.fingerprint}, not {run.manifest.fingerprint})"
        ]
    return tokenizer, []


def _inspect_document(lens: _Lens, wanted: str) -> tuple[list[Item], list[str]]:
    run = lens.run
    key, *others = find_documents(run, wanted)
    notes = []
    if others:
        places = [source_of(run, other) for other in others[:MAX_OTHERS]]
        listed = ", ".join(f"{place.file}:{place.record}" for place in places)
        more = ", ..." if len(others) > MAX_OTHERS else ""
        notes.append(f"{len(others)} other documents have this id: {listed}{more}")
    if not run.has_rows:
        return [lens.item(run.unit_starts[key >> 32] + (key & 0xFFFFFFFF))], notes
    found = find_occurrences(run, key)
    rows = list(dict.fromkeys(occurrence.row for occurrence in found))
    missing = source_of(run, key).num_tokens - _num_covered(found)
    if missing:
        notes.append(f"{missing} tokens of this document are in no row: a tail or a limit left them out")
    return [lens.item(row, only=key) for row in rows], notes


def _num_covered(found: list[Any]) -> int:
    """Tokens in some row, by parts in the order of their starts."""
    covered = reached = 0
    for part in found:
        stop = part.start + part.length
        covered += max(0, stop - max(part.start, reached))
        reached = max(reached, stop)
    return covered


def _decode(tokenizer: Tokenizer, ids: NDArray[Any]) -> str:
    """The text of ids; one that the tokenizer does not have stands as its number."""
    known = ids < tokenizer.vocab_size
    text, at = "", 0
    for unknown in [*np.flatnonzero(~known).tolist(), len(ids)]:
        text += tokenizer.decode(ids[at:unknown])
        text += f"⟨{ids[unknown]}⟩" if unknown < len(ids) else ""
        at = unknown + 1
    return text


def render_inspection(inspection: Inspection, *, is_full: bool = False) -> str:
    """What was looked at, safe to print."""
    blocks = [inspection.summary] if inspection.summary else []
    blocks += [_render_item(item, is_full) for item in inspection.items]
    blocks += [f"note: {printable(note)}" for note in inspection.notes]
    return "\n\n".join(blocks)


def _render_item(item: Item, is_full: bool) -> str:
    facts = [f"{item.num_tokens:,} tokens"]
    if item.kind == "row":
        facts = [f"parts of documents: {len(item.parts)}", *facts, f"{item.num_padding:,} padding"]
    lines = [
        f"{item.kind} {item.index:,}: {item.format}, shard {item.shard}, its {item.kind} "
        f"{item.index_in_shard:,}; {', '.join(facts)}"
    ]
    shown = item.parts if is_full else item.parts[:MAX_SHOWN_PARTS]
    for part in shown:
        lines += _render_part(part, is_full)
    if len(shown) < len(item.parts):
        lines.append(f"⟦{len(item.parts) - len(shown):,} more parts; --full shows them⟧")
    if item.num_padding:
        lines.append(f"⟦padding {item.num_padding:,}: id {item.pad_id}, attention mask 0, labels -100⟧")
    return "\n".join(lines)


def _render_part(part: Part, is_full: bool) -> list[str]:
    name = f"{printable(part.name)} · " if part.name else ""
    offset = "" if part.offset is None else f", byte {part.offset:,}"
    last = part.first + part.num_tokens - 1
    lines = [
        f"⟦{name}{printable(part.file)} record {part.record:,}{offset} · "
        f"tokens {part.first:,}..{last:,} of {part.document_tokens:,}⟧"
    ]
    if not part.ids:
        return lines
    if part.is_first_masked:
        lines.append("⟦mask: labels -100 on its first token⟧")
    lines += ["⟦BOS⟧"] if part.has_bos else []
    lines += [f"│ {line}" for line in _shown_text(part, is_full)]
    lines += ["⟦EOS⟧"] if part.has_eos else []
    shown = part.ids if is_full else part.ids[:MAX_SHOWN_IDS]
    more = f" … {len(part.ids) - len(shown):,} more" if len(shown) < len(part.ids) else ""
    return [*lines, f"⟦ids {' '.join(map(str, shown))}{more}⟧"]


def _shown_text(part: Part, is_full: bool) -> list[str]:
    """Lines of the text; each gets a bar before it, so that no text can pass for a border."""
    if part.text is None:
        return []
    shown = part.text
    if not is_full:
        shown = "\n".join(part.text[:MAX_SHOWN_CHARACTERS].split("\n")[:MAX_SHOWN_LINES])
    lines = [printable(line) for line in shown.split("\n")]
    left = len(part.text) - len(shown)
    return [*lines, f"… {left:,} more characters; --full shows them"] if left > 0 else lines
