"""The examples run as they stand, and lower their loss."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gristmill
from made_runs import make_corpus, run

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    make_corpus(folder / "corpus", num_files=1, num_docs=150)
    options = {"pack__mode": "concat", "pack__sequence_length": 64, "write__format": "parquet"}
    run(tokenizer, folder / "corpus", folder / "run", **options)
    return folder / "run"


def run_example(name, *arguments):
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / name), *map(str, arguments)]
    # One thread: models this small lose by more, most of all where other work is going on.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tiny_gpt_lowers_its_loss_and_goes_on_from_a_saved_place(folder, tmp_path):
    state = tmp_path / "state.json"
    loader = gristmill.open(folder).loader(batch_size=16)
    for _, _ in zip(range(3), loader.batches(), strict=False):
        state.write_text(json.dumps(loader.state()))
    output = run_example("train_tiny_gpt.py", folder, "--steps", 40, "--state", state)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
    assert losses[-1] < losses[0] - 1
    expected = gristmill.open(folder).loader(batch_size=16)
    for _ in range(43):
        next(expected.batches())
    assert json.loads(state.read_text()) == expected.state()


def test_the_trainer_of_transformers_lowers_its_loss(folder):
    output = run_example("train_with_transformers.py", folder, "--steps", 40)
    first, last = map(float, re.search(r"loss ([\d.]+) at first, ([\d.]+) after 40 steps", output).groups())
    assert last < first - 1


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_says_how_its_run_is_made(path):
    head = path.read_text(encoding="utf-8").split('"""')[1]
    assert "gristmill tokenize corpus/" in head
    assert f"python examples/{path.name}" in head
