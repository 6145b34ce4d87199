"""A training that is killed while it counts or learns goes on, and ends in the same files."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gristmill.run.folder import CHECKPOINT, INVENTORY
from made_runs import make_corpus

NUM_KILLS = 5
DEADLINE_S = 60


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=4, num_docs=1500)
    return folder


def command(corpus: Path, output: Path, *more: str) -> list[str]:
    program = [sys.executable, "-m", "gristmill", "train", str(corpus), "-o", str(output)]
    return [*program, "--vocab-size", "3000", "--quiet", "read.unit_bytes=20000", *more]


def start(corpus: Path, output: Path, *more: str) -> subprocess.Popen:
    return subprocess.Popen(command(corpus, output, *more), stderr=subprocess.PIPE)


def kill_at(process: subprocess.Popen, is_time) -> None:
    """Kill as soon as the folder shows that it is time."""
    end = time.monotonic() + DEADLINE_S
    while not is_time():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < end
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("whole") / "t.json"
    subprocess.run(command(corpus, output), check=True)
    return output


@pytest.mark.parametrize("backend", ["inline", "local"])
def test_kills_while_counting_change_no_byte(corpus, whole, tmp_path, backend):
    choose = random.Random(3)
    output, run = tmp_path / "t.json", tmp_path / "t.json.run"
    more = ("--workers", "3", "--backend", backend)
    wanted = 0
    for _ in range(NUM_KILLS):
        wanted += choose.randint(1, 6)
        kill_at(start(corpus, output, *more), lambda: len(list(run.glob("units/*.json"))) >= wanted)  # noqa: B023
    subprocess.run(command(corpus, output, *more), check=True)
    assert output.read_bytes() == whole.read_bytes()
    assert (run / INVENTORY).read_bytes() == (whole.parent / "t.json.run" / INVENTORY).read_bytes()
    assert not [path for path in run.rglob("*") if path.name.startswith(".") and path.name != ".lock"]


def test_a_kill_after_the_count_leaves_what_the_next_run_needs(corpus, whole, tmp_path):
    output, run = tmp_path / "t.json", tmp_path / "t.json.run"
    kill_at(start(corpus, output), (run / "counts.json").exists)
    subprocess.run(command(corpus, output), check=True)
    assert output.read_bytes() == whole.read_bytes()
    assert not (run / CHECKPOINT).exists()
