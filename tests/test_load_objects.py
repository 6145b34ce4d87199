"""Tokenizers that a program holds: those of tokenizers, transformers and tiktoken, and any other object."""

import json
import re
import types

import pytest
import tiktoken
import tokenizers
import transformers

import gristmill
import made_tokenizers as made
from gristmill.errors import InputError, TokenizerFormatError
from gristmill.load.probe import PROBE
from gristmill.spec import RankModel


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))


def test_a_tokenizers_object_is_the_same_as_its_file(tmp_path):
    reference = made.byte_level()
    reference.enable_truncation(5)
    (tmp_path / "tokenizer.json").write_text(reference.to_str(), encoding="utf-8")
    from_file = gristmill.load_tokenizer(tmp_path / "tokenizer.json")
    from_object = gristmill.load_tokenizer(reference)
    assert from_object.fingerprint == from_file.fingerprint
    assert from_object.encode(PROBE).tolist() == from_file.encode(PROBE).tolist()
    assert reference.truncation is not None
    assert reference.encode_special_tokens is False


class FastTokenizer:
    """What transformers' fast tokenizers show of themselves."""

    bos_token, eos_token, pad_token, unk_token = "<|endoftext|>", "<|endoftext|>", None, None

    def __init__(self):
        self.backend_tokenizer = made.byte_level()


class PythonTokenizer:
    """What transformers' Python tokenizers show: special tokens are parsed unless told not to."""

    all_special_tokens = ("</s>",)
    eos_token_id = 0

    def get_vocab(self):
        return {"</s>": 0} | {chr(i): i for i in range(1, 256)}

    def convert_tokens_to_ids(self, token):
        return self.get_vocab()[token]

    def encode(self, text, add_special_tokens=True, split_special_tokens=False):
        parts = [text] if split_special_tokens else re.split(r"\s*</s>\s*", text)
        ids = [i for part in parts for i in (*(byte or 1 for byte in part.encode()), 0)][:-1]
        return ids + ([0] if add_special_tokens else [])

    def decode(self, ids):
        return bytes(ids).decode("utf-8", "replace")


def test_a_transformers_fast_tokenizer_tells_its_special_tokens():
    tokenizer = gristmill.load_tokenizer(FastTokenizer())
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (0, 0, None)
    assert tokenizer.fingerprint == gristmill.load_tokenizer(made.byte_level()).fingerprint


def test_a_python_tokenizer_runs_through_the_slow_engine():
    tokenizer = gristmill.load_tokenizer(PythonTokenizer())
    assert tokenizer.engine_name == "slow"
    assert tokenizer.why_not_native
    assert tokenizer.eos_id == 0
    assert tokenizer.encode("a</s>").tolist() == list(b"a</s>")
    assert tokenizer.encode("a </s>b", special_tokens="parse").tolist() == [97, 0, 98]
    assert tokenizer.decode(tokenizer.encode("héllo")) == "héllo"
    assert tokenizer.fingerprint == gristmill.load_tokenizer(PythonTokenizer()).fingerprint


class AddedText(str):
    """What transformers shows of an added token."""

    special = False


class MoreTokens(PythonTokenizer):
    """With a token that is not special, which split_special_tokens makes text all the same."""

    added_tokens_decoder = types.MappingProxyType({0: AddedText("</s>"), 255: AddedText("foo")})

    def encode(self, text, add_special_tokens=True, split_special_tokens=False):
        if not split_special_tokens:
            text = text.replace("foo", "ÿ")
        return [0 if c == "/" and not split_special_tokens else ord(c) % 256 or 1 for c in text]


class DeafTokenizer(PythonTokenizer):
    """Parses whatever it is told."""

    def encode(self, text, add_special_tokens=True, split_special_tokens=True):
        return super().encode(text, add_special_tokens)


@pytest.mark.parametrize(
    ("kind", "reason"), [(MoreTokens, "'foo' as text too"), (DeafTokenizer, "whatever it is told")]
)
def test_special_text_is_refused_where_a_library_cannot_take_it_as_text(kind, reason):
    tokenizer = gristmill.load_tokenizer(kind())
    expected = kind().encode("a foo", add_special_tokens=False)
    assert tokenizer.encode("a foo").tolist() == expected
    with pytest.raises(InputError, match=f"document 1: .*</s>.* cannot stay text: .*{reason}"):
        tokenizer.encode_batch(["a", "b </s>"])
    assert 0 in tokenizer.encode("b </s>", special_tokens="parse")


def test_a_class_is_no_tokenizer():
    with pytest.raises(TokenizerFormatError, match="PythonTokenizer is a class; pass an object of it"):
        gristmill.load_tokenizer(PythonTokenizer)


@pytest.mark.parametrize("text", ["a </s> b", "  </s>  </s> <pad>x", "a <extra_id_0> b", "</s>", ""])
def test_a_transformers_python_tokenizer_parses_as_transformers_does(text):
    reference = transformers.ByT5Tokenizer()
    tokenizer = gristmill.load_tokenizer(reference)
    expected = reference.encode(text, add_special_tokens=False)
    assert tokenizer.encode(text, special_tokens="parse").tolist() == expected
    assert tokenizer.encode(text).tolist() == [byte + 3 for byte in text.encode()]


def test_a_transformers_fast_tokenizer_gives_its_own_ids():
    backend = tokenizers.Tokenizer.from_str(json.dumps(made.byte_level_json()))
    reference = transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer = gristmill.load_tokenizer(reference)
    text = "The mill, 1234 times.\n  Zweimal wiegen"
    assert tokenizer.engine_name == "native"
    expected = reference.encode(text, add_special_tokens=False)
    assert tokenizer.encode(text, special_tokens="parse").tolist() == expected


@pytest.mark.parametrize("thing", [None, 3, object(), ["a"], {"model": {}}])
def test_what_is_no_tokenizer_is_refused(thing):
    with pytest.raises(TokenizerFormatError, match="no tokenizer"):
        gristmill.load_tokenizer(thing)


def test_a_tiktoken_object_has_a_spec():
    encoding = tiktoken.Encoding(
        "own", pat_str=made.GPT2_PATTERN, mergeable_ranks=made.ranks(), special_tokens={"<|endoftext|>": 9000}
    )
    tokenizer = gristmill.load_tokenizer(encoding)
    assert isinstance(tokenizer._loaded.spec.model, RankModel)
    assert (tokenizer.eos_id, tokenizer.vocab_size) == (9000, 9001)
