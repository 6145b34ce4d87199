"""gristmill.mix: shares by weight, no row again before its source is through, the same every time."""

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill.dataset.mixture import shares
from gristmill.errors import ConfigError
from made_datasets import Numbers, numbers_in
from made_runs import make_corpus, run


def test_each_source_has_its_share_of_every_epoch():
    mixed = gristmill.mix({Numbers(100): 3, Numbers(50, first=1000): 1}, num_rows=80)
    for epoch in range(3):
        numbers = numbers_in(mixed.at_epoch(epoch)[:])
        assert Counter(number >= 1000 for number in numbers) == {False: 60, True: 20}


def test_no_row_comes_again_before_all_of_its_source_have_come():
    mixed = gristmill.mix({Numbers(30): 1, Numbers(7, first=1000): 1}, num_rows=20)
    numbers = [n for epoch in range(21) for n in numbers_in(mixed.at_epoch(epoch)[:])]
    assert Counter(n for n in numbers if n < 1000) == dict.fromkeys(range(30), 7)
    assert Counter(n for n in numbers if n >= 1000) == dict.fromkeys(range(1000, 1007), 30)


def test_by_default_an_epoch_has_as_many_rows_as_all_sources_together():
    mixed = gristmill.mix({Numbers(30): 0.5, Numbers(10, first=1000): 0.5})
    assert len(mixed) == 40
    assert Counter(n >= 1000 for n in numbers_in(mixed[:])) == {False: 20, True: 20}


def test_any_stretch_of_an_epoch_is_mixed():
    mixed = gristmill.mix({Numbers(1000): 1, Numbers(1000, first=10_000): 1})
    small = np.array(numbers_in(mixed[:])) < 10_000
    assert 20 < small.reshape(20, 100).sum(axis=1).min() <= small.reshape(20, 100).sum(axis=1).max() < 80


def test_the_seed_decides_and_nothing_else():
    sources = {Numbers(30): 1, Numbers(7, first=1000): 2}
    one, same, other = (numbers_in(gristmill.mix(sources, seed=seed)[:]) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_a_mixture_never_changes_between_versions():
    """Saved states stand on it: these numbers may not be edited."""
    mixed = gristmill.mix({Numbers(6): 2, Numbers(4, first=100): 1}, seed=5, num_rows=9)
    assert numbers_in(mixed.at_epoch(2)[:]) == EPOCH_TWO


EPOCH_TWO = [3, 101, 103, 4, 1, 2, 5, 0, 103]


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8), st.integers(1, 10**12))
@settings(max_examples=200, deadline=None)
def test_shares_add_up_and_are_less_than_one_off(weights, total):
    parts = shares(weights, total)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - total * weight / sum(weights)) < 1 + total * 1e-12


def test_a_loader_over_a_mixture_resumes_in_a_later_epoch():
    sources = {Numbers(30): 1, Numbers(7, first=1000): 2}
    loader = gristmill.mix(sources, seed=1).loader(seed=2, batch_size=5)
    epochs = [[n for batch in loader for n in numbers_in(batch)] for _ in range(3)]
    assert Counter(epochs[0]) != Counter(epochs[1])
    again = gristmill.mix(sources, seed=1).loader(seed=2, epoch=2, batch_size=5)
    first = [numbers_in(next(iter(again))), numbers_in(next(iter(again)))]
    state = again.state()
    ranks = [
        gristmill.mix(sources, seed=1).loader(rank=rank, world_size=3, batch_size=2) for rank in range(3)
    ]
    for rank in ranks:
        rank.load_state(state)
    rest = [n for batches in zip(*ranks, strict=True) for batch in batches for n in numbers_in(batch)]
    assert first[0] + first[1] + rest == epochs[2]
    with pytest.raises(ConfigError, match="another dataset"):
        gristmill.mix(sources, seed=9).loader().load_state(state)


def test_runs_are_mixed_by_path_with_all_their_columns(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=40)
    for number, mode in enumerate(["best_fit", "pad"]):
        options = {"pack__mode": mode, "pack__sequence_length": 16, "write__format": "parquet"}
        run(tokenizer, tmp_path / "corpus", tmp_path / f"run{number}", **options)
    paths = [tmp_path / "run0", str(tmp_path / "run1")]
    mixed = gristmill.mix({paths[0]: 1, paths[1]: 1}, num_rows=40)
    assert mixed[:]["labels"].shape == (40, 16)
    columns = ["input_ids", "position_ids", "cu_seqlens"]
    opened = [gristmill.open(path, columns=columns) for path in paths]
    mixed = pickle.loads(pickle.dumps(gristmill.mix({opened[0]: 1, opened[1]: 1}, num_rows=40)))
    known = [{bytes(one[i]["input_ids"]): one[i] for i in range(len(one))} for one in opened]
    for index in range(40):
        row = mixed[index]
        same = [rows[bytes(row["input_ids"])] for rows in known if bytes(row["input_ids"]) in rows]
        assert any(all(np.array_equal(row[name], one[name]) for name in columns) for one in same), (
            "a row of one of the runs, with its own borders"
        )
    cuts = mixed[:]["cu_seqlens"]
    assert cuts[-1] == 40 * 16


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        ({}, {}, "nothing to mix"),
        ([(Numbers(3), 1)], {}, "given a list; it takes a dict of runs and their weights"),
        ({Numbers(3): 0}, {}, "a number over 0"),
        ({Numbers(3): float("nan")}, {}, "a number over 0"),
        ({Numbers(3): float("inf")}, {}, "a number over 0"),
        ({Numbers(3): "1"}, {}, "a number over 0"),
        ({Numbers(0): 1}, {}, "has no rows"),
        ({Numbers(3): 1}, {"num_rows": 0}, "num_rows is 0"),
        ({Numbers(3): 1}, {"num_rows": "5"}, "num_rows is '5'"),
        ({Numbers(3): 1}, {"num_rows": 1 << 70}, "whole number from 1 to"),
        ({Numbers(3): 1, Numbers(3, fingerprint="other"): 1}, {}, "different tokenizers"),
    ],
)
def test_what_cannot_be_mixed_is_refused(sources, options, message):
    with pytest.raises(ConfigError, match=message):
        gristmill.mix(sources, **options)
