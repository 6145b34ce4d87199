"""A tokenizer travels to other processes by its origin, and arrives the same or not at all."""

import copy
import multiprocessing
import pickle
import shutil

import pytest

import gristmill
import made_tokenizers as made
from gristmill.sample import train_sample_tokenizer

TEXTS = ["The mill stands by the river.", "Zweimal wiegen."]


@pytest.fixture
def path(tmp_path):
    return train_sample_tokenizer(tmp_path, vocab_size=400)


def test_a_spawned_worker_gives_the_same_ids(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = gristmill.load_tokenizer(path.name)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (batch,) = pool.map(tokenizer.encode_batch, [TEXTS])
    expected = tokenizer.encode_batch(TEXTS)
    assert batch.ids.tolist() == expected.ids.tolist()
    assert batch.offsets.tolist() == expected.offsets.tolist()


def test_unpickling_keeps_the_options_and_the_engine_and_needs_no_folder(tmp_path, monkeypatch):
    (tmp_path / "own.tiktoken").write_bytes(made.rank_file(made.ranks()))
    monkeypatch.chdir(tmp_path)
    options = {"pattern": r"\w+|\W+", "special_tokens": {"<s>": 9000}, "engine": "slow"}
    tokenizer = gristmill.load_tokenizer("own.tiktoken", **options)
    content = pickle.dumps(tokenizer)
    monkeypatch.chdir("/")
    again = pickle.loads(content)
    assert (again.engine_name, again.fingerprint) == ("slow", tokenizer.fingerprint)
    assert again.special_tokens == {"<s>": 9000}


def test_a_file_that_has_changed_is_refused(path):
    content = pickle.dumps(gristmill.load_tokenizer(path))
    made.byte_level().save(str(path))
    with pytest.raises(gristmill.TokenizerError, match="another tokenizer"):
        pickle.loads(content)


def test_a_tokenizer_of_an_object_says_to_load_it_in_each_worker():
    with pytest.raises(gristmill.GristmillError, match="load_tokenizer in each worker"):
        pickle.dumps(gristmill.load_tokenizer(made.byte_level()))


def test_a_copy_is_the_tokenizer_itself(path):
    tokenizer = gristmill.load_tokenizer(path)
    shutil.rmtree(path.parent)
    assert copy.copy(tokenizer) is copy.deepcopy(tokenizer) is tokenizer
