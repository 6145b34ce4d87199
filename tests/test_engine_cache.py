"""Compiled tokenizers on disk: the same ids as compiling anew, and never anything but time at stake."""

import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tokenizers

import gristmill
import made_tokenizers as made
from adversarial_texts import random_texts
from gristmill import _native, engine_cache
from gristmill.config import TokenizerConfig
from gristmill.engines.native import NativeEngine
from gristmill.errors import TokenizerError
from gristmill.load import LoadOptions
from gristmill.run.loading import Recalling, load_configured, load_measured
from native_engines import SPECS, documents


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(made.byte_level_json()))
    return path


def was_recalled(tokenizer):
    return tokenizer._loaded_now is None


SOURCES = {
    "tokenizer.json": lambda: json.dumps(made.byte_level_json()).encode(),
    "spaced.json": lambda: json.dumps(made.spaced_json()).encode(),
    "ranks.tiktoken": lambda: made.rank_file(made.ranks()),
    "tekken.json": lambda: json.dumps(made.tekken_json()).encode(),
    "tokenizer.model": made.sentencepiece_model,
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_tokenizer_that_was_remembered_is_the_one_that_was_loaded(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(SOURCES[name]())
    options = {"pattern": made.GPT2_PATTERN} if name == "ranks.tiktoken" else {}
    first = gristmill.load_tokenizer(path, **options)
    again = gristmill.load_tokenizer(path, **options)
    assert first.engine_name == "native", first.why_not_native
    assert not was_recalled(first)
    assert was_recalled(again)
    texts = random_texts(300, seed=1, parts=["<|endoftext|>", "<s>"])
    for policy in ("text", "parse"):
        ours, theirs = (t.encode_batch(texts, special_tokens=policy) for t in (again, first))
        assert np.array_equal(ours.ids, theirs.ids)
        assert np.array_equal(ours.offsets, theirs.offsets)
    assert [again.decode(ids) for ids in ours] == [first.decode(ids) for ids in theirs]
    assert was_recalled(again)
    assert again.describe() == first.describe()
    assert again.token_to_id("a") == first.token_to_id("a")
    assert repr(again) == repr(first)
    for fact in ("vocab_size", "special_tokens", "bos_id", "eos_id", "pad_id", "unk_id", "fingerprint"):
        assert getattr(again, fact) == getattr(first, fact)


@pytest.mark.parametrize("name", SPECS)
def test_a_packed_model_merges_as_it_did(name):
    engine = NativeEngine(SPECS[name]())
    (model,) = (arguments[0] for step, arguments in engine.program.steps if step == "set_model")
    for num_threads in (1, 2):
        again = _native.Model.unpack(model.pack(), num_threads)
        assert again.pack() == model.pack()
    for text in documents():
        piece = text.encode()[:200]
        assert again.merge_slowly(piece) == model.merge_slowly(piece)
    assert [again.is_reachable(i) for i in range(again.num_ids)] == [
        model.is_reachable(i) for i in range(model.num_ids)
    ]


def test_a_packed_model_that_is_cut_or_changed_is_refused_or_harmless():
    engine = NativeEngine(SPECS["byte level"]())
    packed = engine.program.steps[0][1][0].pack()
    for size in range(0, len(packed), max(1, len(packed) // 200)):
        with pytest.raises(ValueError, match="compiled vocabulary"):
            _native.Model.unpack(packed[:size])
    for at in range(0, min(len(packed), 600)):
        changed = bytearray(packed)
        changed[at] ^= 0x81
        try:
            _native.Model.unpack(bytes(changed)).merge_slowly(b"some text")
        except (ValueError, MemoryError):
            continue


def test_a_damaged_file_counts_for_nothing(file, cache):
    expected = gristmill.load_tokenizer(file).encode("some text").tolist()
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", whole[:3], whole[:-1], whole[:50] + b"x" + whole[51:], b"x" * len(whole)):
        kept.write_bytes(damaged)
        tokenizer = gristmill.load_tokenizer(file)
        assert not was_recalled(tokenizer)
        assert tokenizer.encode("some text").tolist() == expected
        assert kept.read_bytes() == whole


def test_a_cache_that_memory_does_not_suffice_for_is_not_used(file, monkeypatch):
    expected = gristmill.load_tokenizer(file).encode("some text").tolist()

    def read_nothing(*_, **__):
        raise MemoryError

    monkeypatch.setattr(engine_cache, "_read_kept", read_nothing)
    tokenizer = gristmill.load_tokenizer(file)
    assert not was_recalled(tokenizer)
    assert tokenizer.encode("some text").tolist() == expected


def test_a_change_of_any_file_or_option_is_another_tokenizer(file, tmp_path, monkeypatch):
    gristmill.load_tokenizer(file)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    changed = gristmill.load_tokenizer(file)
    assert not was_recalled(changed)
    assert changed.eos_id is not None
    assert was_recalled(gristmill.load_tokenizer(file))
    assert gristmill.load_tokenizer(file, engine="tokenizers").engine_name == "tokenizers"
    monkeypatch.setattr(engine_cache, "REFERENCES", ("numpy",))
    assert not was_recalled(gristmill.load_tokenizer(file))


def test_a_copy_of_the_file_elsewhere_is_recalled_under_its_own_name(file, tmp_path):
    gristmill.load_tokenizer(file)
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "tokenizer.json"
    copy.write_bytes(file.read_bytes())
    tokenizer = gristmill.load_tokenizer(copy.parent)
    assert was_recalled(tokenizer)
    assert str(copy) in repr(tokenizer)


def test_a_file_that_changes_after_it_was_recalled_is_not_mixed_with_what_it_was(file):
    gristmill.load_tokenizer(file)
    tokenizer = gristmill.load_tokenizer(file)
    file.write_text(json.dumps(made.byte_level_json(vocab_size=300)))
    with pytest.raises(TokenizerError, match="has changed since it was loaded"):
        tokenizer.describe()


def test_a_recalled_tokenizer_can_be_pickled(file):
    gristmill.load_tokenizer(file)
    tokenizer = gristmill.load_tokenizer(file)
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.encode("some text").tolist() == tokenizer.encode("some text").tolist()


def test_writers_at_the_same_time_leave_one_whole_file(file, cache):
    with ThreadPoolExecutor(8) as threads:
        tokenizers = list(threads.map(lambda _: gristmill.load_tokenizer(file), range(16)))
    assert len({tuple(tokenizer.encode("some text")) for tokenizer in tokenizers}) == 1
    assert len(list(cache.iterdir())) == 1
    assert was_recalled(gristmill.load_tokenizer(file))


def test_the_oldest_files_go_first(file, cache, monkeypatch):
    monkeypatch.setattr(engine_cache, "MAX_KEPT", 2)
    for number in range(4):
        roles = {"eos_token": "<|endoftext|>", "number": number}
        (file.parent / "tokenizer_config.json").write_text(json.dumps(roles))
        gristmill.load_tokenizer(file)
        for age, kept in enumerate(sorted(cache.iterdir(), key=lambda path: -path.stat().st_mtime_ns)):
            os.utime(kept, ns=(10**18 - age, 10**18 - age + number))
    assert len(list(cache.iterdir())) == 2
    assert was_recalled(gristmill.load_tokenizer(file))


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(file, tmp_path, monkeypatch):
    (tmp_path / "a file").write_bytes(b"")
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "a file"))
    assert gristmill.load_tokenizer(file).engine_name == "native"
    assert not was_recalled(gristmill.load_tokenizer(file))


def test_a_tokenizer_recalled_by_a_thread_is_the_one_that_is_loaded(file, cache):
    config = TokenizerConfig(source=str(file))
    assert Recalling(config).result() is None
    expected = load_configured(config)
    recalling = Recalling(config)
    tokenizer, held_bytes = load_measured(config, recalling)
    assert recalling.result() is not None
    assert was_recalled(tokenizer)
    assert held_bytes >= 0
    assert tokenizer.fingerprint == expected.fingerprint
    assert tokenizer.encode("some text").tolist() == expected.encode("some text").tolist()
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    tokenizer, _ = load_measured(config, Recalling(config))
    assert not was_recalled(tokenizer)
    assert tokenizer.encode("some text").tolist() == expected.encode("some text").tolist()


@pytest.mark.parametrize(
    "step",
    [
        ("set_transducer", (*[np.zeros(1, np.uint16)] * 3, 1)),
        ("set_transducer", (*[np.zeros(1, np.float64)] * 3, 1)),
        ("no_such_step", ()),
        ("__init__", ()),
    ],
    ids=["wrong table", "wrong kind", "no such call", "no step"],
)
def test_what_was_kept_but_makes_no_engine_is_compiled_anew(file, cache, step):
    config = TokenizerConfig(source=str(file))
    expected = load_configured(config)
    known = Recalling(config).result()
    assert known is not None
    broken = known.engine()
    broken.program = broken.program._replace(steps=[*broken.program.steps, step])
    engine_cache.remember(file, LoadOptions(), known.facts, broken)
    assert len(list(cache.iterdir())) == 1, "in place of the one that was kept"
    assert Recalling(config).result() is None
    tokenizer = load_configured(config)
    assert not was_recalled(tokenizer)
    assert tokenizer.encode("some text").tolist() == expected.encode("some text").tolist()


TEXT_ONCE = {"Sequence": {"id": "A", "type_id": 0}}


def template(*single):
    return {"type": "TemplateProcessing", "single": list(single), "pair": [], "special_tokens": {}}


@pytest.mark.parametrize(
    "rest",
    [
        {"post_processor": template(TEXT_ONCE, TEXT_ONCE)},
        {"post_processor": template()},
        {"post_processor": {"type": "Sequence", "processors": [template(TEXT_ONCE, TEXT_ONCE)]}},
        {"post_processor": template(TEXT_ONCE)},
        {"post_processor": {"type": "Unheard of"}},
        {"decoder": {"type": "Unheard of"}},
        {"version": "2.0"},
        {"truncation": {"sideways": 1}},
        {"something": "else"},
    ],
    ids=str,
)
def test_a_twin_of_a_file_that_agreed_is_looked_at_itself(file, tmp_path, rest):
    sound = gristmill.load_tokenizer(file)
    assert sound.engine_name == "native"
    twin = tmp_path / "twin.json"
    twin.write_text(json.dumps(json.loads(file.read_text()) | rest))
    try:
        expected = tokenizers.Tokenizer.from_file(str(twin)).encode("hi", add_special_tokens=False).ids
    except Exception:
        with pytest.raises(TokenizerError):
            gristmill.load_tokenizer(twin)
        return
    ours = gristmill.load_tokenizer(twin)
    assert ours.encode("hi", special_tokens="parse").tolist() == expected
    is_same = expected == sound.encode("hi", special_tokens="parse").tolist()
    assert (ours.engine_name == "native") == is_same
    assert (ours.fingerprint == sound.fingerprint) == is_same


@pytest.mark.parametrize("engine", ["tokenizers", "slow"])
def test_nothing_is_recalled_for_an_engine_that_keeps_nothing(file, engine):
    load_configured(TokenizerConfig(source=str(file)))
    assert Recalling(TokenizerConfig(source=str(file), engine=engine)).result() is None
