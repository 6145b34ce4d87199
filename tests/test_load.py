"""Every file a tokenizer can come from gives the ids of the library it belongs to."""

import json
import struct

import numpy as np
import pytest
import sentencepiece
import tiktoken
import tokenizers
from tokenizers import normalizers

import gristmill
import made_tokenizers as made
from gristmill.errors import (
    ConfigError,
    InputError,
    TokenizerFormatError,
    UnsupportedTokenizerError,
)
from gristmill.load.hf_json import load_tokenizer_json
from gristmill.load.hf_pipeline import read_pipeline
from gristmill.load.probe import PROBE, probe_documents
from gristmill.load.sentencepiece_model import load_sentencepiece
from gristmill.load.tiktoken_ranks import ENCODINGS
from gristmill.spec import MergeModel, Prefix, ScoreModel

DOCUMENTS = probe_documents(["<s>", "<|endoftext|>"])


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))


def write(path, value):
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def load_dict(value):
    return load_tokenizer_json(json.dumps(value).encode(), source="made")


def assert_equal_ids(tokenizer, encode):
    for document in DOCUMENTS:
        assert tokenizer.encode(document).tolist() == list(encode(document)), document


# tokenizer.json


def test_a_tokenizer_json_gives_the_ids_of_the_library(tmp_path):
    reference = made.byte_level()
    tokenizer = gristmill.load_tokenizer(write(tmp_path / "tokenizer.json", reference.to_str().encode()))
    reference.encode_special_tokens = True
    assert_equal_ids(tokenizer, lambda text: reference.encode(text, add_special_tokens=False).ids)
    assert tokenizer.vocab_size == reference.get_vocab_size()
    assert tokenizer.token_dtype == np.uint16


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path):
    reference = made.byte_level()
    reference.enable_truncation(3)
    reference.enable_padding(length=10)
    tokenizer = gristmill.load_tokenizer(write(tmp_path / "tokenizer.json", reference.to_str().encode()))
    reference.no_truncation()
    reference.no_padding()
    text = "the quick brown fox jumps"
    assert tokenizer.encode(text).tolist() == reference.encode(text, add_special_tokens=False).ids


def test_byte_level_bpe_has_a_spec():
    spec = load_dict(made.byte_level_json(add_prefix_space=True, normalizer=normalizers.NFC())).spec
    assert isinstance(spec.model, MergeModel)
    assert spec.model.token_text == "byte_level"
    assert spec.normalization.form == "nfc"
    assert spec.prefix == Prefix(where="always", unless_present=True, stage="pre_tokenizer")
    assert [token.content for token in spec.added_tokens] == ["<|endoftext|>", "<|pad|>"]


def test_sentencepiece_style_bpe_has_a_spec():
    spec = load_dict(made.spaced_json()).spec
    assert spec.model.token_text == "plain"
    assert spec.model.byte_fallback
    assert spec.normalization.replace_spaces
    assert spec.prefix == Prefix(where="always", unless_present=False, stage="normalizer")
    assert spec.splits == ()


def test_legacy_merges_and_pairs_are_the_same_tokenizer():
    pairs = made.byte_level_json()
    strings = json.loads(json.dumps(pairs))
    strings["model"]["merges"] = ["#version: 0.2", *(" ".join(pair) for pair in pairs["model"]["merges"])]
    assert isinstance(pairs["model"]["merges"][0], list)
    assert load_dict(pairs).fingerprint == load_dict(strings).fingerprint


def test_the_order_of_the_file_does_not_change_the_fingerprint():
    one = made.byte_level_json()
    other = dict(reversed(one.items()))
    other["model"] = dict(one["model"], vocab=dict(reversed(one["model"]["vocab"].items())))
    assert load_dict(one).fingerprint == load_dict(other).fingerprint


def change_merges(value):
    merges = value["model"]["merges"]
    merges[10], merges[11] = merges[11], merges[10]


@pytest.mark.parametrize(
    "change",
    [
        change_merges,
        lambda value: value["model"].update(ignore_merges=True),
        lambda value: value["added_tokens"][0].update(special=False),
        lambda value: value["added_tokens"][0].update(rstrip=True),
        lambda value: value.update(normalizer={"type": "NFC"}),
        lambda value: value["pre_tokenizer"].update(add_prefix_space=True),
        lambda value: value["pre_tokenizer"].update(use_regex=False),
    ],
)
def test_whatever_changes_ids_changes_the_fingerprint(change):
    value = made.byte_level_json()
    before = load_dict(value).fingerprint
    change(value)
    assert load_dict(value).fingerprint != before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda v: v["model"].update(dropout=0.1), "dropout"),
        (lambda v: v["model"].update(continuing_subword_prefix="##"), "continuing_subword_prefix"),
        (lambda v: v["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix"),
        (lambda v: v.update(normalizer={"type": "Lowercase"}), "no normalizer 'Lowercase'"),
        (
            lambda v: v.update(pre_tokenizer={"type": "BertPreTokenizer"}),
            "no pre-tokenizer 'BertPreTokenizer'",
        ),
        (lambda v: v.update(pre_tokenizer=None), "no byte fallback"),
        (lambda v: v["added_tokens"][1].update(id=7), "id 7 in the file"),
    ],
)
def test_what_native_cannot_run_is_said_in_a_sentence(change, reason):
    value = made.byte_level_json()
    change(value)
    loaded = load_dict(value)
    assert loaded.spec is None
    assert reason in loaded.why_not_native


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v["model"].update(dropout=0.0),
        lambda v: v["model"].update(continuing_subword_prefix="", end_of_word_suffix=""),
        lambda v: v.update(normalizer={"type": "Sequence", "normalizers": []}),
    ],
)
def test_empty_options_count_as_absent(change):
    value = made.byte_level_json()
    before = load_dict(value).fingerprint
    change(value)
    assert load_dict(value).fingerprint == before


def test_a_byte_without_a_token_is_dropped_unless_there_is_an_unknown_token():
    value = made.byte_level_json()
    gone = made.byte_characters()[0xF1]
    value["model"]["vocab"] = {t: i for t, i in value["model"]["vocab"].items() if t != gone}
    highest = max(value["model"]["vocab"].values())
    assert load_dict(value).spec is not None
    assert load_dict(value).vocab_size == highest + 1
    value["model"]["unk_token"] = "<|pad|>"
    assert "unknown" in load_dict(value).why_not_native


def test_added_tokens_get_the_ids_the_library_gives_them():
    value = made.byte_level_json()
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    value["added_tokens"].append({"id": 9999, "content": "<new>", **flags})
    loaded = load_dict(value)
    reference = tokenizers.Tokenizer.from_str(json.dumps(value))
    assert loaded.token_to_id("<new>") == reference.token_to_id("<new>") == len(value["model"]["vocab"])
    assert "9999" in loaded.why_not_native


@pytest.mark.parametrize(
    ("metaspace", "where", "num_splits"),
    [
        ({"replacement": "▁"}, "always", 1),
        ({"replacement": "▁", "add_prefix_space": True, "str_rep": "▁"}, "always", 1),
        ({"replacement": "▁", "prepend_scheme": "first", "split": False}, "first", 0),
        ({"replacement": "▁", "prepend_scheme": "never", "add_prefix_space": False}, None, 1),
    ],
)
def test_metaspace_defaults_are_those_of_the_library(metaspace, where, num_splits):
    line = read_pipeline(None, {"type": "Metaspace", **metaspace})
    assert (line.prefix.where if line.prefix else None) == where
    assert len(line.splits) == num_splits
    assert line.normalization.replace_spaces


def test_gemmas_split_at_spaces_that_are_gone_is_nothing():
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    split = {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    }
    assert read_pipeline(replace, split).splits == []


def test_splits_after_the_byte_map_are_over_bytes():
    digits = {"type": "Digits", "individual_digits": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    line = read_pipeline(None, {"type": "Sequence", "pretokenizers": [digits, byte_level, digits]})
    assert [split.over for split in line.splits] == ["characters", "characters", "bytes"]


def test_a_prefix_space_after_a_split_has_no_spec():
    digits = {"type": "Digits", "individual_digits": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    with pytest.raises(UnsupportedTokenizerError, match="every piece"):
        read_pipeline(None, {"type": "Sequence", "pretokenizers": [digits, byte_level]})


def test_nfkc_after_replacing_spaces_has_no_spec():
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    with pytest.raises(UnsupportedTokenizerError, match="NFKC"):
        read_pipeline({"type": "Sequence", "normalizers": [replace, {"type": "NFKC"}]}, None)


def test_unigram_and_wordpiece_run_through_the_reference(tmp_path):
    wordpiece = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]")
    )
    unigram = tokenizers.Tokenizer(
        tokenizers.models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], unk_id=0)
    )
    for name, reference in (("WordPiece", wordpiece), ("Unigram", unigram)):
        tokenizer = gristmill.load_tokenizer(write(tmp_path / "tokenizer.json", reference.to_str().encode()))
        assert tokenizer.engine_name == "tokenizers"
        assert name in tokenizer.why_not_native
        assert tokenizer.encode("ab").tolist() == reference.encode("ab").ids
        assert tokenizer.unk_id == 0


def sentencepiece_file(path, pieces):
    """A BPE model with byte fallback and these pieces, written field by field."""

    def field(number, content):
        size, varint = len(content), b""
        while size > 127:
            varint, size = varint + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + varint + bytes([size]) + content

    def piece(text, score, kind):
        return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([24, kind]))

    content = piece("<unk>", 0.0, 2) + piece("<s>", 0.0, 3) + piece("</s>", 0.0, 3)
    content += b"".join(piece(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256))
    content += b"".join(piece(text, score, 1) for text, score in pieces)
    content += field(2, b"\x18\x02\x98\x02\x01")
    path.write_bytes(content + field(3, field(1, b"identity") + b"\x18\x00\x20\x00\x28\x01"))
    return path


@pytest.mark.parametrize(
    ("pieces", "text", "why"),
    [
        ([("▁", -9.0), ("a", -1.0), ("b", -2.0), ("ab", -3.0), ("abé", -4.0)], "abé", "which is no piece"),
        ([("▁", -9.0), ("r", -1.0), ("l", -1.0), ("d", -1.0), ("rl", -0.0), ("ld", 0.0)], "rld", "-0.0"),
    ],
)
def test_merges_that_sentencepiece_does_otherwise_are_left_to_it(pieces, text, why, tmp_path):
    path = sentencepiece_file(tmp_path / "tokenizer.model", pieces)
    tokenizer = gristmill.load_tokenizer(path)
    assert tokenizer.engine_name == "slow"
    assert why in tokenizer.why_not_native
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert tokenizer.encode(text).tolist() == reference.encode_as_ids(text)


@pytest.mark.parametrize("others", [["<|a|>b"], ["<|a|>\n\n", "<|a|>\n"]])
def test_special_tokens_of_ranks_that_begin_one_another_are_refused(others, tmp_path):
    table = made.ranks()
    specials = {text: len(table) + i for i, text in enumerate(["<|a|>", *others])}
    path = write(tmp_path / "own.tiktoken", made.rank_file(table))
    with pytest.raises(UnsupportedTokenizerError, match=r"'<\|a\|>' begins"):
        gristmill.load_tokenizer(path, pattern=made.GPT2_PATTERN, special_tokens=specials)


def test_a_special_token_that_is_a_piece_of_a_unigram_model_cannot_be_forged(tmp_path):
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("a", -1.0), *((character, -9.0) for character in "</s>")]
    reference = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=0))
    reference.add_special_tokens(["<unk>", "</s>"])
    reference.encode_special_tokens = True
    assert reference.encode("a</s>").ids == [2, 1]
    tokenizer = gristmill.load_tokenizer(write(tmp_path / "tokenizer.json", reference.to_str().encode()))
    assert tokenizer.encode_batch(["a</", "aé<"]).ids.tolist() == [2, 3, 4, 2, 0, 3]
    with pytest.raises(InputError, match="document 2: the text of special token '</s>' cannot stay text"):
        tokenizer.encode_batch(["a", "", "aa</s>", "a"])
    assert tokenizer.encode("a</s>", special_tokens="parse").tolist() == [2, 1]


def _loaded(tmp_path, reference, specials):
    reference.add_special_tokens(specials)
    return gristmill.load_tokenizer(write(tmp_path / "tokenizer.json", reference.to_str().encode()))


def test_a_model_that_knows_nothing_of_what_is_unknown_encodes_what_it_knows(tmp_path):
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram([("a", -1.0), ("b", -2.0)], unk_id=None))
    assert _loaded(tmp_path, unigram, ["<s>"]).encode("ab").tolist() == [0, 1]
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"hello": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    assert _loaded(tmp_path, words, ["<s>"]).encode("hello hello").tolist() == [0, 0]


def test_an_unknown_word_is_no_forged_token(tmp_path):
    vocabulary = {"[UNK]": 0, "[PAD]": 1, "hello": 2}
    wordpiece = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    wordpiece.normalizer = tokenizers.normalizers.BertNormalizer()  # leaves nothing of private characters
    wordpiece.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    assert _loaded(tmp_path, wordpiece, ["[UNK]", "[PAD]"]).encode("hello zzz").tolist() == [2, 0]


def test_a_special_token_that_is_a_whole_document_cannot_be_forged(tmp_path):
    vocabulary = {"[UNK]": 0, "[PAD]": 1, "hello": 2}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer = _loaded(tmp_path, words, ["[UNK]", "[PAD]"])
    assert tokenizer.encode("hello").tolist() == [2]
    with pytest.raises(InputError, match=r"special token '\[PAD\]' cannot stay text"):
        tokenizer.encode("[PAD]")


# Folders


def test_a_folder_tells_bos_eos_and_pad(tmp_path):
    write(tmp_path / "tokenizer.json", made.byte_level_json(specials=("<s>", "</s>", "<pad>")))
    write(tmp_path / "special_tokens_map.json", {"bos_token": "</s>", "pad_token": {"content": "<pad>"}})
    write(tmp_path / "tokenizer_config.json", {"bos_token": {"content": "<s>"}, "eos_token": "</s>"})
    tokenizer = gristmill.load_tokenizer(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (0, 1, 2)
    assert gristmill.load_tokenizer(tmp_path / "tokenizer.json").bos_id == 0


def test_a_folder_without_tokenizer_json_gives_what_it_has(tmp_path):
    write(tmp_path / "tokenizer.model", made.sentencepiece_model())
    assert gristmill.load_tokenizer(str(tmp_path)).bos_id == 1


def test_an_empty_folder_is_refused_with_the_names_looked_for(tmp_path):
    with pytest.raises(TokenizerFormatError, match=r"tokenizer\.json, tekken\.json"):
        gristmill.load_tokenizer(tmp_path)


# Rank files


def test_a_rank_file_with_its_pattern_gives_the_ids_of_tiktoken(tmp_path):
    table = made.ranks()
    path = write(tmp_path / "own.tiktoken", made.rank_file(table))
    specials = {"<|endoftext|>": len(table)}
    tokenizer = gristmill.load_tokenizer(path, pattern=made.GPT2_PATTERN, special_tokens=specials)
    reference = tiktoken.Encoding(
        "own", pat_str=made.GPT2_PATTERN, mergeable_ranks=table, special_tokens=specials
    )
    assert_equal_ids(tokenizer, reference.encode_ordinary)
    for document in DOCUMENTS:
        parsed = tokenizer.encode(document, special_tokens="parse").tolist()
        assert parsed == reference.encode(document, allowed_special="all")
    assert tokenizer.vocab_size == len(table) + 1
    assert gristmill.load_tokenizer(reference).fingerprint == tokenizer.fingerprint


def test_a_rank_file_of_unknown_pattern_asks_for_it(tmp_path):
    path = write(tmp_path / "own.tiktoken", made.rank_file(made.ranks()))
    with pytest.raises(ConfigError, match="set encoding"):
        gristmill.load_tokenizer(path)
    with pytest.raises(ConfigError, match="unknown encoding 'cl200k'"):
        gristmill.load_tokenizer(path, encoding="cl200k")
    with pytest.raises(TokenizerFormatError, match="is it whole"):
        gristmill.load_tokenizer(path, encoding="cl100k_base")


@pytest.mark.parametrize(
    "name", ["cl100k_base", "o200k_base", "o200k_harmony", "p50k_base", "p50k_edit", "r50k_base"]
)
def test_encodings_are_those_of_tiktoken(name, monkeypatch):
    from tiktoken_ext import openai_public

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *args, **options: {})
    theirs = getattr(openai_public, name)()
    ours = ENCODINGS[name]()
    assert ours.pattern == theirs["pat_str"]
    assert dict(ours.specials) == theirs["special_tokens"]


def test_llamas_rank_files_are_known_by_their_size(tmp_path):
    path = write(tmp_path / "tokenizer.model", made.rank_file(made.full_ranks(128000)))
    llama3 = gristmill.load_tokenizer(path)
    assert (llama3.bos_id, llama3.eos_id, llama3.vocab_size) == (128000, 128001, 128256)
    assert llama3.token_to_id("<|eot_id|>") == 128009
    assert llama3.token_to_id("<|reserved_special_token_250|>") == 128255
    assert gristmill.load_tokenizer(path, encoding="llama3.1").pad_id == 128004
    write(path, made.rank_file(made.full_ranks(200000)))
    llama4 = gristmill.load_tokenizer(path)
    assert (llama4.bos_id, llama4.eos_id, llama4.vocab_size) == (200000, 200001, 202048)
    assert llama4.token_to_id("<|image_start|>") == 200080
    assert llama4.token_to_id("<|reasoning_thinking_end|>") == 201143


def test_an_option_the_source_has_no_use_for_is_refused(tmp_path):
    path = write(tmp_path / "tokenizer.json", made.byte_level_json())
    with pytest.raises(ConfigError, match="encoding says nothing"):
        gristmill.load_tokenizer(path, encoding="cl100k_base")
    with pytest.raises(ConfigError, match="revision says nothing"):
        gristmill.load_tokenizer(path, revision="main")
    with pytest.raises(ConfigError, match="engine is 'fast'"):
        gristmill.load_tokenizer(path, engine="fast")


# tekken


def test_tekken_puts_special_tokens_first(tmp_path):
    value = made.tekken_json(num_specials=30)
    tokenizer = gristmill.load_tokenizer(write(tmp_path / "tekken.json", value))
    order = [entry["token_bytes"] for entry in value["vocab"]]
    table = {__import__("base64").b64decode(token): rank for rank, token in enumerate(order)}
    reference = tiktoken.Encoding("t", pat_str=made.GPT2_PATTERN, mergeable_ranks=table, special_tokens={})
    assert_equal_ids(tokenizer, lambda text: [rank + 30 for rank in reference.encode_ordinary(text)])
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (1, 2, 11)
    assert tokenizer.token_to_id("<SPECIAL_29>") == 29
    assert tokenizer.decode(tokenizer.encode(PROBE)) == PROBE


def test_tekken_lists_its_special_tokens_since_v7(tmp_path):
    value = made.tekken_json(num_specials=5, listed=["<unk>", "<s>", "</s>"], version="v7")
    tokenizer = gristmill.load_tokenizer(write(tmp_path / "tekken.json", value))
    assert tokenizer.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2, "<SPECIAL_3>": 3, "<SPECIAL_4>": 4}


def test_tekken_is_cut_to_the_vocabulary_size_it_declares(tmp_path):
    whole = gristmill.load_tokenizer(write(tmp_path / "whole.json", made.tekken_json()))
    cut = gristmill.load_tokenizer(write(tmp_path / "cut.json", made.tekken_json(cut=50)))
    assert cut.vocab_size == whole.vocab_size - 50
    assert cut.encode(PROBE).max() < cut.vocab_size


# SentencePiece


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_sentencepiece_model_gives_the_ids_of_sentencepiece(tmp_path, model_type):
    content = made.sentencepiece_model(model_type=model_type)
    tokenizer = gristmill.load_tokenizer(write(tmp_path / "tokenizer.model", content))
    reference = sentencepiece.SentencePieceProcessor(model_proto=content)
    assert_equal_ids(tokenizer, reference.encode_as_ids)
    assert tokenizer.vocab_size == reference.vocab_size()
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (1, 2, 0)
    assert tokenizer.pad_id is None
    assert gristmill.load_tokenizer(reference).fingerprint == tokenizer.fingerprint


def test_the_protobuf_reader_sees_what_sentencepiece_sees():
    content = made.sentencepiece_model()
    reference = sentencepiece.SentencePieceProcessor(model_proto=content)
    spec = load_sentencepiece(content, source="made").spec
    assert isinstance(spec.model, ScoreModel)
    assert spec.prefix is not None
    for piece, id_, score in zip(spec.model.pieces, spec.model.ids, spec.model.scores, strict=True):
        assert reference.id_to_piece(id_) == piece
        assert reference.get_score(id_) == score
    assert [reference.id_to_piece(i) for i in spec.model.byte_ids] == [f"<0x{b:02X}>" for b in range(256)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model_type": "unigram"}, "Unigram"),
        ({"normalization_rule_name": "nmt_nfkc"}, "rewrites characters"),
        ({"remove_extra_whitespaces": True}, "spaces"),
        ({"byte_fallback": False}, "no byte fallback"),
        ({"user_defined_symbols": ["<sep>"]}, "dummy prefix"),
    ],
)
def test_sentencepiece_models_without_a_spec_say_why(options, reason):
    loaded = load_sentencepiece(made.sentencepiece_model(**options), source="made")
    assert loaded.spec is None
    assert reason in loaded.why_not_native


def test_user_defined_symbols_are_added_tokens_where_nothing_can_touch_them():
    content = made.sentencepiece_model(user_defined_symbols=["<sep>", "▁▁"], add_dummy_prefix=False)
    added = {t.content: t for t in load_sentencepiece(content, source="made").spec.added_tokens}
    assert not added["▁▁"].special
    assert added["▁▁"].normalized
    assert added["<s>"].special
