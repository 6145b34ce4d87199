"""Rows hold what documents hold: packers and columns against slow twins, and what must hold of them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.config import PackConfig
from gristmill.errors import ConfigError
from gristmill.pack import PACKERS, best_fit, columns, make_packer
from gristmill.pack.rows import (
    Rows,
    Segments,
    empty_rows,
    empty_segments,
    offsets_of,
    slice_rows,
    slice_segments,
    take_rows,
)
from gristmill.pack.windows import split_segments
from slow_packers import (
    Piece,
    Row,
    pack_slowly,
    slow_attention_mask,
    slow_cu_seqlens,
    slow_labels,
    slow_position_ids,
)

PAD = 60_000
DTYPES = [np.uint16, np.uint32]
MODES = st.sampled_from(sorted(PACKERS))


def segments_of(pieces, dtype=np.uint16):
    return Segments(
        ids=np.array([token for piece in pieces for token in piece.ids], dtype),
        offsets=offsets_of(np.array([len(piece.ids) for piece in pieces], np.int64)),
        documents=np.array([piece.document for piece in pieces], np.int64),
        starts=np.array([piece.start for piece in pieces], np.int64),
    )


def joined(parts):
    """All segments of the parts, in order."""
    parts = [empty_segments(np.uint16), *parts]
    return Segments(
        ids=np.concatenate([part.ids for part in parts]),
        offsets=offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
        documents=np.concatenate([part.documents for part in parts]),
        starts=np.concatenate([part.starts for part in parts]),
    )


def pieces_of(segments):
    ids = [tuple(segments.ids[begin:end].tolist()) for begin, end in pairwise(segments.offsets)]
    keys = zip(segments.documents.tolist(), segments.starts.tolist(), ids, strict=True)
    return [Piece(*key) for key in keys]


def plain(rows):
    """Of each row: its segments, its tokens that are repeats, and all its ids."""
    out = []
    for r in range(len(rows)):
        pieces, at = [], 0
        for s in range(rows.row_offsets[r], rows.row_offsets[r + 1]):
            ids = tuple(rows.ids[r, at : at + rows.lengths[s]].tolist())
            pieces.append((int(rows.documents[s]), int(rows.starts[s]), ids))
            at += int(rows.lengths[s])
        out.append((pieces, int(rows.repeated[r]), rows.ids[r].tolist()))
    return out


def plain_slow(rows, length):
    out = []
    for row in rows:
        ids = [token for piece in row.pieces for token in piece.ids]
        pieces = [(piece.document, piece.start, piece.ids) for piece in row.pieces]
        out.append((pieces, row.num_repeated, ids + [PAD] * (length - len(ids))))
    return out


def join_rows(parts):
    return Rows(
        ids=np.concatenate([part.ids for part in parts]),
        row_offsets=offsets_of(np.concatenate([np.diff(part.row_offsets) for part in parts])),
        lengths=np.concatenate([part.lengths for part in parts]),
        documents=np.concatenate([part.documents for part in parts]),
        starts=np.concatenate([part.starts for part in parts]),
        repeated=np.concatenate([part.repeated for part in parts]),
    )


def pack(config, pieces, *, is_last, dtype=np.uint16, num_at_a_time=None):
    packer = make_packer(config, pad_id=PAD, dtype=dtype)
    made = [empty_rows(config.sequence_length, dtype)]
    segments, num_at_a_time = segments_of(pieces, dtype), num_at_a_time or max(1, len(pieces))
    for start in range(0, len(pieces), num_at_a_time):
        made.append(packer.add(slice_segments(segments, start, start + num_at_a_time)))
    rows, rest = packer.finish(is_last=is_last)
    return join_rows([*made, rows]), rest


def documents(lengths, *, unit=0):
    """Documents whose every token is known by its id, as long as there are few."""
    return [
        Piece((unit << 32) + i, 0, tuple((unit * 7919 + i * 101 + k) % 50_000 for k in range(length)))
        for i, length in enumerate(lengths)
    ]


@st.composite
def jobs(draw, mode=MODES):
    length = draw(st.integers(2, 12))
    config = PackConfig(
        mode=draw(mode),
        sequence_length=length,
        overlap=draw(st.integers(0, length - 1)),
        tail=draw(st.sampled_from(["carry", "pad", "drop"])),
        lookahead=draw(st.integers(1, 8)),
    )
    return config, documents(draw(st.lists(st.integers(0, 3 * length), max_size=30)))


# Fast and slow


@settings(max_examples=400, deadline=None)
@given(jobs(), st.booleans(), st.integers(1, 7), st.sampled_from(DTYPES), st.sampled_from([0, 1 << 23]))
def test_rows_and_rest_are_those_of_the_slow_packer_however_many_come_at_a_time(
    job, is_last, num_at_a_time, dtype, max_pool_tokens
):
    config, pieces = job
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_fit, "MAX_POOL_TOKENS", max_pool_tokens)
        rows, rest = pack(config, pieces, is_last=is_last, dtype=dtype, num_at_a_time=num_at_a_time)
        slow_rows, slow_rest = pack_slowly(pieces, config, is_last=is_last)
    assert plain(rows) == plain_slow(slow_rows, config.sequence_length)
    assert pieces_of(rest) == [replace(piece, num_repeated=0) for piece in slow_rest]
    assert rows.ids.dtype == rest.ids.dtype == dtype


def test_rows_of_many_documents_are_those_of_the_slow_packer():
    chance = np.random.default_rng(5)
    pieces = documents(chance.geometric(0.02, 2000).tolist())
    for overlap, lookahead in [(0, 100), (7, 100), (0, 10_000)]:
        config = PackConfig(mode="best_fit", sequence_length=64, overlap=overlap, lookahead=lookahead)
        rows, rest = pack(config, pieces, is_last=False, num_at_a_time=17)
        slow_rows, slow_rest = pack_slowly(pieces, config, is_last=False)
        assert plain(rows) == plain_slow(slow_rows, 64)
        assert pieces_of(rest) == [replace(piece, num_repeated=0) for piece in slow_rest]


# What must hold

@settings(max_examples=200, deadline=None)
@given(jobs(), st.booleans())
def test_every_token_is_in_a_row_once_or_in_the_rest_and_at_its_place(job, is_last):
    config, pieces = job
    rows, rest = pack(config, pieces, is_last=is_last, num_at_a_time=3)
    source = {piece.document: piece.ids for piece in pieces}
    found = set()
    for row, _, _ in plain(rows):
        for document, start, ids in row:
            assert ids == source[document][start : start + len(ids)]
            found.update((document, start + i) for i in range(len(ids)))
    for piece in pieces_of(rest):
        assert piece.ids == source[piece.document][piece.start : piece.start + len(piece.ids)]
        places = {(piece.document, piece.start + i) for i in range(len(piece.ids))}
        assert not places & found
        found |= places
    assert len(found) == sum(len(piece.ids) for piece in pieces)
    assert rows.num_tokens - rows.num_repeated + len(rest.ids) == len(found)
    assert rows.num_tokens + rows.num_padding == rows.ids.size


@settings(max_examples=100, deadline=None)
@given(jobs())
def test_no_row_holds_only_repeats(job):
    config, pieces = job
    rows, _ = pack(config, pieces, is_last=True)
    assert all(len(ids) for row, _, _ in plain(rows) for _, _, ids in row)
    assert all(num_repeated < sum(len(ids) for _, _, ids in row) for row, num_repeated, _ in plain(rows))


@settings(max_examples=100, deadline=None)
@given(jobs(mode=st.just("concat")))
def test_concat_keeps_the_order_of_all_tokens(job):
    config, pieces = job
    rows, rest = pack(config, pieces, is_last=False)
    kept = [ids[repeats : sum(len(s[2]) for s in row)] for row, repeats, ids in plain(rows)]
    seen = [token for ids in [*kept, rest.ids.tolist()] for token in ids]
    assert seen == [token for piece in pieces for token in piece.ids]


@settings(max_examples=100, deadline=None)
@given(jobs(mode=st.just("best_fit")))
def test_best_fit_never_cuts_a_document_that_fits_a_row(job):
    config, pieces = job
    rows, rest = pack(config, pieces, is_last=True)
    short = [piece for piece in pieces if 0 < len(piece.ids) <= config.sequence_length]
    found = {segment for row, _, _ in plain(rows) for segment in row}
    found |= {(piece.document, piece.start, piece.ids) for piece in pieces_of(rest)}
    assert {(piece.document, 0, piece.ids) for piece in short} <= found


@settings(max_examples=150, deadline=None)
@given(jobs(), st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=5), st.integers(1, 9))
def test_tails_of_units_are_packed_at_the_end_of_the_run(job, units, num_at_a_time):
    config, _ = job
    made, slow_made, tails, slow_tails = [], [], [], []
    for unit, lengths in enumerate(units):
        pieces = documents(lengths, unit=unit)
        rows, tail = pack(config, pieces, is_last=False, num_at_a_time=num_at_a_time)
        slow_rows, slow_tail = pack_slowly(pieces, config, is_last=False)
        made += plain(rows)
        slow_made += slow_rows
        tails.append(tail)
        slow_tails += slow_tail
    last = pieces_of(joined(tails))
    rows, dropped = pack(config, last, is_last=True, num_at_a_time=num_at_a_time)
    slow_rows, slow_dropped = pack_slowly(slow_tails, config, is_last=True)
    assert made + plain(rows) == plain_slow(slow_made + slow_rows, config.sequence_length)
    assert len(dropped) == len(slow_dropped)
    if config.tail != "drop":
        assert len(dropped) == 0
    if config.tail == "pad":
        assert len(last) == 0
    if config.mode == "concat":
        assert len(dropped.ids) < config.sequence_length


@pytest.mark.parametrize("mode", sorted(PACKERS))
@pytest.mark.parametrize("tail", ["carry", "pad", "drop"])
def test_a_document_as_long_as_a_row_is_a_row_without_padding(mode, tail):
    config = PackConfig(mode=mode, sequence_length=8, tail=tail, overlap=3)
    rows, rest = pack(config, documents([8]), is_last=True)
    assert (len(rows), rows.num_padding, rows.num_repeated, len(rest)) == (1, 0, 0, 0)


@pytest.mark.parametrize("mode", sorted(PACKERS))
def test_nothing_in_is_nothing_out(mode):
    config = PackConfig(mode=mode, sequence_length=8)
    for pieces in ([], documents([0]), documents([0, 0, 0])):
        rows, rest = pack(config, pieces, is_last=True)
        assert (rows.ids.shape, len(rows.lengths), len(rest), rest.offsets.tolist()) == ((0, 8), 0, 0, [0])


@pytest.mark.parametrize("mode", sorted(PACKERS))
def test_a_packer_that_has_finished_is_as_new(mode):
    config = PackConfig(mode=mode, sequence_length=8, overlap=2)
    packer = make_packer(config, pad_id=PAD, dtype=np.uint16)
    segments = segments_of(documents([3, 20, 7, 1, 5]))
    made = []
    for _ in range(2):
        rows = packer.add(segments)
        rest = packer.finish(is_last=True)[0]
        made.append(plain(join_rows([rows, rest])))
    assert made[0] == made[1]


@pytest.mark.parametrize("mode", sorted(PACKERS))
def test_rows_of_sixteen_million_tokens_are_packed(mode):
    length = 1 << 24
    config = PackConfig(mode=mode, sequence_length=length)
    ids = np.arange(length + 5, dtype=np.uint32)
    segments = Segments(
        ids=ids,
        offsets=np.array([0, length - 1, length + 5], np.int64),
        documents=np.array([0, 1], np.int64),
        starts=np.zeros(2, np.int64),
    )
    packer = make_packer(config, pad_id=0, dtype=np.uint32)
    rows = packer.add(segments)
    more, rest = packer.finish(is_last=True)
    assert len(rows) + len(more) == 2
    assert rows.num_tokens + more.num_tokens == length + 5
    assert len(rest) == 0


def test_best_fit_holds_no_more_than_its_look_ahead():
    config = PackConfig(mode="best_fit", sequence_length=100, lookahead=10, tail="drop")
    packer = make_packer(config, pad_id=PAD, dtype=np.uint16)
    rows = packer.add(segments_of(documents([60] * 50)))
    more, rest = packer.finish(is_last=False)
    assert (len(rows), len(more), len(rest)) == (40, 0, 10)


def test_an_overlap_of_a_whole_row_is_refused():
    with pytest.raises(ConfigError, match=r"pack\.overlap is 8.*set it below pack\.sequence_length"):
        make_packer(PackConfig(mode="concat", sequence_length=8, overlap=8), pad_id=0, dtype=np.uint16)


def test_a_pad_id_that_the_dtype_does_not_hold_is_refused():
    with pytest.raises(ConfigError, match=r"set write\.dtype to uint32"):
        make_packer(PackConfig(mode="concat"), pad_id=1 << 16, dtype=np.uint16)


# Rows and segments as values

@settings(max_examples=100, deadline=None)
@given(jobs(), st.integers(0, 8), st.integers(0, 8))
def test_slices_of_rows_joined_are_the_rows(job, first, second):
    config, pieces = job
    rows, _ = pack(config, pieces, is_last=True)
    cuts = [0, *sorted([min(first, len(rows)), min(second, len(rows))]), len(rows)]
    parts = [slice_rows(rows, *pair) for pair in pairwise(cuts)]
    assert plain(join_rows(parts)) == plain(rows)
    assert plain(take_rows(rows, first)) == plain(rows)[:first]


@settings(max_examples=150, deadline=None)
@given(jobs(), st.integers(1, 9))
def test_split_segments_are_the_segments_and_make_few_rows_at_a_time(job, max_rows):
    config, pieces = job
    parts = list(split_segments(segments_of(pieces), config, max_rows=max_rows))
    assert pieces_of(joined(parts)) == pieces
    packer = make_packer(config, pad_id=PAD, dtype=np.uint16)
    for part in parts:
        rows = packer.add(part)
        if config.mode == "concat":
            assert len(rows) <= max_rows + 1 or len(part) == 1
        if config.mode == "pad":
            assert len(rows) <= max_rows or len(part) == 1


# Columns

@settings(max_examples=150, deadline=None)
@given(jobs(), st.booleans(), st.sampled_from(DTYPES))
def test_columns_are_those_of_the_slow_twins(job, mask_first_token, dtype):
    config, pieces = job
    length = config.sequence_length
    rows, _ = pack(config, pieces, is_last=True, dtype=dtype)
    slow = [Row(tuple(Piece(*segment) for segment in row)) for row, _, _ in plain(rows)]
    labels = columns.labels(rows, mask_first_token=mask_first_token)
    assert labels.tolist() == slow_labels(slow, length, mask_first_token=mask_first_token)
    assert labels.dtype == (np.int32 if dtype == np.uint16 else np.int64)
    assert columns.attention_mask(rows).tolist() == slow_attention_mask(slow, length)
    assert columns.position_ids(rows).tolist() == slow_position_ids(slow, length)
    flat, offsets = columns.cu_seqlens(rows)
    assert [flat[begin:end].tolist() for begin, end in pairwise(offsets)] == slow_cu_seqlens(slow)
    dtypes = (columns.attention_mask(rows).dtype, columns.position_ids(rows).dtype, flat.dtype)
    assert dtypes == (np.int8, np.int32, np.int32)
