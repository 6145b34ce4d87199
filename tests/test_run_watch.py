"""A run folder watched from outside: what is new is told, in bounded memory, whatever the folder holds."""

import importlib.util
import json
from pathlib import Path

import pytest

import gristmill
from gristmill.report.history import MAX_PROBLEMS, History
from gristmill.report.html import render_report, write_report
from gristmill.report.run_watch import SILENT_S, RunWatch
from gristmill.report.series import MAX_POINTS, Point, Series
from gristmill.report.sources import MAX_SOURCES, group_paths
from gristmill.report.tail import MAX_LINE_BYTES, Tail
from gristmill.report.unit_totals import MAX_SLOW
from gristmill.run.folder import read_manifest
from made_runs import make_config, make_corpus, output_bytes, run

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("large_run", ROOT / "benchmarks" / "large_run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus")
    run(tokenizer, tmp_path / "corpus", tmp_path / "shards")
    return tmp_path / "shards"


def watch(folder):
    watched = RunWatch(folder)
    watched.read_all()
    return watched


def test_lines_are_given_once_when_they_are_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert list(tail.lines()) == []
    path.write_bytes(b"one\ntw")
    assert list(tail.lines()) == [b"one"]
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert list(tail.lines()) == [b"two", b"three"]
    assert list(tail.lines()) == []


def test_a_line_without_end_is_stepped_over(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"a\n" + b"x" * (MAX_LINE_BYTES + (3 << 20)) + b"\nb\n")
    assert list(Tail(path).lines()) == [b"a", b"b"]


def test_a_file_is_read_in_steps_and_its_end_is_known_at_once(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(b"%07d\n" % number for number in range(400_000)))
    tail = Tail(path)
    assert tail.last_lines()[-1] == b"0399999"
    first = list(tail.lines(max_bytes=1 << 20))
    assert tail.is_behind
    rest = list(tail.lines())
    assert [int(line) for line in first + rest] == list(range(400_000))
    assert not tail.is_behind


def test_a_pipe_or_a_link_in_place_of_the_events_is_nothing(tmp_path):
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert list(Tail(tmp_path / "link").lines()) == []


@pytest.mark.parametrize("num_points", [1, 2, MAX_POINTS, 40_000])
def test_a_course_has_few_points_from_its_first_to_its_last_moment(num_points):
    series = Series()
    for second in range(num_points):
        series.add(Point(float(second), 1, second * 10, second, 7))
    shown = series.shown()
    assert len(shown) <= MAX_POINTS
    assert (shown[0].time, shown[-1].time) == (0.0, float(num_points - 1))
    assert [point.time for point in shown] == sorted(point.time for point in shown)


def test_a_run_taken_up_often_still_has_few_points():
    series = Series()
    for process in range(5000):
        for second in range(3):
            series.add(Point(process * 10.0 + second, process, 0, 0, 0))
    assert len(series.shown()) <= MAX_POINTS


def test_damaged_and_unknown_lines_are_counted_and_left():
    history = History()
    lines = [b'{"event":"progress","time":1.0,"tokens":5}', b"{", b"[1]", b'"x"', b'{"event":5}', b"\xff"]
    lines += [b'{"event":"something new","time":9.0}', b'{"event":"progress","time":2.0,"tokens":6}']
    history.read(lines)
    assert (history.last.tokens, history.num_damaged) == (6, 5)


def test_problems_are_the_latest_few():
    history = History()
    events = [{"event": "retry", "time": float(i), "unit": i, "why": "gone"} for i in range(500)]
    history.read(json.dumps(event).encode() for event in events)
    assert len(history.problems) == MAX_PROBLEMS
    assert (history.num_retries, history.problems[-1].unit) == (500, 499)


def test_a_finished_run_is_told_as_its_manifest_has_it(folder):
    overview = watch(folder).overview()
    ledger = json.loads((folder / "manifest.json").read_bytes())["ledger"]
    assert overview["state"] == "finished"
    assert overview["ledger"] == ledger
    assert overview["balance"]["is_balanced"]
    for name in ("document_bytes", "document_tokens"):
        assert sum(count for _, count in overview["lengths"][name]) == ledger["documents_encoded"]
    assert sum(source["tokens"] for source in overview["sources"]) == ledger["tokens_encoded"]
    assert {source["name"] for source in overview["sources"]} == {f"part-{i}.jsonl" for i in range(3)}


def test_sums_of_units_are_those_of_the_ledger_before_the_manifest_is_there(folder):
    ledger = read_manifest(folder).ledger
    (folder / "manifest.json").unlink()
    watched = watch(folder)
    assert watched.ledger() == ledger
    assert watched.state(now=watched.history.last.time + 1) == "finishing"
    assert watched.state(now=watched.history.last.time + SILENT_S + 1) == "stopped"


def test_a_run_is_followed_as_it_grows(folder, tmp_path):
    live = tmp_path / "live"
    watched = RunWatch(live)
    watched.read_all()
    assert watched.overview()["state"] == "waiting"
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (live / "units").mkdir(parents=True)
    (live / "plan.json").write_bytes((folder / "plan.json").read_bytes())
    (live / "events.jsonl").write_bytes(lines[0])
    watched.read_all()
    assert (watched.overview()["units_read"], watched.ledger().documents_read) == (0, 0)
    for path in sorted((folder / "units").glob("*.json")):
        (live / "units" / path.name).write_bytes(path.read_bytes())
    with (live / "events.jsonl").open("ab") as file:
        file.writelines(lines[1:])
    watched.read_all()
    assert watched.ledger() == read_manifest(folder).ledger


def test_a_run_started_over_is_read_from_its_beginning(tokenizer, folder, tmp_path):
    watched = watch(folder)
    before = watched.ledger()
    for path in ("manifest.json", "events.jsonl", "plan.json"):
        (folder / path).unlink()
    for path in (folder / "units").iterdir():
        path.unlink()
    watched.read_all()
    assert watched.overview()["plan"] is None
    assert watched.ledger() != before


def test_a_limit_that_took_units_back_is_told_as_the_manifest_has_it(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus")
    run(tokenizer, tmp_path / "corpus", tmp_path / "shards", run__max_rows=30)
    watched = watch(tmp_path / "shards")
    assert watched.ledger() == read_manifest(tmp_path / "shards").ledger
    assert watched.overview()["balance"]["is_balanced"]


def test_a_training_is_told_with_its_pieces_merges_and_compression(tmp_path):
    make_corpus(tmp_path / "corpus")
    job = {
        "read": {"inputs": [str(tmp_path / "corpus")]},
        "learn": {"output": str(tmp_path / "t.json"), "vocab_size": 500},
        "run": {"workers": 1},
    }
    result = gristmill.train(job)
    assert (tmp_path / "t.json.run" / "report.html").exists()
    overview = watch(tmp_path / "t.json.run").overview()
    training = overview["training"]
    assert overview["state"] == "finished"
    assert training["counted"]["num_pieces"] == result.num_pieces
    assert training["num_tokens"] == training["vocab_size"] == 500
    assert training["fit"]["text"][0] > 0
    tokens, counts, sizes = zip(*training["curve"], strict=True)
    assert tokens[-1] == 500
    assert list(counts) == sorted(counts, reverse=True)
    assert list(sizes) == sorted(sizes)
    loaded = gristmill.load_tokenizer(tmp_path / "t.json")
    texts = make_corpus(tmp_path / "again")
    written = sum(loaded.count_batch(texts))
    assert training["bytes_per_token"] == pytest.approx(
        sum(len(text.encode()) for text in texts) / written, rel=0.01
    )


def test_a_python_call_leaves_a_report(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus", num_files=1)
    gristmill.tokenize(make_config(tokenizer, tmp_path / "corpus", tmp_path / "shards"))
    page = (tmp_path / "shards" / "report.html").read_text()
    assert "documents_encoded" in page
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "shards"}


def test_a_record_of_an_earlier_version_is_read(folder):
    for path in (folder / "units").glob("*.json"):
        record = json.loads(path.read_bytes())
        del record["measured"]
        path.write_text(json.dumps(record))
    overview = watch(folder).overview()
    assert overview["state"] == "finished"
    assert overview["sources"] == []


@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "units/00000.json", "events.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x00\xff", b'{"unit": -1}'])
def test_a_damaged_folder_is_shown_and_never_an_error(folder, name, content):
    (folder / name).write_bytes(content)
    watched = watch(folder)
    assert watched.overview()["folder"] == str(folder)
    assert render_report(watched)


def test_the_report_changes_nothing_of_the_run(folder):
    before = output_bytes(folder)
    write_report(str(folder), is_new=True)
    assert output_bytes(folder) == before
    first = (folder / "report.html").read_bytes()
    write_report(str(folder), is_new=False)
    assert (folder / "report.html").read_bytes() == first


def test_thousands_of_units_and_hours_of_events_are_few_figures(made, tmp_path):
    made.make_run(tmp_path / "run", num_units=2000, hours=1, num_workers=4, is_finished=True)
    watched = watch(tmp_path / "run")
    overview = watched.overview()
    assert overview["ledger"] == json.loads(json.dumps(overview["ledger"]))
    assert watched.ledger() == made.made_ledger(2000)
    assert (overview["units_read"], len(overview["slow"]), len(overview["workers"])) == (2000, MAX_SLOW, 4)
    assert len(watched.course()["points"]) <= MAX_POINTS
    assert len(json.dumps(overview)) < 40_000


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/d/a/1.jsonl", "/d/b/2.jsonl"], {"a/1.jsonl", "b/2.jsonl"}),
        (["/d/one.jsonl"], {"one.jsonl"}),
        ([f"/d/{i % 3}/{i}.jsonl" for i in range(200)], {"0", "1", "2"}),
        ([f"s3://bucket/{i}/{i}/x" for i in range(500)], {"bucket"}),
        ([f"f{i}.txt" for i in range(200)], {"all inputs"}),
        ([], set()),
    ],
)
def test_sources_are_files_or_the_folders_of_many(paths, names):
    groups = group_paths(paths)
    assert len(groups) == len(paths)
    assert len(set(groups)) <= MAX_SOURCES
    assert set(groups) == names
