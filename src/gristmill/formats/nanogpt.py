"""nanoGPT: ids and nothing else in a .bin; our .ends beside it keeps where documents end."""

from __future__ import annotations

from pathlib import Path

from gristmill.drafts import Draft
from gristmill.formats.payload import END_TYPE, Payload, PayloadView, check_documents, map_file, view_by_ends
from gristmill.formats.protocol import with_suffix
from gristmill.layout import Layout
from gristmill.records import ShardRecord


def write_sidecars(payload: Payload, stem: Path) -> list[Draft]:
    """Both files of a shard."""
    return [
        payload.tokens.linked_as(with_suffix(stem, ".bin")),
        payload.ends.linked_as(with_suffix(stem, ".ends")),
    ]


def read(stem: Path, layout: Layout) -> PayloadView:
    """The documents of a shard."""
    tokens = map_file(with_suffix(stem, ".bin"), layout.id_type)
    return view_by_ends(tokens, map_file(with_suffix(stem, ".ends"), END_TYPE))


def check(stem: Path, shard: ShardRecord, layout: Layout) -> list[str]:
    """What is wrong with a shard."""
    tokens = map_file(with_suffix(stem, ".bin"), layout.id_type)
    return check_documents(tokens, map_file(with_suffix(stem, ".ends"), END_TYPE), shard, layout)
