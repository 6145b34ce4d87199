"""CausalLMTokenizer gives the rows that transformers and a plain loop give, for every kind of dataset."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
from transformers import AutoTokenizer

import gristmill
from causal_places import NAMES, causal, one_text, pad_of, real_texts, rows_of
from gristmill.causal import table
from gristmill.errors import InputError, MissingPackageError
from slow_causal import slow_rows


def saved(texts, path, **columns):
    """A dataset in files, as users have it; a few documents to a record batch."""
    made = datasets.Dataset.from_dict({"text": list(texts), **columns})
    made.save_to_disk(path)
    return datasets.load_from_disk(path)


@pytest.mark.parametrize(
    ("kind", "step"),
    [("byte_level", 4), ("llama3", 1), ("word_piece", 4), ("slow_word_piece", 16), ("slow_bytes", 32)],
)
def test_real_documents_become_the_rows_of_a_plain_loop(kind, step, folders):
    reference = AutoTokenizer.from_pretrained(folders(kind))
    texts = real_texts()[::step]
    assert len(texts) * step >= 5000
    ids = dict(zip(texts, reference(list(texts))["input_ids"], strict=True))
    dataset = datasets.Dataset.from_dict({"text": texts})
    for overlap, num_proc in ((0, 1), (128, 2)):
        config = {"context_length": 256, "overlap": overlap}
        made = causal(folders(kind), num_proc=num_proc, **config).tokenize(dataset)
        pad_id = 128000 if kind == "llama3" else pad_of(reference)
        expected = slow_rows(lambda text: {"input_ids": ids[text]}, texts, **config, pad_id=pad_id)
        assert made.column_names == NAMES
        assert len(made) == len(expected)
        for name in NAMES:
            rows = np.array([row[name] for row in expected])
            assert np.array_equal(np.array(made.with_format("numpy")[name]), rows)


@pytest.mark.parametrize("overlap", [0, 5])
@pytest.mark.parametrize("mask_overlap", [False, True])
def test_every_kind_of_dataset_gives_the_same_rows(overlap, mask_overlap, folders):
    reference = AutoTokenizer.from_pretrained(folders("byte_level"))
    texts = [*real_texts()[::40], "", "<|endoftext|>", "a <|pad|> b"]
    config = {"context_length": 16, "overlap": overlap, "mask_overlap": mask_overlap}
    tokenizer = causal(folders("byte_level"), **config)
    expected = slow_rows(reference, texts, **config, pad_id=pad_of(reference))
    dataset = datasets.Dataset.from_dict({"text": texts, "other": list(range(len(texts)))})
    stream = dataset.to_iterable_dataset(num_shards=3)
    assert rows_of(tokenizer.tokenize(dataset)) == expected
    assert rows_of(tokenizer.tokenize(stream)) == expected
    split = tokenizer.tokenize(datasets.DatasetDict(train=dataset, test=dataset.select(range(9))))
    assert type(split) is datasets.DatasetDict
    assert rows_of(split["train"]) == expected
    assert rows_of(split["test"]) == slow_rows(reference, texts[:9], **config, pad_id=pad_of(reference))
    splits = tokenizer.tokenize(datasets.IterableDatasetDict(train=stream, test=stream.take(9)))
    assert type(splits) is datasets.IterableDatasetDict
    assert [rows_of(splits["train"]), rows_of(splits["test"])] == [expected, rows_of(split["test"])]


def test_masking_the_overlap_trains_every_token_once(folders):
    dataset = datasets.Dataset.from_dict({"text": ["word " * 500]})
    plain = causal(folders("byte_level"), context_length=32).tokenize(dataset)
    config = {"context_length": 32, "overlap": 7, "mask_overlap": True}
    masked = causal(folders("byte_level"), **config).tokenize(dataset)

    def learned(rows):
        return [label for row in rows for label in row["labels"] if label != -100]

    assert learned(masked) == learned(plain)
    assert all(row["labels"][:7] == [-100] * 7 for row in list(masked)[1:])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_columns_are_of_the_dtype_asked_for(dtype, folders):
    dataset = datasets.Dataset.from_dict({"text": ["some text"]})
    for data in (dataset, dataset.to_iterable_dataset()):
        made = causal(folders("byte_level"), context_length=8, dtype=dtype).tokenize(data)
        found = {name: kind.feature.dtype for name, kind in made.features.items()}
        assert found == {"input_ids": dtype, "attention_mask": "int8", "labels": dtype}


def test_the_file_is_the_same_for_any_batch_size_and_any_chunks(folders, tmp_path, monkeypatch):
    texts = list(real_texts()[::20])
    monkeypatch.setattr(table, "RECORD_BATCH_BYTES", 10_000)
    contents = []
    for number, (batch_size, part_bytes) in enumerate([(1, 1 << 20), (7, 50), (2000, 3000), (None, 1 << 24)]):
        monkeypatch.setattr(table, "PART_BYTES", (part_bytes, part_bytes))
        cut = [pa.table({"text": texts[i : i + 13 + number]}) for i in range(0, len(texts), 13 + number)]
        dataset = datasets.Dataset(pa.concat_tables(cut))
        config = {"context_length": 32, "overlap": 3, "batch_size": batch_size}
        made = causal(folders("byte_level"), **config).tokenize(dataset)
        with open(made.cache_files[0]["filename"], "rb") as file:
            contents.append(file.read())
    assert contents[1:] == contents[:1] * 3


def test_selected_and_shuffled_rows_are_honoured(folders, tmp_path):
    dataset = saved(real_texts()[:200], tmp_path / "data")
    tokenizer = causal(folders("byte_level"), context_length=32)
    chosen = dataset.shuffle(seed=3).select(range(10, 90))
    expected = [row for text in chosen["text"] for row in rows_of(tokenizer.tokenize(one_text(text)))]
    assert rows_of(tokenizer.tokenize(chosen)) == expected


def test_large_strings_other_columns_and_an_empty_dataset_are_fine(folders):
    tokenizer = causal(folders("byte_level"), context_length=8, text_column="body")
    large = datasets.Dataset(pa.table({"body": pa.array(["some text"], pa.large_string()), "n": [1]}))
    small = datasets.Dataset.from_dict({"body": ["some text"], "list": [[1, 2]]})
    assert rows_of(tokenizer.tokenize(large)) == rows_of(tokenizer.tokenize(small)) != []
    empty = tokenizer.tokenize(small.select([]))
    assert [len(empty), empty.column_names] == [0, NAMES]
    assert len(tokenizer.tokenize(datasets.Dataset.from_dict({"body": ["", ""]}))) == 0


def test_the_same_call_again_takes_the_rows_from_the_cache(folders, tmp_path, caplog):
    dataset = saved(real_texts()[:50], tmp_path / "data")
    config = {"context_length": 32, "tokenizer_name": str(folders("byte_level")), "show_progress": False}
    first = gristmill.CausalLMTokenizer(config).tokenize(dataset)
    before = os.stat(first.cache_files[0]["filename"]).st_mtime_ns
    caplog.clear()
    with caplog.at_level(logging.INFO, "gristmill.causal"):
        again = gristmill.CausalLMTokenizer(config | {"batch_size": 3}).tokenize(
            datasets.load_from_disk(tmp_path / "data")
        )
    assert again._fingerprint == first._fingerprint
    assert again.cache_files == first.cache_files
    assert os.stat(again.cache_files[0]["filename"]).st_mtime_ns == before
    assert [str(tmp_path) in line for line in caplog.messages] == [True]
    assert rows_of(again) == rows_of(first)


def test_another_config_or_dataset_has_another_fingerprint(folders, tmp_path):
    dataset = saved(real_texts()[:50], tmp_path / "data", body=list(real_texts()[50:100]))
    changes = [{}, {"overlap": 1}, {"mask_overlap": True}, {"context_length": 33}, {"dtype": "int32"}]
    changes += [{"add_eos": True}, {"pad_id": 7}, {"special_tokens": "text"}, {"text_column": "body"}]
    config = {"context_length": 32, "overlap": 2}
    made = [causal(folders("byte_level"), **(config | change)).tokenize(dataset) for change in changes]
    made.append(causal(folders("byte_level"), **config).tokenize(dataset.select(range(49))))
    assert len({one._fingerprint for one in made}) == len(made)


def test_a_damaged_cache_file_is_written_again(folders, tmp_path):
    dataset = saved(real_texts()[:50], tmp_path / "data")
    tokenizer = causal(folders("byte_level"), context_length=32)
    first = tokenizer.tokenize(dataset)
    expected, path = rows_of(first), first.cache_files[0]["filename"]
    del first
    whole = Path(path).read_bytes()
    for damaged in (b"nothing of the kind", whole[: len(whole) // 2], whole[:-4], b""):
        Path(path).write_bytes(damaged)
        assert rows_of(tokenizer.tokenize(dataset)) == expected


def test_a_failure_midway_leaves_no_file_behind(folders, tmp_path):
    dataset = saved([*real_texts()[:50], None], tmp_path / "data")
    before = sorted(os.listdir(tmp_path / "data"))
    with pytest.raises(InputError, match=r"^row 50: text is null; drop such rows: dataset.filter"):
        causal(folders("byte_level"), context_length=32, batch_size=5).tokenize(dataset)
    assert sorted(os.listdir(tmp_path / "data")) == before


def test_a_killed_process_leaves_no_rows_and_its_draft_goes_in_time(folders, tmp_path):
    saved(real_texts(), tmp_path / "data")
    before = set(os.listdir(tmp_path / "data"))
    script = f"""
import datasets, gristmill, os, signal
from gristmill.causal import table
table.PART_BYTES = (50_000, 50_000)
flush = table.RowsFile._flush
def killed(self):
    flush(self)
    os.kill(os.getpid(), signal.SIGKILL)
table.RowsFile._flush = killed
config = dict(tokenizer_name={str(folders("byte_level"))!r}, context_length=32, verbose_level="ERROR")
gristmill.CausalLMTokenizer(config).tokenize(datasets.load_from_disk({str(tmp_path / "data")!r}))
"""
    environment = os.environ | {"PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL
    (draft,) = set(os.listdir(tmp_path / "data")) - before
    os.utime(tmp_path / "data" / draft, (0, 0))
    dataset = datasets.load_from_disk(tmp_path / "data")
    made = causal(folders("byte_level"), context_length=32).tokenize(dataset)
    assert len(made) >= len(dataset)
    assert set(os.listdir(tmp_path / "data")) - before == {Path(made.cache_files[0]["filename"]).name}


def test_a_full_disk_is_named_and_leaves_no_file_behind(folders, tmp_path):
    saved(real_texts(), tmp_path / "data")
    before = sorted(os.listdir(tmp_path / "data"))
    script = f"""
import datasets, gristmill, resource
dataset = datasets.load_from_disk({str(tmp_path / "data")!r})
config = dict(tokenizer_name={str(folders("byte_level"))!r}, context_length=32, verbose_level="ERROR")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    gristmill.CausalLMTokenizer(config).tokenize(dataset)
except gristmill.GristmillError as error:
    print(error)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True)
    assert b"data: rows cannot be written there (" in ended.stdout
    assert sorted(os.listdir(tmp_path / "data")) == before


def test_a_transform_is_refused_rather_than_left_out(folders):
    dataset = datasets.Dataset.from_dict({"text": ["some text"]}).with_transform(lambda batch: batch)
    with pytest.raises(InputError, match=r"has a transform .*; apply it with dataset.map, or drop it"):
        causal(folders("byte_level"), context_length=8).tokenize(dataset)


def test_a_dataset_where_nothing_may_be_written_is_tokenized_elsewhere(folders, tmp_path, monkeypatch):
    dataset = saved(real_texts()[:50], tmp_path / "data")
    real_access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real_access(path, mode))
    made = causal(folders("byte_level"), context_length=32).tokenize(dataset)
    assert str(tmp_path) not in made.cache_files[0]["filename"]
    assert len(made) >= 50


def test_split_info_and_format_are_kept(folders):
    dataset = datasets.Dataset.from_dict({"text": ["some text"]}, split="train").with_format("numpy")
    made = causal(folders("byte_level"), context_length=8).tokenize(dataset)
    assert [str(made.split), made.format["type"]] == ["train", "numpy"]
    assert isinstance(made[0]["labels"], np.ndarray)
    stream = dataset.with_format(None).to_iterable_dataset().with_format("numpy")
    stream = causal(folders("byte_level"), context_length=8).tokenize(stream)
    assert isinstance(next(iter(stream))["labels"], np.ndarray)


def test_without_datasets_the_extra_is_named(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'gristmill\[datasets\]'"):
        causal(folders("byte_level"), context_length=8).tokenize([])
