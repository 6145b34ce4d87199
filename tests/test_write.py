"""Shards of a unit: where they are cut, what they are called, and what is left when something fails."""

import errno
import itertools
import os
import resource

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import drafts
from gristmill.config import WriteConfig
from gristmill.errors import RunError
from gristmill.formats import check_shard, lists, read_shard
from gristmill.pack.rows import slice_rows
from gristmill.write import ShardWriter, max_shard_tokens
from made_shards import (
    PAYLOAD,
    ROW_FORMATS,
    ROW_LENGTH,
    TABLES,
    files_of,
    flat,
    make_documents,
    make_layout,
    make_rows,
    write_documents,
    write_rows,
)

CONFIG = WriteConfig(format=PAYLOAD + ROW_FORMATS, shard_bytes=1 << 20, columns=("input_ids",))

DISTINCT = tuple(name for name in ROW_FORMATS if name != "pt")
"""pt is npy in another wrapping."""


def hidden(folder):
    return sorted(path.name for path in folder.rglob(".*"))


def open_writer(folder, config=CONFIG):
    writer = ShardWriter(folder, "00007", config, make_layout())
    ids, offsets = flat(make_documents([4, 9, 2]))
    writer.write_documents(ids, offsets, source="a.jsonl", positions=np.array([0, 50, 90]))
    return writer


def slow_shards(lengths, max_tokens, max_items):
    """Lengths of the documents of each shard, one document at a time."""
    shards = []
    for length in lengths:
        if not shards or sum(shards[-1]) + length > max_tokens or len(shards[-1]) == max_items:
            shards.append([])
        shards[-1].append(length)
    return shards


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 12), max_size=30),
    max_tokens=st.integers(1, 40),
    max_items=st.integers(1, 9) | st.none(),
    data=st.data(),
)
def test_shards_of_documents_are_cut_as_one_at_a_time_whatever_the_calls(
    tmp_path_factory, lengths, max_tokens, max_items, data
):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lengths)), max_size=4)))
    folder, whole = tmp_path_factory.mktemp("cut"), tmp_path_factory.mktemp("whole")
    documents = make_documents(lengths)
    options = {"formats": PAYLOAD + DISTINCT, "layout": make_layout(), "columns": ("input_ids",)}
    options |= {"shard_bytes": 2 * max_tokens, "rows_per_shard": max_items}
    shards = write_documents(folder, documents, cuts=cuts, **options)
    expected = slow_shards(lengths, max_tokens, max_items)
    assert [(s.num_documents, s.num_tokens) for s in shards] == [(len(e), sum(e)) for e in expected]
    assert write_documents(whole, documents, **options) == shards
    assert files_of(folder) == files_of(whole)


@settings(deadline=None, max_examples=15)
@given(sizes=st.lists(st.integers(0, 7), max_size=6), per_shard=st.integers(5, 20))
def test_shards_of_rows_are_the_same_whatever_the_calls(tmp_path_factory, sizes, per_shard):
    folder, whole = tmp_path_factory.mktemp("cut"), tmp_path_factory.mktemp("whole")
    rows = make_rows([[3, 2], [8], [1]] * 14)
    options = {"formats": DISTINCT, "layout": make_layout(sequence_length=ROW_LENGTH)}
    options |= {"shard_bytes": 2 * ROW_LENGTH * per_shard, "columns": ("labels", "input_ids", "cu_seqlens")}
    bounds = np.minimum(np.cumsum([0, *sizes, 50]), 42).tolist()
    parts = [slice_rows(rows, a, b) for a, b in itertools.pairwise(bounds)]
    shards = write_rows(folder, parts, **options)
    assert [shard.num_rows for shard in shards[:-1]] == [per_shard] * (len(shards) - 1)
    assert write_rows(whole, [rows], **options) == shards
    assert files_of(folder) == files_of(whole)


@pytest.mark.parametrize("name", TABLES)
def test_batches_inside_a_shard_do_not_depend_on_the_calls(tmp_path, monkeypatch, name):
    monkeypatch.setattr(lists, "BATCH_ROWS", 7)
    monkeypatch.setattr(lists, "BATCH_TOKENS", 30)
    lengths = [3, 9, 1, 50, 30, 31, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 12, 18, 1]
    documents = make_documents(lengths)
    options = {"formats": name, "layout": make_layout()}
    (shard,) = write_documents(tmp_path / "cut", documents, cuts=[1, 2, 4, 11], **options)
    assert write_documents(tmp_path / "whole", documents, **options) == [shard]
    view = read_shard(tmp_path / "cut", shard, name, make_layout())
    assert np.diff(view.starts).tolist() == [len(batch) for batch in slow_shards(lengths, 30, 7)]
    assert [view.ids(i).tolist() for i in range(view.num_items)] == [ids.tolist() for ids in documents]
    assert check_shard(tmp_path / "cut", shard, name, make_layout()) == []


def test_a_unit_without_documents_has_no_shards(tmp_path):
    assert write_documents(tmp_path, [], formats="megatron", layout=make_layout()) == []
    assert files_of(tmp_path) == {}


def test_nothing_has_its_name_before_commit_and_nothing_is_hidden_after(tmp_path):
    writer = open_writer(tmp_path)
    shards = writer.finish()
    assert all(name.startswith(".shard-00007-000.") for name in (p.name for p in tmp_path.glob("*/*")))
    writer.commit()
    assert hidden(tmp_path) == []
    recorded = {file.path for files in shards[0].files.values() for file in files}
    assert recorded == set(files_of(tmp_path))


def test_records_tell_size_and_checksum_of_every_file(tmp_path):
    (shard,) = write_documents(
        tmp_path, make_documents([4, 9, 2]), formats=PAYLOAD + ROW_FORMATS, layout=make_layout()
    )
    for file in (file for files in shard.files.values() for file in files):
        content = (tmp_path / file.path).read_bytes()
        assert (file.num_bytes, file.blake3) == (len(content), blake3(content).hexdigest())


@pytest.mark.parametrize("is_finished", [False, True])
def test_an_abandoned_unit_leaves_nothing(tmp_path, is_finished):
    writer = open_writer(tmp_path)
    if is_finished:
        writer.finish()
    writer.abandon()
    writer.abandon()
    assert files_of(tmp_path) == {}


def test_a_second_attempt_replaces_what_the_first_committed(tmp_path):
    options = {"formats": PAYLOAD, "layout": make_layout()}
    write_documents(tmp_path, make_documents([3, 4], seed=1), **options)
    shards = write_documents(tmp_path, make_documents([5, 6], seed=2), **options)
    assert read_shard(tmp_path, shards[0], "olmo", make_layout()).num_items == 2
    assert [check_shard(tmp_path, shards[0], name, make_layout()) for name in PAYLOAD] == [[]] * len(PAYLOAD)


def test_copies_stand_in_where_the_disk_has_no_hard_links(tmp_path, monkeypatch):
    documents = make_documents([4, 9, 2])
    write_documents(tmp_path / "linked", documents, formats=PAYLOAD, layout=make_layout())

    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(drafts.os, "link", no_links)
    write_documents(tmp_path / "copied", documents, formats=PAYLOAD, layout=make_layout())
    assert files_of(tmp_path / "copied") == files_of(tmp_path / "linked")
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("name", PAYLOAD + ROW_FORMATS)
@pytest.mark.parametrize("limit", [0, 3000, 12_000])
def test_a_disk_that_takes_no_more_is_an_error_with_a_remedy_and_leaves_nothing(tmp_path, name, limit):
    documents = make_documents([5] * 3000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(RunError, match=rf"{name}/shard-.*File too large.*run the same command again"):
            write_documents(tmp_path, documents, formats=name, layout=make_layout())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert files_of(tmp_path) == {}


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path):
    (tmp_path / "megatron").write_bytes(b"in the way")
    with pytest.raises(RunError, match=r"megatron/shard-00012-000.*cannot be written"):
        write_documents(tmp_path, make_documents([3]), formats="megatron", layout=make_layout())


def test_a_failed_commit_leaves_no_hidden_files(tmp_path):
    writer = open_writer(tmp_path)
    writer.finish()
    (tmp_path / "olmo" / "shard-00007-000.npy").mkdir()
    with pytest.raises(RunError, match=r"shard-00007-000\.npy"):
        writer.commit()
    assert hidden(tmp_path) == []


def test_files_are_readable_by_others_as_the_umask_says(tmp_path):
    before = os.umask(0o022)
    try:
        write_documents(tmp_path, make_documents([3]), formats="megatron", layout=make_layout())
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "megatron").iterdir()} == {0o644}


def test_llmc_shards_stay_where_an_int_can_seek():
    config = WriteConfig(format=("megatron", "llmc"), shard_bytes=1 << 40)
    assert max_shard_tokens(config, make_layout()) * 2 + 1024 < 1 << 31
    assert max_shard_tokens(WriteConfig(format="megatron", shard_bytes=1 << 40), make_layout()) == 1 << 39


def test_a_document_longer_than_formats_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.write.MAX_DOCUMENT_TOKENS", 8)
    with pytest.raises(RunError, match=r"byte 99 has 9 tokens.*read\.max_document_bytes"):
        write_documents(tmp_path, make_documents([4, 9, 2]), formats="megatron", layout=make_layout())
    assert files_of(tmp_path) == {}
