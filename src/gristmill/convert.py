"""From a finished run to another format, shard by shard or as one file, without encoding again.

What comes out is what a run with that format would have written. The folder appears whole: all of it is made
in a hidden one beside it, which gets its name at the end."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gristmill.config import OutputFormat, WriteConfig
from gristmill.drafts import Draft, reported, sync_folder
from gristmill.errors import ConfigError, RunError
from gristmill.finished import FinishedRun, is_conversion, num_items, open_run, rows_of, segments_of_rows
from gristmill.formats import FORMATS, PayloadFormat, check_formats, check_shard, finish_run
from gristmill.formats.payload import END_TYPE, Payload
from gristmill.formats.protocol import Documents, ItemBlock, with_suffix
from gristmill.layout import Layout
from gristmill.pack.rows import Rows
from gristmill.read.find import has_own_manifest
from gristmill.records import FileRecord, Manifest, ShardRecord
from gristmill.run.folder import MANIFEST, locked, write_json
from gristmill.store import refuse_remote
from gristmill.verify.hashes import check_file
from gristmill.write import UNLIMITED, OpenShard, max_shard_tokens

SINGLE_NAME = "train"
"""Of the files that hold everything: what nanoGPT looks for."""
PAYLOAD_FILES = {"megatron": ".bin", "nanogpt": ".bin", "olmo": ".npy", "datatrove": ".ds"}
"""Where the payload lies as it is."""

OnStep = Callable[[str], None]
Placed = tuple[int, int, ShardRecord]
"""A shard of the run with its unit, and its first item's number in that."""


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, and where."""

    folder: str
    manifest: Manifest
    """Paths are relative to the folder."""


def convert(
    folder: str | os.PathLike[str],
    to: OutputFormat,
    *,
    output: str | os.PathLike[str] | None = None,
    is_single_file: bool = False,
    force: bool = False,
    on_step: OnStep = lambda _step: None,
) -> Conversion:
    """Write what a finished run holds in another format, by default into a folder beside the run's; `force`
    replaces an earlier conversion there."""
    run = open_run(folder)
    shown = _target(run, to, output)
    output = Path(os.path.abspath(shown))
    config, layout = _settle(run, to, is_single_file)
    _check_target(output, force=force)
    stage = output.with_name(f".{output.name}.converting")
    with locked(stage):
        try:
            _clear(stage)
            shards = _write_shards(run, stage, config, layout, is_single_file, on_step)
            manifest = _finish(run, stage, to, config, layout, shards)
            _reveal(stage, stage / to, output)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    on_step("")
    return Conversion(folder=str(shown), manifest=manifest)


def _target(run: FinishedRun, to: OutputFormat, output: str | os.PathLike[str] | None) -> Path:
    """The folder to be written, by default beside the run's."""
    if output is not None:
        refuse_remote(os.fspath(output), "a conversion")
        return Path(output)
    if run.store.is_remote:
        raise ConfigError(f"{run.store}: name a folder of this machine for the conversion with --output")
    return Path(f"{run.folder if run.folder.name else os.path.abspath(run.folder)}-{to}")


def _settle(run: FinishedRun, to: OutputFormat, is_single_file: bool) -> tuple[WriteConfig, Layout]:
    """How the run would have been written in the other format; refuses what that cannot hold."""
    if to in run.layout.formats and not is_single_file:
        raise ConfigError(
            f"{run.store}: holds {to} already, in {run.store}/{to}; --single-file makes one file of it"
        )
    config = msgspec.structs.replace(run.plan.config.write, format=to, shard_bytes=UNLIMITED)
    layout = msgspec.structs.replace(run.layout, formats=(to,))
    check_formats(config, layout)
    sizes = [shard.num_tokens + shard.num_padding for _, shard in run.shards]
    largest = sum(sizes) if is_single_file else max([*sizes, 0])
    if largest > max_shard_tokens(config, layout):
        remedy = "leave out --single-file" if is_single_file else "tokenize with a smaller write.shard_bytes"
        raise ConfigError(f"{run.store}: {largest} tokens are more than a file of {to} holds; {remedy}")
    return config, layout


def _check_target(output: Path, *, force: bool) -> None:
    """Refuse a folder that holds something, but for an earlier conversion that is to be replaced."""
    with reported(output):
        if not output.exists() or (output.is_dir() and not any(output.iterdir())):
            return
    if not is_conversion(output) or not has_own_manifest(str(output)):
        raise RunError(f"{output}: is there and is no conversion; choose another folder with --output")
    if not force:
        raise RunError(f"{output}: holds a conversion already; --force replaces it")


def _clear(stage: Path) -> None:
    """Remove what a conversion that was killed had made."""
    for entry in stage.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)


def _write_shards(
    run: FinishedRun,
    stage: Path,
    config: WriteConfig,
    layout: Layout,
    is_single_file: bool,
    on_step: OnStep,
) -> list[ShardRecord]:
    """All shards, under their names in the hidden folder."""
    placed = list(_placed(run))
    if is_single_file:
        groups = [(SINGLE_NAME, placed)] if placed else []
    else:
        groups = [(f"shard-{shard.name}", [(unit, first, shard)]) for unit, first, shard in placed]
    done = []
    for number, (stem, group) in enumerate(groups):
        on_step(f"{layout.formats[0]}: {number:,} of {len(groups):,} shards")
        shard = _OneShard(run, stage, config, layout, can_link=not is_single_file)
        done.append(shard.write(stem, group, on_step))
    return done


def _placed(run: FinishedRun) -> Iterator[Placed]:
    for start, (unit, shard) in zip(run.starts[:-1], run.shards, strict=True):
        yield unit, start - run.unit_starts[unit], shard


class _OneShard:
    """Makes one shard out of one or all of a run."""

    def __init__(
        self, run: FinishedRun, stage: Path, config: WriteConfig, layout: Layout, *, can_link: bool
    ) -> None:
        self._run = run
        self._stage = stage
        self._config = config
        self._layout = layout
        self._to = layout.formats[0]
        self._can_link = can_link

    def write(self, stem: str, group: list[Placed], on_step: OnStep) -> ShardRecord:
        """Write what the shards hold to files of this stem."""
        name = group[0][2].name
        opened = self._open(name, group[0][2])
        try:
            for number, (unit, first, shard) in enumerate(group):
                if len(group) > 1:
                    on_step(f"{self._to}: {number:,} of {len(group):,} shards")
                self._add(opened, unit, first, shard)
            record, drafts = opened.finish()
            for draft in drafts:
                draft.path = draft.path.with_name(draft.path.name.replace(f"shard-{name}", stem, 1))
                draft.commit()
        except BaseException:
            opened.discard()
            raise
        files = [draft.record(self._stage / self._to) for draft in drafts]
        shard_name = name if len(group) == 1 and stem != SINGLE_NAME else stem
        return msgspec.structs.replace(record, name=shard_name, files={self._to: files})

    def _open(self, name: str, shard: ShardRecord) -> OpenShard:
        is_payload = isinstance(FORMATS[self._to], PayloadFormat)
        linked = _payload_file(self._run, shard) if is_payload and self._can_link else None
        if linked is None:
            return OpenShard(self._stage, name, self._config, self._layout)
        self._run.store.fetch([linked])
        source, known = self._run.folder / linked.path, linked

        def make_payload(stem: Path, layout: Layout, shelf: list[Draft]) -> Payload:
            return LinkedPayload(source, known, stem, layout, shelf)

        return OpenShard(self._stage, name, self._config, self._layout, make_payload=make_payload)

    def _add(self, opened: OpenShard, unit: int, first: int, shard: ShardRecord) -> None:
        """Append all that a shard of the run holds, once it is known to be sound."""
        run = self._run
        source = _sound_format(run, shard)
        for block in run.read(shard, source).blocks():
            last = first + len(block.offsets) - 1
            if run.has_rows:
                opened.add_rows(_rows(run, unit, block, first, last))
            else:
                for documents in _documents(run, unit, block, first, last):
                    opened.add_documents(documents)
            first = last


class LinkedPayload(Payload):
    """A payload whose ids lie in a file already: only where documents end is written."""

    def __init__(
        self, source: Path, known: FileRecord, stem: Path, layout: Layout, shelf: list[Draft]
    ) -> None:
        self.shelf = shelf
        self.layout = layout
        self.num_documents = 0
        self.num_tokens = 0
        self.tokens = Draft.of_file(source, known, with_suffix(stem, ".payload"), shelf)
        self.ends = Draft(with_suffix(stem, ".ends"), shelf)

    def add(self, documents: Documents) -> None:
        """Note where whole documents end."""
        ends = documents.offsets[1:] + (self.num_tokens - int(documents.offsets[0]))
        self.ends.write(ends.astype(END_TYPE))
        self.num_documents += len(documents)
        self.num_tokens = int(ends[-1])


def _payload_file(run: FinishedRun, shard: ShardRecord) -> FileRecord | None:
    """The file of a shard that is the payload itself, where the run has one."""
    for name in run.layout.formats:
        if name in PAYLOAD_FILES:
            found = [f for f in shard.files.get(name, []) if f.path.endswith(PAYLOAD_FILES[name])]
            if len(found) != 1:
                raise RunError(f"{run.store}: shard {shard.name} has no file of ids; verify says more")
            return found[0]
    return None


def _sound_format(run: FinishedRun, shard: ShardRecord) -> OutputFormat:
    """The format a shard is read in, its files and what is known of them found right."""
    names = run.layout.formats
    name = next((name for name in names if name in PAYLOAD_FILES), names[0])
    run.store.fetch(shard.files.get(name, []))
    faults = check_shard(run.folder, shard, name, run.layout)
    faults += [fault for file in shard.files.get(name, []) if (fault := check_file(run.folder, file))]
    if faults:
        raise RunError(f"{faults[0]}; gristmill verify says more")
    return name


def _rows(run: FinishedRun, unit: int, block: ItemBlock, first: int, last: int) -> Rows:
    length = run.layout.sequence_length
    assert length is not None
    return rows_of(block.ids.reshape(-1, length), segments_of_rows(run, unit, first, last), first)


def _documents(run: FinishedRun, unit: int, block: ItemBlock, first: int, last: int) -> Iterator[Documents]:
    """The documents of a block, those of one file at a time."""
    table = np.array(run.documents(unit)[first:last])
    if not np.array_equal(np.diff(block.offsets), table["num_tokens"]):
        raise RunError(f"{run.store}: unit {unit}: documents are not as long as its sidecar says; verify it")
    files = np.array([part.file for part in run.plan.units[unit].slices])[table["slice"]]
    cuts = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
    names = run.names(unit)
    for start, stop in itertools.pairwise(cuts):
        yield Documents(
            ids=block.ids,
            offsets=block.offsets[start : stop + 1],
            source=run.plan.files[int(files[start])].path,
            positions=table["position"][start:stop],
            names=None if names is None else (names, _name_offsets(run, unit, first + start, first + stop)),
        )


def _name_offsets(run: FinishedRun, unit: int, start: int, stop: int) -> Any:
    ends = run.documents(unit)["name_end"]
    before = int(ends[start - 1]) if start else 0
    return np.concatenate([[before], ends[start:stop]])


def _finish(
    run: FinishedRun,
    stage: Path,
    to: OutputFormat,
    config: WriteConfig,
    layout: Layout,
    shards: Iterable[ShardRecord],
) -> Manifest:
    """What belongs to all shards, and the manifest."""
    shards = tuple(shards)
    (stage / to).mkdir(exist_ok=True)
    extra = [
        msgspec.structs.replace(file, path=Path(file.path).name)
        for file in finish_run(stage, to, shards, config, layout)
    ]
    num_there = sum(map(num_items, shards)), sum(shard.num_tokens for shard in shards)
    num_expected = run.starts[-1], sum(shard.num_tokens for _, shard in run.shards)
    if num_there != num_expected:
        raise RunError(f"{run.store}: its shards hold other counts than its records say; verify says more")
    manifest = msgspec.structs.replace(run.manifest, formats=(to,), shards=shards, sidecars=tuple(extra))
    write_json(stage / to / MANIFEST, manifest)
    sync_folder(stage / to)
    return manifest


def _reveal(stage: Path, made: Path, output: Path) -> None:
    """Give the folder its name, in place of what it replaces."""
    with reported(output):
        if output.exists():
            os.rename(output, stage / "replaced")
        os.rename(made, output)
    sync_folder(output.parent)
