"""What shards look like on disk: a file a format, its writer and reader side by side.

Payload formats hold whole documents and share their ids; tables hold rows, or a document a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from gristmill.config import OutputFormat, WriteConfig
from gristmill.drafts import Draft
from gristmill.errors import ConfigError, RunError
from gristmill.formats import datatrove, llmc, megatron, nanogpt, olmo
from gristmill.formats.payload import Finish, Payload, SidecarWriter
from gristmill.formats.protocol import FormatWriter, ShardView
from gristmill.layout import Layout
from gristmill.records import FileRecord, ShardRecord


@dataclass(frozen=True)
class Format:
    """How one format is read; its shards are files of one stem."""

    suffixes: tuple[str, ...]
    read: Callable[[Path, Layout], ShardView]
    check: Callable[[Path, ShardRecord, Layout], list[str]]


@dataclass(frozen=True)
class PayloadFormat(Format):
    """A format of documents, made from the shared payload."""

    open: Callable[[Path, Payload], FormatWriter]


@dataclass(frozen=True)
class TableFormat(Format):
    """A format of rows, or of a document a row."""

    open: Callable[[Path, WriteConfig, Layout, list[Draft]], FormatWriter]


def _sidecars(finish: Finish) -> Callable[[Path, Payload], FormatWriter]:
    return lambda stem, payload: SidecarWriter(finish, stem, payload)


def _table(name: str, writer: str) -> TableFormat:
    """A table format whose module is imported when it is used: pyarrow is 37 MB in every worker."""

    def later(function: str) -> Callable[..., Any]:
        return lambda *args: getattr(import_module(f"gristmill.formats.{name}"), function)(*args)

    return TableFormat((f".{name}",), later("read"), later("check"), later(writer))


FORMATS: dict[OutputFormat, PayloadFormat | TableFormat] = {
    "megatron": PayloadFormat(
        megatron.SUFFIXES, megatron.read, megatron.check, _sidecars(megatron.write_sidecars)
    ),
    "nanogpt": PayloadFormat(
        nanogpt.SUFFIXES, nanogpt.read, nanogpt.check, _sidecars(nanogpt.write_sidecars)
    ),
    "llmc": PayloadFormat(llmc.SUFFIXES, llmc.read, llmc.check, _sidecars(llmc.write_sidecars)),
    "olmo": PayloadFormat(olmo.SUFFIXES, olmo.read, olmo.check, olmo.OlmoWriter),
    "datatrove": PayloadFormat(
        datatrove.SUFFIXES, datatrove.read, datatrove.check, _sidecars(datatrove.write_sidecars)
    ),
    "arrow": _table("arrow", "ArrowWriter"),
    "parquet": _table("parquet", "ParquetWriter"),
}


def formats_of(config: WriteConfig) -> tuple[OutputFormat, ...]:
    """The formats asked for, as a tuple whether one or several."""
    return (config.format,) if isinstance(config.format, str) else config.format


def check_formats(config: WriteConfig, layout: Layout) -> None:
    """Refuse a job that a format asked for cannot hold."""
    names = formats_of(config)
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"write.format is {', '.join(names) or 'empty'}; name each format once")
    payload = [name for name in names if isinstance(FORMATS[name], PayloadFormat)]
    if payload and layout.sequence_length is not None:
        raise ConfigError(
            f"write.format {payload[0]} cannot hold rows: its readers cut their own windows; "
            "use pack.mode documents, or write.format parquet or arrow"
        )
    if "nanogpt" in names and layout.dtype != "uint16" and config.dtype is None:
        raise ConfigError(
            "write.format nanogpt: its reader takes ids for uint16, and this vocabulary needs uint32; use "
            "another format, or set write.dtype uint32 and change the reader"
        )
    if len(payload) < len(names):
        _check_columns(config, layout)


def _check_columns(config: WriteConfig, layout: Layout) -> None:
    names = config.columns
    if "input_ids" not in names or len(set(names)) != len(names):
        raise ConfigError(
            f"write.columns is {', '.join(names) or 'empty'}; it needs input_ids, and each column once"
        )
    derived = [name for name in names if name not in ("input_ids", "cu_seqlens")]
    if derived and layout.sequence_length is None:
        raise ConfigError(
            f"write.columns {', '.join(derived)}: only rows have them; leave them out, or use pack.mode "
            "concat, best_fit or pad"
        )


def stem_of(folder: Path, name: OutputFormat, shard_name: str) -> Path:
    """Where the files of a shard lie, without their suffixes."""
    return folder / name / f"shard-{shard_name}"


def read_shard(folder: Path, shard: ShardRecord, name: OutputFormat, layout: Layout) -> ShardView:
    """Open a shard of a run folder; damage raises `RunError`."""
    return FORMATS[name].read(stem_of(folder, name, shard.name), layout)


def check_shard(folder: Path, shard: ShardRecord, name: OutputFormat, layout: Layout) -> list[str]:
    """What is wrong with the files of a shard, in plain language; checksums are not compared."""
    stem = stem_of(folder, name, shard.name)
    expected = [f"{name}/{stem.name}{suffix}" for suffix in FORMATS[name].suffixes]
    records = {file.path: file for file in shard.files.get(name, [])}
    if sorted(records) != sorted(expected):
        return [
            f"{stem}: its record names {', '.join(records) or 'no files'}; it needs {', '.join(expected)}"
        ]
    faults = [fault for record in records.values() for fault in _check_size(folder, record)]
    if faults:
        return faults
    try:
        return [f"{stem}: {fault}" for fault in FORMATS[name].check(stem, shard, layout)]
    except RunError as error:
        return [str(error)]


def finish_run(
    folder: Path, name: OutputFormat, shards: Sequence[ShardRecord], config: WriteConfig, layout: Layout
) -> list[FileRecord]:
    """Write the files of a format that need all shards; returns them."""
    if name != "arrow":
        return []
    from gristmill.formats import arrow

    return arrow.finish_run(folder, shards, config, layout)


def _check_size(folder: Path, record: FileRecord) -> list[str]:
    path = folder / record.path
    if not path.is_file():
        return [f"{path}: is missing"]
    size = path.stat().st_size
    return (
        [] if size == record.num_bytes else [f"{path}: has {size} bytes, its record says {record.num_bytes}"]
    )
