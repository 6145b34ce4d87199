"""`gristmill convert`: the same ids in another format, as a run with that format would have written them."""

import itertools
import json
import shutil

import datasets
import msgspec
import numpy as np
import pytest
from blake3 import blake3
from datatrove.utils.dataset import DatatroveFolderDataset
from megatron.core.datasets.indexed_dataset import IndexedDataset
from olmo_core.data.utils import iter_document_indices

from gristmill import cli
from gristmill.convert import convert
from gristmill.errors import ConfigError, RunError
from gristmill.finished import open_run
from gristmill.formats import llmc, read_shard
from gristmill.sidecars import SEGMENT
from made_runs import make_corpus, payload_documents, run

PAYLOAD = ["megatron", "nanogpt", "llmc", "olmo", "datatrove"]
TABLES = ["arrow", "parquet"]
SAMPLES = ["mds", "litdata", "pt", "npy", "webdataset"]
DOCUMENTS = {"pack__mode": "documents", "read__id_field": "id", "write__rows_per_shard": 9}
ROWS = {
    "pack__mode": "best_fit",
    "pack__sequence_length": 100,
    "write__columns": ["input_ids", "labels", "attention_mask", "position_ids", "cu_seqlens"],
    "pack__mask_first_token": True,
    "write__compression": "zstd",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=3, num_docs=40)
    return folder


@pytest.fixture(scope="module")
def made(tokenizer, corpus, tmp_path_factory):
    """Runs of every format, which nobody changes."""
    folder = tmp_path_factory.mktemp("runs")
    for name in (*PAYLOAD, *TABLES, *SAMPLES):
        run(tokenizer, corpus, folder / name, write__format=name, **DOCUMENTS)
    for name in (*TABLES, *SAMPLES):
        run(tokenizer, corpus, folder / f"rows-of-{name}", write__format=name, **ROWS)
    return folder


def content_of(folder):
    """Bytes of every file but the manifest."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


def ids_of(folder):
    return payload_documents(folder)


@pytest.mark.parametrize("name", [*PAYLOAD, *TABLES, *SAMPLES])
def test_blocks_of_a_shard_are_its_items(made, name):
    opened = open_run(made / name)
    for _, shard in opened.shards:
        view = read_shard(opened.folder, shard, name, opened.layout)
        found = [
            block.ids[start:stop].tolist()
            for block in view.blocks()
            for start, stop in zip(block.offsets[:-1], block.offsets[1:], strict=True)
        ]
        assert found == [view.ids(item).tolist() for item in range(view.num_items)]


@pytest.mark.parametrize("name", [*TABLES, *(name for name in SAMPLES if name != "litdata")])
def test_blocks_of_rows_have_their_borders(made, name):
    opened = open_run(made / f"rows-of-{name}")
    _, shard = opened.shards[0]
    view = read_shard(opened.folder, shard, name, opened.layout)
    found = [
        block.borders[0][start:stop].tolist()
        for block in view.blocks()
        for start, stop in zip(block.borders[1][:-1], block.borders[1][1:], strict=True)
    ]
    assert found == [view.borders(item).tolist() for item in range(view.num_items)]


@pytest.mark.parametrize(
    ("source", "to"),
    [
        *itertools.product([*PAYLOAD, *TABLES], [*PAYLOAD, *TABLES]),
        *itertools.product(["megatron", "parquet"], SAMPLES),
        *itertools.product(SAMPLES, ["megatron", "parquet"]),
    ],
)
def test_documents_become_what_a_run_with_that_format_writes(made, tmp_path, source, to):
    if source == to:
        with pytest.raises(ConfigError, match="--single-file"):
            convert(made / source, to, output=tmp_path / "out")
        return
    convert(made / source, to, output=tmp_path / "out")
    assert content_of(tmp_path / "out") == content_of(made / to / to)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("source", "to"),
    [("parquet", "arrow"), *((name, "parquet") for name in ["arrow", *SAMPLES])]
    + [("parquet", name) for name in SAMPLES],
)
def test_rows_become_what_a_run_with_that_format_writes(made, tmp_path, source, to):
    convert(made / f"rows-of-{source}", to, output=tmp_path / "out")
    assert content_of(tmp_path / "out") == content_of(made / f"rows-of-{to}" / to)


@pytest.mark.parametrize("source", ["olmo", "llmc", "arrow"])
def test_megatron_core_reads_a_single_file_to_the_same_ids(made, tmp_path, source):
    convert(made / source, "megatron", output=tmp_path / "out", is_single_file=True)
    assert sorted(content_of(tmp_path / "out")) == ["train.bin", "train.idx"]
    read = IndexedDataset(str(tmp_path / "out" / "train"), mmap=True)
    assert [read[i].tolist() for i in range(len(read))] == ids_of(made / "megatron")


@pytest.mark.parametrize("to", TABLES)
@pytest.mark.parametrize("is_single_file", [True, False])
def test_datasets_reads_documents_to_the_same_ids(made, tmp_path, to, is_single_file):
    convert(made / "megatron", to, output=tmp_path / "out", is_single_file=is_single_file)
    if to == "arrow":
        read = datasets.load_from_disk(str(tmp_path / "out"))
    else:
        read = datasets.Dataset.from_parquet(
            sorted(str(path) for path in (tmp_path / "out").glob("*.parquet")), cache_dir=str(tmp_path / "c")
        )
    assert read["input_ids"][:] == ids_of(made / "megatron")


@pytest.mark.parametrize(("source", "to"), [("parquet", "arrow"), ("arrow", "parquet"), ("arrow", "arrow")])
def test_datasets_reads_a_single_file_of_rows_to_the_same_columns(made, tmp_path, source, to):
    convert(made / f"rows-of-{source}", to, output=tmp_path / "out", is_single_file=True)
    expected = datasets.load_from_disk(str(made / "rows-of-arrow" / "arrow"))
    if to == "arrow":
        read = datasets.load_from_disk(str(tmp_path / "out"))
    else:
        read = datasets.Dataset.from_parquet(
            str(tmp_path / "out" / "train.parquet"), cache_dir=str(tmp_path / "c")
        )
    assert read.column_names == expected.column_names
    assert read.to_dict() == expected.to_dict()


def test_a_single_file_of_nanogpt_is_train_bin(made, tmp_path):
    convert(made / "megatron", "nanogpt", output=tmp_path / "out", is_single_file=True)
    ids = np.memmap(tmp_path / "out" / "train.bin", dtype=np.uint16, mode="r")
    assert ids.tolist() == [id_ for document in ids_of(made / "megatron") for id_ in document]


def test_olmo_core_reads_a_single_file_to_the_same_documents(made, tmp_path):
    convert(made / "megatron", "olmo", output=tmp_path / "out", is_single_file=True)
    ids = np.memmap(tmp_path / "out" / "train.npy", dtype=np.uint16, mode="r")
    spans = iter_document_indices(str(tmp_path / "out" / "train.npy"), use_array_if_local=False)
    assert [ids[start:end].tolist() for start, end in spans] == ids_of(made / "megatron")


def test_datatrove_reads_a_converted_folder(made, tmp_path):
    convert(made / "megatron", "datatrove", output=tmp_path / "out")
    read = DatatroveFolderDataset(str(tmp_path / "out"), seq_len=10, token_size=2, shuffle=False)
    assert len(read) > 100
    first = read[0]["input_ids"].tolist()
    assert first == [id_ for document in ids_of(made / "megatron") for id_ in document][: len(first)]


@pytest.mark.parametrize("to", ["nanogpt", "olmo", "datatrove"])
def test_the_payload_is_linked_not_copied(made, tmp_path, to):
    made_there = convert(made / "megatron", to, output=tmp_path / "out").manifest
    for shard in made_there.shards:
        payload = tmp_path / "out" / shard.files[to][0].path
        assert payload.samefile(made / "megatron" / "megatron" / f"shard-{shard.name}.bin")


def test_the_manifest_has_the_checksum_of_every_file(made, tmp_path):
    manifest = convert(made / "megatron", "arrow", output=tmp_path / "out").manifest
    files = [file for shard in manifest.shards for file in shard.files["arrow"]] + list(manifest.sidecars)
    found = {name: blake3(data).hexdigest() for name, data in content_of(tmp_path / "out").items()}
    assert {file.path: file.blake3 for file in files} == found
    assert msgspec.json.decode((tmp_path / "out" / "manifest.json").read_bytes())["formats"] == ["arrow"]


def test_the_default_folder_is_beside_the_run(made, tmp_path, monkeypatch, capsys):
    shutil.copytree(made / "megatron", tmp_path / "shards")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["convert", "shards", "--to", "olmo"]) == 0
    assert '"shards-olmo/*.npy"' in capsys.readouterr().out
    assert (tmp_path / "shards-olmo" / "manifest.json").exists()
    assert cli.main(["convert", "shards", "--to", "nanogpt", "--single-file", "-o", "one", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["manifest"]["shards"][0]["name"] == "train"


def test_an_earlier_conversion_is_replaced_by_force_alone(made, tmp_path):
    convert(made / "megatron", "olmo", output=tmp_path / "out", is_single_file=True)
    with pytest.raises(RunError, match="--force replaces it"):
        convert(made / "megatron", "olmo", output=tmp_path / "out")
    convert(made / "megatron", "olmo", output=tmp_path / "out", force=True)
    assert content_of(tmp_path / "out") == content_of(made / "olmo" / "olmo")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_conversion_of_another_version_is_replaced_by_force(made, tmp_path):
    convert(made / "megatron", "olmo", output=tmp_path / "out")
    manifest = tmp_path / "out" / "manifest.json"
    whole = content_of(tmp_path / "out")
    manifest.write_bytes(manifest.read_bytes().replace(b'"blake3"', b'"sha256"').replace(b": 2", b": 1", 1))
    with pytest.raises(RunError, match="--force replaces it"):
        convert(made / "megatron", "olmo", output=tmp_path / "out")
    convert(made / "megatron", "olmo", output=tmp_path / "out", force=True)
    assert content_of(tmp_path / "out") == whole


def test_a_folder_that_holds_something_else_is_never_replaced(made, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    shutil.copytree(made / "parquet", tmp_path / "run")
    for output in (tmp_path / "out", tmp_path / "run", tmp_path / "out" / "thesis.tex"):
        with pytest.raises(RunError, match="is no conversion"):
            convert(made / "megatron", "olmo", output=output, force=True)
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"


def test_a_conversion_that_fails_leaves_nothing(made, tmp_path):
    shutil.copytree(made / "megatron", tmp_path / "run")
    path = sorted((tmp_path / "run" / "megatron").glob("*.bin"))[-1]
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match=rf"{path.name}: has other content.*gristmill verify"):
        convert(tmp_path / "run", "parquet", output=tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_what_a_killed_conversion_left_is_no_obstacle(made, tmp_path):
    left = tmp_path / ".out.converting" / "olmo"
    left.mkdir(parents=True)
    (left / "shard-00000-000.npy").write_bytes(b"half")
    convert(made / "megatron", "olmo", output=tmp_path / "out")
    assert content_of(tmp_path / "out") == content_of(made / "olmo" / "olmo")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_rows_are_refused_by_formats_of_documents(made, tmp_path):
    with pytest.raises(ConfigError, match="cannot hold rows"):
        convert(made / "rows-of-parquet", "megatron", output=tmp_path / "out")


def test_more_tokens_than_a_file_of_llmc_holds_are_refused(made, tmp_path, monkeypatch):
    monkeypatch.setattr(llmc, "MAX_SHARD_BYTES", 10_000)
    with pytest.raises(ConfigError, match="leave out --single-file"):
        convert(made / "megatron", "llmc", output=tmp_path / "out", is_single_file=True)


def test_what_is_no_finished_run_is_an_error(made, tmp_path):
    with pytest.raises(RunError, match="is no run folder"):
        convert(tmp_path / "nothing", "olmo")
    shutil.copytree(made / "megatron", tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(RunError, match="not finished"):
        convert(tmp_path / "run", "olmo")


def test_a_conversion_is_verified_by_its_manifest(made, tmp_path, capsys):
    convert(made / "megatron", "olmo", output=tmp_path / "out")
    assert cli.main(["verify", str(tmp_path / "out")]) == 0
    assert "is what it says it is" in capsys.readouterr().out
    path = sorted((tmp_path / "out").glob("*.npy"))[-1]
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.unlink()  # it may be linked to the run's
    path.write_bytes(content)
    (tmp_path / "out" / "stray").write_text("")
    assert cli.main(["verify", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().out
    assert f"{path}: has other content" in shown
    assert "stray: is not in manifest.json" in shown
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    manifest["shards"][0]["files"]["olmo"][0]["path"] = "../../etc/passwd"
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    assert cli.main(["verify", str(tmp_path / "out")]) == 1
    assert "is no file of this folder" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["inspect"], ["convert", "--to", "nanogpt"]], ids=lambda words: words[0])
def test_a_conversion_is_no_run_and_is_told_so(made, tmp_path, capsys, command):
    convert(made / "megatron", "olmo", output=tmp_path / "out")
    assert cli.main([*command, str(tmp_path / "out")]) == 2
    assert "holds a conversion, not a run; name the folder of the run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "value"), [("row", -1), ("row", 1 << 40), ("length", 0), ("length", 1 << 62)]
)
def test_a_damaged_table_of_segments_is_named(made, tmp_path, field, value):
    shutil.copytree(made / "rows-of-npy", tmp_path / "run")
    path = tmp_path / "run" / "units" / "00000.segments"
    table = np.fromfile(path, SEGMENT)
    table[field][len(table) // 2] = value
    path.write_bytes(table.tobytes())
    with pytest.raises(RunError, match=r"do not fit into them|other counts than its records say"):
        convert(tmp_path / "run", "mds", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
