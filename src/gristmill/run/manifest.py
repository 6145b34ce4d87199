"""The manifest, written while records are read: however many shards there are, few are held at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import msgspec
import numpy as np
from blake3 import blake3

from gristmill.drafts import Draft, Scratch
from gristmill.records import FileRecord, Manifest, ShardRecord, UnitRecord
from gristmill.run.folder import MANIFEST, format_json, read_manifest

MAX_HELD = 100_000
"""Shards and sidecars of a manifest that is held in memory: about 100 MB."""
EMPTY_LISTS = b'"shards": [],\n "sidecars": []\n}'
"""How a manifest of nothing ends."""

Kind = TypeVar("Kind", bound=msgspec.Struct)


class Listed(Sequence[Kind], Generic[Kind]):
    """Structs that stand in a file as JSON, each read when it is looked at."""

    def __init__(self, path: Path, kind: type[Kind]) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(kind)
        self._starts, self._stops = array("q"), array("q")

    def note(self, start: int, stop: int) -> None:
        """One more stands there."""
        self._starts.append(start)
        self._stops.append(stop)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Kind: ...
    @overload
    def __getitem__(self, index: slice) -> list[Kind]: ...
    def __getitem__(self, index: int | slice) -> Kind | list[Kind]:
        content = np.memmap(self._path, np.uint8, mode="r")
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._decoder.decode(content[self._starts[index] : self._stops[index]].data)

    def __iter__(self) -> Iterator[Kind]:
        content = np.memmap(self._path, np.uint8, mode="r") if len(self) else np.empty(0, np.uint8)
        for start, stop in zip(self._starts, self._stops, strict=True):
            yield self._decoder.decode(content[start:stop].data)


class NameSet:
    """Names that are told apart by 64 bits of a hash: of a few millions no two are alike."""

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._sorted: np.ndarray[Any, np.dtype[np.uint64]] | None = None

    def add(self, names: Iterable[str]) -> None:
        """Take names in."""
        self._sorted = None
        self._hashes.extend(map(_hash, names))

    def __contains__(self, name: object) -> bool:
        assert isinstance(name, str)
        if self._sorted is None:
            self._sorted = np.sort(np.frombuffer(self._hashes, np.uint64))
        wanted = np.uint64(_hash(name))
        place = int(np.searchsorted(self._sorted, wanted))
        return place < len(self._sorted) and bool(self._sorted[place] == wanted)


def _hash(name: str) -> int:
    return int.from_bytes(blake3(name.encode()).digest(length=8), "little")


class ManifestDraft:
    """Shards and sidecars as they come, in files beside the manifest until it is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shelf: list[Draft] = []
        self._files = [Scratch(folder / MANIFEST, self._shelf) for _ in range(2)]
        self.shards: Listed[ShardRecord] = Listed(self._files[0].temporary, ShardRecord)
        self._sidecars: Listed[FileRecord] = Listed(self._files[1].temporary, FileRecord)
        self.names = NameSet()
        """Of every file that the manifest names."""

    def add(self, record: UnitRecord) -> None:
        """Take what a unit has written."""
        for shard in record.shards:
            self._put(0, self.shards, shard)
            self.names.add(file.path for files in shard.files.values() for file in files)
        self.add_sidecars(file for file in record.sidecars if not file.path.endswith(".tail"))

    def add_sidecars(self, files: Iterable[FileRecord]) -> None:
        """Take files beside the shards."""
        for file in files:
            self._put(1, self._sidecars, file)
            self.names.add([file.path])

    def flush(self) -> None:
        """All that was added can be read."""
        for file in self._files:
            file.flush()

    def write(self, head: Manifest, *, is_kept: bool) -> Manifest:
        """The manifest with this head and all that was added, in the folder under its name.

        A great many shards and sidecars of what is returned stay in that file, where it is kept."""
        assert not head.shards
        assert not head.sidecars
        self.flush()
        whole = format_json(head)
        assert whole.endswith(EMPTY_LISTS + b"\n")
        draft = Draft(self._folder / MANIFEST, self._shelf)
        draft.write(whole[: -len(EMPTY_LISTS) - 1])
        shards = _copy_list(draft, b"shards", self.shards, ShardRecord)
        draft.write(b",\n ")
        sidecars = _copy_list(draft, b"sidecars", self._sidecars, FileRecord)
        draft.write(b"\n}\n")
        draft.finish()
        draft.commit()
        if is_kept and len(shards) + len(sidecars) > MAX_HELD:
            return msgspec.structs.replace(head, shards=shards, sidecars=sidecars)
        manifest = read_manifest(self._folder)
        assert manifest is not None
        return manifest

    def discard(self) -> None:
        """Leave nothing behind but the manifest."""
        for draft in self._shelf:
            draft.discard()

    def _put(self, number: int, listed: Listed[Any], value: msgspec.Struct) -> None:
        file = self._files[number]
        start = file.num_bytes
        file.write(msgspec.json.encode(value))
        listed.note(start, file.num_bytes)


def _copy_list(draft: Draft, name: bytes, values: Listed[Kind], kind: type[Kind]) -> Listed[Kind]:
    """Write a list two levels deep, as `format_json` would; says where each value stands."""
    listed: Listed[Kind] = Listed(draft.path, kind)
    draft.write(b'"%s": [' % name)
    between = b"\n  "
    for value in values:
        draft.write(between)
        text = format_json(value)[:-1].replace(b"\n", b"\n  ")
        start = draft.num_bytes
        draft.write(text)
        listed.note(start, draft.num_bytes)
        between = b",\n  "
    draft.write(b"\n ]" if len(values) else b"]")
    return listed
