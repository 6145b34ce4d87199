"""The order of an epoch, what each rank gets of it, and going on from a saved state."""

import hashlib
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.dataset.order import shuffled
from gristmill.errors import ConfigError
from made_datasets import Numbers, numbers_in

MASK = (1 << 64) - 1


def slow_mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def slow_shuffled(place, size, name):
    """The order as its module describes it, in whole numbers of Python."""
    digest = hashlib.blake2b(f"gristmill order 1: {name}".encode()).digest()
    keys = [int.from_bytes(digest[at : at + 8], "little") for at in range(0, 64, 8)]
    a = math.isqrt(size - 1) + 1
    b = -(-size // a)
    while True:
        left, right = divmod(place, b)
        for number, key in enumerate(keys):
            if number % 2 == 0:
                left = (left + slow_mix((right + key) & MASK) % a) % a
            else:
                right = (right + slow_mix((left + key) & MASK) % b) % b
        place = left * b + right
        if place < size:
            return place


@given(
    st.integers(1, 1 << 62), st.lists(st.integers(0, 1 << 62), min_size=1, max_size=20), st.text(max_size=5)
)
@settings(max_examples=100, deadline=None)
def test_the_order_is_what_its_description_says(size, places, name):
    places = [place % size for place in places]
    expected = [slow_shuffled(place, size, name) for place in places]
    assert shuffled(np.array(places), size, name=name).tolist() == expected


@pytest.mark.parametrize("size", [*range(1, 70), 1000, 65_536, 100_003])
def test_the_order_has_every_item_once(size):
    assert np.array_equal(np.sort(shuffled(np.arange(size), size, name="x")), np.arange(size))


def test_the_order_never_changes_between_versions():
    """Saved states stand on it: these numbers may not be edited."""
    assert shuffled(np.arange(10), 10, name="seed 0, epoch 0").tolist() == ORDER_OF_TEN
    assert shuffled(np.array([0, 1, 10**9 - 1]), 10**9, name="seed 7, epoch 3").tolist() == ORDER_OF_A_BILLION


ORDER_OF_TEN = [4, 1, 9, 8, 0, 3, 2, 7, 6, 5]
ORDER_OF_A_BILLION = [966311157, 717875965, 831736964]


def test_neighbours_are_far_apart_and_orders_differ_by_name():
    orders = [shuffled(np.arange(10_000), 10_000, name=f"seed {seed}, epoch 0") for seed in range(4)]
    for order in orders:
        # A shuffle leaves about one item in its place, and about one pair of neighbours in either direction.
        assert np.count_nonzero(order == np.arange(10_000)) < 12
        assert np.count_nonzero(np.abs(np.diff(order)) == 1) < 16
        # Of each hundred in a row, some are from every part: no half is far from its share.
        low = (order < 5000).reshape(100, 100).sum(axis=1)
        assert low.min() > 20
        assert low.max() < 80
    for one, other in itertools.combinations(orders, 2):
        assert np.count_nonzero(one == other) < 12


def loaders_of(dataset, world_size, **options):
    return [dataset.loader(rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def step(loaders):
    """The next batch of every rank."""
    return [numbers_in(next(iter(loader))) for loader in loaders]


@st.composite
def journeys(draw):
    """A dataset's size, a seed, and stretches of an epoch, each with its own ranks."""
    size = draw(st.integers(1, 300))
    seed = draw(st.one_of(st.none(), st.integers(-(2**70), 2**70)))
    part = st.tuples(st.integers(1, 8), st.integers(1, 9), st.integers(0, 12))
    return size, seed, draw(st.integers(0, 3)), draw(st.lists(part, min_size=1, max_size=4))


@given(journeys())
@settings(max_examples=300, deadline=None)
def test_all_ranks_together_give_every_row_once_however_often_the_job_is_resumed_on_other_ranks(journey):
    size, seed, epoch, parts = journey
    dataset = Numbers(size)
    given_out, state = [], None
    for number, (world_size, batch_size, num_steps) in enumerate(parts):
        loaders = loaders_of(dataset, world_size, seed=seed, epoch=epoch, batch_size=batch_size)
        if state is not None:
            for loader in loaders:
                loader.load_state(json.loads(json.dumps(state)))
        is_last = number == len(parts) - 1
        while loaders[0].epoch == epoch and (is_last or num_steps):
            batches = step(loaders)
            assert max(map(len, batches)) - min(map(len, batches)) <= 1
            assert max(map(len, batches)) <= batch_size
            given_out += itertools.chain(*batches)
            num_steps -= 1
        states = [loader.state() for loader in loaders]
        assert all(other == states[0] for other in states)
        state = states[0]
    assert sorted(given_out) == list(range(size))
    assert (state["epoch"], state["position"]) == (epoch + 1, 0)


@given(st.integers(1, 200), st.integers(1, 8), st.integers(1, 9), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_the_order_of_all_ranks_together_depends_on_no_rank(size, world_size, batch_size, seed):
    loaders = loaders_of(Numbers(size), world_size, seed=seed, batch_size=batch_size)
    steps = zip(*loaders, strict=True)
    found = [number for batches in steps for batch in batches for number in numbers_in(batch)]
    assert found == shuffled(np.arange(size), size, name=f"seed {seed}, epoch 0").tolist()


def test_every_epoch_has_its_own_order_and_iterating_again_is_the_next():
    loader = Numbers(50).loader(seed=3, batch_size=8)
    first, second = ([n for batch in loader for n in numbers_in(batch)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    again = Numbers(50).loader(seed=3, epoch=1, batch_size=8)
    assert second == [n for batch in again for n in numbers_in(batch)]


def test_a_loop_that_was_left_goes_on_where_it_was():
    loader = Numbers(20).loader(seed=None, batch_size=4)
    for batch in loader:
        if 9 in numbers_in(batch):
            break
    assert len(loader) == 2
    assert [n for batch in loader for n in numbers_in(batch)] == list(range(12, 20))


def test_the_last_step_is_dealt_out_evenly_and_may_leave_a_rank_without():
    loaders = loaders_of(Numbers(10), 4, seed=None, batch_size=2)
    assert step(loaders) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert step(loaders) == [[], [8], [], [9]]
    assert [len(loader) for loader in loaders_of(Numbers(10), 4, batch_size=2)] == [2] * 4


def test_drop_last_leaves_the_smaller_step_out():
    loader = Numbers(10).loader(seed=None, batch_size=4, drop_last=True)
    assert len(loader) == 2
    assert [numbers_in(batch) for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert loader.state()["epoch"] == 1
    empty = Numbers(3).loader(batch_size=4, drop_last=True)
    assert list(empty) == []
    assert empty.epoch == 1


def test_a_state_saved_in_the_loop_counts_the_batch_at_hand():
    loader = Numbers(6).loader(seed=None, batch_size=2)
    positions = [(loader.state()["epoch"], loader.state()["position"]) for _ in loader]
    assert positions == [(0, 2), (0, 4), (1, 0)]


def test_a_dataset_without_rows_has_epochs_without_batches():
    loader = Numbers(0).loader(batch_size=2)
    assert (len(loader), list(loader), loader.epoch) == (0, [], 1)


def test_batches_of_a_billion_rows_take_no_memory_for_the_rest():
    batch = next(Numbers(10**9).loader(seed=1, rank=3, world_size=8, batch_size=5).batches())
    places = np.arange(15, 20)
    assert batch.tolist() == shuffled(places, 10**9, name="seed 1, epoch 0").tolist()


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 0}, {"world_size": 0}, {"rank": 1}, {"rank": -1}, {"epoch": -1}],
    ids=lambda options: next(iter(options)),
)
def test_ranks_and_sizes_that_cannot_be_are_refused(options):
    with pytest.raises(ConfigError, match="a rank is under world_size"):
        Numbers(5).loader(**options)


def test_a_loader_shows_where_it_is():
    loader = Numbers(5).loader(seed=4, batch_size=2, rank=1, world_size=2)
    assert repr(loader).endswith(": 2 batches left in epoch 0, rank 1 of 2>")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_items": 6}, "another dataset: that has 6 items, this one 5"),
        ({"dataset": "x"}, "another dataset"),
        ({"version": 2}, "no state of a loader of version 1"),
        ({"more": 1}, "no state of a loader"),
        ({"position": 6}, "damaged"),
        ({"position": "1"}, "damaged"),
        ({"epoch": -1}, "damaged"),
        ({"seed": 1.5}, "damaged"),
    ],
)
def test_a_state_of_something_else_is_refused(change, message):
    loader = Numbers(5).loader(seed=4)
    with pytest.raises(ConfigError, match=message):
        loader.load_state(loader.state() | change)
    with pytest.raises(ConfigError, match="no state of a loader of version 1: 5"):
        loader.load_state(5)
    assert loader.state()["position"] == 0


@pytest.mark.parametrize("state", [None, "x", [], {}, {"version": 1}])
def test_what_is_no_state_at_all_is_refused(state):
    with pytest.raises(ConfigError, match="no state of a loader of version 1"):
        Numbers(5).loader().load_state(state)


@pytest.mark.parametrize("option", [{"batch_size": 1.5}, {"rank": "0"}, {"seed": "x"}, {"epoch": None}])
def test_options_that_are_no_whole_numbers_are_refused(option):
    with pytest.raises(ConfigError, match="they are whole numbers"):
        Numbers(5).loader(**option)


def test_numbers_of_numpy_are_taken_and_saved_as_plain_ones():
    state = Numbers(5).loader(seed=np.int64(3), epoch=np.int32(1), batch_size=np.int64(2)).state()
    assert json.loads(json.dumps(state)) == Numbers(5).loader(seed=3, epoch=1, batch_size=2).state()
