"""`gristmill bench`: a tiny one end to end with real processes, and its parts."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from gristmill import bench, cli
from gristmill.bench import BenchReport, Measurement, baseline, first_difference, load_documents
from gristmill.bench_methods import METHODS, REFERENCES
from gristmill.bench_report import render_table, write_plot
from gristmill.bench_worker import Outcome
from gristmill.config import BenchConfig, check_section
from gristmill.errors import ConfigError, GristmillError, InputError
from gristmill.sample import made_documents, sample_documents, train_sample_tokenizer


def made_report(**statuses):
    measurements = [
        Measurement(
            method=method, threads=1, status=status, once_s=[0.5, 0.1, 0.25] if status == "ok" else []
        )
        for method, status in statuses.items()
    ]
    return BenchReport(
        tokenizer="made",
        reference="tokenizers batch 1000",
        num_docs=10,
        num_bytes=1_000_000,
        num_tokens=1000,
        python="3",
        machine="made",
        num_cores=2,
        measurements=measurements,
    )


def test_bench_measures_every_method_in_fresh_processes(tmp_path, capsys):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in made_documents(20)), encoding="utf-8"
    )
    content = corpus.read_bytes()
    arguments = ["--num-docs", 10, "--rounds", 2, "--threads", 2, "--repeat", "--json", corpus]
    status = cli.main(["bench", *map(str, arguments)])
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert corpus.read_bytes() == content
    report = json.loads(printed)
    assert report["num_docs"] == 10
    assert {m["method"] for m in report["measurements"]} == set(METHODS)
    assert not [m for m in report["measurements"] if m["status"] in ("failed", "mismatch")]
    measured = {m["method"] for m in report["measurements"] if m["status"] == "ok"}
    assert measured >= {"native", "tokenizers one by one", "tokenizers batch 1000", "tiktoken"}
    for m in report["measurements"]:
        assert len(m["once_s"]) == (2 if m["status"] == "ok" else 0)
        assert len(m["repeated_s"]) == len(m["once_s"]) * bench.NUM_REPEATS


@pytest.mark.parametrize("method", ["native", "tokenizers one by one", "tokenizers batch 32", "tiktoken"])
def test_methods_agree_on_the_embedded_text(method, tmp_path):
    path = train_sample_tokenizer(tmp_path, vocab_size=500)
    documents = sample_documents()

    def encoded(name):
        encoder = METHODS[name](str(path), 1)
        return encoder.flatten(encoder.encode(encoder.prepare(documents)))

    assert first_difference(encoded(REFERENCES[0]), encoded(method)) is None


def test_a_method_that_does_not_apply_says_so(tmp_path):
    path = train_sample_tokenizer(tmp_path, vocab_size=300)
    with pytest.raises(GristmillError, match=r"\.model"):
        METHODS["sentencepiece"](str(path), 1)


@pytest.mark.parametrize(
    ("found", "document"),
    [
        (([1, 2, 3], [0, 2, 3]), None),
        (([1, 9, 3], [0, 2, 3]), 0),
        (([1, 2, 9], [0, 2, 3]), 1),
        (([1, 2, 3], [0, 1, 3]), 0),
        (([1, 2], [0, 2]), 1),
        (([1, 2, 3, 4], [0, 2, 3, 4]), 2),
    ],
)
def test_the_first_wrong_document_is_named(found, document):
    expected = np.array([1, 2, 3], np.uint32), np.array([0, 2, 3], np.int64)
    arrays = np.array(found[0], np.uint32), np.array(found[1], np.int64)
    assert first_difference(expected, arrays) == document


def test_ids_are_compared_before_any_round_is_timed(monkeypatch):
    runs = []

    def run_worker(place, plan, *, num_passes):
        runs.append((plan.method, num_passes))
        ids = np.array([1, 2 if plan.method != "gigatoken" else 9], np.uint32)
        np.savez(place.folder / "ids.npz", ids=ids, offsets=np.array([0, 2]))
        return Outcome(status="ok", load_s=0.1, passes_s=(0.2,) * num_passes)

    monkeypatch.setattr(bench, "_run_worker", run_worker)
    plans = [bench.Plan("native", 1), bench.Plan("gigatoken", 1)]
    config = BenchConfig(rounds=2, is_repeated=True)
    report = bench.measure("made", ["text"], plans, config=config, on_step=lambda step: None)
    check, timed = 1, 1 + bench.NUM_REPEATS
    assert runs == [
        (REFERENCES[0], check),
        ("native", check),
        ("gigatoken", check),
        ("native", timed),
        ("native", timed),
    ]
    native, wrong = report.measurements
    repeated = [0.2] * 2 * bench.NUM_REPEATS
    assert (native.status, native.once_s, native.repeated_s) == ("ok", [0.2] * 2, repeated)
    assert (wrong.status, wrong.once_s, wrong.repeated_s) == ("mismatch", [], [])


def test_a_mismatch_has_no_time_in_the_table():
    table = render_table(made_report(native="mismatch", tiktoken="ok"))
    line = next(line for line in table.splitlines() if line.startswith("native"))
    assert line.split()[-5:] == ["MISMATCH", "-", "-", "-", "-"]


def test_the_table_shows_medians():
    assert "250.00 ms" in render_table(made_report(tiktoken="ok"))


def test_speedup_is_against_one_by_one_where_it_was_measured():
    report = made_report(**{"tokenizers batch 1000": "ok", "tokenizers one by one": "ok"})
    assert baseline(report).method == "tokenizers one by one"


def test_a_report_without_any_time_still_renders():
    assert "absent" in render_table(made_report(tiktoken="absent"))


def test_a_plot_is_written(tmp_path):
    path = tmp_path / "chart.svg"
    write_plot(made_report(native="ok", tiktoken="ok"), path)
    assert b"<svg" in path.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["chart.svg"]


def test_plain_text_is_a_document_a_paragraph(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("one\ntwo\n\nthree\n\n\n\n", encoding="utf-8")
    assert load_documents(BenchConfig(texts=(str(path),))) == ["one\ntwo", "three"]


@pytest.mark.parametrize("line", ["{", "[]", '{"body": "x"}', '{"text": 1}'])
def test_a_bad_jsonl_line_is_named(line, tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "fine"}\n' + line + '\n{"text": "never seen"}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"corpus\.jsonl, record 1: "):
        load_documents(BenchConfig(texts=(str(path),)))
    assert load_documents(BenchConfig(texts=(str(path),), num_docs=1)) == ["fine"]


def test_numbers_that_python_writes_are_read_as_a_run_reads_them(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "one", "score": NaN}\n', encoding="utf-8")
    assert load_documents(BenchConfig(texts=(str(path),))) == ["one"]


def test_the_field_of_the_text_may_be_named(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": 7, "body": "one"}\n', encoding="utf-8")
    assert load_documents(BenchConfig(texts=(str(path),), text_field="body")) == ["one"]
    with pytest.raises(InputError, match=r"no field text; .* body; --text-field names the field"):
        load_documents(BenchConfig(texts=(str(path),)))


@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.jsonl.gz", "a.csv", "a.json", "a.parquet", "folder"])
def test_what_a_run_reads_is_read(name, tmp_path):
    path, lines = tmp_path / name, b'{"text": "one"}\n{"text": "two\\n\\nlines"}\n'
    if name == "a.csv":
        path.write_text('text\none\n"two\n\nlines"\n')
    elif name == "a.parquet":
        pq.write_table(pa.table({"text": ["one", "two\n\nlines"]}), path)
    elif name == "folder":
        path.mkdir()
        (path / "a.jsonl").write_bytes(lines)
    elif name == "a.json":
        path.write_bytes(lines)
    else:
        path.write_bytes(zstandard.compress(lines) if name.endswith("zst") else gzip.compress(lines))
    assert load_documents(BenchConfig(texts=(str(path),))) == ["one", "two\n\nlines"]


@pytest.mark.parametrize("record", [b'{"title": "two"}', b"{two}"])
def test_a_bad_record_of_a_compressed_file_is_named(record, tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n' + record + b"\n"))
    with pytest.raises(InputError, match=r"a\.jsonl\.gz, record 1: "):
        load_documents(BenchConfig(texts=(str(path),)))


def test_a_pattern_is_read_as_a_run_reads_it(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "one"}\n')
    assert load_documents(BenchConfig(texts=(str(tmp_path / "*.jsonl"),))) == ["one"]


def test_a_file_that_is_cut_off_is_named(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n' * 1000)[:-10])
    with pytest.raises(InputError, match=r"a\.jsonl\.gz"):
        load_documents(BenchConfig(texts=(str(path),)))


def test_a_lone_surrogate_in_jsonl_is_refused(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "\\ud800"}\n', encoding="utf-8")
    with pytest.raises(InputError):
        load_documents(BenchConfig(texts=(str(path),)))


@pytest.mark.parametrize("values", [{"rounds": 0}, {"num_docs": "ten"}, {"threads": -1}, {"round": 3}])
def test_a_bad_option_is_refused_by_name(values):
    with pytest.raises(ConfigError, match=r"bench|round"):
        check_section(BenchConfig, values, name="bench")


def test_made_documents_are_the_same_every_time():
    assert made_documents(5) == made_documents(5)
    assert len(set(made_documents(50))) == 50
