"""`gristmill plan`: what it estimates is what the run then writes, what would stop the run is named, and
nothing is written."""

import csv
import gzip
import json

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard

from gristmill import GristmillError, cli
from gristmill.config import ReadConfig
from gristmill.errors import ConfigError
from gristmill.plan import choose_unit_bytes, cut_units
from gristmill.read import list_inputs
from gristmill.report import sampling
from gristmill.report.estimate import estimate_run
from gristmill.report.estimate_text import render_estimate
from gristmill.report.sampling import far_apart, spread_slices
from gristmill.run.tokenize import tokenize
from gristmill.sample import made_documents
from made_runs import make_config, make_corpus, run, write_jsonl

DOCUMENTS = {"write__format": ["megatron", "olmo", "datatrove", "llmc", "nanogpt"]}
SAMPLES = ["mds", "litdata", "pt", "npy", "webdataset"]
ROWS = {"write__format": ["parquet", "arrow"], "pack__sequence_length": 256}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder)
    return folder


def disk_bytes(folder):
    """Bytes of all files of a run; a file with several names counts once."""
    found = {path.stat().st_ino: path.stat().st_size for path in folder.glob("*/*") if path.suffix != ".json"}
    return sum(found.values())


def test_a_unit_for_every_byte_is_refused():
    config = ReadConfig(inputs=("made",), unit_bytes=1)
    with pytest.raises(ConfigError, match="into 3,000,000 units"):
        choose_unit_bytes(config, 3_000_000)
    assert choose_unit_bytes(config, 3_000) == 1


@pytest.mark.parametrize(
    "options",
    [
        DOCUMENTS,
        {**ROWS, "pack__mode": "concat"},
        {**ROWS, "pack__mode": "best_fit"},
        {**ROWS, "pack__mode": "pad", "pack__overlap": 16},
        {**ROWS, "pack__mode": "concat", "pack__overlap": 16},
        {**ROWS, "pack__mode": "best_fit", "pack__overlap": 16},
        {**ROWS, "pack__mode": "concat", "write__columns": ["input_ids", "labels", "attention_mask"]},
        {"write__format": SAMPLES, "pack__mode": "documents"},
        *({**ROWS, "write__format": name, "pack__mode": "best_fit"} for name in SAMPLES),
    ],
    ids=[
        *("documents", "concat", "best_fit", "pad", "concat overlap", "best_fit overlap", "columns"),
        *("samples of documents", *SAMPLES),
    ],
)
def test_an_estimate_from_all_of_the_input_is_what_the_run_writes(tokenizer, corpus, tmp_path, options):
    config = make_config(tokenizer, corpus, tmp_path / "out", read__unit_bytes="1MB", **options)
    estimate = estimate_run(config)
    assert estimate.is_exact
    assert not estimate.problems
    ledger = tokenize(config).manifest.ledger
    assert (estimate.documents, estimate.tokens) == (ledger.documents_encoded, ledger.tokens_encoded)
    assert estimate.text_bytes == ledger.bytes_encoded
    if estimate.rows is not None:
        assert estimate.rows == ledger.rows
        # A tail that is carried over leaves behind the tokens it would repeat: one overlap of the last row.
        slack = options.get("pack__overlap", 0) if options["pack__mode"] == "concat" else 0
        padding = estimate.padding_fraction * estimate.rows * 256
        assert padding == pytest.approx(ledger.padding, abs=slack + 1e-6)
    assert estimate.disk_total_bytes == pytest.approx(disk_bytes(tmp_path / "out"), rel=0.1)


def write_kind(kind, folder, texts):
    lines = "".join(json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(texts)).encode()
    table = pa.table({"text": texts, "id": list(range(len(texts)))})
    if kind == "jsonl":
        (folder / "a.jsonl").write_bytes(lines)
    elif kind == "gzip":
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    elif kind == "zstd":
        (folder / "a.jsonl.zst").write_bytes(zstandard.compress(lines))
    elif kind == "parquet":
        pq.write_table(table, folder / "a.parquet", row_group_size=2000)
    elif kind == "feather":
        pa.feather.write_feather(table, folder / "a.feather", compression="uncompressed", chunksize=500)
    elif kind == "stream":
        with pa.ipc.new_stream(folder / "a.arrow", table.schema) as stream:
            stream.write_table(table, max_chunksize=500)
    else:
        with (folder / "a.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in texts)])


@pytest.mark.parametrize("kind", ["jsonl", "gzip", "zstd", "parquet", "feather", "stream", "csv"])
def test_an_estimate_from_a_part_of_the_input_is_near(tokenizer, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(sampling, "SLICE_BYTES", 100_000)
    monkeypatch.setattr(sampling, "SAMPLE_BYTES", 800_000)
    write_kind(kind, tmp_path, made_documents(4000))
    config = make_config(tokenizer, tmp_path, tmp_path / "out", read__unit_bytes="100MB")
    estimate = estimate_run(config)
    assert not estimate.is_exact
    assert estimate.sample_documents < 2500
    ledger = tokenize(config).manifest.ledger
    assert estimate.documents == pytest.approx(ledger.documents_encoded, rel=0.1)
    assert estimate.tokens == pytest.approx(ledger.tokens_encoded, rel=0.1)


def test_each_kind_of_input_is_sampled_and_counted(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "SAMPLE_S", 0.0)
    for kind in ("jsonl", "gzip", "parquet"):
        write_kind(kind, tmp_path, made_documents(50))
    (tmp_path / "page.txt").write_text("a page of text")
    estimate = estimate_run(make_config(tokenizer, tmp_path, tmp_path / "out"))
    kinds = {(kind.format, kind.compression, kind.num_files) for kind in estimate.inputs}
    assert kinds == {("jsonl", "none", 1), ("jsonl", "gzip", 1), ("parquet", "none", 1), ("text", "none", 1)}
    assert estimate.documents == pytest.approx(151, rel=0.1)
    assert "jsonl (gzip)" in render_estimate(estimate)


def test_a_sample_is_spread_however_small_it_is():
    assert far_apart(8) == [0, 4, 2, 6, 1, 5, 3, 7]
    for count in range(20):
        assert sorted(far_apart(count)) == list(range(count))


def test_every_slice_has_its_turn(tokenizer, corpus, tmp_path):
    config = make_config(tokenizer, corpus, tmp_path / "out")
    files = tuple(list_inputs(config.read))
    units = cut_units(config.read, files)
    expected = {(part.file, part.start) for unit in units for part in unit.slices}
    found = [(part.file, part.start) for part in spread_slices(files, units)]
    assert len(found) == len(expected) > 10
    assert set(found) == expected


def test_limits_bound_the_estimate(tokenizer, corpus, tmp_path):
    few = estimate_run(make_config(tokenizer, corpus, tmp_path / "out", run__max_rows=10))
    assert few.documents == 10
    some = estimate_run(make_config(tokenizer, corpus, tmp_path / "out", run__max_tokens=1000))
    assert some.tokens == 1000


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"encode__eos_id": None}, "names no EOS token"),
        ({"write__format": "megatron", "pack__mode": "concat"}, "megatron cannot hold rows"),
        ({"encode__eos_id": 70_000}, "encode.eos_id is 70000; the tokenizer has ids 0.."),
        ({"write__format": "parquet", "write__columns": ["labels"]}, "write.columns is labels"),
        ({"read__text_field": "body"}, "no field body; the record has text, id; set read.text_field"),
    ],
)
def test_what_would_stop_the_run_is_named_and_stops_it(tokenizer, corpus, tmp_path, options, named):
    config = make_config(tokenizer, corpus, tmp_path / "out", **options)
    problems = estimate_run(config).problems
    assert len(problems) == 1
    assert named in problems[0]
    with pytest.raises(GristmillError):
        tokenize(config)


def test_bad_documents_and_files_are_warned_of_with_their_reasons(tokenizer, tmp_path):
    lines = [json.dumps({"text": "good text"}), "{bad", json.dumps({"text": None})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.jsonl").write_text("")
    estimate = estimate_run(make_config(tokenizer, tmp_path, tmp_path / "out"))
    assert (estimate.documents, estimate.bad_documents) == (1, 2)
    shown = " ".join(estimate.warnings)
    assert all(reason in shown for reason in ("bad_json", "null", "empty_file", "a.jsonl", "b.jsonl"))
    assert not estimate.problems


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"read__on_bad_document": "fail"}, "read.on_bad_document is fail"),
        ({"read__on_bad_file": "fail"}, "read.on_bad_file is fail"),
        ({"run__max_bad_fraction": 0.1}, "run.max_bad_fraction 0.1"),
    ],
)
def test_bad_input_that_the_policy_forbids_is_a_problem(tokenizer, tmp_path, options, named):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{bad\n')
    (tmp_path / "b.jsonl").write_text("")
    estimate = estimate_run(make_config(tokenizer, tmp_path, tmp_path / "out", **options))
    assert [named in problem for problem in estimate.problems] == [True]


def test_a_folder_that_holds_another_run_is_a_problem(tokenizer, corpus, tmp_path):
    run(tokenizer, corpus, tmp_path / "out")
    same = estimate_run(make_config(tokenizer, corpus, tmp_path / "out"))
    assert not same.problems
    assert "holds this run, finished" in " ".join(same.warnings)
    config = make_config(tokenizer, corpus, tmp_path / "out", encode__add_eos=False)
    assert "encode.add_eos" in estimate_run(config).problems[0]
    assert not estimate_run(config, force=True).problems
    (tmp_path / "out" / "manifest.json").unlink()
    same = estimate_run(make_config(tokenizer, corpus, tmp_path / "out"))
    assert "holds a part of this run" in " ".join(same.warnings)


def test_a_full_disk_is_a_problem(tokenizer, corpus, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("gristmill.report.estimate.shutil.disk_usage", lambda _folder: usage)
    estimate = estimate_run(make_config(tokenizer, corpus, tmp_path / "new" / "out"))
    assert "has 1 kB free" in estimate.problems[0] or "1000 B free" in estimate.problems[0]


def test_the_command_needs_no_output_and_writes_nothing(tokenizer, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", str(corpus), "-t", str(tokenizer), "encode.eos_id=0"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert {"inputs", "tokenizer", "sample", "documents", "tokens", "disk", "memory", "time"} == set(shown)
    assert not list(tmp_path.iterdir())


def test_the_command_prints_json_and_status_1_where_the_run_would_fail(tokenizer, corpus, capsys):
    assert cli.main(["plan", str(corpus), "-t", str(tokenizer), "--json"]) == 1
    estimate = json.loads(capsys.readouterr().out)
    assert "EOS" in estimate["problems"][0]
    assert estimate["documents"] == 360


def test_control_characters_of_inputs_do_not_reach_the_terminal(tokenizer, tmp_path, capsys):
    write_jsonl(tmp_path / "a\x1b[2J.jsonl", ["one"])
    assert cli.main(["plan", str(tmp_path), "-t", str(tokenizer), "read.text_field=body"]) == 1
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("num_bytes", [1, 8 << 20, 33 << 20, 106_000_000, 1_060_191_190, 3_000_000_001])
def test_a_file_is_cut_into_units_that_share_out_evenly(tmp_path, num_bytes):
    path = tmp_path / "corpus.jsonl"
    with path.open("wb") as file:
        file.truncate(num_bytes)
    config = make_config("made", path, "out", read__unit_bytes=None)
    sizes = [unit.num_bytes for unit in cut_units(config.read, tuple(list_inputs(config.read)))]
    assert sum(sizes) == num_bytes
    assert len(sizes) <= 4 or len(sizes) % 4 == 0
    assert max(sizes) - min(sizes) <= len(sizes)


@pytest.mark.parametrize(
    ("megabytes", "num_units"),
    [(1, 1), (40, 4), (106, 4), (200, 4), (400, 8), (536, 12), (537, 32), (1060, 32), (100_000, 373)],
)
def test_small_input_has_few_units_and_large_input_many(megabytes, num_units):
    total = megabytes * 10**6
    assert -(-total // choose_unit_bytes(ReadConfig(inputs=("made",)), total)) == num_units
