"""What CausalLMTokenizer asks of a tokenizer: who encodes, what goes round a document, what pads it."""

import json
import logging
import os
import shutil
import socket

import datasets
import huggingface_hub
import pytest
import sentencepiece
from transformers import AutoTokenizer

import gristmill
from causal_places import byte_level, causal, one_text, real_texts, rows_of
from gristmill.causal import table
from gristmill.causal.opening import TokenIds, remember_ids
from gristmill.errors import ConfigError, InputError, TokenizerError
from made_tokenizers import sentencepiece_model
from slow_causal import slow_rows


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


@pytest.mark.parametrize("kind", ["slow_word_piece", "slow_bytes"])
def test_remembered_ids_are_those_of_the_tokenizer(kind, folders):
    plain, quick = (AutoTokenizer.from_pretrained(folders(kind)) for _ in range(2))
    remember_ids(quick)
    for _ in range(2):
        assert all(quick(text) == plain(text) for text in real_texts()[::60])


def test_a_table_of_ids_stays_small():
    asked = []
    ids = TokenIds(lambda token: asked.append(token) or len(token), most=3)
    assert [ids[token] for token in ["a", "bb", "a", "ccc", "a", "dddd", "a"]] == [1, 2, 1, 3, 1, 4, 1]
    assert asked == ["a", "bb", "ccc", "dddd", "a"]
    assert len(ids) <= 3


def test_an_old_vocabulary_without_a_tokenizer_json_is_loaded(folders, tmp_path):
    shutil.copy(folders("slow_word_piece") / "vocab.txt", tmp_path / "vocab.txt")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    expected = AutoTokenizer.from_pretrained(tmp_path)("the other fox")["input_ids"]
    assert AutoTokenizer.from_pretrained(tmp_path).is_fast
    assert first_row(tmp_path, "the other fox")[: len(expected)] == expected[:8]


def test_a_hub_that_cannot_be_reached_is_not_asked_again_through_transformers(monkeypatch):
    def refuse(*_, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no way")

    asked = []
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", refuse)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *where, **_: asked.append(where) or [])
    with pytest.raises(TokenizerError, match=r"the hub cannot be reached; check the network.*its files$"):
        first_row("someone/never-fetched")
    assert asked == []
