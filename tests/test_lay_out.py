"""Ids laid out as payload, and what the native packing functions refuse."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import _native

NO_NUMBERS = np.empty(0, np.int64)


def lay_out_slowly(documents, bos, eos):
    return [[bos] * (bos >= 0) + ids + [eos] * (eos >= 0) for ids in documents]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 0xFFFF), max_size=40), max_size=10),
    st.sampled_from([-1, 0, 1, 0xFFFF]),
    st.sampled_from([-1, 0, 2, 0xFFFF]),
    st.sampled_from([2, 4]),
    st.integers(0, 3),
)
def test_documents_are_laid_out_with_bos_and_eos_round_each(documents, bos, eos, width, num_before):
    flat = np.array([9] * num_before + [token for ids in documents for token in ids] + [9], np.uint32)
    offsets = np.cumsum([num_before, *map(len, documents)], dtype=np.int64)
    ids, out = _native.lay_out(flat, offsets, bos, eos, width)
    assert ids.dtype == {2: np.uint16, 4: np.uint32}[width]
    assert out.tolist()[0] == 0
    assert out.tolist()[-1] == len(ids)
    assert [ids[begin:end].tolist() for begin, end in pairwise(out)] == lay_out_slowly(documents, bos, eos)


@pytest.mark.parametrize("place", [0, 1, 7, 8, 15, 16, 99])
def test_an_id_too_large_is_refused_wherever_it_stands(place):
    ids = np.full(100, 0xFFFF, np.uint32)
    offsets = np.array([0, 50, 100], np.int64)
    assert _native.lay_out(ids, offsets, -1, -1, 2)[0].tolist() == [0xFFFF] * 100
    ids[place] = 0x10000
    with pytest.raises(ValueError, match=f"document {place // 50}: id 65536 does not fit in 2 bytes"):
        _native.lay_out(ids, offsets, -1, -1, 2)
    assert _native.lay_out(ids, offsets, -1, -1, 4)[0][place] == 0x10000


def test_a_bos_or_eos_too_large_is_refused_even_of_no_documents():
    nothing, offsets = np.empty(0, np.uint32), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="BOS, id 65536, does not fit in 2 bytes"):
        _native.lay_out(nothing, offsets, 0x10000, -1, 2)
    with pytest.raises(ValueError, match="EOS, id 65536, does not fit in 2 bytes"):
        _native.lay_out(nothing, offsets, -1, 0x10000, 2)
    assert _native.lay_out(nothing, offsets, 0x10000, 0xFFFFFFFF, 4)[0].tolist() == []


@pytest.mark.parametrize(
    ("offsets", "bos", "eos", "width"),
    [
        ([], -1, -1, 2),
        ([0, 4], -1, -1, 2),
        ([-1, 2], -1, -1, 2),
        ([0, 2, 1], -1, -1, 2),
        ([3, 0], -1, -1, 2),
        ([0, 3], -2, -1, 2),
        ([0, 3], -1, 1 << 32, 4),
        ([0, 3], -1, -1, 8),
    ],
)
def test_lay_out_refuses_what_it_cannot_do(offsets, bos, eos, width):
    with pytest.raises(ValueError):  # noqa: PT011 - which message is of no importance, that nothing is read is
        _native.lay_out(np.zeros(3, np.uint32), np.array(offsets, np.int64), bos, eos, width)


@pytest.mark.parametrize("lengths", [[0], [-1], [9], [1, 2, 9, 3], [1 << 62]])
def test_planning_refuses_pieces_that_are_no_part_of_a_row(lengths):
    with pytest.raises(ValueError, match="from 1 to the length of a row"):
        _native.plan_rows(np.array(lengths, np.int64), 0, 8, 4, 100)
    with pytest.raises(ValueError, match="from 1 to the length of a row"):
        _native.plan_rest(np.array(lengths, np.int64), 8, 0)


@pytest.mark.parametrize(
    ("begins", "lengths", "row_offsets"),
    [
        ([0], [5], [0, 1]),  # runs from the first array into the second
        ([-1], [2], [0, 1]),
        ([4], [4], [0, 1]),
        ([8], [1], [0, 1]),
        ([0], [0], [0, 1]),
        ([0], [-1], [0, 1]),
        ([0], [1 << 62], [0, 1]),
        ([1 << 62], [1 << 62], [0, 1]),
        ([0, 4], [4, 3], [0, 2]),  # more than a row holds
        ([0], [4], [0, 2]),
        ([0], [4], [1, 0]),
        ([0], [4, 1], [0, 1]),
    ],
)
def test_gathering_refuses_pieces_outside_the_ids_or_the_row(begins, lengths, row_offsets):
    first, second = np.arange(4, dtype=np.uint16), np.arange(4, 7, dtype=np.uint16)
    numbers = [np.array(values, np.int64) for values in (begins, lengths, row_offsets)]
    with pytest.raises(ValueError):  # noqa: PT011 - as above
        _native.gather_rows(first, second, *numbers, 6, 0)


def test_gathered_rows_come_from_both_arrays():
    first, second = np.arange(4, dtype=np.uint32), np.arange(4, 7, dtype=np.uint32)
    numbers = [np.array(values, np.int64) for values in ([4, 0, 1], [3, 2, 1], [0, 2, 2, 3])]
    rows = _native.gather_rows(first, second, *numbers, 6, 99)
    assert rows.tolist() == [[4, 5, 6, 0, 1, 99], [99] * 6, [1, 99, 99, 99, 99, 99]]


def test_gathering_nothing_gives_no_rows():
    nothing = np.empty(0, np.uint16)
    rows = _native.gather_rows(nothing, nothing, NO_NUMBERS, NO_NUMBERS, np.zeros(1, np.int64), 6, 0)
    assert rows.shape == (0, 6)
