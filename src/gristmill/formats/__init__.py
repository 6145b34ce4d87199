"""What shards look like on disk: a file a format, its writer and reader side by side.

Payload formats hold whole documents and share their ids; the others hold rows, or a document a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct

from gristmill.config import Column, OutputFormat, PackMode, WriteConfig
from gristmill.errors import ConfigError, RunError
from gristmill.layout import Layout
from gristmill.records import FileRecord, ShardRecord

if TYPE_CHECKING:  # each format is imported where it is used
    from gristmill.drafts import Draft
    from gristmill.formats.mapped import RowShard
    from gristmill.formats.payload import Payload
    from gristmill.formats.protocol import FormatWriter, ShardView

ATTEMPT = r"(?:-[0-9a-f]{8})?"
"""At the end of a stem, in a store: whose attempt at the unit made the file."""
FinishRun = Callable[[Path, Sequence[ShardRecord], WriteConfig, Layout], list[FileRecord]]
MaxIds = Callable[[WriteConfig, Layout], int]


class Format(Struct, frozen=True, kw_only=True):
    """How one format is read; its shards are files of one stem."""

    suffixes: tuple[str, ...]
    """Of the files that every shard has."""
    further_suffixes: tuple[str, ...] = ()
    """Of those that some have, by their columns."""
    read: Callable[[Path, Layout], ShardView]
    check: Callable[[Path, ShardRecord, Layout], list[str]]
    max_ids: MaxIds | None = None
    """Ids that a shard can hold; absent: any number."""
    run_files: tuple[str, ...] = ()
    """Files that it has once a run."""
    finish_run: FinishRun | None = None
    """Writes these."""


class PayloadFormat(Format, frozen=True, kw_only=True):
    """A format of documents, made from the shared payload."""

    open: Callable[[Path, Payload], FormatWriter]


class TableFormat(Format, frozen=True, kw_only=True):
    """A format of rows, or of a document a row."""

    open: Callable[[Path, WriteConfig, Layout, list[Draft]], FormatWriter]
    has_columns: bool = True
    """Beside the ids."""
    cuts_windows: bool = False
    """Its readers cut rows themselves, so that documents are written where a job does not say."""
    map_rows: Callable[[Path, Layout], RowShard] | None = None
    """Absent: single rows are read through `read`, which is slower."""


def _later(name: str, function: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is used: pyarrow is 37 MB in every worker, and a run
    needs one format as a rule."""
    return lambda *args: getattr(import_module(f"gristmill.formats.{name}"), function)(*args)


def _sidecars(name: str) -> Callable[[Path, Payload], FormatWriter]:
    def open_writer(stem: Path, payload: Payload) -> FormatWriter:
        from gristmill.formats.payload import SidecarWriter

        return SidecarWriter(_later(name, "write_sidecars"), stem, payload)

    return open_writer


def _of_columns(suffix: str, *, but: str) -> tuple[str, ...]:
    """Suffixes of files that each hold a column, or the places of its items, but for one of them."""
    names = (f".{name}{kind}{suffix}" for name in get_args(Column) for kind in ("", ".offsets"))
    return tuple(name for name in names if name != but)


FORMATS: dict[OutputFormat, PayloadFormat | TableFormat] = {
    "megatron": PayloadFormat(
        suffixes=(".bin", ".idx"),
        read=_later("megatron", "read"),
        check=_later("megatron", "check"),
        open=_sidecars("megatron"),
    ),
    "nanogpt": PayloadFormat(
        suffixes=(".bin", ".ends"),
        read=_later("nanogpt", "read"),
        check=_later("nanogpt", "check"),
        open=_sidecars("nanogpt"),
    ),
    "llmc": PayloadFormat(
        suffixes=(".bin", ".ends"),
        read=_later("llmc", "read"),
        check=_later("llmc", "check"),
        open=_sidecars("llmc"),
        max_ids=_later("llmc", "max_ids"),
    ),
    "olmo": PayloadFormat(
        suffixes=(".npy", ".csv.gz"),
        read=_later("olmo", "read"),
        check=_later("olmo", "check"),
        open=_later("olmo", "OlmoWriter"),
    ),
    "datatrove": PayloadFormat(
        suffixes=(".ds", ".ds.index", ".ds.metadata"),
        read=_later("datatrove", "read"),
        check=_later("datatrove", "check"),
        open=_sidecars("datatrove"),
    ),
    "arrow": TableFormat(
        suffixes=(".arrow",),
        read=_later("arrow", "read"),
        check=_later("arrow", "check"),
        open=_later("arrow", "ArrowWriter"),
        run_files=("state.json", "dataset_info.json"),
        finish_run=_later("arrow", "finish_run"),
        map_rows=_later("arrow", "map_rows"),
    ),
    "parquet": TableFormat(
        suffixes=(".parquet",),
        read=_later("parquet", "read"),
        check=_later("parquet", "check"),
        open=_later("parquet", "ParquetWriter"),
        map_rows=_later("parquet", "map_rows"),
    ),
    "mds": TableFormat(
        suffixes=(".mds",),
        read=_later("mds", "read"),
        check=_later("mds", "check"),
        open=_later("mds", "MdsWriter"),
        max_ids=_later("mds", "max_ids"),
        run_files=("index.json",),
        finish_run=_later("mds", "finish_run"),
    ),
    "litdata": TableFormat(
        suffixes=(".bin",),
        read=_later("litdata", "read"),
        check=_later("litdata", "check"),
        open=_later("litdata", "LitDataWriter"),
        max_ids=_later("litdata", "max_ids"),
        run_files=("index.json",),
        finish_run=_later("litdata", "finish_run"),
        has_columns=False,
        cuts_windows=True,
    ),
    "pt": TableFormat(
        suffixes=(".input_ids.pt",),
        further_suffixes=_of_columns(".pt", but=".input_ids.pt"),
        read=_later("pt", "read"),
        check=_later("pt", "check"),
        open=_later("pt", "PtWriter"),
        map_rows=_later("pt", "map_rows"),
    ),
    "npy": TableFormat(
        suffixes=(".input_ids.npy",),
        further_suffixes=_of_columns(".npy", but=".input_ids.npy"),
        read=_later("npy", "read"),
        check=_later("npy", "check"),
        open=_later("npy", "NpyWriter"),
        map_rows=_later("npy", "map_rows"),
    ),
    "webdataset": TableFormat(
        suffixes=(".tar",),
        read=_later("webdataset", "read"),
        check=_later("webdataset", "check"),
        open=_later("webdataset", "WebDatasetWriter"),
    ),
}


def default_mode(formats: Sequence[OutputFormat]) -> PackMode:
    """What is written where the job does not say: rows, unless a reader cuts them itself."""
    is_cut = any(isinstance(f := FORMATS[name], PayloadFormat) or f.cuts_windows for name in formats)
    return "documents" if is_cut else "concat"


def formats_with_columns(formats: Sequence[OutputFormat]) -> list[OutputFormat]:
    """Those that hold what `write.columns` asks for."""
    return [name for name in formats if isinstance(f := FORMATS[name], TableFormat) and f.has_columns]


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
            "use pack.mode documents, or write.format parquet, arrow, mds, litdata, pt, npy or webdataset"
        )
    if "nanogpt" in names and layout.dtype != "uint16" and config.dtype is None:
        raise ConfigError(
            "write.format nanogpt: its reader takes ids for uint16, and this vocabulary needs uint32; use "
            "another format, or set write.dtype uint32 and change the reader"
        )
    if formats_with_columns(names):
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


def find_stem(folder: Path, name: OutputFormat, shard: ShardRecord) -> Path:
    """The same of a shard that is there, whose files may be named after an attempt at its unit too."""
    suffix = FORMATS[name].suffixes[0]
    of_shard = re.compile(rf"{name}/(shard-{re.escape(shard.name)}{ATTEMPT}){re.escape(suffix)}")
    found = [match[1] for file in shard.files.get(name, []) if (match := of_shard.fullmatch(file.path))]
    return folder / name / found[0] if found else stem_of(folder, name, shard.name)


def read_shard(folder: Path, shard: ShardRecord, name: OutputFormat, layout: Layout) -> ShardView:
    """Open a shard of a run folder; damage raises `RunError`."""
    return FORMATS[name].read(find_stem(folder, name, shard), layout)


def map_rows(stem: Path, name: OutputFormat, layout: Layout) -> RowShard:
    """The rows of a shard, to be read one by one in any order; damage raises `RunError`."""
    kind = FORMATS[name]
    if isinstance(kind, TableFormat) and kind.map_rows is not None:
        return kind.map_rows(stem, layout)
    from gristmill.formats.mapped import ViewRows

    return ViewRows(kind.read(stem, layout))


def check_shard(folder: Path, shard: ShardRecord, name: OutputFormat, layout: Layout) -> list[str]:
    """What is wrong with the files of a shard, in plain language; checksums are not compared."""
    stem = find_stem(folder, name, shard)
    expected = [f"{name}/{stem.name}{suffix}" for suffix in FORMATS[name].suffixes]
    further = [f"{name}/{stem.name}{suffix}" for suffix in FORMATS[name].further_suffixes]
    records = {file.path: file for file in shard.files.get(name, [])}
    if sorted(set(records) - set(further)) != sorted(expected):
        return [
            f"{stem}: its record names {', '.join(records) or 'no files'}; it needs {', '.join(expected)}"
        ]
    faults = [fault for record in records.values() for fault in check_size(folder, record)]
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
    finish = FORMATS[name].finish_run
    return [] if finish is None else finish(folder, shards, config, layout)


def max_shard_ids(config: WriteConfig, layout: Layout) -> int | None:
    """Ids that a shard can hold in every format asked for; None: any number."""
    limits = (FORMATS[name].max_ids for name in formats_of(config))
    return min((limit(config, layout) for limit in limits if limit is not None), default=None)


def check_size(folder: Path, record: FileRecord) -> list[str]:
    """What is wrong with a file as far as its size tells."""
    path = folder / record.path
    if not path.is_file():
        return [f"{path}: is missing"]
    size = path.stat().st_size
    return (
        [] if size == record.num_bytes else [f"{path}: has {size} bytes, its record says {record.num_bytes}"]
    )
