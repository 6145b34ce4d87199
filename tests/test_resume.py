"""A run survives: real processes killed at random moments, signals, a folder in use, a full disk."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import gristmill.run.tokenize
from gristmill.errors import ResumeError, RunError
from gristmill.run.folder import LOCK, read_manifest, read_plan, read_records
from gristmill.run.tokenize import tokenize
from made_runs import make_config, make_corpus, output_bytes, run

NUM_KILLS = 20
FORMATS = "parquet,mds,litdata,pt,npy,webdataset"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=6, num_docs=1500)
    return folder


def command(tokenizer, corpus, output, *options):
    """The run as a user starts it; the reference engine, so that it lasts long enough to be killed."""
    return [
        *(sys.executable, "-m", "gristmill", "tokenize", str(corpus)),
        *("-t", str(tokenizer), "-o", str(output), "--backend", "local", "--workers", "2"),
        *("--engine", "tokenizers", "--format", FORMATS),
        *("read.unit_bytes=40000", "encode.eos_id=0", "pack.sequence_length=200"),
        *("pack.mode=best_fit", *options),
    ]


def children_of(pid):
    """Processes started by a process."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, *, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def wait_for_units(output, process, count):
    """Wait until some units are committed."""
    wait_until(lambda: process.poll() is not None or len(list(Path(output).glob("units/*.json"))) >= count)


def start(*arguments):
    return subprocess.Popen(
        command(*arguments),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # A shell ignores SIGINT for what it runs in the background, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_random_kills_of_workers_and_parent_change_no_byte(tokenizer, corpus, tmp_path):
    source = random.Random(5)
    subprocess.run(command(tokenizer, corpus, tmp_path / "whole"), check=True, stdout=subprocess.DEVNULL)
    output = tmp_path / "killed"
    kills = {"parent": 0, "worker": 0}
    process = start(tokenizer, corpus, output)
    while sum(kills.values()) < NUM_KILLS:
        done = len(list(output.glob("units/*.json")))
        wait_for_units(output, process, done + source.randint(0, 6))
        assert process.poll() is None, f"finished after {kills}: {process.stderr.read().decode()}"
        workers = children_of(process.pid)
        if workers and source.random() < 0.5:
            os.kill(source.choice(workers), signal.SIGKILL)
            kills["worker"] += 1
        else:
            process.kill()
            process.communicate()
            kills["parent"] += 1
            wait_until(lambda: not any(map(is_alive, workers)))  # noqa: B023
            process = start(tokenizer, corpus, output)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    assert min(kills.values()) > 3
    assert output_bytes(output) == output_bytes(tmp_path / "whole")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_soon_and_leaves_it_resumable(tokenizer, corpus, tmp_path, number, status):
    output = tmp_path / "out"
    process = start(tokenizer, corpus, output)
    wait_for_units(output, process, 3)
    workers = children_of(process.pid)
    sent = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert time.monotonic() - sent < 10
    assert b"; run the same command again to go on" in errors
    done = int(re.search(rb"interrupted; (\d+) of \d+ units are done", errors)[1])
    assert process.returncode == status
    assert not any(map(is_alive, workers))
    assert not [path for path in output.rglob(".*") if path.name != LOCK]
    assert read_manifest(output) is None
    assert len(read_records(output, read_plan(output))) == done >= 3


def test_a_second_run_in_the_same_folder_is_refused(tokenizer, corpus, tmp_path):
    output = tmp_path / "out"
    process = start(tokenizer, corpus, output)
    wait_for_units(output, process, 1)
    second = subprocess.run(command(tokenizer, corpus, output), capture_output=True, text=True, check=False)
    process.kill()
    process.communicate()
    assert second.returncode == 2
    assert "another run is at work" in second.stderr


POISON = """
import os, signal, sys

def die(event, arguments):
    if event == "open" and str(arguments[0]).endswith("part-1.jsonl"):
        os.kill(os.getpid(), signal.SIGKILL)

if "gristmill.run.worker" in " ".join(sys.orig_argv):
    sys.addaudithook(die)
"""


def test_a_unit_that_kills_every_worker_is_given_up_and_the_rest_goes_on(tokenizer, tmp_path, monkeypatch):
    make_corpus(tmp_path / "corpus", num_files=3, num_docs=30)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(POISON)
    options = {"run__backend": "local", "run__workers": 2, "read__unit_bytes": 20_000}
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path / "site")
        result = run(tokenizer, tmp_path / "corpus", tmp_path / "out", **options)
    plan = read_plan(tmp_path / "out")
    poisoned = {
        u.index for u in plan.units if any(plan.files[s.file].path.endswith("part-1.jsonl") for s in u.slices)
    }
    assert set(result.failed) == poisoned
    assert all("signal 9" in why for why in result.failed.values())
    assert result.manifest is None
    assert set(read_records(tmp_path / "out", plan)) == {u.index for u in plan.units} - poisoned
    assert poisoned != {u.index for u in plan.units}
    run(tokenizer, tmp_path / "corpus", tmp_path / "out", **options)
    run(tokenizer, tmp_path / "corpus", tmp_path / "whole")
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "whole")


GREED = """
import sys, time

def take(event, arguments):
    if event == "open" and str(arguments[0]).endswith("part-1.jsonl"):
        hoard = bytearray(b"x" * 700_000_000)
        time.sleep(60)

if "gristmill.run.worker" in " ".join(sys.orig_argv):
    sys.addaudithook(take)
"""


def test_a_worker_that_outgrows_the_memory_is_ended(tokenizer, tmp_path, monkeypatch):
    make_corpus(tmp_path / "corpus", num_files=2, num_docs=30)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(GREED)
    memory = 600_000_000
    options = {"run__backend": "local", "run__workers": 2, "run__memory": memory, "read__unit_bytes": 25_000}
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path / "site")
        result = run(tokenizer, tmp_path / "corpus", tmp_path / "out", **options)
    assert result.failed
    assert all(f"run.memory, {memory // 10**6} MB" in why for why in result.failed.values())
    assert len(read_records(tmp_path / "out", read_plan(tmp_path / "out"))) > 0
    events = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    retried = [event["unit"] for event in events if event["event"] == "retry"]
    assert set(retried) == set(result.failed)
    assert result.last.num_retries == len(retried)
    run(tokenizer, tmp_path / "corpus", tmp_path / "out", **options)
    run(tokenizer, tmp_path / "corpus", tmp_path / "whole", read__unit_bytes=25_000)
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "whole")


def test_modules_in_the_working_directory_are_not_imported(tokenizer, tmp_path, monkeypatch):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=5)
    (tmp_path / "corpus" / "secrets.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path / "corpus")
    options = {"run__backend": "local", "run__workers": 1}
    assert not run(tokenizer, tmp_path / "corpus", tmp_path / "out", **options).failed


def test_config_of_a_run_is_the_job_again(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=5)
    run(tokenizer, tmp_path / "corpus", tmp_path / "out")
    again = [sys.executable, "-m", "gristmill", "tokenize", "--config", str(tmp_path / "out" / "config.yaml")]
    done = subprocess.run(again, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "finished before" in done.stdout


def test_a_finished_run_answers_without_loading_the_tokenizer(tokenizer, tmp_path, monkeypatch):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=5)
    own = tmp_path / "own.json"
    shutil.copy(tokenizer, own)
    first = run(own, tmp_path / "corpus", tmp_path / "out")

    def load(*_arguments):
        raise AssertionError("loaded")

    monkeypatch.setattr("gristmill.run.inline.load_measured", load)
    again = run(own, tmp_path / "corpus", tmp_path / "out")
    assert again.last is None
    assert again.manifest == first.manifest
    os.utime(own, ns=(1, 1))
    with pytest.raises(AssertionError, match="loaded"):
        run(own, tmp_path / "corpus", tmp_path / "out")


@pytest.mark.parametrize("option", [{"run__max_rows": 3}, {"encode__add_eos": False}])
def test_a_finished_run_of_another_job_is_refused_as_before(tokenizer, tmp_path, option):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=5)
    run(tokenizer, tmp_path / "corpus", tmp_path / "out")
    with pytest.raises(ResumeError, match="holds a run of another job"):
        run(tokenizer, tmp_path / "corpus", tmp_path / "out", **option)


def test_line_ends_in_the_kept_config_are_readable_and_read_back(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=5)
    run(tokenizer, tmp_path / "corpus", tmp_path / "out", read__join="\n--\t", read__text_field=["text"])
    text = (tmp_path / "out" / "config.yaml").read_text()
    assert '  join: "\\n--\\t"\n' in text
    assert '  separator: "\\n\\n\\n"\n' in text
    assert yaml.safe_load(text)["read"]["join"] == "\n--\t"


@pytest.mark.parametrize(("name", "field"), [("manifest.json", "ledger"), ("plan.json", "files")])
def test_a_folder_of_another_version_is_told_from_a_damaged_one(tokenizer, tmp_path, name, field):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=5)
    run(tokenizer, tmp_path / "corpus", tmp_path / "run")
    path = tmp_path / "run" / name
    content = json.loads(path.read_text())
    del content[field]
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match=rf"{name}: cannot be read \(Object missing required field `{field}`"):
        run(tokenizer, tmp_path / "corpus", tmp_path / "run")
    path.write_text(json.dumps(content | {"version": 1}))
    with pytest.raises(RunError, match=rf"{name}: was written by another version .*layout 1, this one has 2"):
        run(tokenizer, tmp_path / "corpus", tmp_path / "run")


LOSABLE = {"write__format": ["parquet", "mds"], "pack__sequence_length": 64, "read__unit_bytes": "10KB"}


@pytest.mark.parametrize("limit", [{}, {"run__max_rows": 40}], ids=["all", "limited"])
@pytest.mark.parametrize(
    "lost", ["parquet/*", "mds/index.json", "units/*.documents", "units/*.segments", "units/*.json"]
)
@pytest.mark.parametrize(("which", "damage"), [(0, "gone"), (-1, "gone"), (-1, "short")])
def test_a_finished_run_that_has_lost_a_file_makes_it_again(tokenizer, tmp_path, lost, which, damage, limit):
    make_corpus(tmp_path / "corpus", num_files=3, num_docs=200)
    options = LOSABLE | limit
    run(tokenizer, tmp_path / "corpus", tmp_path / "run", **options)
    before = output_bytes(tmp_path / "run")
    path = sorted((tmp_path / "run").glob(lost))[which]
    if damage == "gone" or path.suffix == ".json":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    assert run(tokenizer, tmp_path / "corpus", tmp_path / "run", **options).last is not None
    assert output_bytes(tmp_path / "run") == before
    assert run(tokenizer, tmp_path / "corpus", tmp_path / "run", **options).last is None


def test_a_kill_while_a_lost_shard_is_made_again_leaves_no_run_that_looks_finished(
    tokenizer, tmp_path, monkeypatch
):
    make_corpus(tmp_path / "corpus", num_files=3, num_docs=200)
    options = LOSABLE | {"run__max_rows": 40}
    run(tokenizer, tmp_path / "corpus", tmp_path / "run", **options)
    before = output_bytes(tmp_path / "run")
    min((tmp_path / "run" / "parquet").iterdir()).unlink()

    def killed(*_arguments):
        raise RuntimeError("killed")

    monkeypatch.setattr(gristmill.run.tokenize, "finish", killed)  # all units are committed by then
    with pytest.raises(RuntimeError, match="killed"):
        run(tokenizer, tmp_path / "corpus", tmp_path / "run", **options)
    monkeypatch.undo()
    assert not (tmp_path / "run" / "manifest.json").exists()
    run(tokenizer, tmp_path / "corpus", tmp_path / "run", **options)
    assert output_bytes(tmp_path / "run") == before


def test_an_unfinished_run_of_another_version_stays_as_it_is(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=5)
    run(tokenizer, tmp_path / "corpus", tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    record, path = tmp_path / "run" / "units" / "00000.json", tmp_path / "run" / "plan.json"
    record.write_text(record.read_text().replace('"blake3"', '"sha256"'))
    before = path.read_text().replace('"version": 2', '"version": 1')
    path.write_text(before)
    with pytest.raises(RunError, match=r"plan\.json: was written by another version .*layout 1"):
        run(tokenizer, tmp_path / "corpus", tmp_path / "run")
    assert path.read_text() == before
    config = make_config(tokenizer, tmp_path / "corpus", tmp_path / "run")
    assert tokenize(config, force=True).manifest is not None
