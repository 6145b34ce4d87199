"""CausalLMTokenizer gives the rows that transformers and a plain loop give, for every kind of dataset."""

import json
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
import sentencepiece
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

import gristmill
from causal_places import KINDS, byte_level, real_texts
from gristmill.causal import table
from gristmill.errors import ConfigError, InputError, TokenizerError
from made_tokenizers import sentencepiece_model
from slow_causal import slow_rows

NAMES = ["input_ids", "attention_mask", "labels"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of tokenizers by kind, each made when it is first asked for."""
    place, made = tmp_path_factory.mktemp("tokenizers"), {}

    def folder(kind):
        if kind not in made:
            made[kind] = KINDS[kind](place / kind)
        return made[kind]

    return folder


@pytest.fixture(autouse=True)
def quiet():
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def causal(folder, **options):
    return gristmill.CausalLMTokenizer({"tokenizer_name": str(folder), "show_progress": False} | options)


def saved(texts, path, **columns):
    """A dataset in files, as users have it; a few documents to a record batch."""
    made = datasets.Dataset.from_dict({"text": list(texts), **columns})
    made.save_to_disk(path)
    return datasets.load_from_disk(path)


def rows_of(dataset):
    return [{name: list(row[name]) for name in NAMES} for row in dataset]


def pad_of(tokenizer):
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id


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


def one_text(text):
    return datasets.Dataset.from_dict({"text": [text]})


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


def test_a_null_in_a_stream_is_named(folders):
    dataset = datasets.Dataset.from_dict({"text": ["a", None]}).to_iterable_dataset()
    stream = causal(folders("byte_level"), context_length=8).tokenize(dataset)
    with pytest.raises(InputError, match=r"^in a batch of 2 documents of the stream, row 1: text is null"):
        list(stream)


def test_a_stream_whose_columns_nobody_knows_is_looked_at(folders):
    def records():
        for text in ("some text", "", "more text"):
            yield {"body": text, "other": 1 if text else "mixed"}

    dataset = datasets.IterableDataset.from_generator(records)
    made = causal(folders("byte_level"), context_length=8, text_column="body").tokenize(dataset)
    texts = datasets.Dataset.from_dict({"text": [record["body"] for record in records()]})
    assert rows_of(made) == rows_of(causal(folders("byte_level"), context_length=8).tokenize(texts))
    with pytest.raises(InputError, match=r"no column 'text' \(it has body, other\); set text_column"):
        list(causal(folders("byte_level"), context_length=8).tokenize(dataset))


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


def test_a_stream_goes_on_where_its_state_was_taken(folders):
    dataset = datasets.Dataset.from_dict({"text": list(real_texts()[:60])}).to_iterable_dataset(num_shards=4)
    for batch_size in (7, 25):
        config = {"context_length": 16, "batch_size": batch_size}
        stream = causal(folders("byte_level"), **config).tokenize(dataset)
        expected = rows_of(stream)
        for stop in (1, 40, len(expected) - 1):
            rows = iter(stream)
            taken = [next(rows) for _ in range(stop)]
            state = stream.state_dict()
            other = causal(folders("byte_level"), **config).tokenize(dataset)
            other.load_state_dict(state)
            assert rows_of(taken) + rows_of(other) == expected


def test_a_stream_keeps_its_shards_and_shuffles(folders):
    dataset = datasets.Dataset.from_dict({"text": list(real_texts()[:60])}).to_iterable_dataset(num_shards=4)
    stream = causal(folders("byte_level"), context_length=16).tokenize(dataset)
    assert stream.num_shards == 4
    shuffled = rows_of(stream.shuffle(seed=1, buffer_size=50))
    assert shuffled != rows_of(stream)
    assert sorted(map(json.dumps, shuffled)) == sorted(map(json.dumps, rows_of(stream)))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_loader_processes_share_a_stream(start, folders):
    dataset = datasets.Dataset.from_dict({"text": list(real_texts()[:60])}).to_iterable_dataset(num_shards=4)
    stream = causal(folders("byte_level"), context_length=16).tokenize(dataset).with_format("torch")
    expected = sorted(row["input_ids"].tolist() for row in stream)
    loader = DataLoader(stream, batch_size=None, num_workers=2, multiprocessing_context=start)
    assert sorted(row["input_ids"].tolist() for row in loader) == expected


def test_a_stream_can_be_pickled(folders):
    dataset = datasets.Dataset.from_dict({"text": ["some text"]}).to_iterable_dataset()
    stream = causal(folders("byte_level"), context_length=8).tokenize(dataset)
    assert rows_of(pickle.loads(pickle.dumps(stream))) == rows_of(stream)


def first_row(folder, text="ab", **options):
    made = causal(folder, context_length=8, **options).tokenize(one_text(text))
    return made[0]["input_ids"]


def test_bos_and_eos_are_what_the_tokenizer_adds_unless_told(folders):
    bos, *rest = first_row(folders("llama3"))
    assert bos == 128000
    assert first_row(folders("llama3"), add_bos=False)[: len(rest) - 1] == rest[:-1]
    eos = AutoTokenizer.from_pretrained(folders("byte_level")).eos_token_id
    plain = first_row(folders("byte_level"))
    number = len([id_ for id_ in plain if id_ != plain[-1]])
    assert first_row(folders("byte_level"), add_eos=True)[number] == eos
    assert first_row(folders("byte_level"), add_eos=True, eos_id=5)[number] == 5
    assert first_row(folders("byte_level"), add_bos=True, bos_id=6)[0] == 6
    assert first_row(folders("word_piece"))[0] == 2


def test_switches_beside_a_tokenizer_json_have_no_say_as_in_transformers(tmp_path):
    folder = byte_level(tmp_path / "switched")
    switches = {"bos_token": "<|pad|>", "add_bos_token": True, "pad_token": "<|pad|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(switches))
    expected = AutoTokenizer.from_pretrained(folder)("ab")["input_ids"]
    assert first_row(folder)[: len(expected)] == expected
    assert first_row(folder, add_bos=True)[1 : 1 + len(expected)] == expected


def test_padding_falls_back_to_a_token_that_ends_documents(tmp_path):
    folder = byte_level(tmp_path / "bare")
    (folder / "tokenizer_config.json").unlink()
    assert first_row(folder)[-1] == gristmill.load_tokenizer(folder).special_tokens["<|endoftext|>"]
    assert first_row(folder, pad_id=9)[-1] == 9


def test_special_tokens_in_text_follow_the_policy(folders):
    text = "<|endoftext|>"
    eos = AutoTokenizer.from_pretrained(folders("byte_level")).eos_token_id
    assert first_row(folders("byte_level"), text)[0] == eos
    assert first_row(folders("byte_level"), text, special_tokens="text")[0] != eos
    with pytest.raises(InputError, match=r"^rows 0 to 0 .*<\|endoftext\|>"):
        first_row(folders("byte_level"), text, special_tokens="error")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"add_bos": True}, r"add_bos is True, and the tokenizer .* names no BOS; set bos_id"),
        ({"eos_id": 400_000}, r"eos_id is 400000; the tokenizer .* has ids 0 to \d+$"),
        ({"pad_id": 400}, r"pad_id is 400; the tokenizer .* has ids 0 to \d+$"),
    ],
)
def test_ids_that_a_tokenizer_lacks_are_refused(options, message, folders):
    with pytest.raises(ConfigError, match=message):
        first_row(folders("byte_level"), **options)


def test_what_is_no_dataset_of_text_is_refused(folders):
    tokenizer = causal(folders("byte_level"), context_length=8)
    with pytest.raises(InputError, match="dataset is a list; it needs a Dataset"):
        tokenizer.tokenize([{"text": "a"}])
    with pytest.raises(InputError, match=r"no column 'text' \(it has body\); set text_column"):
        tokenizer.tokenize(datasets.Dataset.from_dict({"body": ["a"]}))
    with pytest.raises(InputError, match=r"column text.*array of int64; string"):
        tokenizer.tokenize(datasets.Dataset.from_dict({"text": [1]}))


def test_a_name_that_is_no_tokenizer_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    for name in (tmp_path / "empty", "./no/such/folder"):
        with pytest.raises(TokenizerError):
            first_row(name)


def test_a_tokenizer_of_the_reference_engine_restores_the_environment(folders, monkeypatch, caplog):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    seen = []
    encode = gristmill.Tokenizer.encode_batch

    def spied(*arguments, **options):
        seen.append((os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"].isdigit()))
        return encode(*arguments, **options)

    monkeypatch.setattr(gristmill.Tokenizer, "encode_batch", spied)
    with caplog.at_level(logging.INFO, "gristmill.causal"):
        causal(folders("word_piece"), context_length=8, batch_size=20).tokenize(one_text("ab"))
    assert seen == [("true", True)]
    assert [os.environ["TOKENIZERS_PARALLELISM"], "RAYON_NUM_THREADS" in os.environ] == ["false", False]
    line = "Performance configuration: batch_size=20, parallelism=fast_tokenizer_internal"
    assert caplog.messages == [line]


def test_a_sentencepiece_model_is_encoded_by_threads_of_its_library(tmp_path, caplog):
    content = sentencepiece_model(model_type="unigram")
    (tmp_path / "tokenizer.model").write_bytes(content)
    texts = list(real_texts()[::100])
    with caplog.at_level(logging.INFO, "gristmill.causal"):
        made = causal(tmp_path, context_length=16, batch_size=50, special_tokens="text").tokenize(
            datasets.Dataset.from_dict({"text": texts})
        )
    assert caplog.messages == ["Performance configuration: batch_size=50, parallelism=library_threads"]
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    pad_id = processor.eos_id()
    reference = lambda text: {"input_ids": processor.encode(text)}  # noqa: E731
    assert rows_of(made) == slow_rows(reference, texts, context_length=16, pad_id=pad_id)


def test_the_strategy_is_logged_in_one_line(folders, caplog):
    with caplog.at_level(logging.INFO, "gristmill.causal"):
        causal(folders("byte_level"), context_length=8, batch_size=2000, num_proc=2).tokenize(one_text("ab"))
    first, second = caplog.messages
    assert first == "Performance configuration: batch_size=2000, parallelism=native_threads"
    assert second.startswith("num_proc=2 is ignored")
    caplog.clear()
    causal(folders("byte_level"), context_length=8, verbose_level="WARNING").tokenize(one_text("ab"))
    assert caplog.messages == []


def test_a_batch_is_small_where_documents_are_large_or_memory_is_short(monkeypatch):
    small, large = ["word"] * 100, ["word " * 100_000] * 100
    sizes = [table.choose_batch_size(datasets.Dataset.from_dict({"text": t}), "text") for t in (small, large)]
    assert sizes[0] == table.MAX_BATCH
    assert sizes[1] < 100
    monkeypatch.setattr(table, "available_memory", lambda: 100 << 20)
    assert table.choose_batch_size(datasets.Dataset.from_dict({"text": large}), "text") < sizes[1]


def test_an_old_vocabulary_without_a_tokenizer_json_is_loaded(folders, tmp_path):
    shutil.copy(folders("slow_word_piece") / "vocab.txt", tmp_path / "vocab.txt")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    expected = AutoTokenizer.from_pretrained(tmp_path)("the other fox")["input_ids"]
    assert AutoTokenizer.from_pretrained(tmp_path).is_fast
    assert first_row(tmp_path, "the other fox")[: len(expected)] == expected[:8]
