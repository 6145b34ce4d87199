"""The scripts in benchmarks/ run, and their parts do what they say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.sample import train_sample_tokenizer
from slow_causal import slow_rows

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def run(script, *arguments):
    command = [sys.executable, str(FOLDER / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_exactness_finds_native_equal_to_the_reference():
    ended = run("exactness.py", "--random", 2000, "--no-code-points")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "random: 2,000 texts, equal" in ended.stdout


def test_speed_leaves_a_result_that_renders(tmp_path, scripts):
    import render

    (tmp_path / "tokenizers" / "small").mkdir(parents=True)
    train_sample_tokenizer(tmp_path / "tokenizers" / "small", vocab_size=300)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "prose.txt").write_text("One paragraph.\n\nAnother one.\n", encoding="utf-8")
    places = [
        "--tokenizers",
        tmp_path / "tokenizers",
        "--texts",
        tmp_path / "texts",
        "--results",
        tmp_path / "results",
    ]
    ended = run("speed.py", *places, "--rounds", 1, "--sides", "native", "tokenizers batch 1000")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    table = render.render(render.load_reports(tmp_path / "results"))
    assert "| small | prose | 0.0 |" in table


def test_threads_are_compared_with_processes_that_share_nothing(tmp_path):
    train_sample_tokenizer(tmp_path, vocab_size=300)
    text, kept = tmp_path / "prose.jsonl", tmp_path / "seconds.json"
    text.write_text('{"text": "One paragraph, and another one."}\n' * 50, encoding="utf-8")
    ended = run("threads.py", "--tokenizer", tmp_path, "--text", text, "--rounds", 2, "--json", kept)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [line.split("  ")[0] for line in ended.stdout.splitlines()] == list(json.loads(kept.read_text()))
    assert all(len(seconds) == 2 for seconds in json.loads(kept.read_text()).values())


def test_a_table_replaces_what_stands_between_the_markers(scripts):
    import render

    readme = f"before\n{render.START}\nold\n{render.END}\nafter\n"
    changed = render.put_between_markers(readme, "new")
    assert changed == f"before\n{render.START}\nnew\n{render.END}\nafter\n"
    assert render.put_between_markers(changed, "new") == changed


def test_the_tables_of_readme_are_those_of_the_raw_results():
    ended = run("render.py", "--check")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_differing_text_is_cut_down_to_the_smallest(scripts):
    import exactness

    assert (
        exactness.shrink("a long text with x and y in it", lambda text: "x" in text and "y" in text) == "xy"
    )


def test_the_loop_that_causal_lm_tokenizer_is_measured_against_is_the_reference(scripts):
    import causal_sides as sides

    ids = [[1], [], [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4]]
    for overlap in (0, 1, 3):
        job = sides.Job(side="map", tokenizer="", dataset="", context_length=4, overlap=overlap)
        rows = sides.loop_rows(ids, job)
        expected = slow_rows(
            lambda text: {"input_ids": ids[text]}, range(4), context_length=4, overlap=overlap
        )
        assert [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)] == expected


def test_the_page_opens_over_a_made_run(tmp_path):
    arguments = ("--units", 200, "--hours", 0.02, "--workers", 2, "--output", tmp_path / "dash.json")
    ended = run("dash.py", "scale", *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "dash.json").read_text())["scale"]
    assert found["finished first_paint_s"] > 0
    assert found["live peak_memory_mb"] < 200
