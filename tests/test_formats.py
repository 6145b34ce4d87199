"""Every format reads back with the reader that trainers use, to the exact ids."""

import csv
import gzip
import os
import subprocess
import sys
from typing import ClassVar

import datasets
import humanize
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datatrove.utils.dataset import DatatroveFolderDataset
from hypothesis import given, settings
from hypothesis import strategies as st
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import Split
from olmo_core.data import NumpyFSLDataset
from olmo_core.data.utils import iter_document_indices

from gristmill.config import WriteConfig
from gristmill.errors import ConfigError, RunError
from gristmill.formats import check_formats, check_shard, finish_run, lists, read_shard, tables
from gristmill.formats.datatrove import human_count
from made_shards import (
    EOS,
    PAYLOAD,
    ROW_FORMATS,
    ROW_LENGTH,
    TABLES,
    files_of,
    make_documents,
    make_layout,
    make_rows,
    write_documents,
    write_rows,
)

LENGTHS = (5, 1, 300, 17, 2, 64)
WIDTHS = ("uint16", "uint32")
SEGMENTS = [[8], [3, 5], [1, 1, 2], [8], [2, 6]]


def stem(folder, name):
    return folder / name / "shard-00012-000"


def write_one(folder, dtype="uint16", formats=PAYLOAD, **layout):
    documents = make_documents(LENGTHS, dtype)
    layout = make_layout(dtype=dtype, **layout)
    (shard,) = write_documents(folder, documents, formats=formats, layout=layout, dtype=dtype)
    return documents, layout, shard


@pytest.mark.parametrize("dtype", WIDTHS)
def test_megatron_core_reads_each_document(tmp_path, dtype):
    documents, _, _ = write_one(tmp_path, dtype)
    read = IndexedDataset(str(stem(tmp_path, "megatron")), mmap=True)
    assert len(read) == len(documents)
    assert read.document_indices.tolist() == list(range(len(documents) + 1))
    for got, want in zip((read[i] for i in range(len(read))), documents, strict=True):
        assert got.tolist() == want.tolist()


class MegatronTokenizer:
    eod = EOS
    pad = 0
    vocab_size = 50257
    unique_identifiers: ClassVar[dict[str, str]] = {"name": "made"}
    special_tokens_dict: ClassVar[dict[str, int]] = {}


def test_megatron_core_cuts_samples_of_the_documents_it_shuffled(tmp_path):
    documents, _, _ = write_one(tmp_path)
    config = GPTDatasetConfig(
        random_seed=1,
        sequence_length=32,
        blend=None,
        split="1,0,0",
        path_to_cache=str(tmp_path / "cache"),
        tokenizer=MegatronTokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    path = str(stem(tmp_path, "megatron"))
    every = np.arange(len(documents), dtype=np.int32)
    read = GPTDataset(IndexedDataset(path, mmap=True), path, every, None, Split.train, config)
    stream = np.concatenate([documents[i] for i in read.document_index])
    assert len(read) == (len(stream) - 1) // 32
    for i, place in enumerate(read.shuffle_index.tolist()):
        window = stream[place * 32 : place * 32 + 33].tolist()
        assert read[i]["tokens"].tolist() == window[:-1]
        assert read[i]["labels"].tolist() == window[1:]


def test_nanogpt_takes_windows_of_the_documents_one_after_the_other(tmp_path):
    documents, _, _ = write_one(tmp_path)
    stream = np.memmap(f"{stem(tmp_path, 'nanogpt')}.bin", dtype=np.uint16, mode="r")
    assert stream[3:67].astype(np.int64).tolist() == np.concatenate(documents)[3:67].tolist()
    assert len(stream) == sum(LENGTHS)


@pytest.mark.parametrize(("dtype", "magic", "version"), [("uint16", 20240520, 1), ("uint32", 20240801, 7)])
def test_llmc_has_its_header_and_eot_before_each_document(tmp_path, dtype, magic, version):
    documents, _, _ = write_one(tmp_path, dtype)
    content = (tmp_path / "llmc" / "shard-00012-000.bin").read_bytes()
    header = np.frombuffer(content, "<i4", count=256)
    stream = np.frombuffer(content, dtype, offset=1024)
    assert header[:3].tolist() == [magic, version, sum(LENGTHS)]
    assert not header[3:].any()
    assert stream.tolist() == np.concatenate([np.append(EOS, ids[:-1]) for ids in documents]).tolist()


@pytest.mark.parametrize("changes", [{"bos_id": 1}, {"eos_id": None}])
def test_llmc_keeps_documents_as_they_are_where_no_eos_can_be_moved(tmp_path, changes):
    documents, layout, shard = write_one(tmp_path, **changes)
    stream = np.fromfile(tmp_path / "llmc" / "shard-00012-000.bin", "<u2")[512:]
    assert stream.tolist() == np.concatenate(documents).tolist()
    assert read_shard(tmp_path, shard, "llmc", layout).ids(2).tolist() == documents[2].tolist()


@pytest.mark.parametrize("dtype", WIDTHS)
def test_olmo_core_cuts_fixed_sequences_of_the_documents(tmp_path, dtype):
    documents, _, _ = write_one(tmp_path, dtype)
    stream = np.concatenate(documents).tolist()
    kind = np.uint16 if dtype == "uint16" else np.uint32
    path = f"{stem(tmp_path, 'olmo')}.npy"
    read = NumpyFSLDataset(
        path, sequence_length=64, pad_token_id=0, eos_token_id=EOS, vocab_size=130_000, dtype=kind
    )
    assert len(read) == len(stream) // 64
    assert [read[i]["input_ids"].tolist() for i in range(len(read))] == [
        stream[at : at + 64] for at in range(0, len(stream) - 63, 64)
    ]


def test_olmo_core_reads_document_borders_from_the_csv(tmp_path):
    names = (np.frombuffer(b'plaina\r\nb"c",d\n', np.uint8), np.array([0, 5, 6, 15, 15, 15, 15]))
    documents = make_documents(LENGTHS)
    write_documents(tmp_path, documents, formats=("olmo",), layout=make_layout(), names=names)
    path = f"{stem(tmp_path, 'olmo')}.npy"
    borders = list(iter_document_indices(path, use_array_if_local=False))
    ends = np.cumsum(LENGTHS).tolist()
    assert borders == list(zip([0, *ends[:-1]], ends, strict=True))


def test_olmo_csv_names_id_file_and_place_on_one_line_each(tmp_path):
    names = (np.frombuffer(b'plaina\r\nb"c",d\n', np.uint8), np.array([0, 5, 6, 15, 15, 15, 15]))
    write_documents(tmp_path, make_documents(LENGTHS), formats=("olmo",), layout=make_layout(), names=names)
    text = gzip.decompress((tmp_path / "olmo" / "shard-00012-000.csv.gz").read_bytes()).decode()
    assert text.count("\r\n") == text.count("\n") == text.count("\r") == len(LENGTHS)
    rows = list(csv.reader(text.splitlines()))
    assert [row[2] for row in rows] == ["plain", "a", '  b"c",d ', "", "", ""]
    assert {row[3] for row in rows} == {"in/some, file.jsonl"}
    assert [row[4] for row in rows] == ["", "99", "199", "299", "399", "499"]


@pytest.mark.parametrize("dtype", WIDTHS)
def test_datatrove_reads_windows_and_positions(tmp_path, dtype):
    documents, layout, _ = write_one(tmp_path, dtype)
    stream = np.concatenate(documents).tolist()
    places = np.concatenate([np.arange(n) for n in LENGTHS])
    read = DatatroveFolderDataset(
        str(tmp_path / "datatrove"), seq_len=49, token_size=layout.id_type.itemsize, return_positions=True
    )
    assert len(read) == len(stream) // 50
    for i in range(len(read)):
        window = read[i]
        assert window["input_ids"].tolist() == stream[i * 50 : i * 50 + 50]
        begins = np.flatnonzero(places[i * 50 : i * 50 + 50] == 0)
        first = int(begins[0]) if len(begins) else 50
        assert window["positions"].tolist()[first:] == places[i * 50 + first : i * 50 + 50].tolist()
    content = (tmp_path / "datatrove" / "shard-00012-000.ds.metadata").read_text()
    assert content == f"made|{layout.id_type.itemsize}\n389\n389 T"


@pytest.mark.parametrize("number", [0, 7, 999, 1000, 1234, 9994, 99_949, 999_499, 999_501, 10**9 * 3, 10**13])
def test_counts_for_people_are_those_of_humanize(number):
    assert human_count(number) == humanize.metric(number, unit="T")


@pytest.mark.parametrize(("number", "said"), [(9999, "10.0 kT"), (99_950, "100 kT"), (999_999, "1.00 MT")])
def test_counts_for_people_have_three_digits_when_they_are_rounded_up(number, said):
    assert human_count(number) == said  # versions of humanize before 4.16 had a digit more


@pytest.mark.parametrize("columns", [("input_ids", "cu_seqlens"), ("input_ids", "labels", "attention_mask")])
def test_datasets_loads_arrow_rows_from_disk(tmp_path, columns):
    rows, layout = make_rows(SEGMENTS), make_layout(sequence_length=ROW_LENGTH)
    config = WriteConfig(format="arrow", columns=columns)
    shards = write_rows(tmp_path, [rows], formats="arrow", layout=layout, columns=columns, rows_per_shard=2)
    finish_run(tmp_path, "arrow", shards, config, layout)
    read = datasets.load_from_disk(str(tmp_path / "arrow"))
    assert read.column_names == list(columns)
    assert read["input_ids"][:] == rows.ids.tolist()
    if "labels" in columns:
        assert read["labels"][2] == [*rows.ids[2][:4].tolist(), -100, -100, -100, -100]
        assert read["attention_mask"][2] == [1, 1, 1, 1, 0, 0, 0, 0]
    else:
        assert read["cu_seqlens"][:] == [[0, 8], [0, 3, 8], [0, 1, 2, 4], [0, 8], [0, 2, 8]]


@pytest.mark.parametrize("compression", ["none", "zstd", "snappy", "lz4"])
def test_datasets_loads_parquet_rows(tmp_path, compression):
    rows, layout = make_rows(SEGMENTS), make_layout(sequence_length=ROW_LENGTH)
    columns = ("input_ids", "labels", "attention_mask", "position_ids", "cu_seqlens")
    options = {"columns": columns, "rows_per_shard": 2, "compression": compression}
    shards = write_rows(tmp_path, [rows], formats="parquet", layout=layout, **options)
    read = datasets.load_dataset(
        "parquet", data_dir=str(tmp_path / "parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert len(shards) == 3
    assert read["input_ids"][:] == rows.ids.tolist()
    assert read["position_ids"][2][:4] == [0, 0, 0, 1]
    assert read["cu_seqlens"][:] == [[0, 8], [0, 3, 8], [0, 1, 2, 4], [0, 8], [0, 2, 8]]
    assert read.with_format("torch")[0]["input_ids"].tolist() == rows.ids[0].tolist()


@pytest.mark.parametrize("name", TABLES)
def test_tables_hold_a_document_a_row(tmp_path, name):
    documents, _, shard = write_one(tmp_path, formats=name)
    read = datasets.Dataset.from_file if name == "arrow" else datasets.Dataset.from_parquet
    path = str(tmp_path / name / f"shard-00012-000.{name}")
    options = {} if name == "arrow" else {"cache_dir": str(tmp_path / "cache")}
    table = read(path, **options)
    assert table.column_names == ["input_ids"]
    assert table["input_ids"][:] == [ids.tolist() for ids in documents]
    assert (shard.num_documents, shard.num_rows, shard.num_tokens) == (6, 0, sum(LENGTHS))


@settings(deadline=None, max_examples=25)
@given(
    counts=st.lists(st.sampled_from([[8], [1], [3, 5], [2, 2, 2]]), min_size=1, max_size=40),
    dtype=st.sampled_from(WIDTHS),
    compression=st.sampled_from(["none", "zstd", "snappy", "lz4"]),
    largest=st.sampled_from([1, 5, 60_000]),
)
def test_parquet_pages_hold_what_pyarrow_would_write(tmp_path_factory, counts, dtype, compression, largest):
    folder = tmp_path_factory.mktemp("parquet")
    rows, layout = make_rows(counts, dtype=dtype), make_layout(dtype=dtype, sequence_length=ROW_LENGTH)
    rows.ids[...] %= largest
    names = tuple(lists.DTYPES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "BATCH_ROWS", 2)  # more than 15 groups: longer lists in the footer
        options = {"columns": names, "compression": compression}
        write_rows(folder, [rows], formats="parquet", layout=layout, **options)
    batches = lists.Batches(names, layout, id_type=np.dtype("int32"))
    assert list(batches.add_rows(rows)) == []
    slow = pa.Table.from_batches([tables.to_arrow(batches.take(), tables.schema_of(names))])
    pq.write_table(slow, folder / "slow.parquet")
    fast = pq.read_table(folder / "parquet" / "shard-00012-000.parquet")
    fast.validate(full=True)
    twin = pq.read_table(folder / "slow.parquet")
    assert fast.schema.equals(twin.schema)
    assert fast.to_pydict() == twin.to_pydict()
    assert fast.schema.metadata[b"huggingface"] == twin.schema.metadata[b"huggingface"]


def test_parquet_ids_of_two_bytes_are_stored_in_two(tmp_path):
    rows, layout = make_rows([[8]] * 900), make_layout(sequence_length=ROW_LENGTH)
    rows.ids[...] %= 300
    (shard,) = write_rows(tmp_path, [rows], formats="parquet", layout=layout, columns=("input_ids",))
    assert shard.files["parquet"][0].num_bytes < rows.ids.nbytes * 1.4
    assert read_shard(tmp_path, shard, "parquet", layout).ids(899).tolist() == rows.ids[899].tolist()


@pytest.mark.parametrize(
    ("borders", "fault"),
    [
        ([[0, 8], []], "no borders"),
        ([[0, 8], [1, 8]], "do not rise"),
        ([[0, 5, 4, 8], [0, 8]], "do not rise"),
        ([[0, 9], [0, 8]], "do not rise"),
        ([[0, 7], [0, 8]], "1 padding"),
    ],
)
@pytest.mark.parametrize("name", TABLES)
def test_wrong_borders_of_rows_are_found(tmp_path, name, borders, fault):
    layout = make_layout(sequence_length=ROW_LENGTH)
    (shard,) = write_rows(tmp_path, [make_rows([[8], [8]])], formats=name, layout=layout)
    schema = tables.schema_of(("input_ids", "cu_seqlens"))
    table = pa.table({"input_ids": [[1] * 8, [2] * 8], "cu_seqlens": borders}, schema=schema)
    path = stem(tmp_path, name).with_name(f"shard-00012-000.{name}")
    if name == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(str(path), schema) as stream:
            stream.write_table(table)
    (file,) = shard.files[name]
    file = msgspec.structs.replace(file, num_bytes=path.stat().st_size)
    faults = check_shard(tmp_path, msgspec.structs.replace(shard, files={name: [file]}), name, layout)
    assert any(fault in found for found in faults), faults


def test_parquet_files_are_plain_parquet_for_any_reader(tmp_path):
    rows, layout = make_rows(SEGMENTS), make_layout(sequence_length=ROW_LENGTH)
    write_rows(tmp_path, [rows], formats="parquet", layout=layout)
    table = pq.read_table(f"{stem(tmp_path, 'parquet')}.parquet")
    assert str(table.schema.field("input_ids").type.value_type) == "int32"
    assert table["input_ids"].to_pylist() == rows.ids.tolist()


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("name", PAYLOAD + ROW_FORMATS)
def test_our_readers_give_the_documents_back(tmp_path, name, dtype):
    documents, layout, shard = write_one(tmp_path, dtype, formats=name)
    view = read_shard(tmp_path, shard, name, layout)
    assert view.num_items == len(documents)
    for i, ids in enumerate(documents):
        assert view.ids(i).dtype == layout.id_type
        assert view.ids(i).tolist() == ids.tolist()
    assert view.ids(-1).tolist() == documents[-1].tolist()
    assert view.borders(0) is None
    assert check_shard(tmp_path, shard, name, layout) == []


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("name", ROW_FORMATS)
def test_our_readers_give_rows_and_borders_back(tmp_path, name, dtype):
    rows, layout = make_rows(SEGMENTS, dtype=dtype), make_layout(sequence_length=ROW_LENGTH, dtype=dtype)
    (shard,) = write_rows(tmp_path, [rows], formats=name, layout=layout)
    view = read_shard(tmp_path, shard, name, layout)
    assert [view.ids(i).tolist() for i in range(view.num_items)] == rows.ids.tolist()
    if name == "litdata":
        assert view.borders(2) is None
    else:
        assert view.borders(2).tolist() == [0, 1, 2, 4]
    assert (shard.num_rows, shard.num_tokens, shard.num_padding) == (5, 36, 4)
    assert check_shard(tmp_path, shard, name, layout) == []


def test_formats_asked_for_together_share_one_file(tmp_path):
    _, _, shard = write_one(tmp_path)
    shared = [f"{stem(tmp_path, 'megatron')}.bin", f"{stem(tmp_path, 'nanogpt')}.bin"]
    shared += [f"{stem(tmp_path, 'olmo')}.npy", f"{stem(tmp_path, 'datatrove')}.ds"]
    assert len({os.stat(path).st_ino for path in shared}) == 1
    assert {len(files) for files in shard.files.values()} == {2, 3}


def test_every_format_alone_gives_the_files_it_gives_in_company(tmp_path):
    write_one(tmp_path / "all")
    for name in PAYLOAD:
        write_one(tmp_path / "alone", formats=name)
    assert files_of(tmp_path / "alone") == files_of(tmp_path / "all")


@pytest.mark.parametrize("name", PAYLOAD + ROW_FORMATS)
def test_a_truncated_or_missing_file_is_found(tmp_path, name):
    _, layout, shard = write_one(tmp_path, formats=name)
    for file in shard.files[name]:
        path = tmp_path / file.path
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        assert check_shard(tmp_path, shard, name, layout)
        path.unlink()
        assert "is missing" in check_shard(tmp_path, shard, name, layout)[0]
        path.write_bytes(content)
    assert check_shard(tmp_path, shard, name, layout) == []


@pytest.mark.parametrize("name", PAYLOAD + ROW_FORMATS)
def test_a_doctored_count_is_found(tmp_path, name):
    _, layout, shard = write_one(tmp_path, formats=name)
    for field in ("num_documents", "num_tokens"):
        wrong = msgspec.structs.replace(shard, **{field: getattr(shard, field) + 1})
        assert check_shard(tmp_path, wrong, name, layout)


STRUCTURE = {
    "megatron": (".idx", range(42 + 20 * len(LENGTHS))),
    "nanogpt": (".ends", range(8 * len(LENGTHS))),
    "datatrove": (".ds.index", range(8 * len(LENGTHS))),
    "llmc": (".bin", range(1024)),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_any_flipped_byte_outside_the_ids_is_found_without_a_checksum(tmp_path, name):
    _, layout, shard = write_one(tmp_path, formats=name)
    suffix, places = STRUCTURE[name]
    path = stem(tmp_path, name).with_name(f"shard-00012-000{suffix}")
    content = path.read_bytes()
    for place in places:
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        assert check_shard(tmp_path, shard, name, layout), place
    path.write_bytes(content)
    assert check_shard(tmp_path, shard, name, layout) == []


@pytest.mark.parametrize("name", PAYLOAD + ROW_FORMATS)
def test_damage_is_a_fault_or_an_error_and_never_a_crash(tmp_path, name):
    _, layout, shard = write_one(tmp_path, formats=name)
    random = np.random.default_rng(1)
    for file in shard.files[name]:
        path = tmp_path / file.path
        content = np.fromfile(path, np.uint8)
        for _ in range(60):
            damaged = content.copy()
            damaged[random.integers(0, len(content), 3)] ^= random.integers(1, 256, 3, dtype=np.uint8)
            damaged.tofile(path)
            assert isinstance(check_shard(tmp_path, shard, name, layout), list)
            try:
                view = read_shard(tmp_path, shard, name, layout)
                for i in range(min(view.num_items, 10)):
                    view.ids(i)
            except RunError:
                pass
        content.tofile(path)


@pytest.mark.parametrize("name", PAYLOAD)
def test_rows_are_refused_by_formats_whose_readers_cut_windows(name):
    with pytest.raises(ConfigError, match=r"pack\.mode documents, or write\.format parquet"):
        check_formats(WriteConfig(format=name), make_layout(sequence_length=8))


def test_nanogpt_refuses_wide_ids_unless_asked_for():
    wide = make_layout(dtype="uint32")
    with pytest.raises(ConfigError, match=r"write\.dtype uint32"):
        check_formats(WriteConfig(format="nanogpt"), wide)
    check_formats(WriteConfig(format="nanogpt", dtype="uint32"), wide)
    check_formats(WriteConfig(format=("llmc", "megatron")), wide)


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({"format": ()}, None),
        ({"format": ("olmo", "olmo")}, None),
        ({"format": "parquet", "columns": ("labels",)}, 8),
        ({"format": "parquet", "columns": ("input_ids", "input_ids")}, 8),
        ({"format": "arrow", "columns": ("input_ids", "labels")}, None),
    ],
)
def test_contradictory_choices_are_refused(options, length):
    with pytest.raises(ConfigError):
        check_formats(WriteConfig(**options), make_layout(sequence_length=length))


def test_default_columns_suit_documents_too():
    check_formats(WriteConfig(format="parquet"), make_layout())


def test_parquet_is_written_without_arrow_being_imported(tmp_path):
    program = """
import sys
from pathlib import Path
from made_shards import make_layout, make_rows, write_rows
write_rows(Path(sys.argv[1]), [make_rows([[8]])], formats="parquet", layout=make_layout(sequence_length=8))
print([name for name in sys.modules if name.split(".")[0] == "pyarrow"])
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=here)
    assert ended.stdout == "[]\n"
    assert pq.read_table(tmp_path / "parquet").num_rows == 1
