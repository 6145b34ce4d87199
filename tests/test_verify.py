"""`gristmill verify` passes what is sound, and finds every kind of damage, naming where it is."""

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

from gristmill import cli
from gristmill.config import OutputFormat
from gristmill.errors import RunError
from gristmill.run.folder import read_plan
from gristmill.sample import train_sample_tokenizer
from gristmill.sidecars import SEGMENT
from gristmill.verify import verify
from made_runs import make_corpus, run, write_jsonl

PAYLOAD = ["megatron", "nanogpt", "llmc", "olmo", "datatrove"]
ROWS = {"write__format": ["parquet", "arrow"], "pack__mode": "best_fit", "pack__sequence_length": 100}
SAMPLES = ["mds", "litdata", "pt", "npy", "webdataset"]
SMALL = {"read__unit_bytes": 8000}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=2, num_docs=30)
    return folder


@pytest.fixture(scope="module")
def made(tokenizer, corpus, tmp_path_factory):
    """A run of documents and one of rows, which nobody changes."""
    folder = tmp_path_factory.mktemp("runs")
    lines = (corpus / "part-0.jsonl").read_text().splitlines()
    (folder / "bad.jsonl").write_text("\n".join(["{bad", "", *lines, '{"text": 3}']))
    options = {"read__id_field": "id", **SMALL}
    run(tokenizer, corpus, folder / "documents", write__format=PAYLOAD, **options)
    run(tokenizer, corpus, folder / "rows", **ROWS, **options)
    run(tokenizer, folder / "bad.jsonl", folder / "bad", **options)
    options |= {"read__unit_bytes": 40_000, "write__format": SAMPLES}
    run(tokenizer, corpus, folder / "samples", **(ROWS | options))
    options |= {"pack__mode": "documents"}
    run(tokenizer, corpus, folder / "samples of documents", **options)
    return folder


@pytest.fixture
def copy(made, tmp_path):
    def copy_run(kind):
        shutil.copytree(made / kind, tmp_path / kind)
        return tmp_path / kind

    return copy_run


def faults_of(folder, **options):
    found = verify(folder, **options)
    faults = [fault for check in found.checks for fault in check.faults]
    assert found.is_sound == (not faults)
    return faults


def edit_json(path, change):
    values = json.loads(path.read_bytes())
    change(values)
    path.write_text(json.dumps(values))


def files_of(folder):
    manifest = json.loads((folder / "manifest.json").read_bytes())
    files = [file for shard in manifest["shards"] for group in shard["files"].values() for file in group]
    return [file["path"] for file in (*files, *manifest["sidecars"])]


def forge(folder, path, content):
    """Change a file, and its size and checksum wherever they are written down."""
    (folder / path).unlink()
    (folder / path).write_bytes(content)
    size, digest = len(content), blake3(content).hexdigest()

    def change(values):
        if isinstance(values, dict) and values.get("path") == path:
            values |= {"num_bytes": size, "blake3": digest}
        for value in values.values() if isinstance(values, dict) else values:
            if isinstance(value, dict | list):
                change(value)

    for record in (folder / "manifest.json", *(folder / "units").glob("*.json")):
        edit_json(record, change)


@pytest.mark.parametrize(
    "options",
    [
        {"write__format": PAYLOAD},
        {"write__format": PAYLOAD, "encode__add_bos": True, "encode__bos_id": 1},
        {"write__format": PAYLOAD, "encode__add_eos": False},
        {"write__format": SAMPLES, "pack__mode": "documents", "read__id_field": "id"},
        {"write__format": SAMPLES, "pack__mode": "best_fit", "write__rows_per_shard": 7},
        {"write__format": ["arrow", "parquet", "megatron"], "pack__mode": "documents"},
        {"write__format": "megatron", "run__max_rows": 17},
        {"write__format": "megatron", "run__max_tokens": 1},
        {"write__format": "parquet", "write__dtype": "uint32", "write__rows_per_shard": 3},
        {"write__format": "parquet", "pack__mode": "concat", "pack__overlap": 10},
        {"write__format": "parquet", "pack__mode": "concat", "pack__tail": "drop"},
        {"write__format": "parquet", "pack__mode": "concat", "pack__tail": "pad"},
        {"write__format": "arrow", "pack__mode": "best_fit", "run__max_rows": 9},
        {"write__format": "arrow", "pack__mode": "best_fit", "pack__overlap": 10},
        {"write__format": "arrow", "pack__mode": "pad", "pack__overlap": 8, "pack__pad_id": 5},
        {
            "write__format": "parquet",
            "write__columns": ["labels", "input_ids"],
            "pack__mask_first_token": True,
        },
        {"write__format": "parquet", "tokenizer__engine": "tokenizers", "read__id_field": "id"},
    ],
    ids=str,
)
def test_a_sound_run_has_no_fault(tokenizer, corpus, tmp_path, options):
    run(tokenizer, corpus, tmp_path / "out", **({"pack__sequence_length": 100} | SMALL | options))
    assert faults_of(tmp_path / "out", sample=1000) == []


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.jsonl.gz", "a.txt", "mark.jsonl"])
def test_documents_of_every_input_format_are_read_again(tokenizer, tmp_path, name):
    texts = [f"The mill stands by the river, {i} times." for i in range(30)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": texts}), path, row_group_size=7)
    elif name == "a.arrow":
        table = pa.table({"text": texts})
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=4)
    elif name == "a.csv":
        path.write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
    elif name == "a.jsonl.gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif name == "mark.jsonl":
        path.write_bytes(b"\xef\xbb\xbf" + lines.replace("\n", "\r\n\n").encode())
    else:
        path.write_text("\n".join(texts))
    run(tokenizer, path, tmp_path / "out", read__document="line", read__unit_bytes=500)
    found = verify(tmp_path / "out", sample=1000)
    assert found.is_sound, found
    assert found.checks[-1].what.startswith("30 of 30 documents")


def test_a_run_over_bad_records_is_sound(made):
    assert faults_of(made / "bad", sample=1000) == []


@pytest.mark.parametrize("kind", ["documents", "rows", "bad", "samples", "samples of documents"])
def test_a_flipped_bit_in_any_file_is_found_and_the_file_named(copy, kind):
    folder = copy(kind)
    for number, path in enumerate(files_of(folder)):
        content = (folder / path).read_bytes()
        changed = bytearray(content)
        changed[number * 7919 % len(content)] ^= 1 << number % 8
        (folder / path).unlink()  # the payload is one file under several names
        (folder / path).write_bytes(changed)
        assert any(path in fault for fault in faults_of(folder, sample=0)), path
        (folder / path).write_bytes(content)
    assert faults_of(folder) == []


def test_a_flipped_bit_in_the_merged_quarantine_is_found(copy):
    folder = copy("bad")
    path = folder / "quarantine.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"record":0', b'"record":1'))
    assert any("quarantine.jsonl, line 1" in fault for fault in faults_of(folder))
    path.unlink()
    assert any("quarantine.jsonl: lacks" in fault for fault in faults_of(folder))


@pytest.mark.parametrize("kind", ["documents", "rows"])
def test_what_cannot_be_compared_is_not_called_sound(copy, kind):
    folder = copy(kind)
    shards = [path for path in files_of(folder) if path.partition("/")[0] in get_args(OutputFormat)]
    (folder / shards[0]).unlink()
    checks = {check.name: check for check in verify(folder, sample=20).checks}
    for name in ("borders", "sample"):
        assert checks[name].not_checked == ("1 shard in which something is wrong",)
        assert checks[name].is_looked_at
    for path in shards[1:]:
        (folder / path).unlink()
    checks = {check.name: check for check in verify(folder, sample=20).checks}
    assert not checks["borders"].is_looked_at
    assert not checks["sample"].is_looked_at


@pytest.mark.parametrize("kind", ["documents", "rows"])
def test_a_missing_file_is_found_and_named(copy, kind):
    folder = copy(kind)
    for path in files_of(folder)[::5]:
        (folder / path).rename(folder / "aside")
        assert any(f"{path}: is missing" in fault for fault in faults_of(folder, sample=0))
        (folder / "aside").rename(folder / path)


@pytest.mark.parametrize("kind", ["documents", "rows"])
@pytest.mark.parametrize("left", [0, 1, -1])
def test_a_truncated_file_is_found_and_named(copy, kind, left):
    folder = copy(kind)
    for path in files_of(folder)[::7]:
        content = (folder / path).read_bytes()
        (folder / path).unlink()
        (folder / path).write_bytes(content[:left])
        assert any(path in fault and "bytes" in fault for fault in faults_of(folder)), path
        (folder / path).write_bytes(content)


def test_a_file_that_belongs_to_nothing_is_found(copy):
    folder = copy("documents")
    (folder / "megatron" / "shard-00099-000.bin").write_bytes(b"xx")
    assert any("shard-00099-000.bin: belongs to no shard" in fault for fault in faults_of(folder))


def counts_in(values, path=()):
    """Places of all numbers in JSON."""
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from counts_in(value, (*path, key))
        elif type(value) is int:
            yield (*path, key)


@pytest.mark.parametrize("kind", ["documents", "rows"])
@pytest.mark.parametrize("name", ["manifest.json", "units/00001.json"])
def test_every_doctored_count_is_found(copy, kind, name):
    folder = copy(kind)
    content = (folder / name).read_bytes()
    places = list(counts_in(json.loads(content)))
    # Of records in a slice, of scripts, and of what was carried over and is gone, nothing else knows.
    free = [p for p in places if "slice_records" in p or "scripts" in p]
    free += [p for p in places if p[0] == "sidecars" and name != "manifest.json"]
    for place in [place for place in places if place not in free][::3]:
        values = json.loads(content)
        inner = values
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] += 1
        (folder / name).write_text(json.dumps(values))
        assert faults_of(folder, sample=0), place
    (folder / name).write_bytes(content)
    assert faults_of(folder, sample=0) == []


def test_a_doctored_index_is_found_by_its_structure_even_with_a_right_checksum(copy):
    folder = copy("documents")
    path = "megatron/shard-00000-000.idx"
    index = bytearray((folder / path).read_bytes())
    index[18] += 1
    forge(folder, path, bytes(index))
    assert any("shard-00000-000.idx" in fault for fault in faults_of(folder))


def test_documents_that_end_elsewhere_are_found_even_with_a_right_checksum(copy):
    folder = copy("documents")
    path = "nanogpt/shard-00000-000.ends"
    ends = np.frombuffer((folder / path).read_bytes(), "<u8").copy()
    ends[0] += 1
    forge(folder, path, ends.tobytes())
    faults = faults_of(folder, sample=0)
    assert any("nanogpt/shard-00000-000" in fault and "EOS" in fault for fault in faults)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": 1}, "past the end|in no row"),
        ({"length": 1}, "tokens"),
        ({"row": 1}, "rows are not"),
        ({"document": 1 << 32}, "names documents of unit 1"),
        ({"document": 1 << 20}, "names document"),
    ],
    ids=str,
)
def test_a_doctored_segment_is_found_even_with_a_right_checksum(copy, change, said):
    folder = copy("rows")
    path = "units/00000.segments"
    table = np.frombuffer((folder / path).read_bytes(), SEGMENT).copy()
    for name, step in change.items():
        table[0][name] += step
    forge(folder, path, table.tobytes())
    faults = faults_of(folder, sample=0)
    assert any(part in fault for fault in faults for part in said.split("|")), faults


def test_a_token_that_the_reference_does_not_give_is_found_even_with_a_right_checksum(copy):
    folder = copy("documents")
    path = "nanogpt/shard-00001-000.bin"
    ids = np.frombuffer((folder / path).read_bytes(), "<u2").copy()
    ids[7] ^= 1
    forge(folder, path, ids.tobytes())
    (fault,) = faults_of(folder, sample=1000)
    assert "nanogpt, shard 00001-000, item 0" in fault
    assert "token 7 is not the reference's" in fault


def test_an_id_past_the_vocabulary_is_found_even_with_a_right_checksum(copy):
    folder = copy("documents")
    path = "nanogpt/shard-00001-000.bin"
    ids = np.frombuffer((folder / path).read_bytes(), "<u2").copy()
    ids[7] = 65_000
    forge(folder, path, ids.tobytes())
    assert any("holds id 65000" in fault for fault in faults_of(folder, sample=0))


def test_a_path_out_of_the_folder_is_a_fault_and_not_read(copy):
    folder = copy("documents")

    def change(values):
        values["sidecars"][0]["path"] = "../../secret"

    edit_json(folder / "manifest.json", change)
    assert any("'../../secret' is no path" in fault for fault in faults_of(folder))


def test_another_name_of_a_shard_is_a_fault(copy):
    folder = copy("documents")
    edit_json(folder / "manifest.json", lambda values: values["shards"][0].update(name="../../x"))
    (fault,) = faults_of(folder)
    assert "no name of a shard" in fault


def test_a_damaged_manifest_is_a_fault(copy):
    folder = copy("documents")
    content = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(content[:-50])
    (fault,) = faults_of(folder)
    assert "manifest.json" in fault


def test_a_pipe_in_place_of_a_shard_is_found_and_not_waited_for(copy):
    folder = copy("documents")
    shard = next((folder / "megatron").glob("*.bin"))
    shard.unlink()
    os.mkfifo(shard)
    assert any(f"{shard}: is no regular file" in fault for fault in faults_of(folder, sample=0))


def test_a_missing_record_of_the_tails_is_found_beside_a_sample(tokenizer, corpus, tmp_path):
    options = {"write__format": "parquet", "pack__mode": "best_fit", "pack__sequence_length": 256}
    run(tokenizer, corpus, tmp_path / "out", **options, **SMALL)
    last = sorted((tmp_path / "out" / "units").glob("*.json"))[-1]
    last.unlink()
    assert any(f"units/{last.name}: is missing" in fault for fault in faults_of(tmp_path / "out", sample=5))


def test_a_missing_unit_record_is_found(copy):
    folder = copy("rows")
    (folder / "units" / "00002.json").unlink()
    assert any("units/00002.json: is missing" in fault for fault in faults_of(folder, sample=0))


def test_an_input_that_has_changed_or_is_gone_is_not_checked_and_no_damage(tokenizer, tmp_path, capsys):
    make_corpus(tmp_path / "corpus", num_files=2, num_docs=10)
    run(tokenizer, tmp_path / "corpus", tmp_path / "out")
    write_jsonl(tmp_path / "corpus" / "part-1.jsonl", ["another"])
    (tmp_path / "corpus" / "part-0.jsonl").unlink()
    found = verify(tmp_path / "out")
    assert found.is_sound
    assert any("part-1.jsonl: has changed" in why for why in found.checks[-1].not_checked)
    assert any("part-0.jsonl" in why for why in found.checks[-1].not_checked)
    assert faults_of(tmp_path / "out", sample=3) == []
    assert cli.main(["verify", str(tmp_path / "out")]) == 0
    assert cli.main(["verify", str(tmp_path / "out"), "--sample", "3"]) == 1
    shown = capsys.readouterr().out
    assert "\n-      sample   0 of 20" in shown
    assert "part-0.jsonl: is not there any more" in shown
    assert "as far as it could be checked" in shown
    assert "DAMAGED" not in shown


def test_a_sample_of_which_some_could_be_read_is_checked_in_part(tokenizer, tmp_path, capsys):
    make_corpus(tmp_path / "corpus", num_files=2, num_docs=10)
    run(tokenizer, tmp_path / "corpus", tmp_path / "out")
    (tmp_path / "corpus" / "part-0.jsonl").unlink()
    assert cli.main(["verify", str(tmp_path / "out")]) == 0
    assert "\npartly sample   10 of 20" in capsys.readouterr().out


def test_a_run_over_relative_paths_is_verified_from_another_folder(tokenizer, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    make_corpus(tmp_path / "here" / "corpus", num_files=1, num_docs=5)
    shutil.copy(tokenizer, tmp_path / "here" / "own.json")
    monkeypatch.chdir(tmp_path / "here")
    run("own.json", "corpus", "out")
    monkeypatch.chdir(tmp_path)
    found = verify(Path("here/out"), sample=5)
    assert found.is_sound
    assert found.is_complete
    assert found.checks[-1].what.startswith("5 of 5 documents")
    config = read_plan(tmp_path / "here" / "out").config
    assert (config.tokenizer.source, config.read.inputs) == ("own.json", ("corpus",))


def test_without_a_sample_there_is_no_line_about_it(copy):
    assert [check.name for check in verify(copy("documents"), sample=0).checks][-1] == "borders"


def test_another_tokenizer_is_not_used_for_the_sample(tokenizer, corpus, tmp_path):
    (tmp_path / "t").mkdir()
    own = tmp_path / "t" / "tokenizer.json"
    shutil.copy(tokenizer, own)
    run(own, corpus, tmp_path / "out")
    train_sample_tokenizer(tmp_path / "t", vocab_size=700)
    assert "has changed" in verify(tmp_path / "out").checks[-1].not_checked[0]
    own.unlink()
    assert "cannot be loaded" in verify(tmp_path / "out").checks[-1].not_checked[0]
    assert not verify(tmp_path / "out", sample=1).checks[-1].is_looked_at


def test_the_sample_is_spread_and_the_same_for_a_seed(made):
    from gristmill.finished import open_run
    from gristmill.verify.sample import choose

    opened = open_run(made / "documents")
    chosen = choose(opened, 10, 3)
    assert chosen == choose(opened, 10, 3)
    assert chosen != choose(opened, 10, 4)
    assert len({one.unit for one in chosen}) > 3
    assert len(set(choose(opened, 1000, 0))) == 60


def test_the_command_prints_a_line_a_check_and_its_status_tells(copy, capsys):
    folder = copy("documents")
    assert cli.main(["verify", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[:2] for line in printed.splitlines()[:-1]] == [
        ["ok", name] for name in ("records", "files", "shards", "ledger", "borders", "sample")
    ]
    (folder / "megatron" / "shard-00000-000.bin").unlink()
    assert cli.main(["verify", str(folder), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["is_sound"] is False
    assert cli.main(["verify", str(folder), "--sample", "-1"]) == 2


def test_what_is_no_finished_run_is_an_error(copy, tmp_path):
    with pytest.raises(RunError, match="is no run folder"):
        verify(Path(tmp_path / "nothing"))
    folder = copy("documents")
    (folder / "manifest.json").unlink()
    with pytest.raises(RunError, match="not finished"):
        verify(folder)


@pytest.mark.parametrize("number", [1 << 20, 0xFFFF_FFFF])
def test_segments_of_documents_that_are_not_there_are_found(copy, number):
    folder = copy("rows")
    path = sorted((folder / "units").glob("*.segments"))[-1]  # of the tails, whose documents are of any unit
    table = np.fromfile(path, SEGMENT)
    table["document"][0] = (int(table["document"][0]) >> 32 << 32) + number
    path.write_bytes(table.tobytes())
    said = " ".join(faults_of(folder, sample=0))
    assert f"a segment names document {number}, which is not there" in said
