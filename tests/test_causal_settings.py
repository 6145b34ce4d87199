"""Every mistake in the config of CausalLMTokenizer is one line: the key, the value, what is allowed."""

import re
from pathlib import Path

import pytest

import gristmill
from gristmill.causal.settings import allowed, as_causal
from gristmill.errors import ConfigError, InputError

GOOD = {"context_length": 2048, "tokenizer_name": "gpt2"}
BLOCK = """\
tokenizer:
  context_length: 2048        # required
  overlap: 128                # optional, tokens shared by neighbouring windows of a document
  tokenizer_name: gpt2        # path, hub name or alias
  verbose_level: INFO         # DEBUG | INFO | WARNING | ERROR
  batch_size: 2000            # 1-10000, default chosen from memory and document size
  num_proc: null              # 1-32, default chosen; 1 forces a single process for debugging
  show_progress: true
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context_lenght": 9}, "context_lenght is 9: no such key; the nearest is context_length, which"),
        ({"max_length": 512}, "max_length is 512: no such key; the nearest is context_length, which takes"),
        ({"stride": 128}, "stride is 128: no such key; the nearest is overlap, which takes a whole"),
        ({"zzz": None}, "zzz is None: no such key; the nearest is "),
        ({"context_length": "long"}, "context_length is 'long'; it needs a whole number from 2 to 16777216"),
        ({"context_length": 1}, "context_length is 1; it needs a whole number from 2 to 16777216"),
        ({"context_length": True}, "context_length is True; it needs a whole number from 2"),
        ({"context_length": 10.5}, "context_length is 10.5; it needs a whole number from 2"),
        ({"context_length": 10**30}, f"context_length is {10**30}; it needs a whole number from 2"),
        ({"context_length": None}, "context_length is missing; it needs a whole number from 2"),
        ({"tokenizer_name": None}, "tokenizer_name is missing; it needs text"),
        ({"tokenizer_name": 5}, "tokenizer_name is 5; it needs text"),
        ({"overlap": 2048}, "overlap is 2048; it can be 0 to 2047, less than context_length, which is 2048"),
        ({"overlap": 5000}, "overlap is 5000; it can be 0 to 2047, less than context_length, which is 2048"),
        ({"overlap": -1}, "overlap is -1; it needs a whole number from 0"),
        ({"batch_size": 0}, "batch_size is 0; it needs a whole number from 1 to 10000, or null"),
        ({"batch_size": 10_001}, "batch_size is 10001; it needs a whole number from 1 to 10000, or null"),
        ({"batch_size": "2e3"}, "batch_size is '2e3'; it needs a whole number from 1 to 10000, or null"),
        ({"num_proc": 33}, "num_proc is 33; it needs a whole number from 1 to 32, or null"),
        ({"num_proc": [1]}, "num_proc is [1]; it needs a whole number from 1 to 32, or null"),
        ({"show_progress": "yes"}, "show_progress is 'yes'; it needs true or false"),
        ({"verbose_level": "info"}, "verbose_level is 'info'; it needs one of DEBUG, INFO, WARNING, ERROR; "),
        ({"dtype": "int46"}, "dtype is 'int46'; it needs one of int64, int32; the nearest is int64"),
        ({"add_eos": "no"}, "add_eos is 'no'; it needs true or false, or null"),
        ({"text_column": ["a"]}, "text_column is ['a']; it needs text"),
    ],
    ids=repr,
)
def test_a_mistake_is_named_in_one_line(change, message):
    for config in (GOOD | change, {"tokenizer": GOOD | change, "model": {"layers": 2}}):
        with pytest.raises(ConfigError) as raised:
            as_causal(config)
        text = str(raised.value)
        assert text.removeprefix("tokenizer.").startswith(message)
        assert "\n" not in text
        assert text.startswith("tokenizer.") == ("model" in config)


def test_a_missing_context_length_is_named():
    with pytest.raises(ConfigError, match=r"^context_length is missing; it needs a whole number from 2 to"):
        as_causal({"tokenizer_name": "gpt2"})
    with pytest.raises(ConfigError, match=r"^tokenizer.context_length is missing; it needs"):
        as_causal({"tokenizer": {}})


def test_the_nearest_value_is_named():
    with pytest.raises(ConfigError, match=r"the nearest is WARNING$"):
        as_causal(GOOD | {"verbose_level": "warn"})


def test_a_file_is_named_in_its_mistake(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text(BLOCK.replace("overlap: 128", "overlap: 4096"))
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(path))}: tokenizer.overlap is 4096; it can be"):
        gristmill.CausalLMTokenizer(path)
    with pytest.raises(InputError, match="No such file"):
        gristmill.CausalLMTokenizer(tmp_path / "none.yaml")


@pytest.mark.parametrize("config", [5, None, ["a"]])
def test_what_is_no_config_is_refused(config):
    with pytest.raises(ConfigError, match=r"^config is .*; it needs a CausalLMConfig, a dict"):
        gristmill.CausalLMTokenizer(config)


def test_the_block_of_a_training_script_is_taken_as_it_is(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text(BLOCK + "model:\n  layers: 12\n")
    bare = tmp_path / "bare.yaml"
    bare.write_text("".join(line[2:] + "\n" for line in BLOCK.splitlines()[1:]))
    expected = gristmill.CausalLMConfig(
        context_length=2048, overlap=128, tokenizer_name="gpt2", batch_size=2000
    )
    for config in (path, str(bare), expected):
        assert as_causal(config) == expected


def test_a_struct_made_in_python_is_checked_too():
    with pytest.raises(ConfigError, match=r"^overlap is 9; it can be 0 to 7"):
        gristmill.CausalLMTokenizer(
            gristmill.CausalLMConfig(context_length=8, overlap=9, tokenizer_name="gpt2")
        )


def test_paths_are_names_and_every_key_can_be_told():
    assert as_causal(GOOD | {"tokenizer_name": Path("some") / "where"}).tokenizer_name == "some/where"
    assert all(allowed(key) for key in gristmill.CausalLMConfig.__struct_fields__)


def test_null_is_as_absent():
    assert as_causal(GOOD | {"overlap": None, "verbose_level": None}) == as_causal(GOOD)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no sections; it needs tokenizer"),
        ("- a\n", "has no sections; it needs tokenizer"),
        ("tokenizer:\n", "tokenizer.context_length is missing; it needs a whole number"),
        ("tokeniser:\n  context_length: 8\n", "no such block; the nearest is tokenizer, which takes"),
        ("context_length: 8\ntokenizer_name: ''\n", "tokenizer_name is missing; it needs text"),
    ],
)
def test_a_file_without_the_block_is_told_of_it(tmp_path, text, message):
    path = tmp_path / "train.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        gristmill.CausalLMTokenizer(path)


def test_the_name_of_a_tokenizer_is_no_config_and_the_message_shows_one():
    with pytest.raises(InputError, match=r"or a dict such as \{'context_length': 2048, 'tokenizer_name'"):
        gristmill.CausalLMTokenizer("gpt2")
