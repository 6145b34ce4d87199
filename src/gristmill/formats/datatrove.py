"""datatrove and nanotron: ids in a .ds, document ends in a .ds.index, a few words in a .ds.metadata."""

from __future__ import annotations

from pathlib import Path

from gristmill.drafts import Draft
from gristmill.errors import RunError
from gristmill.formats.payload import END_TYPE, Payload, PayloadView, check_documents, map_file, view_by_ends
from gristmill.formats.protocol import with_suffix
from gristmill.layout import Layout
from gristmill.records import ShardRecord

MAX_METADATA_BYTES = 1 << 16


def write_sidecars(payload: Payload, stem: Path) -> list[Draft]:
    """The three files of a shard."""
    metadata = Draft(with_suffix(stem, ".ds.metadata"), payload.shelf)
    metadata.write(_metadata(payload.layout, payload.num_tokens))
    return [
        payload.tokens.linked_as(with_suffix(stem, ".ds")),
        payload.ends.linked_as(with_suffix(stem, ".ds.index")),
        metadata,
    ]


def read(stem: Path, layout: Layout) -> PayloadView:
    """The documents of a shard."""
    tokens = map_file(with_suffix(stem, ".ds"), layout.id_type)
    return view_by_ends(tokens, map_file(with_suffix(stem, ".ds.index"), END_TYPE))


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    tokens = map_file(with_suffix(stem, ".ds"), layout.id_type)
    ends = map_file(with_suffix(stem, ".ds.index"), END_TYPE)
    faults = check_documents(tokens, ends, shard, layout)
    path = with_suffix(stem, ".ds.metadata")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_METADATA_BYTES)
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from error
    if content != _metadata(layout, shard.num_tokens):
        faults.append(".ds.metadata does not name the tokenizer, token size and number of tokens of the run")
    return faults


def human_count(number: int) -> str:
    """Three digits and a letter, as datatrove writes it: 12.3 MT."""
    power, scaled = 0, float(number)
    while power < 4 and round(scaled, _digits(scaled)) >= 1000:
        power, scaled = power + 1, scaled / 1000
    return f"{scaled:.{_digits(scaled)}f} {' kMGT'[power].strip()}T"


def _digits(scaled: float) -> int:
    return 2 if round(scaled, 2) < 10 else 1 if round(scaled, 1) < 100 else 0


def _metadata(layout: Layout, num_tokens: int) -> bytes:
    # One line a fact, and | between the first two: the name must not bring its own.
    name = " ".join(layout.tokenizer.replace("|", " ").split())
    lines = f"{name}|{layout.id_type.itemsize}", str(num_tokens), human_count(num_tokens)
    return "\n".join(lines).encode("utf-8", "backslashreplace")
