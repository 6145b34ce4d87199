"""Rows of many shards gathered in one call: those that are read one by one, and nothing outside of them."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gristmill
from gristmill import _native
from made_runs import make_corpus, run

LENGTH = 16


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    """A run of several shards."""
    folder = tmp_path_factory.mktemp("gathered")
    make_corpus(folder / "corpus", num_files=2, num_docs=60)
    options = {"pack__mode": "best_fit", "pack__sequence_length": LENGTH, "write__rows_per_shard": 10}
    run(tokenizer, folder / "corpus", folder / "run", write__format=["parquet", "arrow", "mds"], **options)
    return folder / "run"


def read_one_by_one(items, rows):
    return np.array([items.ids(row) for row in rows.tolist()])


@pytest.mark.parametrize("max_open", [1024, 3, 1])
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_rows_are_gathered_as_they_are_read_one_by_one(folder, form, max_open):
    items = gristmill.open(folder, format=form)._items
    assert len(items._shards) > 5
    items._opened.max_items = max_open
    chance = np.random.default_rng(0)
    for size in (1, 7, 200):
        rows = chance.integers(0, items.num_items, size)
        for wanted in (rows, rows[::2], np.sort(rows)[::-1]):
            found = items.gather(wanted, np.empty)
            assert found.dtype == items.ids(0).dtype
            np.testing.assert_array_equal(found, read_one_by_one(items, wanted))
        assert len(items._opened) <= max_open


def test_rows_that_are_not_mapped_are_not_gathered(folder):
    assert gristmill.open(folder, format="mds")._items.gather(np.arange(3), np.empty) is None


def test_a_shard_whose_ids_are_of_another_kind_is_not_gathered(folder, monkeypatch):
    items = gristmill.open(folder, format="parquet")._items
    of_shard = items._column
    monkeypatch.setattr(
        items,
        "_column",
        lambda shard: of_shard(shard)._replace(dtype=np.dtype("<i8")) if shard == 2 else of_shard(shard),
    )
    assert items.gather(np.arange(20), np.empty) is not None
    assert items.gather(np.arange(21), np.empty) is None


def test_threads_that_let_shards_go_disturb_no_other(folder):
    items = gristmill.open(folder, format="parquet")._items
    items._opened.max_items = 2

    def gather(seed):
        rows = np.random.default_rng(seed).integers(0, items.num_items, 40)
        return rows, items.gather(rows, np.empty)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(gather, range(200)))
    for rows, gathered in found:
        np.testing.assert_array_equal(gathered, read_one_by_one(items, rows))


# The table itself: two shards of three and two rows of four bytes.

STARTS = np.array([0, 3, 5])
CONTENT = np.arange(12, dtype=np.uint8)


def make_table():
    table = _native.RowTable(STARTS, 4)
    table.put(0, CONTENT, np.array([0, 1, 3]), np.array([8, 0]))
    return table


def test_rows_are_taken_up_to_the_first_whose_shard_is_not_there():
    table, out = make_table(), np.zeros(16, np.uint8)
    assert table.take(np.array([1, 0, 4, 2]), None, 0, out) == 2
    assert out.tolist() == [0, 1, 2, 3, 8, 9, 10, 11, *[0] * 8]
    table.put(1, CONTENT, np.array([0, 2]), np.array([4]))
    assert table.take(np.array([1, 0, 4, 2]), None, 2, out) == 4
    assert out[8:].tolist() == [8, 9, 10, 11, 4, 5, 6, 7]
    table.drop(0)
    assert table.take(np.array([0, 4]), np.array([1, 0]), 0, out[:8]) == 1
    assert out[:8].tolist() == [0, 1, 2, 3, 8, 9, 10, 11]


BAD_CALLS = {
    "a row after the last": lambda table, out: table.take(np.array([5]), None, 0, out),
    "a row before the first": lambda table, out: table.take(np.array([-1]), None, 0, out),
    "no room": lambda table, out: table.take(np.array([0, 1]), None, 0, out),
    "an order outside": lambda table, out: table.take(np.array([0]), np.array([1]), 0, out),
    "an order under 0": lambda table, out: table.take(np.array([0]), np.array([-1]), 0, out),
    "an order that is short": lambda table, out: table.take(np.array([0]), STARTS[:0], 0, out),
    "a shard after the last": lambda table, out: table.put(2, CONTENT, STARTS, STARTS[:2]),
    "no such shard to drop": lambda table, out: table.drop(2),
    "past the end": lambda table, out: table.put(0, CONTENT, np.array([0, 3]), np.array([1])),
    "starts that fall": lambda table, out: _native.RowTable(np.array([0, 2, 1]), 4),
    "starts after 0": lambda table, out: _native.RowTable(np.array([1]), 4),
    "no starts": lambda table, out: _native.RowTable(STARTS[:0], 4),
}


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
def test_what_lies_outside_is_refused(call):
    out = np.zeros(4, np.uint8)
    with pytest.raises((ValueError, IndexError)):
        call(make_table(), out)
    assert not out.any()


def test_a_table_holds_what_it_was_given_until_it_is_dropped():
    class Content(np.ndarray):
        """Can be watched."""

    content = np.zeros(8, np.uint8).view(Content)
    gone = weakref.ref(content)
    table = _native.RowTable(np.array([0, 2]), 4)
    table.put(0, content, np.array([0, 2]), np.array([0]))
    del content
    gc.collect()
    assert gone() is not None
    table.drop(0)
    gc.collect()
    assert gone() is None
