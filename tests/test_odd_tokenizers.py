"""Tokenizers in which the library does what its parts alone would not: refused natively, or equal to it."""

import json

import numpy as np
import pytest
import tokenizers

import gristmill
import made_tokenizers as made


def assert_equal_to_reference(content, texts, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    reference = tokenizers.Tokenizer.from_str(path.read_text())
    tokenizer = gristmill.load_tokenizer(path)
    for policy in ("text", "parse"):
        reference.encode_special_tokens = policy == "text"
        for text in texts:
            expected = reference.encode(text, add_special_tokens=False).ids
            assert tokenizer.encode(text, special_tokens=policy).tolist() == expected, (policy, text)
    return tokenizer


def added(content, **flags):
    off = dict.fromkeys(("special", "normalized", "single_word", "lstrip", "rstrip"), False)
    return {"id": 0, "content": content, **off, **flags}


def with_added(content, *tokens):
    first = max(content["model"]["vocab"].values()) + 1
    listed = [token | {"id": first + i} for i, token in enumerate(tokens)]
    return content | {"added_tokens": content.get("added_tokens", []) + listed}


def test_merges_of_byte_tokens(tmp_path):
    content = made.spaced_json()
    vocab = content["model"]["vocab"]
    vocab["<0xF2><0x80>"] = max(vocab.values()) + 1
    content["model"]["merges"].append(["<0xF2>", "<0x80>"])
    assert_equal_to_reference(content, ["\U00080000", "a\U00080000b"], tmp_path)


def test_whole_pieces_first_that_spell_a_byte_token(tmp_path):
    content = made.spaced_json()
    content["model"]["ignore_merges"] = True
    content["pre_tokenizer"] = None
    content["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    assert_equal_to_reference(content, ["<0x0B>", "a <0x0B>"], tmp_path)


def test_byte_level_in_the_normalizer_with_a_token_that_strips(tmp_path):
    content = with_added(made.byte_level_json(), added("tok", normalized=True, lstrip=True))
    content["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    texts = [" tok ", "a tok b", "tok"]
    assert_equal_to_reference(content, texts, tmp_path)
    content |= {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None}
    assert_equal_to_reference(content, texts, tmp_path)


def test_dropped_bytes_without_a_split(tmp_path):
    content = made.byte_level_json()
    characters = made.byte_characters()
    model = content["model"]
    gone = {characters[0xC8], characters[0x81]}
    model["merges"] = [m for m in model["merges"] if not gone & set("".join(m).replace(" ", ""))]
    model["vocab"] = {token: id_ for token, id_ in model["vocab"].items() if not gone & set(token)}
    vocab = model["vocab"]
    if "!!" not in vocab:
        vocab["!!"] = max(vocab.values()) + 1
        model["merges"].append(["!", "!"])
    content["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    assert_equal_to_reference(content, ["!\u0201!", "a\u0201b", "\u0201"], tmp_path)


def test_a_prefix_on_the_first_stretch_and_an_added_token_inside_an_expansion(tmp_path):
    content = with_added(made.spaced_json(), added("1", normalized=True))
    content["normalizer"] = {"type": "NFKC"}
    content["pre_tokenizer"] = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "first",
        "split": False,
    }
    assert_equal_to_reference(content, ["½ of it", "1 and 1", "a½"], tmp_path)


def test_added_tokens_that_are_equal_once_normalised_are_not_run_natively(tmp_path):
    tokens = [added("\u1ec7", normalized=True), added("e\u0323\u0302", normalized=True)]
    content = with_added(made.byte_level_json(), *tokens) | {"normalizer": {"type": "NFC"}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    tokenizer = gristmill.load_tokenizer(path)
    assert tokenizer.engine_name == "tokenizers"
    assert "same once normalised" in tokenizer.why_not_native


def test_very_many_splits_are_left_to_the_library(tmp_path):
    split = {"type": "Split", "pattern": {"Regex": "\\d"}, "behavior": "Isolated", "invert": False}
    content = made.byte_level_json()
    content["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [split] * 500 + [content["pre_tokenizer"]],
    }
    tokenizer = assert_equal_to_reference(content, ["a1b22 c"], tmp_path)
    assert tokenizer.engine_name == "tokenizers"


def test_absurd_added_tokens_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    many = [added(f"{i}" * 60_000) for i in range(10, 50)]
    path.write_text(json.dumps(with_added(made.byte_level_json(), *many)))
    with pytest.raises(gristmill.TokenizerError, match="added tokens"):
        gristmill.load_tokenizer(path)


@pytest.mark.parametrize(
    "options",
    [
        {"special_tokens": ["<a>"]},
        {"special_tokens": {"\ud800": 200000}},
        {"special_tokens": {"<a>": "1"}},
        {"pattern": 5},
        {"pattern": "\ud800"},
        {"encoding": []},
    ],
)
def test_options_of_the_wrong_kind_are_our_error(options, tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(made.rank_file(made.ranks()))
    with pytest.raises(gristmill.GristmillError):
        gristmill.load_tokenizer(path, **({"pattern": r"\p{L}+|\P{L}"} | options))


def test_ids_that_are_no_row_are_our_error(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(made.byte_level_json()))
    tokenizer = gristmill.load_tokenizer(path)
    for wrong in ([[1], [2, 3]], np.zeros((2, 2), int), ["a"]):
        with pytest.raises(gristmill.InputError):
            tokenizer.decode(wrong)
    with pytest.raises(gristmill.InputError):
        tokenizer.decode_batch(5)
