"""A stream of text becomes a stream of rows that can be resumed, shared and shuffled like any other."""

import json
import pickle

import datasets
import pytest
from torch.utils.data import DataLoader

from causal_places import causal, real_texts, rows_of
from gristmill.errors import InputError


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


@pytest.mark.parametrize("odd", [None, 5, ["a"]])
def test_what_is_no_text_in_a_stream_whose_columns_nobody_knows_is_named(folders, odd):
    def records():
        yield from ({"text": "some text"}, {"text": odd})

    made = causal(folders("byte_level"), context_length=8).tokenize(
        datasets.IterableDataset.from_generator(records)
    )
    with pytest.raises(InputError, match=r"has no text in text but .*; drop such ones: dataset.filter"):
        list(made)


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
