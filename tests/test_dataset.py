"""gristmill.open: rows, documents and windows of a finished run, equal to what the run's own readers give."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest

import gristmill
from gristmill.convert import convert
from gristmill.dataset.items import MAX_OPEN_VIEWS
from gristmill.dataset.token_dataset import COLUMNS
from gristmill.errors import ConfigError, RunError
from gristmill.finished import find_item, open_run, rows_of, segments_of_rows
from gristmill.formats import FORMATS, TableFormat, read_shard
from gristmill.pack import columns as derived
from gristmill.pack.rows import offsets_of
from gristmill.records import VERSION
from made_runs import make_corpus, run
from made_shards import PAYLOAD, make_layout, make_rows, write_rows

LENGTH = 32
ALL_STORED = ("input_ids", "labels", "attention_mask", "position_ids", "cu_seqlens")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=2, num_docs=60)
    return folder


@pytest.fixture(scope="module")
def make_run(corpus, tokenizer, tmp_path_factory):
    """Runs by their options, each made once."""
    made = {}

    def make(**options):
        key = json.dumps(options, sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("run") / "out"
            run(tokenizer, corpus, made[key], **options)
        return made[key]

    return make


@pytest.fixture(scope="module")
def packed(make_run):
    """Rows with padding and several segments, in both tables, several shards a unit."""

    def make(mode="best_fit", columns=("input_ids", "cu_seqlens"), **options):
        return make_run(
            pack__mode=mode,
            pack__sequence_length=LENGTH,
            write__format=["arrow", "parquet"],
            write__columns=list(columns),
            write__rows_per_shard=50,
            **options,
        )

    return make


@pytest.fixture(scope="module")
def documents(make_run):
    return make_run(write__format=list(PAYLOAD))


def slow_rows(folder):
    """Every row of a run with its segments, by the readers that verify stands on."""
    opened = open_run(folder)
    found = []
    for index in range(opened.starts[-1]):
        place = find_item(opened, index)
        view = read_shard(folder, place.shard, opened.layout.formats[0], opened.layout)
        segments = segments_of_rows(opened, place.unit, place.item, place.item + 1)
        found.append(rows_of(view.ids(place.item_in_shard)[None], segments, place.item))
    return found, opened.layout


def slow_columns(rows, mask_first_token):
    return {
        "input_ids": rows.ids[0],
        "labels": derived.labels(rows, mask_first_token=mask_first_token)[0],
        "attention_mask": derived.attention_mask(rows)[0],
        "position_ids": derived.position_ids(rows)[0],
        "segment_ids": np.repeat(
            [*range(1, len(rows.lengths) + 1), 0], [*rows.lengths, LENGTH - rows.lengths.sum()]
        ),
        "cu_seqlens": derived.cu_seqlens(rows)[0],
    }


def same(a, b):
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
@pytest.mark.parametrize("stored", [("input_ids",), ("input_ids", "cu_seqlens"), ALL_STORED])
@pytest.mark.parametrize("mask", [False, True])
def test_every_column_of_every_row_is_what_packing_made(packed, form, stored, mask):
    folder = packed(columns=stored, pack__mask_first_token=mask)
    rows, layout = slow_rows(folder)
    assert any(one.num_padding for one in rows), "some row is padded"
    assert len(gristmill.open(folder)) == len(rows) > 100
    dataset = gristmill.open(folder, columns=COLUMNS, format=form)
    expected = [slow_columns(one, layout.mask_first_token) for one in rows]
    for index, one in enumerate(expected):
        same(dataset[index], one)
    order = np.random.default_rng(0).permutation(len(rows))
    batch = dataset[order]
    for name in COLUMNS[:-1]:
        np.testing.assert_array_equal(batch[name], np.stack([expected[i][name] for i in order]))
        assert batch[name].shape == (len(rows), LENGTH)


@pytest.mark.parametrize("mode", ["concat", "best_fit", "pad"])
@pytest.mark.parametrize("form", ["arrow", "parquet"])
@pytest.mark.parametrize("dtype", ["int64", "int32", None])
def test_one_row_by_the_short_way_is_the_row_by_the_long_way(packed, mode, form, dtype):
    folder = packed(mode)
    for columns in (["input_ids"], ["input_ids", "labels"]):
        dataset = gristmill.open(folder, columns=columns, dtype=dtype, format=form)
        for index in range(len(dataset)):
            long = {name: column[0] for name, column in dataset.take(np.array([index])).items()}
            short = dataset[index]
            same(short, long)
            assert {n: c.dtype for n, c in short.items()} == {n: c.dtype for n, c in long.items()}


def test_ids_are_int64_by_default_and_as_stored_on_request(packed):
    folder = packed("concat")
    row = gristmill.open(folder)[0]
    assert {name: str(column.dtype) for name, column in row.items()} == {
        "input_ids": "int64",
        "labels": "int64",
    }
    stored = gristmill.open(folder, dtype=None)[:2]
    assert stored["input_ids"].dtype == np.uint16
    assert stored["labels"].dtype == np.int32


def test_an_index_is_a_number_a_slice_a_list_or_a_mask(packed):
    dataset = gristmill.open(packed())
    size = len(dataset)
    same(dataset[-1], dataset[size - 1])
    same(dataset[np.int64(3)], dataset[3])
    same(dataset[2:5], {n: np.stack([dataset[i][n] for i in (2, 3, 4)]) for n in dataset.columns})
    same(dataset[[-1, 0, 0]], {n: np.stack([dataset[i][n] for i in (-1, 0, 0)]) for n in dataset.columns})
    same(dataset[np.arange(size) % 7 == 0], dataset[::7])
    assert dataset[5:5]["input_ids"].shape == (0, LENGTH)
    assert dataset[[]]["labels"].shape == (0, LENGTH)
    assert len(list(dataset)) == size


def test_an_item_that_is_not_there_is_an_index_error(packed):
    dataset = gristmill.open(packed())
    size = len(dataset)
    for index in (size, -size - 1, [0, size], [-size - 1]):
        with pytest.raises(IndexError, match=f"of {size}"):
            dataset[index]


def test_an_index_of_another_kind_is_a_type_error(packed):
    dataset = gristmill.open(packed())
    for index in ("a", 1.5, [0.5], [[1]], None):
        with pytest.raises(TypeError):
            dataset[index]


def test_borders_of_a_batch_are_those_of_its_rows_laid_end_to_end(packed):
    dataset = gristmill.open(packed(), columns=COLUMNS)
    batch = dataset[:]
    cuts = batch["cu_seqlens"]
    assert cuts[0] == 0
    assert cuts[-1] == batch["input_ids"].size
    assert np.all(np.diff(cuts) > 0)
    # Every run of one segment id, or of padding, is one stretch between two borders.
    ids = batch["segment_ids"] + np.arange(len(dataset))[:, None] * 1000
    ends = np.flatnonzero(np.diff(ids.reshape(-1))) + 1
    np.testing.assert_array_equal(cuts, [0, *ends, ids.size])


@pytest.mark.parametrize("columns", [("input_ids",), ALL_STORED])
def test_every_format_that_holds_rows_gives_the_same_rows(make_run, columns):
    names = [name for name, form in FORMATS.items() if isinstance(form, TableFormat)]
    folder = make_run(
        pack__mode="best_fit",
        pack__sequence_length=LENGTH,
        write__format=names,
        write__columns=list(columns),
        write__rows_per_shard=30,
    )
    assert len(names) >= 7
    first, *others = (gristmill.open(folder, columns=COLUMNS, format=name) for name in names)
    assert len(list((folder / "mds").glob("*.mds"))) > MAX_OPEN_VIEWS, "more shards than are kept open"
    for other in others:
        same(other[::-1], first[::-1])
        same(other[7], first[7])


def test_compressed_parquet_gives_the_same_rows(packed, make_run):
    plain = gristmill.open(packed(), columns=COLUMNS, format="parquet")
    folder = make_run(
        pack__mode="best_fit",
        pack__sequence_length=LENGTH,
        write__format="parquet",
        write__compression="zstd",
        write__rows_per_shard=50,
    )
    same(gristmill.open(folder, columns=COLUMNS)[:], plain[:])


def test_large_ids_and_rows_of_many_groups_are_mapped(tmp_path):
    """Groups of a shard end at 1,000 rows; ids of four bytes are stored in another way than those of two."""
    for dtype in ("uint16", "uint32"):
        layout = make_layout(
            mode="best_fit", sequence_length=8, pad_id=0, dtype=dtype, formats=("arrow", "parquet")
        )
        rows = make_rows([[3, 2], [8]] * 1750, dtype=dtype)
        folder = tmp_path / dtype
        shards = write_rows(folder, [rows], formats=("arrow", "parquet"), layout=layout)
        write_manifest(folder, layout, shards)
        for form in layout.formats:
            dataset = gristmill.open(folder, columns=["input_ids", "cu_seqlens"], format=form)
            taken = dataset.take(np.arange(3500))
            np.testing.assert_array_equal(taken["input_ids"], rows.ids)
            np.testing.assert_array_equal(dataset._items.gather(np.arange(3500), np.empty), rows.ids)
            assert [borders.tolist() for borders in taken["cu_seqlens"]] == [[0, 3, 5], [0, 8]] * 1750


def write_manifest(folder, layout, shards):
    """The manifest of a run whose shards are these."""
    fields = {name: getattr(layout, name) for name in layout.__struct_fields__}
    manifest = fields | {"version": VERSION, "gristmill": "0", "ledger": {}, "sidecars": []}
    manifest["shards"] = [msgspec.to_builtins(shard) for shard in shards]
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("form", [*PAYLOAD])
def test_documents_are_those_of_the_run(documents, form):
    opened = open_run(documents)
    view_of = {
        shard.name: read_shard(documents, shard, "megatron", opened.layout) for _, shard in opened.shards
    }
    dataset = gristmill.open(documents, format=form, columns=COLUMNS)
    assert len(dataset) == 120
    for index in range(len(dataset)):
        place = find_item(opened, index)
        ids = view_of[place.shard.name].ids(place.item_in_shard)
        document = dataset[index]
        np.testing.assert_array_equal(document["input_ids"], ids)
        np.testing.assert_array_equal(document["labels"], ids)
        np.testing.assert_array_equal(document["position_ids"], np.arange(len(ids)))
        assert document["cu_seqlens"].tolist() == [0, len(ids)]
        assert set(document["segment_ids"].tolist()) == {1}
    batch = dataset[[5, 0]]
    np.testing.assert_array_equal(
        batch["input_ids"], np.concatenate([dataset[5]["input_ids"], dataset[0]["input_ids"]])
    )
    assert (
        batch["cu_seqlens"].tolist()
        == offsets_of(np.array([len(dataset[5]["labels"]), len(dataset[0]["labels"])])).tolist()
    )


@pytest.mark.parametrize("form", [*PAYLOAD])
@pytest.mark.parametrize("length", [7, 1000])
def test_windows_are_the_stream_of_all_documents_cut(documents, form, length):
    """1,000 is longer than many documents, and windows cross from one shard into the next."""
    whole = gristmill.open(documents, format=form)
    texts = [whole[index]["input_ids"] for index in range(len(whole))]
    stream = np.concatenate(texts)
    number_of = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    dataset = gristmill.open(documents, sequence_length=length, format=form, columns=COLUMNS)
    size = len(stream) // length
    assert len(dataset) == size > 1
    batch = dataset[:]
    np.testing.assert_array_equal(batch["input_ids"].reshape(-1), stream[: size * length])
    numbers = number_of[: size * length].reshape(size, length)
    for window in range(size):
        _, counts = np.unique(numbers[window], return_counts=True)
        row = dataset[window]
        assert row["cu_seqlens"].tolist() == [0, *np.cumsum(counts)]
        assert row["position_ids"].tolist() == [place for count in counts for place in range(count)]


def test_windows_leave_out_the_first_token_of_a_document_where_the_run_says_so(make_run):
    folder = make_run(pack__mask_first_token=True)
    whole = gristmill.open(folder)
    firsts = np.cumsum([0] + [len(whole[index]["input_ids"]) for index in range(len(whole))])
    labels = gristmill.open(folder, sequence_length=10)[:]["labels"].reshape(-1)
    np.testing.assert_array_equal(np.flatnonzero(labels == -100), firsts[firsts < len(labels)])


def test_a_document_a_row_in_a_table_is_a_document(make_run, documents):
    folder = make_run(pack__mode="documents", write__format=["arrow", "parquet"])
    expected = gristmill.open(documents)[:]
    for form in ("arrow", "parquet"):
        same(gristmill.open(folder, format=form)[:], expected)
    with pytest.raises(ConfigError, match=r"convert .* --to megatron"):
        gristmill.open(folder, sequence_length=8)


@pytest.mark.parametrize("to", ["arrow", "parquet"])
def test_a_conversion_opens_like_the_run(packed, tmp_path, to):
    folder = packed("best_fit")
    other = tmp_path / "one"
    convert(folder, to, output=other, is_single_file=True)
    same(gristmill.open(other, columns=COLUMNS)[:], gristmill.open(folder, columns=COLUMNS)[:])


def test_a_conversion_without_borders_says_what_it_lacks(packed, tmp_path):
    convert(packed(columns=("input_ids",)), "arrow", output=tmp_path / "one", is_single_file=True)
    dataset = gristmill.open(tmp_path / "one", columns=["input_ids", "position_ids"])
    with pytest.raises(RunError, match="open the run folder itself"):
        dataset[0]


def test_a_dataset_travels_as_its_path_and_options(packed, documents, monkeypatch, tmp_path):
    monkeypatch.chdir(packed().parent)
    dataset = gristmill.open("out", columns=["input_ids", "position_ids"], dtype="int32", format="parquet")
    content = pickle.dumps(dataset)
    assert len(content) < 1000
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(content)
    assert again.columns == dataset.columns
    same(again[:], gristmill.open(packed(), columns=dataset.columns, dtype="int32")[:])
    windows = pickle.loads(pickle.dumps(gristmill.open(documents, sequence_length=9)))
    assert windows.row_length == 9


def test_a_run_that_was_made_anew_is_not_what_was_pickled(packed, documents, tmp_path):
    shutil.copytree(packed(), tmp_path / "run")
    content = pickle.dumps(gristmill.open(tmp_path / "run"))
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(documents, tmp_path / "run")
    with pytest.raises(RunError, match=r"not the run any more|has no"):
        pickle.loads(content)


def test_a_folder_that_is_no_finished_run_says_so(packed, tmp_path):
    with pytest.raises(RunError, match=r"has no manifest.json \(no run\)"):
        gristmill.open(tmp_path)
    with pytest.raises(RunError, match="there is no such folder"):
        gristmill.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"manifest\.json: is a file; a run is a folder"):
        gristmill.open(packed() / "manifest.json")
    shutil.copytree(packed(), tmp_path / "run")
    with pytest.raises(RunError, match=r"a part of one: give .*run\)"):
        gristmill.open(tmp_path / "run" / "units")
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(RunError, match="not finished; give the command that began it again"):
        gristmill.open(tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["labels"]}, "input_ids"),
        ({"columns": ["input_ids", "text"]}, "columns are input_ids, text"),
        ({"columns": "input_ids"}, "give a list"),
        ({"columns": ["input_ids", "input_ids"]}, "each once"),
        ({"sequence_length": 64}, "its rows have 32 tokens, not 64"),
        ({"sequence_length": 0}, "a number of tokens"),
        ({"dtype": "float32"}, "int64, int32 or None"),
        ({"format": "megatron"}, "has no megatron .* gristmill convert"),
    ],
)
def test_an_option_that_cannot_be_says_what_can(packed, options, message):
    with pytest.raises((ConfigError, RunError), match=message):
        gristmill.open(packed(), **options)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_shard_that_is_missing_or_cut_is_named(packed, tmp_path, form):
    folder = tmp_path / "run"
    shutil.copytree(packed(), folder)
    last = sorted((folder / form).glob(f"*.{form}"))[-1]
    dataset = gristmill.open(folder, format=form)
    content = last.read_bytes()
    last.write_bytes(content[:-9])
    with pytest.raises(RunError, match=rf"{last.name}: has {len(content) - 9} bytes, its record says"):
        dataset[-1]
    last.unlink()
    with pytest.raises(RunError, match=rf"{last.name}: is missing; run the job again"):
        dataset[-1]
    assert len(dataset[0]["input_ids"]) == LENGTH


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_damage_is_an_error_or_other_numbers_and_never_a_crash(packed, tmp_path, form):
    """Bytes are changed all over a shard, its size kept: rows are read, or `RunError` says why not."""
    folder = tmp_path / "run"
    shutil.copytree(packed(columns=ALL_STORED), folder)
    path = sorted((folder / form).glob(f"*.{form}"))[0]
    content = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for places in random.integers(0, len(content), (150, 3)).tolist():
        damaged = bytearray(content)
        for place in [*places, len(content) - 1 - places[0] % 600]:
            damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        try:
            dataset = gristmill.open(folder, columns=COLUMNS, format=form)
            for index in range(0, 50, 7):
                assert dataset[index]["input_ids"].shape == (LENGTH,)
        except RunError:
            refused += 1
    assert 0 < refused <= 150


def test_a_table_of_segments_that_is_cut_is_named(packed, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(packed(columns=("input_ids",)), folder)
    path = min((folder / "units").glob("*.segments"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match=r"\.segments: cannot be read .*; gristmill verify says more"):
        gristmill.open(folder, columns=["input_ids", "position_ids"])[0]


def test_a_manifest_that_names_files_elsewhere_is_refused(packed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(packed(), folder)
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("arrow/shard-00000-000.arrow", "../shard-00000-000.arrow"))
    with pytest.raises(RunError, match="it is damaged"):
        gristmill.open(folder, format="arrow")


@pytest.mark.parametrize("change", [{"formats": []}, {"num_rows": -1}, {"num_tokens": -1}])
def test_a_manifest_with_counts_that_cannot_be_is_refused(packed, tmp_path, change):
    shutil.copytree(packed(), tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_bytes())
    (manifest if "formats" in change else manifest["shards"][1]).update(change)
    path.write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=r"manifest.json: is damaged \(no format, or a count under 0\)"):
        gristmill.open(tmp_path / "run")


@pytest.mark.parametrize("index", [0, slice(0, 3)])
def test_borders_that_do_not_begin_with_0_are_refused(tmp_path, index):
    layout = make_layout(mode="concat", sequence_length=8, pad_id=0, formats=("mds",))
    (shard,) = write_rows(tmp_path, [make_rows([[3, 5]] * 3)], formats=("mds",), layout=layout)
    write_manifest(tmp_path, layout, [shard])
    (path,) = (tmp_path / "mds").glob("*.mds")
    borders = np.array([0, 3, 8], "<i4").tobytes()
    content = path.read_bytes()
    assert borders in content
    for first in (1, 4, -1, 1 << 24):
        path.write_bytes(content.replace(borders, np.array([first, 3, 8], "<i4").tobytes(), 1))
        for columns in (["input_ids", "cu_seqlens"], ["input_ids", "position_ids"], COLUMNS):
            with pytest.raises(RunError, match="do not rise from 0 to its length"):
                gristmill.open(tmp_path, columns=columns)[index]


def test_ten_thousand_shards_are_opened_in_under_a_second_by_the_manifest_and_one_shard(tmp_path):
    """It takes tens of milliseconds: only another algorithm breaks the bound."""
    layout = make_layout(mode="concat", sequence_length=8, pad_id=0, formats=("arrow",))
    (shard,) = write_rows(tmp_path, [make_rows([[8]] * 3)], formats=("arrow",), layout=layout)
    write_manifest(tmp_path, layout, [shard] * 10_000)
    start = time.process_time()
    dataset = gristmill.open(tmp_path)
    assert time.process_time() - start < 1
    assert len(dataset) == 30_000
    assert dataset[29_999]["input_ids"].tolist() == dataset[2]["input_ids"].tolist()


@pytest.mark.parametrize("form", ["arrow", "parquet", "npy", "pt"])
def test_no_file_stays_open_however_many_shards_are_read(make_run, form):
    folder = make_run(
        pack__mode="concat", pack__sequence_length=LENGTH, write__format=form, write__rows_per_shard=30
    )
    assert len(list((folder / form).iterdir())) > 8
    dataset = gristmill.open(folder, columns=["input_ids", "cu_seqlens"])
    before = len(os.listdir("/proc/self/fd"))
    dataset[:]
    assert len(os.listdir("/proc/self/fd")) == before


def test_opening_needs_no_torch(packed):
    code = (
        "import sys, gristmill; ds = gristmill.open(sys.argv[1]); ds[0]; ds[:3]; ds.__getitems__([1]); "
        "next(iter(ds.loader(batch_size=2))); print('torch' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(packed())], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"


def test_no_damage_of_a_parquet_footer_ends_the_process(packed, tmp_path):
    """In a process of its own: pyarrow ends the one that asks for columns that a footer has wrong."""
    shutil.copytree(packed(columns=ALL_STORED), tmp_path / "run")
    code = """
import sys, gristmill
from pathlib import Path
path = sorted(Path(sys.argv[1], "parquet").glob("*.parquet"))[0]
content = path.read_bytes()
start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
for at in range(start, len(content)):
    path.write_bytes(content[:at] + bytes([content[at] ^ (16, 255)[at % 2]]) + content[at + 1 :])
    try:
        gristmill.open(sys.argv[1], format="parquet")[0]
    except gristmill.GristmillError:
        pass
print("lives")
"""
    ended = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], check=True, capture_output=True)
    assert ended.stdout == b"lives\n"
