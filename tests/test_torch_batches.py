"""The DataLoader of torch: the same rows for any number of workers, in memory that is used again."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

import gristmill
from gristmill.dataset import shared_blocks, torch_batches
from gristmill.dataset.token_dataset import COLUMNS
from gristmill.errors import RunError
from made_datasets import Numbers
from made_runs import make_corpus, run

LENGTH = 16
CONTEXT = multiprocessing.get_context("forkserver")
"""Workers of a process without threads, which has torch loaded."""
CONTEXT.set_forkserver_preload(["torch", "gristmill.dataset.torch_batches", "made_datasets"])


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("torch")
    make_corpus(folder / "corpus", num_files=1, num_docs=60)
    options = {"pack__mode": "best_fit", "pack__sequence_length": LENGTH, "write__format": "parquet"}
    run(tokenizer, folder / "corpus", folder / "run", **options)
    return folder / "run"


def numbers_of(loader):
    return [batch["input_ids"][:, 0].tolist() for batch in loader]


def test_workers_give_what_one_process_gives(folder):
    dataset = gristmill.open(folder, columns=COLUMNS)
    alone = list(DataLoader(dataset, batch_size=8))
    together = list(DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context=CONTEXT))
    assert len(alone) == len(together) == -(-len(dataset) // 8)
    for one, other in zip(alone, together, strict=True):
        assert list(one) == list(other) == list(COLUMNS)
        for name in COLUMNS:
            assert torch.equal(one[name], other[name])
            assert one[name].dtype == other[name].dtype


def test_workers_that_are_forked_give_the_same_too(folder):
    """As torch starts them by default on Linux; in a process of its own, because this one has threads."""
    code = """if True:
        import sys, gristmill
        from torch.utils.data import DataLoader
        dataset = gristmill.open(sys.argv[1])
        found = [batch["labels"].tolist() for batch in DataLoader(dataset, batch_size=8, num_workers=2)]
        assert sum(found, []) == dataset[:]["labels"].tolist()
        print(len(found))"""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert int(found.stdout) == -(-len(gristmill.open(folder)) // 8)


def test_a_batch_has_the_rows_one_by_one_as_torch_would_stack_them(folder):
    dataset = gristmill.open(folder)
    rows = dataset.__getitems__([3, 1, 2])
    expected = default_collate([dict(row) for row in rows])
    found = default_collate(rows)
    stacked = default_collate(list(rows))
    for name in dataset.columns:
        assert torch.equal(found[name], expected[name])
        assert torch.equal(stacked[name], expected[name])
        np.testing.assert_array_equal(rows[-1][name], dataset[2][name])
    assert [row["input_ids"].tolist() for row in rows[1:]] == [
        dataset[i]["input_ids"].tolist() for i in (1, 2)
    ]


def test_shuffling_by_torch_has_every_row_once():
    dataset = Numbers(100)
    loader = DataLoader(dataset, batch_size=7, shuffle=True, num_workers=2, multiprocessing_context=CONTEXT)
    assert sorted(n for batch in numbers_of(loader) for n in batch) == list(range(100))


def test_batches_that_are_held_are_never_written_over():
    """More of them than a worker has blocks, and tensors that stand on others count."""
    dataset = Numbers(4 * shared_blocks.MAX_BLOCKS)
    loader = DataLoader(dataset, batch_size=1, num_workers=2, multiprocessing_context=CONTEXT)
    held = [batch["input_ids"][0, 1:] for batch in loader]
    assert [int(one) for one in held] == list(range(len(dataset)))


def test_blocks_are_used_again_once_a_batch_is_gone():
    dataset = Numbers(400)
    loader = DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context=CONTEXT)
    before = set(shared_blocks._known)
    assert numbers_of(loader) == [[n, n + 1] for n in range(0, 400, 2)]
    assert len(set(shared_blocks._known) - before) <= 8, "200 batches came in a few blocks"


def test_blocks_of_workers_that_ended_are_forgotten():
    for _ in range(3):
        numbers_of(DataLoader(Numbers(20), batch_size=2, num_workers=1, multiprocessing_context=CONTEXT))
    next(iter(DataLoader(Numbers(20), batch_size=2, num_workers=1, multiprocessing_context=CONTEXT)))
    assert len({pid for pid, *_ in shared_blocks._known}) <= 2


@pytest.fixture
def in_worker(monkeypatch):
    """This process as if it were a worker."""
    monkeypatch.setattr(torch_batches, "get_worker_info", lambda: object())
    monkeypatch.setattr(shared_blocks, "_own", {})
    monkeypatch.setattr(shared_blocks, "_known", {})


def test_a_batch_that_was_changed_before_it_is_sent_arrives_so(in_worker):
    batch = default_collate(Numbers(9).__getitems__([4, 5]))
    assert isinstance(batch, torch_batches.SharedBatch)
    batch["input_ids"] += 1
    batch["more"] = torch.arange(3)
    received = pickle.loads(pickle.dumps(batch))
    assert type(received) is dict
    assert received["input_ids"].tolist() == [[5, 5], [6, 6]]
    assert received["more"].tolist() == [0, 1, 2]
    batch["input_ids"] = torch.zeros(1)
    assert pickle.loads(pickle.dumps(batch))["input_ids"].tolist() == [0]
    del batch["input_ids"]
    assert list(pickle.loads(pickle.dumps(batch))) == ["more"]


def test_a_block_is_free_when_sender_and_receivers_have_let_go(in_worker):
    batch = default_collate(Numbers(9).__getitems__([4, 5]))
    (block,) = shared_blocks._own[os.getpid()]
    first, second = (pickle.loads(pickle.dumps(batch)) for _ in range(2))
    view = first["input_ids"][:, :1].numpy()
    del batch
    assert not block.is_free
    del second, first
    assert not block.is_free
    assert view.tolist() == [[4], [5]]
    del view
    assert block.is_free


def test_a_forked_child_that_ends_frees_nothing_of_its_parent(in_worker):
    batch = default_collate(Numbers(9).__getitems__([4, 5]))
    (block,) = shared_blocks._own[os.getpid()]
    child = os.fork()
    if child == 0:
        del batch
        os._exit(0)
    os.waitpid(child, 0)
    assert not block.is_free


def test_a_smaller_block_gives_way_to_a_larger_one(in_worker):
    for size in (2, 3, 200, 5):
        default_collate(Numbers(900).__getitems__(list(range(size))))
    assert len(shared_blocks._own[os.getpid()]) == 1


def test_a_batch_of_a_process_that_is_gone_says_so(in_worker):
    batch = default_collate(Numbers(9).__getitems__([4]))
    function, (sender, *rest) = batch.__reduce__()
    with pytest.raises(RunError, match="ended before its batch was read"):
        function((2**22 + 1, *sender[1:]), *rest)
    with pytest.raises(RunError, match="its memory is gone"):
        function((*sender[:2], sender[2] + 1, sender[3]), *rest)


def test_a_worker_that_is_killed_is_an_error_and_not_a_hang():
    loader = iter(DataLoader(Numbers(5000), batch_size=1, num_workers=1, multiprocessing_context=CONTEXT))
    next(loader)
    os.kill(loader._workers[0].pid, signal.SIGKILL)
    with pytest.raises((RuntimeError, RunError)):
        for _ in loader:
            pass


def test_documents_and_borders_come_one_after_the_other(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=10)
    run(tokenizer, tmp_path / "corpus", tmp_path / "run")
    dataset = gristmill.open(tmp_path / "run")
    for num_workers in (0, 1):
        context = CONTEXT if num_workers else None
        loader = DataLoader(dataset, batch_size=3, num_workers=num_workers, multiprocessing_context=context)
        batch = next(iter(loader))
        assert batch["cu_seqlens"].tolist() == dataset[:3]["cu_seqlens"].tolist()
        assert batch["input_ids"].tolist() == dataset[:3]["input_ids"].tolist()
