"""The summary at the end of a run says what happened, and what had happened before."""

import pytest

from gristmill.report.summary import render_interrupted, render_result
from made_runs import make_corpus, run


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder)
    return folder


def lines_of(result):
    return dict(line.split(maxsplit=1) for line in render_result(result).splitlines() if line[0] != " ")


def cut_short(folder, *units):
    """Take back the end of a run, and units of it."""
    (folder / "manifest.json").unlink()
    for unit in units:
        (folder / "units" / f"{unit:05d}.json").unlink()


def test_a_resumed_run_says_what_was_done_before(tokenizer, corpus, tmp_path):
    num_units = run(tokenizer, corpus, tmp_path).last.units_total
    cut_short(tmp_path, 1, 3)
    shown = lines_of(run(tokenizer, corpus, tmp_path))
    assert shown["resumed"].startswith(f"{num_units - 2} of {num_units} units were done before")
    assert "tokens/s, 1 worker" in shown["time"]
    assert "s of it loading" in shown["time"]


def test_a_run_done_in_one_go_says_nothing_of_resuming(tokenizer, corpus, tmp_path):
    assert "resumed" not in lines_of(run(tokenizer, corpus, tmp_path))


def test_a_run_that_only_needed_its_end_shows_no_rates(tokenizer, corpus, tmp_path):
    run(tokenizer, corpus, tmp_path)
    cut_short(tmp_path)
    time = lines_of(run(tokenizer, corpus, tmp_path))["time"]
    assert "only the end of the run was left to do" in time
    assert "tokens/s" not in time


def test_stages_are_in_the_order_of_the_run_and_ids_round_documents_are_named(tokenizer, corpus, tmp_path):
    result = run(tokenizer, corpus, tmp_path, write__format="parquet", encode__add_bos=True, encode__bos_id=5)
    shown = lines_of(result)
    stages = [stage.split()[0] for stage in shown["stages"].split(", ")]
    assert stages == ["wait", "parse", "encode", "pack", "write"]
    assert shown["tokens"].endswith(", BOS 5, EOS 0")


def test_a_file_that_formats_share_counts_once(tokenizer, corpus, tmp_path):
    formats = ["megatron", "nanogpt", "olmo"]
    shards = lines_of(run(tokenizer, corpus, tmp_path, write__format=formats))["shards"]
    files = [path.stat() for name in formats for path in (tmp_path / name).iterdir()]
    on_disk = sum({file.st_ino: file.st_size for file in files}.values())
    assert abs(float(shards.split()[-2]) - on_disk / 1000) < 1


def test_an_interrupted_run_tells_how_far_it_is(tokenizer, corpus, tmp_path):
    assert "before any unit was done" in render_interrupted(tmp_path / "out")
    num_units = run(tokenizer, corpus, tmp_path / "out").last.units_total
    cut_short(tmp_path / "out", 2)
    shown = render_interrupted(tmp_path / "out")
    assert shown.startswith(f"interrupted; {num_units - 1} of {num_units} units are done; run the same")


def test_a_result_is_short_to_look_at(tokenizer, corpus, tmp_path):
    result = run(tokenizer, corpus, tmp_path)
    ledger = result.manifest.ledger
    assert repr(result) == (
        f"<gristmill.RunResult {tmp_path}: 360 documents, {ledger.tokens_written} tokens, "
        f"{len(result.manifest.shards)} shards>"
    )
