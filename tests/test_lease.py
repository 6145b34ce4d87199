"""An attempt at a unit that the run has given up, and that goes on all the same, changes nothing."""

import os
from pathlib import Path

import pytest

from gristmill import drafts
from gristmill.errors import RunError
from gristmill.limits import Limit
from gristmill.pipeline import process_unit
from gristmill.read import Blocks
from gristmill.run.folder import grant_lease, read_plan, revoke_leases
from gristmill.run.loading import load_configured
from gristmill.run.messages import Prepare, Task
from gristmill.run.tokenize import tokenize
from gristmill.run.worker import make_job_of, run_task
from made_runs import make_config, make_corpus, output_bytes, run

REFUSED = (RunError, FileNotFoundError)
"""By the check, or because what it was writing is gone."""
BLOCKS = Blocks(block_bytes=4000, max_document_bytes=1 << 20, memory_map=False, read_ahead=False)


@pytest.fixture
def corpus(tmp_path):
    make_corpus(tmp_path / "corpus", num_files=2, num_docs=200)
    return tmp_path / "corpus"


@pytest.fixture
def attempt(tokenizer, corpus, tmp_path):
    """A job whose lease was granted, as a worker on another node has it."""
    run(tokenizer, corpus, tmp_path / "out", write__format=["megatron", "parquet"])
    lease = grant_lease(tmp_path / "out")
    prepare = Prepare(str(tmp_path / "out"), BLOCKS, 1, False, 1 << 25, token=str(lease))
    loaded = load_configured(make_config(tokenizer, corpus, "out").tokenizer)
    return make_job_of(prepare, loaded)


def begin(job, unit=1):
    return process_unit(job, job.plan.units[unit], limit=Limit(), on_block=lambda block: None)


def seen(folder):
    """All that a reader sees."""
    return {name: digest for name, digest in output_bytes(folder).items() if "/." not in name}


def hidden_files(folder):
    return [path for path in folder.rglob(".*") if path.name != ".lock"]


def test_a_late_attempt_of_the_same_run_commits_the_same_bytes(attempt):
    before = seen(attempt.folder)
    begin(attempt).commit()
    assert seen(attempt.folder) == before


def test_two_attempts_at_one_unit_write_under_different_names(attempt):
    first, second = begin(attempt), begin(attempt)
    record = second.commit()
    assert first.commit().shards == record.shards
    assert hidden_files(attempt.folder) == [Path(attempt.store.token)]


@pytest.mark.parametrize("when", ["after it has written", "while it writes", "before it begins"])
def test_an_attempt_without_a_lease_commits_nothing_and_leaves_nothing(attempt, when):
    record = attempt.folder / "units" / "00001.json"
    record.unlink()
    before = seen(attempt.folder)
    if when == "before it begins":
        revoke_leases(attempt.folder)
    if when == "while it writes":
        unit, revoke = attempt.plan.units[1], lambda block: revoke_leases(attempt.folder)
        output = process_unit(attempt, unit, limit=Limit(), on_block=revoke)
    else:
        output = begin(attempt)
    revoke_leases(attempt.folder)
    with pytest.raises(REFUSED):
        output.commit()
    assert not record.exists()
    assert seen(attempt.folder) == before
    assert hidden_files(attempt.folder) == []


def test_an_attempt_that_stops_between_its_check_and_its_first_file_still_commits_nothing(
    attempt, monkeypatch
):
    unit = attempt.folder / "units" / "00001.json"
    unit.unlink()
    before = seen(attempt.folder)
    replace = os.replace
    monkeypatch.setattr(drafts.os, "replace", lambda *paths: (revoke_leases(attempt.folder), replace(*paths)))
    with pytest.raises(REFUSED):
        begin(attempt).commit()
    assert seen(attempt.folder) == before
    assert hidden_files(attempt.folder) == []


def test_an_attempt_that_stops_before_its_record_gets_its_name_is_never_committed(attempt, monkeypatch):
    unit = attempt.folder / "units" / "00001.json"
    unit.unlink()
    replace = os.replace

    def stop_before_the_record(source, target):
        if Path(target) == unit:
            revoke_leases(attempt.folder)
        replace(source, target)

    monkeypatch.setattr(drafts.os, "replace", stop_before_the_record)
    with pytest.raises(REFUSED):
        begin(attempt).commit()
    assert not unit.exists()
    assert hidden_files(attempt.folder) == []


def test_an_attempt_of_the_job_before_changes_nothing_of_the_one_that_took_its_place(
    attempt, tokenizer, corpus
):
    late = begin(attempt)
    options = {"write__format": "megatron", "read__max_document_bytes": 900}
    tokenize(make_config(tokenizer, corpus, attempt.folder, **options), force=True)
    before = seen(attempt.folder)
    with pytest.raises(REFUSED):
        late.commit()
    with pytest.raises(REFUSED):
        begin(attempt).commit()
    assert seen(attempt.folder) == before
    assert read_plan(attempt.folder).max_document_bytes == 900


def test_a_resumed_run_takes_the_lease_of_those_before_it(attempt, tokenizer, corpus):
    (attempt.folder / "manifest.json").unlink()
    late = begin(attempt)
    run(tokenizer, corpus, attempt.folder, write__format=["megatron", "parquet"])
    before = seen(attempt.folder)
    with pytest.raises(REFUSED):
        late.commit()
    assert seen(attempt.folder) == before


def test_counting_needs_the_lease_too(tmp_path, corpus):
    from gristmill.job import as_training
    from gristmill.run.train import train

    training = as_training(
        {
            "read": {"inputs": [str(corpus)], "unit_bytes": 20_000},
            "learn": {"output": str(tmp_path / "t.json"), "vocab_size": 300},
        }
    )
    train(training)
    folder = tmp_path / "t.json.run"
    lease = grant_lease(folder)
    job = make_job_of(Prepare(str(folder), BLOCKS, 1, False, 1 << 25, token=str(lease)), None)
    before = seen(folder)
    revoke_leases(folder)
    with pytest.raises(REFUSED):
        run_task(job, Task(0), lambda block: None)
    assert seen(folder) == before
    assert hidden_files(folder) == []
