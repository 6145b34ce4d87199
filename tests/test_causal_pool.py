"""Slow Python tokenizers are shared by processes that are programs of their own, and none of them is left."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest

import gristmill
from causal_places import real_texts, slow_bytes, slow_word_piece
from gristmill.causal.opening import open_tokenizer
from gristmill.causal.pool import Pool, cut_parts
from gristmill.errors import RunError, TokenizerError

SOURCE = Path(gristmill.__file__).parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return slow_bytes(tmp_path_factory.mktemp("byt5"))


def causal(folder, **options):
    config = {"tokenizer_name": str(folder), "context_length": 32, "show_progress": False}
    return gristmill.CausalLMTokenizer(config | options)


def children():
    """Processes that this one has started and that are still there."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return path.read_text().split()


def test_any_number_of_processes_gives_the_same_rows_and_leaves_none(folder, caplog):
    before = children()
    dataset = datasets.Dataset.from_dict({"text": real_texts()[::40]})
    with caplog.at_level(logging.INFO, "gristmill.causal"):
        made = [causal(folder, num_proc=n, batch_size=100).tokenize(dataset) for n in (1, 2, 3)]
    assert made[1][:] == made[0][:]
    assert made[2][:] == made[0][:]
    assert children() == before
    assert caplog.messages == [
        "Performance configuration: batch_size=100, num_proc=1, parallelism=single_process",
        "Performance configuration: batch_size=100, num_proc=2, parallelism=python_multiprocessing",
        "Performance configuration: batch_size=100, num_proc=3, parallelism=python_multiprocessing",
    ]


def test_a_stream_uses_processes_too_and_lets_them_go(folder):
    before = children()
    dataset = datasets.Dataset.from_dict({"text": real_texts()[:50]})
    stream = causal(folder, num_proc=2).tokenize(dataset.to_iterable_dataset())
    assert list(stream) == list(causal(folder, num_proc=1).tokenize(dataset))
    assert len(children()) == len(before) + 2
    del stream
    assert children() == before


def test_half_of_the_cores_are_used_unless_told(folder, monkeypatch):
    monkeypatch.setattr("gristmill.causal.encoding.num_cores", lambda: 8)
    assert causal(folder)._encoder.num_proc == 4
    monkeypatch.setattr("gristmill.causal.encoding.num_cores", lambda: 1000)
    assert causal(folder)._encoder.num_proc == 32


def test_a_fast_version_is_pointed_out_where_there_is_one(folder, tmp_path, caplog):
    dataset = datasets.Dataset.from_dict({"text": ["the fox"]})
    causal(folder, num_proc=1).tokenize(dataset)
    assert not [line for line in caplog.records if line.levelno == logging.WARNING]
    causal(slow_word_piece(tmp_path), num_proc=1).tokenize(dataset)
    (line,) = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
    assert "has a fast version of it: BertTokenizer" in line


def test_a_script_without_a_guard_runs_from_standard_input(folder):
    script = f"""
import datasets, gristmill
made = gristmill.CausalLMTokenizer(dict(
    tokenizer_name={str(folder)!r}, context_length=16, num_proc=2, show_progress=False
)).tokenize(datasets.Dataset.from_dict(dict(text=["some text"] * 40)))
print(len(made))
"""
    ended = subprocess.run(
        [sys.executable, "-"],
        input=script,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    assert ended.stdout.split() == ["40"]


def fill(text):
    return np.frombuffer(text, np.uint8), np.arange(0, len(text) + 1, 100, dtype=np.int64)


def test_a_killed_process_ends_the_work_with_one_line(folder):
    opened = open_tokenizer(str(folder))
    pool = Pool(opened.source, opened.class_name, opened.tokenizer.fingerprint, num_processes=2)
    try:
        text, offsets = fill(b"some text " * 10_000)
        assert len(pool.encode(text, offsets, special_tokens="parse")) == 1000
        os.kill(pool._processes[0].pid, signal.SIGKILL)
        with pytest.raises(RunError, match=r"^a worker ended by signal 9.*; num_proc: 1 encodes in this"):
            pool.encode(text, offsets, special_tokens="parse")
    finally:
        pool.end()


def test_after_a_killed_process_the_next_call_has_new_ones(folder):
    encoder = causal(folder, num_proc=2)._encoder
    try:
        text, offsets = fill(b"some text " * 10_000)
        expected = encoder.encode(text, offsets)
        os.kill(encoder._pool._processes[0].pid, signal.SIGKILL)
        with pytest.raises(RunError, match=r"^a worker ended by signal 9"):
            encoder.encode(text, offsets)
        assert np.array_equal(encoder.encode(text, offsets).ids, expected.ids)
    finally:
        encoder.rest()


def test_a_tokenizer_that_changed_meanwhile_is_refused(folder):
    pool = Pool(str(folder), open_tokenizer(str(folder)).class_name, "another", num_processes=1)
    try:
        with pytest.raises(TokenizerError, match="changed while it was used; start again"):
            pool.encode(*fill(b"some text " * 10), special_tokens="parse")
    finally:
        pool.end()


@pytest.mark.parametrize("lengths", [[], [0], [5], [0, 0, 70_000, 0, 3], [20_000] * 9, [1] * 100_000])
def test_parts_are_all_documents_in_order(lengths):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    parts = list(cut_parts(offsets, 4))
    assert [i for start, stop in parts for i in range(start, stop)] == list(range(len(lengths)))
    assert all(start < stop for start, stop in parts)
