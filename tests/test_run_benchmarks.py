"""The benchmarks of a run: their inputs, a tiny one end to end, and the table it renders."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from gristmill.sample import made_documents, train_sample_tokenizer

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "made.jsonl"
    lines = [msgspec.json.encode({"id": n, "text": text}) for n, text in enumerate(made_documents(40))]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def lines_of(*paths):
    return Counter(line for path in paths for line in path.read_bytes().splitlines())


def test_copies_hold_every_line_so_many_times_and_are_the_same_again(tmp_path, corpus):
    from corpora import shuffled_copies

    copies = shuffled_copies(corpus, tmp_path / "copies.jsonl", copies=3)
    again = shuffled_copies(corpus, tmp_path / "again.jsonl", copies=3)
    assert lines_of(copies) == Counter(dict.fromkeys(lines_of(corpus), 3))
    assert copies.read_bytes() == again.read_bytes()
    assert copies.read_bytes() != corpus.read_bytes() * 3


@pytest.mark.parametrize("compressed", [False, True])
def test_dealt_files_hold_every_document_once(tmp_path, corpus, compressed):
    import zstandard

    from corpora import dealt, files_of

    folder = dealt(corpus, tmp_path / "dealt", num_files=3, compressed=compressed)
    assert len(files_of(folder)) == 3
    contents = []
    for path in files_of(folder):
        with path.open("rb") as file:
            stream = zstandard.ZstdDecompressor().stream_reader(file) if compressed else file
            contents.append(stream.read())
    assert Counter(b"".join(contents).splitlines()) == lines_of(corpus)


def test_parquet_holds_the_documents_in_order(tmp_path, corpus):
    import pyarrow.parquet as pq

    from corpora import as_parquet, texts_of

    path = as_parquet(corpus, tmp_path / "made.parquet", row_group=7)
    assert pq.ParquetFile(path).num_row_groups == 6
    assert pq.read_table(path).column("text").to_pylist() == list(texts_of([corpus]))


def test_a_share_leaves_out_documents_that_spell_a_special_token(tmp_path):
    from corpora import share, texts_of

    corpus = tmp_path / "few.jsonl"
    corpus.write_text('{"text": "a"}\n{"text": "b <|end|>"}\n{"text": "c"}\n{"text": "d"}\n')
    part = share(corpus, tmp_path / "part.jsonl", max_bytes=28, without=["<|end|>"])
    assert list(texts_of([part])) == ["a", "c"]


def test_a_long_document_is_added_and_the_others_stay(tmp_path, corpus):
    from corpora import texts_of, with_long_document

    path = with_long_document(corpus, tmp_path / "long.jsonl", long_bytes=100_000)
    texts = list(texts_of([path]))
    longest = max(texts, key=len)
    assert 99_990 <= len(longest.encode()) <= 100_000
    assert [text for text in texts if text is not longest] == list(texts_of([corpus]))


def test_end_to_end_compares_ids_times_every_side_and_renders(tmp_path, corpus):
    import render
    import run_report

    (tmp_path / "small").mkdir()
    train_sample_tokenizer(tmp_path / "small", vocab_size=400)
    results = tmp_path / "results" / "run.json"
    command = [FOLDER / "end_to_end.py", "--tokenizers", tmp_path / "small", "--corpus", corpus]
    command += ["--work", tmp_path / "work", "--rounds", 1, "--copies", 1, "--rivals", ""]
    ended = subprocess.run(
        [sys.executable, *map(str, command), "--results", str(results)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = run_report.load_run_report(results)
    assert [line.endswith("tokens, equal") for line in report.checks] == [True, True]
    assert [(t.side, t.output, len(t.wall_s)) for t in report.timings] == [
        ("gristmill", "megatron", 1),
        ("called", "megatron", 1),
        ("gristmill", "parquet", 1),
        ("called", "parquet", 1),
        ("bare", "", 1),
        ("bare whole", "", 1),
    ]
    assert all(len(timing.first_s) == 1 for timing in report.timings)
    assert str(tmp_path) not in results.read_text()
    readme = f"before\n{run_report.START}\nold\n{run_report.END}\nafter\n"
    table = run_report.render_run(report)
    changed = render.put_between_markers(readme, table, start=run_report.START, end=run_report.END)
    assert "| small | 0 MB | Megatron |" in changed
    assert "by those that came right after another side" in changed
    assert changed.startswith("before\n")
    assert changed.endswith("after\n")


def test_differing_ids_are_said_to_differ(tmp_path):
    import numpy as np

    from end_to_end import Source, compared

    source = Source("made", tmp_path, "", {})
    assert compared(source, "bare", np.array([1, 2]), np.array([1, 2])).endswith("2 tokens, equal")
    assert "DIFFER" in compared(source, "bare", np.array([1, 2]), np.array([1, 3]))


@pytest.mark.parametrize(("side", "rate"), [("gristmill", 1.0), ("called", 2.0), ("datatrove", 2.0)])
def test_commands_alone_are_charged_for_their_imports(side, rate):
    from run_report import Timing, mb_per_s

    timing = Timing(tokenizer="t", input="9 MB", side=side, text_bytes=4_000_000, wall_s=[4.0], work_s=[2.0])
    assert mb_per_s(timing) == rate


def test_small_and_large_inputs_of_every_format_are_files_of_their_own(tmp_path, corpus):
    from argparse import Namespace

    import pyarrow.parquet as pq

    from memory import make_cases

    cases = make_cases(Namespace(work=tmp_path / "work", corpus=corpus, copies=3, only=["small", "large"]))
    assert len(cases) == len(set(cases.values())) == 8
    assert pq.ParquetFile(cases["parquet, large"]).metadata.num_rows == 120
    assert pq.ParquetFile(cases["parquet of one row group, large"]).num_row_groups == 1


def test_memory_of_a_process_counts_its_descendants():
    from memory import family, look

    program = "held = b'x' * 60_000_000; print('ready', flush=True); input()"
    command = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        sample = look(process.pid, with_pss=True)
        assert len(family(process.pid)) == 2
        assert process.pid in family(os.getpid())
        assert sample.rss > 60_000_000
        assert 60_000_000 < sample.pss <= sample.rss
        assert sum(sample.marks.values()) >= sample.rss
        process.communicate(b"\n")


def test_loading_is_measured_on_a_tiny_run_whose_rows_were_compared_first(tmp_path, corpus):
    tokenizer = train_sample_tokenizer(tmp_path)
    results = tmp_path / "results.json"
    command = [sys.executable, str(FOLDER / "loading.py"), "--tokenizer", str(tokenizer), "--eos-id", "0"]
    command += ["--corpus", str(corpus), "--work", str(tmp_path / "work"), "--results", str(results)]
    command += ["--rounds", "1", "--rows", "100", "--ways", "loader"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("rows are those of the shards' own reader") == 2
    report = msgspec.json.decode(results.read_bytes())
    assert [side["side"]["format"] for side in report["sides"]] == ["parquet", "arrow"]
    assert all(rate > 0 for side in report["sides"] for rate in side["rows_per_s"])


@pytest.mark.parametrize("options", [(), ("--real-time",)], ids=["as fast as it goes", "sleeping"])
def test_a_run_of_made_units_is_driven_to_its_end_and_measured(tmp_path, options):
    output = tmp_path / "scale.json"
    places = ["--work", str(tmp_path / "work"), "--output", str(output)]
    sizes = ["--units", "100", "300", "--workers", "300", "--unit-s", "0.05"]
    command = [sys.executable, str(FOLDER / "scale.py"), *sizes, *places, *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = msgspec.json.decode(output.read_bytes())
    assert [result["units"] for result in found] == [100, 300]
    assert all(result["units_per_s"] > 0 and result["ledger_mb"] > 0 for result in found)
    assert not (tmp_path / "work").exists()
