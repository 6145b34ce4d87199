"""mds, litdata, pt, npy and webdataset read back with the readers they are for, to the exact ids."""

import itertools
import json
import tarfile
import zipfile

import litdata
import msgspec
import numpy as np
import pytest
import torch
import webdataset
from blake3 import blake3

from gristmill.config import WriteConfig
from gristmill.errors import ConfigError
from gristmill.finished import open_run
from gristmill.formats import check_formats, check_shard, default_mode, finish_run, mds, pt, read_shard
from gristmill.formats import litdata as our_litdata
from gristmill.formats.lists import DTYPES
from gristmill.run.warn import option_warnings
from gristmill.write import max_shard_tokens
from made_runs import make_config, make_corpus, run
from made_shards import (
    ROW_LENGTH,
    SAMPLES,
    make_documents,
    make_layout,
    make_rows,
    write_documents,
    write_rows,
)
from streaming_reader import MDSWriter, StreamingDataset

COLUMNS = tuple(DTYPES)
LENGTHS = (5, 1, 300, 17, 2, 64, 255, 256, 65_536)
SEGMENTS = [[8], [3, 5], [1, 1, 2], [8], [2, 6]]
WIDTHS = ("uint16", "uint32")


def written_rows(folder, name, dtype="uint16", **options):
    """Rows in two shards and what a run has beside them; the columns they should have."""
    rows, layout = make_rows(SEGMENTS, dtype=dtype), make_layout(sequence_length=ROW_LENGTH, dtype=dtype)
    options = {"columns": COLUMNS, "rows_per_shard": 3} | options
    shards = write_rows(folder, [rows], formats=name, layout=layout, **options)
    config = WriteConfig(format=name, columns=options["columns"])
    finish_run(folder, name, shards, config, layout)
    ids = rows.ids.tolist()
    expected = {
        "input_ids": ids,
        "labels": [
            [*row[: sum(lengths)], *[-100] * (8 - sum(lengths))]
            for row, lengths in zip(ids, SEGMENTS, strict=True)
        ],
        "attention_mask": [[1] * sum(lengths) + [0] * (8 - sum(lengths)) for lengths in SEGMENTS],
        "position_ids": [
            [i for length in [*lengths, 8 - sum(lengths)] for i in range(length)] for lengths in SEGMENTS
        ],
        "cu_seqlens": [np.cumsum([0, *lengths]).tolist() for lengths in SEGMENTS],
    }
    return shards, expected


def written_documents(folder, name, dtype="uint16", lengths=LENGTHS):
    documents, layout = make_documents(lengths, dtype), make_layout(dtype=dtype)
    shards = write_documents(folder, documents, formats=name, layout=layout, rows_per_shard=4)
    finish_run(folder, name, shards, WriteConfig(format=name), layout)
    return shards, [ids.tolist() for ids in documents]


@pytest.mark.parametrize("dtype", WIDTHS)
def test_streaming_reads_each_document(tmp_path, dtype):
    _, expected = written_documents(tmp_path, "mds", dtype)
    read = StreamingDataset(local=str(tmp_path / "mds"), remote=None, batch_size=1, shuffle=False)
    assert [sample["tokens"].tolist() for sample in read] == expected
    assert read[2]["tokens"].dtype == np.int32


def test_streaming_reads_each_column_of_rows(tmp_path):
    shards, expected = written_rows(tmp_path / "made", "mds")
    source, local = str(tmp_path / "made" / "mds"), str(tmp_path / "copy")
    read = StreamingDataset(remote=source, local=local, batch_size=1, shuffle=False)
    samples = list(read)
    assert len(shards) == 2
    assert [sample.pop("tokens").tolist() for sample in samples] == expected.pop("input_ids")
    for name, values in expected.items():
        assert [sample[name].tolist() for sample in samples] == values
        assert samples[0][name].dtype == DTYPES[name]


@pytest.mark.parametrize("kind", ["documents", "rows"])
def test_a_shard_of_mds_is_what_mosaics_own_writer_makes(tmp_path, kind):
    if kind == "rows":
        _, expected = written_rows(tmp_path, "mds", rows_per_shard=None)
        expected["tokens"] = expected.pop("input_ids")
    else:
        documents = make_documents(LENGTHS)
        shards = write_documents(tmp_path, documents, formats="mds", layout=make_layout())
        finish_run(tmp_path, "mds", shards, WriteConfig(format="mds"), make_layout())
        expected = {"tokens": documents}
    encodings = {name: f"ndarray:{DTYPES.get(name, 'int32')}" for name in expected}
    with MDSWriter(out=str(tmp_path / "theirs"), columns=encodings, size_limit=None) as writer:
        for values in zip(*expected.values(), strict=True):
            writer.write(
                {
                    name: np.array(value, encodings[name].removeprefix("ndarray:"))
                    for name, value in zip(expected, values, strict=True)
                }
            )
    ours = (tmp_path / "mds" / "shard-00012-000.mds").read_bytes()
    assert ours == (tmp_path / "theirs" / "shard.00000.mds").read_bytes()
    index = (tmp_path / "theirs" / "index.json").read_bytes()
    assert (tmp_path / "mds" / "index.json").read_bytes() == index.replace(
        b"shard.00000.mds", b"shard-00012-000.mds"
    )


@pytest.mark.parametrize("dtype", WIDTHS)
def test_litdata_cuts_blocks_of_the_documents_of_each_shard(tmp_path, dtype):
    shards, expected = written_documents(tmp_path, "litdata", dtype)
    loader = litdata.TokensLoader(block_size=7)
    read = litdata.StreamingDataset(str(tmp_path / "litdata"), item_loader=loader, shuffle=False)
    streams = [list(itertools.chain(*expected[at : at + 4])) for at in range(0, len(expected), 4)]
    blocks = [s[at : at + 7] for s in streams for at in range(0, len(s) // 7 * 7, 7)]
    assert len(shards) == 3
    assert len(read) == len(blocks)
    some = [0, 1, *range(40, 50), len(blocks) - 1]
    assert [read[i].tolist() for i in some] == [blocks[i] for i in some]
    assert read[0].dtype == (torch.uint16 if dtype == "uint16" else torch.int32)


def test_litdata_gives_rows_back_where_a_block_is_as_long_as_they_are(tmp_path):
    shards, expected = written_rows(tmp_path, "litdata")
    loader = litdata.TokensLoader(block_size=ROW_LENGTH)
    read = litdata.StreamingDataset(str(tmp_path / "litdata"), item_loader=loader, shuffle=False)
    assert [block.tolist() for block in read] == expected["input_ids"]
    assert sorted(path.name for path in (tmp_path / "litdata").iterdir()) == sorted(
        ["index.json", *(f"shard-{shard.name}.bin" for shard in shards)]
    )


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("dtype", WIDTHS)
def test_torch_loads_each_column_of_rows_as_a_tensor(tmp_path, dtype, mmap):
    shards, expected = written_rows(tmp_path, "pt", dtype)
    first = tmp_path / "pt" / f"shard-{shards[0].name}"
    for name in ("input_ids", "labels", "attention_mask", "position_ids"):
        tensor = torch.load(f"{first}.{name}.pt", weights_only=True, mmap=mmap)
        assert tensor.shape == (3, ROW_LENGTH)
        assert str(tensor.dtype) == f"torch.{DTYPES[name]}"
        assert tensor.tolist() == expected[name][:3]
    flat = torch.load(f"{first}.cu_seqlens.pt", weights_only=True, mmap=mmap)
    places = torch.load(f"{first}.cu_seqlens.offsets.pt", weights_only=True, mmap=mmap)
    assert [flat[a:b].tolist() for a, b in itertools.pairwise(places.tolist())] == expected["cu_seqlens"][:3]


def test_torch_loads_documents_as_one_tensor_and_their_offsets(tmp_path):
    shards, expected = written_documents(tmp_path, "pt")
    found = []
    for shard in shards:
        stem = tmp_path / "pt" / f"shard-{shard.name}"
        ids = torch.load(f"{stem}.input_ids.pt", weights_only=True, mmap=True)
        places = torch.load(f"{stem}.input_ids.offsets.pt", weights_only=True, mmap=True)
        assert (ids.dim(), places.dtype) == (1, torch.int64)
        found += [ids[a:b].tolist() for a, b in itertools.pairwise(places.tolist())]
    assert found == expected


def test_the_numbers_of_a_tensor_lie_aligned_in_a_sound_zip_archive(tmp_path):
    shards, expected = written_rows(tmp_path, "pt")
    path = tmp_path / "pt" / f"shard-{shards[0].name}.labels.pt"
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        numbers = archive.read("archive/data/0")
    assert names == ["archive/data.pkl", "archive/byteorder", "archive/version", "archive/data/0"]
    assert np.frombuffer(numbers, "<i4").tolist() == list(itertools.chain(*expected["labels"][:3]))
    assert path.read_bytes().index(numbers) % 64 == 0


def test_a_tensor_of_more_than_4_gib_is_described_in_64_bits():
    shape = (2_200_001, 2048)
    head, tail = pt.envelope(np.dtype("int32"), shape, 7)
    size = 4 * shape[0] * shape[1]
    assert (size // 4).to_bytes(8, "little") in pt.pickled(np.dtype("int32"), shape)
    assert head.count(size.to_bytes(8, "little")) == 2
    assert tail.count(size.to_bytes(8, "little")) == 2
    assert (len(head) + size).to_bytes(8, "little") in tail


@pytest.mark.parametrize("dtype", WIDTHS)
def test_numpy_maps_each_column_of_rows(tmp_path, dtype):
    shards, expected = written_rows(tmp_path, "npy", dtype)
    first = tmp_path / "npy" / f"shard-{shards[0].name}"
    for name in ("input_ids", "labels", "attention_mask", "position_ids"):
        array = np.load(f"{first}.{name}.npy", mmap_mode="r")
        assert array.dtype == (dtype if name == "input_ids" else DTYPES[name])
        assert array.tolist() == expected[name][:3]
    flat, places = np.load(f"{first}.cu_seqlens.npy"), np.load(f"{first}.cu_seqlens.offsets.npy")
    assert [flat[a:b].tolist() for a, b in itertools.pairwise(places.tolist())] == expected["cu_seqlens"][:3]


@pytest.mark.parametrize("dtype", WIDTHS)
def test_numpy_maps_documents_and_their_offsets(tmp_path, dtype):
    shards, expected = written_documents(tmp_path, "npy", dtype)
    found = []
    for shard in shards:
        stem = tmp_path / "npy" / f"shard-{shard.name}"
        ids = np.load(f"{stem}.input_ids.npy", mmap_mode="r")
        places = np.load(f"{stem}.input_ids.offsets.npy", mmap_mode="r")
        found += [ids[a:b].tolist() for a, b in itertools.pairwise(places.tolist())]
    assert found == expected


def read_tars(folder):
    urls = sorted(str(path) for path in folder.glob("*.tar"))
    return list(webdataset.WebDataset(urls, shardshuffle=False).decode())


def test_webdataset_reads_each_column_of_rows(tmp_path):
    _, expected = written_rows(tmp_path, "webdataset")
    samples = read_tars(tmp_path / "webdataset")
    assert len({sample["__key__"] for sample in samples}) == len(samples) == 5
    for name, values in expected.items():
        assert [sample[f"{name}.npy"].tolist() for sample in samples] == values
        assert samples[0][f"{name}.npy"].dtype == DTYPES[name]


@pytest.mark.parametrize("dtype", WIDTHS)
def test_webdataset_reads_each_document(tmp_path, dtype):
    _, expected = written_documents(tmp_path, "webdataset", dtype)
    samples = read_tars(tmp_path / "webdataset")
    assert [sample["input_ids.npy"].tolist() for sample in samples] == expected


def test_files_in_a_tar_are_nobodys_and_of_no_time(tmp_path):
    shards, _ = written_rows(tmp_path, "webdataset", columns=("input_ids",))
    with tarfile.open(tmp_path / "webdataset" / f"shard-{shards[1].name}.tar") as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == [
        f"00012-001-0000000{i}.input_ids.npy" for i in range(len(SEGMENTS) - 3)
    ]
    found = {(m.mode, m.uid, m.gid, m.mtime, m.uname, m.gname, m.isfile()) for m in members}
    assert found == {(0o644, 0, 0, 0, "", "", True)}


def test_a_run_of_all_five_is_read_to_the_same_rows(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus", num_files=2, num_docs=40)
    options = {"pack__mode": "best_fit", "pack__sequence_length": 100, "write__format": SAMPLES}
    result = run(tokenizer, tmp_path / "corpus", tmp_path / "out", **options)
    assert len(result.manifest.shards) > 2
    opened, folder = open_run(tmp_path / "out"), tmp_path / "out"
    expected = [
        view.ids(i).tolist()
        for _, shard in opened.shards
        for view in [read_shard(folder, shard, "npy", opened.layout)]
        for i in range(view.num_items)
    ]
    assert len(expected) == result.manifest.ledger.rows
    streamed = StreamingDataset(local=str(folder / "mds"), remote=None, batch_size=1, shuffle=False)
    assert [sample["tokens"].tolist() for sample in streamed] == expected
    loader = litdata.TokensLoader(block_size=100)
    blocks = litdata.StreamingDataset(str(folder / "litdata"), item_loader=loader, shuffle=False)
    assert [block.tolist() for block in blocks] == expected
    assert [sample["input_ids.npy"].tolist() for sample in read_tars(folder / "webdataset")] == expected
    for kind, load in (("npy", np.load), ("pt", lambda path: torch.load(path, weights_only=True))):
        paths = sorted((folder / kind).glob(f"*.input_ids.{kind}"))
        assert [row for path in paths for row in load(path).tolist()] == expected
    indices = [json.loads((folder / name / "index.json").read_text()) for name in ("mds", "litdata")]
    assert [len(indices[0]["shards"]), len(indices[1]["chunks"])] == [len(result.manifest.shards)] * 2
    named = {file.path: file.blake3 for file in result.manifest.sidecars}
    for name in ("mds", "litdata"):
        content = (folder / name / "index.json").read_bytes()
        assert named[f"{name}/index.json"] == blake3(content).hexdigest()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_flipped_byte_outside_the_numbers_is_found_without_a_checksum(tmp_path, name):
    """Every byte that is not 0, and some of those that are: a tar has ten thousand."""
    (shard, _), _ = written_rows(tmp_path, name, columns=("input_ids", "cu_seqlens"))
    layout = make_layout(sequence_length=ROW_LENGTH)
    ids = make_rows(SEGMENTS).ids[:3]
    for file in shard.files[name]:
        path = tmp_path / file.path
        content = path.read_bytes()
        numbers = set()
        for row in ids if ".offsets" not in file.path else []:
            for kind in ("<u2", "<i4"):
                at = content.find(row.astype(kind).tobytes())
                numbers |= set(range(at, at + row.astype(kind).nbytes)) if at >= 0 else set()
        for place in set(range(len(content))) - numbers:
            if content[place] == 0 and place % 31:
                continue
            path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
            assert check_shard(tmp_path, shard, name, layout), (file.path, place)
        path.write_bytes(content)
    assert check_shard(tmp_path, shard, name, layout) == []


@pytest.mark.parametrize("name", ["npy", "pt"])
def test_a_column_that_is_missing_beside_its_offsets_is_found(tmp_path, name):
    (shard, _), _ = written_rows(tmp_path, name)
    layout = make_layout(sequence_length=ROW_LENGTH)
    without = [file for file in shard.files[name] if "input_ids" not in file.path]
    changed = msgspec.structs.replace(shard, files={name: without})
    assert "it needs" in check_shard(tmp_path, changed, name, layout)[0]
    (tmp_path / name / f"shard-{shard.name}.cu_seqlens.offsets.{name}").unlink()
    assert "is missing" in check_shard(tmp_path, shard, name, layout)[0]


def test_shards_stay_where_32_bits_reach_whatever_the_documents():
    layout = make_layout(sequence_length=2, dtype="uint32")
    config = WriteConfig(format="mds", columns=COLUMNS, shard_bytes=1 << 40)
    most = max_shard_tokens(config, layout)
    row_bytes = 4 + 5 * (4 + 2) + 4 * 2 * 3 + 2 + 4 * 3
    assert most // 2 * row_bytes < 1 << 32
    assert most == mds.max_ids(config, layout)
    plain = make_layout()
    assert mds.max_ids(WriteConfig(format="mds"), plain) * (4 + 4 + 2 + 4) < 1 << 32
    config = WriteConfig(format="litdata", shard_bytes=1 << 40)
    assert max_shard_tokens(config, plain) * (4 + 2) + 8 < 1 << 32
    assert max_shard_tokens(config, plain) == our_litdata.max_ids(config, plain)


def test_the_default_shard_is_not_cut_by_a_limit_of_the_format():
    for name in ("mds", "litdata"):
        config = WriteConfig(format=name, shard_bytes=512_000_000)
        assert max_shard_tokens(config, make_layout(sequence_length=2048)) == 256_000_000


def test_rows_are_the_default_but_for_litdata_whose_reader_cuts_its_own():
    assert [default_mode((name,)) for name in SAMPLES] == [
        "documents" if name == "litdata" else "concat" for name in SAMPLES
    ]
    for name in SAMPLES:
        check_formats(WriteConfig(format=name), make_layout())
        check_formats(WriteConfig(format=name), make_layout(sequence_length=8))


def test_columns_that_litdata_does_not_hold_are_named_as_unused(tokenizer, tmp_path):
    options = {"write__format": "litdata", "write__columns": ["input_ids", "labels"], "pack__mode": "concat"}
    (tmp_path / "in").mkdir()
    found = option_warnings(make_config(tokenizer, tmp_path / "in", tmp_path / "out", **options))
    assert found == ["write.columns does nothing here: litdata holds ids alone"]
    with pytest.raises(ConfigError, match=r"write\.columns labels: only rows"):
        check_formats(WriteConfig(format="npy", columns=("input_ids", "labels")), make_layout())
