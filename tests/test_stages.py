"""Where the time goes: every moment is one stage's, the slowest is named, and with it what would help."""

import gzip
import json
import time
import unicodedata

import numpy as np
import pytest

from adversarial_texts import TEXTS
from gristmill.job import SECTIONS, TRAINING_SECTIONS
from gristmill.measure import SCRIPT_EVERY, Measurements, bucketed, row_costs
from gristmill.read.ahead import read_ahead
from gristmill.records import Measured
from gristmill.report.run_watch import RunWatch
from gristmill.report.summary import render_bottleneck
from gristmill.report.view import figures
from gristmill.run.bottleneck import MIN_SECONDS, STAGES, find_bottleneck
from gristmill.run.progress import Snapshot
from gristmill.scripts import LOOKED_AT_BYTES, SCRIPTS, main_scripts
from gristmill.stopwatch import Stopwatch, present_watch, within
from made_runs import make_corpus, output_bytes, run


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when it is told to."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


def test_a_stage_within_another_is_not_counted_twice(clock):
    watch = Stopwatch()
    with watch("parse"):
        clock(1)
        with within("decompress"):
            clock(2)
            with within("wait"):
                clock(4)
            clock(8)
        clock(16)
    with watch("encode"):
        clock(32)
    assert watch.seconds() == {"decompress": 10, "encode": 32, "parse": 17, "wait": 4}
    assert present_watch() is None


def test_outside_of_a_stage_nothing_is_counted(clock):
    with within("wait"):
        clock(1)
    assert present_watch() is None


def test_waiting_for_a_thread_that_reads_ahead_is_shared_out_by_what_it_did(clock):
    watch = Stopwatch()
    with watch("parse"):
        clock(10)
    watch.split("parse", 8, {"decompress": 3.0, "parse": 1.0})
    assert watch.seconds() == {"decompress": 6, "parse": 4}
    watch.split("parse", 4, {})
    assert watch.seconds() == {"decompress": 6, "parse": 4}


def test_a_thread_that_reads_ahead_tells_its_stages(clock):
    def items():
        with within("decompress"):
            clock(3)
        yield "block"

    watch = Stopwatch()
    with watch("parse"):
        assert list(read_ahead(items())) == ["block"]
    assert set(watch.seconds()) == {"decompress", "parse"}


def test_the_slowest_stage_is_named_with_advice():
    found = find_bottleneck({"parse": 1.0, "decompress": 6.0, "encode": 3.0})
    assert (found.name, found.share) == ("decompressing", 0.6)
    assert "zstd" in found.advice
    assert find_bottleneck({"encode": MIN_SECONDS / 2}) is None
    assert find_bottleneck({}) is None


def test_a_training_is_not_advised_to_change_options_of_tokenize():
    sections = set(SECTIONS) - set(TRAINING_SECTIONS)
    for stage in STAGES.keys() - {"encode", "pack"}:
        advice = find_bottleneck({stage: 3.0}, is_count=True).advice
        assert advice
        assert not [section for section in sections if f"{section}." in advice]
        assert "write_behind" not in advice


def test_an_engine_that_is_slow_is_named_where_encoding_takes_long(tokenizer, tmp_path):
    assert "not used: it is odd." in find_bottleneck({"encode": 3.0}, why_not_native="it is odd").advice
    assert "odd" not in find_bottleneck({"write": 3.0}, why_not_native="it is odd").advice
    make_corpus(tmp_path / "corpus", num_files=1)
    run(tokenizer, tmp_path / "corpus", tmp_path / "shards", tokenizer__engine="tokenizers")
    watched = RunWatch(tmp_path / "shards")
    watched.read_all()
    start = watched.overview()["start"]
    assert (start["engine"], bool(start["why_not_native"])) == ("tokenizers", True)
    assert start["loading_s"] > 0
    shown = render_bottleneck({"encode": 3.0}, "The native engine is not used: it is odd.")
    assert shown == "encoding, 100% of the time. The native engine is not used: it is odd."


def test_every_stage_has_a_name_and_one_sentence():
    names = [name for name, _ in STAGES.values()]
    wanted = {"decompressing", "parsing", "encoding", "packing", "writing", "waiting for storage"}
    assert wanted <= set(names)
    assert all(advice.endswith(".") for _, advice in STAGES.values())


@pytest.mark.parametrize("stage", STAGES)
def test_the_bottleneck_is_in_the_view_and_in_the_summary(stage):
    name = STAGES[stage][0]
    numbers = dict.fromkeys((f for f in Snapshot.__struct_fields__ if f not in ("event", "stage_s")), 0)
    snapshot = Snapshot(event="progress", stage_s={}, **(numbers | {"bottleneck": name, "advice": ""}))
    assert figures(snapshot)[-1] == f"mostly {name}"
    assert render_bottleneck({stage: 3.0}).startswith(f"{name}, 100% of the time. ")


def test_events_tell_what_decompressing_and_waiting_take_and_what_workers_are_at(tokenizer, tmp_path):
    make_corpus(tmp_path / "plain", num_files=1, num_docs=2000)
    (tmp_path / "corpus").mkdir()
    text = (tmp_path / "plain" / "part-0.jsonl").read_bytes()
    (tmp_path / "corpus" / "a.jsonl.gz").write_bytes(gzip.compress(text))
    run(tokenizer, tmp_path / "corpus", tmp_path / "shards", run__backend="local", run__workers=1)
    events = [json.loads(line) for line in (tmp_path / "shards" / "events.jsonl").read_bytes().splitlines()]
    assert set(events[-1]["stage_s"]) == {"wait", "decompress", "parse", "encode", "write"}
    assert sorted(unit for event in events for unit in event["new_units"]) == [0]
    assert [len(worker) for worker in events[-1]["workers"]] == [7]
    assert events[0]["machine"]["cores"] >= 1


@pytest.mark.parametrize("options", [{}, {"run__read_ahead": True, "run__write_behind": True}])
def test_what_units_measure_does_not_depend_on_blocks(tokenizer, tmp_path, options):
    make_corpus(tmp_path / "corpus")
    run(tokenizer, tmp_path / "corpus", tmp_path / "a", run__block_bytes=1500, **options)
    run(tokenizer, tmp_path / "corpus", tmp_path / "b")
    assert output_bytes(tmp_path / "a") == output_bytes(tmp_path / "b")
    record = json.loads((tmp_path / "a" / "units" / "00000.json").read_bytes())
    assert record["measured"]["scripts"]


def slow_script(text):
    """The script of most letters, told letter by letter from the names that Unicode gives them."""
    names = {"LATIN": "Latin", "CYRILLIC": "Cyrillic", "CJK": "Han", "HIRAGANA": "Kana", "KATAKANA": "Kana"}
    names |= {"HANGUL": "Hangul", "THAI": "Thai", "GREEK": "Greek", "ARABIC": "Arabic", "HEBREW": "Hebrew"}
    counts = dict.fromkeys(SCRIPTS, 0)
    for character in text.encode()[:LOOKED_AT_BYTES].decode(errors="ignore"):
        word = unicodedata.name(character, "").split(" ")[0]
        if character.isalpha() and word in names:
            counts[names[word]] += 1
    return max(SCRIPTS, key=lambda name: counts[name]) if any(counts.values()) else "symbols"


@pytest.mark.parametrize(
    "text",
    [
        *("the mill by the river", "Привет, мир", "磨坊在河边", "こんにちは世界です", "안녕하세요", "โรงสี"),
        *("Καλημέρα", "مرحبا", "שלום", "123 456", "", "!?", "é" * 200, "語" * 300, "a語" * 10),
    ],
)
def test_the_script_of_a_document_is_that_of_most_of_its_first_letters(text):
    content = np.frombuffer(text.encode() or b"", np.uint8)
    found = main_scripts(content, np.array([0]), np.array([len(content)]))
    assert found == [slow_script(text)]


def test_scripts_of_hostile_text_are_some_script():
    for text in TEXTS:
        content = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
        assert main_scripts(content, np.array([0]), np.array([len(content)]))[0] in SCRIPTS


def test_lengths_are_counted_by_their_binary_digits():
    lengths = np.array([0, 1, 2, 3, 4, 7, 8, 1023, 1024, (1 << 40) - 1, 1 << 40], np.int64)
    counted = bucketed(lengths)
    expected = np.zeros(64, np.int64)
    for length in lengths.tolist():
        expected[length.bit_length()] += 1
    assert counted.tolist() == expected.tolist()
    assert Measurements(8).measured(2) == Measured(slice_bytes=(0, 0), slice_tokens=(0, 0))


def test_costs_of_rows_are_those_of_laying_documents_out_one_by_one():
    lengths = [0, 1, 7, 8, 9, 16, 17, 100]
    rows = sum(-(-length // 8) for length in lengths)
    over = [length - 8 for length in lengths if length > 8]
    assert row_costs(np.array(lengths), 8) == (rows, len(over), sum(over))
    assert SCRIPT_EVERY > 1
