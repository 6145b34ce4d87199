"""Engines share one contract, native runs only where it equals the reference, twins equal the libraries."""

import json
import threading

import numpy as np
import pytest
import sentencepiece
import tiktoken
from tokenizers import AddedToken, Tokenizer, normalizers

import gristmill
import made_tokenizers as made
from gristmill import engine_cache, engine_choice
from gristmill.batch import flatten_texts
from gristmill.engines import native
from gristmill.engines.tokenizers import TokenizersEngine
from gristmill.engines.twins import rank_twin, score_twin
from gristmill.errors import ConfigError, InputError, UnsupportedTokenizerError
from gristmill.load.probe import probe_documents
from gristmill.load.sentencepiece_model import load_sentencepiece
from gristmill.special_text import find_special_text

SPECIAL = "<|endoftext|>"
DOCUMENTS = [*probe_documents([SPECIAL]), f"a{SPECIAL}b", f"{SPECIAL}{SPECIAL}"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def json_tokenizer():
    return gristmill.load_tokenizer(made.byte_level(), engine="tokenizers")


def rank_tokenizer():
    table = made.ranks()
    return tiktoken.Encoding(
        "own", pat_str=made.GPT2_PATTERN, mergeable_ranks=table, special_tokens={SPECIAL: len(table)}
    )


SOURCES = {
    "tokenizers": made.byte_level,
    "tiktoken": rank_tokenizer,
    "sentencepiece": lambda: sentencepiece.SentencePieceProcessor(model_proto=made.sentencepiece_model()),
}


@pytest.mark.parametrize("source", SOURCES)
def test_ids_are_the_same_for_any_number_of_threads_and_any_batch(source):
    tokenizer = gristmill.load_tokenizer(SOURCES[source]())
    one_by_one = [tokenizer.encode(document).tolist() for document in DOCUMENTS]
    for num_threads in (1, 2, 3, 64, None):
        batch = tokenizer.encode_batch(DOCUMENTS, num_threads=num_threads)
        assert batch.ids.dtype == np.uint32
        assert batch.offsets.dtype == np.int64
        assert [ids.tolist() for ids in batch] == one_by_one
        assert tokenizer.count_batch(DOCUMENTS, num_threads=num_threads).tolist() == list(
            map(len, one_by_one)
        )


@pytest.mark.parametrize("source", SOURCES)
def test_no_documents_give_no_ids(source):
    batch = gristmill.load_tokenizer(SOURCES[source]()).encode_batch([])
    assert (len(batch), len(batch.ids), batch.ids.dtype) == (0, 0, np.uint32)


@pytest.mark.parametrize("source", ["tokenizers", "tiktoken"])
def test_decoding_gives_the_text_back(source):
    tokenizer = gristmill.load_tokenizer(SOURCES[source]())
    batch = tokenizer.encode_batch(DOCUMENTS, special_tokens="parse")
    assert tokenizer.decode_batch(batch) == DOCUMENTS
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode_bytes(batch[0].tolist()) == DOCUMENTS[0].encode()


@pytest.mark.parametrize("ids", [[-1], [1 << 20], [1 << 40], [0.5], [[1, 2]], ["a"]])
@pytest.mark.parametrize("source", SOURCES)
def test_ids_that_are_none_are_refused(source, ids):
    with pytest.raises(InputError):
        gristmill.load_tokenizer(SOURCES[source]()).decode(ids)


# Special tokens


def test_special_text_is_text_unless_asked_for(json_tokenizer):
    special = json_tokenizer.token_to_id(SPECIAL)
    assert special not in json_tokenizer.encode(f"a{SPECIAL}b")
    assert special in json_tokenizer.encode(f"a{SPECIAL}b", special_tokens="parse")


def test_parse_is_what_the_library_does():
    reference = made.byte_level(normalizer=normalizers.NFC())
    reference.add_tokens([AddedToken("fox", single_word=True), AddedToken("  ", normalized=True)])
    reference.add_special_tokens([AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True)])
    tokenizer = gristmill.load_tokenizer(reference)
    for text in [*DOCUMENTS, "a  <l>  fox foxy   <r>  b", "  <r>  <l>"]:
        expected = reference.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, special_tokens="parse").tolist() == expected


def test_both_policies_at_once_from_many_threads(json_tokenizer):
    texts = [f"x{SPECIAL}y"] * 50
    expected = {
        p: json_tokenizer.encode_batch(texts, special_tokens=p).ids.tolist() for p in ("text", "parse")
    }
    wrong = []

    def work(policy):
        for _ in range(30):
            if json_tokenizer.encode_batch(texts, special_tokens=policy).ids.tolist() != expected[policy]:
                wrong.append(policy)

    threads = [threading.Thread(target=work, args=(policy,)) for policy in ("text", "parse") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_error_policy_names_document_offset_and_token(json_tokenizer):
    clean = ["a", "<|endoftext", "", "<|pad"]
    json_tokenizer.encode_batch(clean, special_tokens="error")
    # Cut between documents, the text is in neither.
    json_tokenizer.encode_batch(["x<|endof", "text|>"], special_tokens="error")
    with pytest.raises(
        InputError, match=r"document 1: the text of special token '<\|endoftext\|>' at byte 3"
    ):
        json_tokenizer.encode_batch(["a", f"bé{SPECIAL}"], special_tokens="error")
    with pytest.raises(InputError, match="document 0"):
        json_tokenizer.count_batch([SPECIAL], special_tokens="error")


@pytest.mark.parametrize(
    ("texts", "specials", "found"),
    [
        (["xab"], ["ab", "abc"], (0, 1, "ab")),
        (["xabc"], ["ab", "abc"], (0, 1, "abc")),
        (["", "", "a"], ["a"], (2, 0, "a")),
        (["aé", "é"], ["é"], (0, 1, "é")),
        (["aaa"], ["aaaa"], None),
        (["aa", "aa"], ["aaaa"], None),
        (["x"], [], None),
        ([], ["a"], None),
    ],
)
def test_special_text_is_found_leftmost_and_longest(texts, specials, found):
    assert find_special_text(*flatten_texts(texts), specials) == found


def test_special_text_is_found_across_chunks(monkeypatch):
    monkeypatch.setattr("gristmill.special_text.CHUNK_BYTES", 4)
    for at in range(12):
        text = "." * at + "<s>" + "." * 5
        assert find_special_text(*flatten_texts([text]), ["<s>", "</s>"]) == (0, at, "<s>")


@pytest.mark.parametrize(
    "options",
    [
        {"special_tokens": "no"},
        {"errors": "ignore"},
        *({"num_threads": number} for number in (0, 1.5, 1025, 2**33)),
    ],
)
def test_wrong_options_are_refused(json_tokenizer, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        json_tokenizer.encode_batch(["a"], **options)


def test_what_the_library_cannot_encode_is_our_error():
    value = made.byte_level_json()
    value["model"]["unk_token"] = "<missing>"
    value["pre_tokenizer"] = None
    engine = TokenizersEngine(json.dumps(value), source="made")
    buffer, offsets = flatten_texts(["\u4e00"])
    with pytest.raises(InputError, match="tokenizers library failed"):
        engine.encode_batch(buffer, offsets, special_tokens="text", num_threads=1)


# The choice


class Native:
    """Stands for the native engine: the reference's ids, changed where asked."""

    name = "native"

    def __init__(self, spec, change=lambda ids: ids):
        self.change = change
        self.inner = TokenizersEngine(made.byte_level().to_str(), source="made")

    def encode_batch(self, buffer, offsets, **options):
        ids, ends = self.inner.encode_batch(buffer, offsets, **options)
        return self.change(ids), ends

    def count_batch(self, buffer, offsets, **options):
        return self.inner.count_batch(buffer, offsets, **options)

    def decode(self, ids):
        return self.inner.decode(ids)


def offer(monkeypatch, compile_native):
    monkeypatch.setattr(engine_choice, "compile_native", compile_native)


def last_wrong(ids):
    wrong = ids.copy()
    wrong[-1] += 1
    return wrong


def test_native_is_used_where_it_agrees(monkeypatch):
    offer(monkeypatch, Native)
    tokenizer = gristmill.load_tokenizer(made.byte_level())
    assert tokenizer.engine_name == "native"
    assert tokenizer.why_not_native is None


def test_native_is_not_used_where_one_id_differs(monkeypatch):
    offer(monkeypatch, lambda spec: Native(spec, last_wrong))
    tokenizer = gristmill.load_tokenizer(made.byte_level())
    assert tokenizer.engine_name == "tokenizers"
    assert "differ from the reference" in tokenizer.why_not_native
    with pytest.raises(UnsupportedTokenizerError, match="differ from the reference"):
        gristmill.load_tokenizer(made.byte_level(), engine="native")


def test_native_is_not_used_where_it_says_no(monkeypatch):
    def refuse(spec):
        raise UnsupportedTokenizerError("its pattern looks back")

    offer(monkeypatch, refuse)
    assert gristmill.load_tokenizer(made.byte_level()).why_not_native == "its pattern looks back"


def test_an_engine_that_is_not_the_tokenizers_own_is_an_error():
    with pytest.raises(UnsupportedTokenizerError, match="has no engine 'slow'"):
        gristmill.load_tokenizer(made.byte_level(), engine="slow")


def test_a_table_that_the_core_refuses_is_a_reason_not_to_use_native(monkeypatch):
    def refuse(spec):
        raise ValueError("a transition takes back too much")

    monkeypatch.setattr(native, "compile_program", refuse)
    tokenizer = gristmill.load_tokenizer(made.byte_level())
    assert tokenizer.engine_name == "tokenizers"
    assert tokenizer.why_not_native == "a transition takes back too much"


def count_checks(monkeypatch):
    calls = []
    check = engine_choice.check_agreement
    monkeypatch.setattr(engine_choice, "check_agreement", lambda *args: (calls.append(1), check(*args)))
    return calls


def test_a_passed_check_is_remembered_and_a_failed_one_is_not(monkeypatch):
    calls = count_checks(monkeypatch)
    offer(monkeypatch, lambda spec: Native(spec, last_wrong))
    gristmill.load_tokenizer(made.byte_level())
    gristmill.load_tokenizer(made.byte_level())
    assert len(calls) == 2
    offer(monkeypatch, Native)
    gristmill.load_tokenizer(made.byte_level())
    gristmill.load_tokenizer(made.byte_level())
    assert len(calls) == 3
    gristmill.load_tokenizer(made.byte_level(normalizer=normalizers.NFC()))
    assert len(calls) == 4


def test_a_check_passed_by_other_sources_counts_for_nothing(monkeypatch, tmp_path):
    calls = count_checks(monkeypatch)
    monkeypatch.setattr(engine_cache, "PACKAGE", tmp_path / "package")
    (tmp_path / "package" / "pattern").mkdir(parents=True)
    source = tmp_path / "package" / "pattern" / "transducer.py"
    for content, num_checks in (("MAX_POPS = 63", 1), ("MAX_POPS = 63", 1), ("MAX_POPS = 31 ", 2)):
        if not source.exists() or source.read_text() != content:
            source.write_text(content)
        gristmill.load_tokenizer(made.byte_level())
        assert len(calls) == num_checks


def test_a_damaged_or_unusable_cache_counts_for_nothing(monkeypatch, tmp_path):
    calls = count_checks(monkeypatch)
    offer(monkeypatch, Native)
    gristmill.load_tokenizer(made.byte_level())
    (remembered,) = (tmp_path / "cache" / "checks").iterdir()
    remembered.write_bytes(b"damaged")
    assert gristmill.load_tokenizer(made.byte_level()).engine_name == "native"
    assert len(calls) == 2
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "file"))
    assert gristmill.load_tokenizer(made.byte_level()).engine_name == "native"
    assert len(calls) == 3


# Twins


@pytest.mark.parametrize(
    "pattern", [made.GPT2_PATTERN, r"\w+|\W+", r"[\w']+|[^\w']+", r"\\w|\w|[^\W\d]|\d{1,2}+|\s+$|."]
)
def test_the_rank_twin_is_tiktoken(pattern):
    table = made.ranks()
    twin = rank_twin(table, pattern, specials={SPECIAL: 9000}, id_offset=7)
    reference = tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks=table, special_tokens={})
    for document in DOCUMENTS:
        buffer, offsets = flatten_texts([document])
        ids = twin.encode_batch(buffer, offsets, special_tokens="text", num_threads=1)[0]
        assert (ids - 7).tolist() == reference.encode_ordinary(document)
        assert twin.decode(ids).decode() == reference.decode((ids - 7).tolist())


@pytest.mark.parametrize("add_dummy_prefix", [True, False])
def test_the_score_twin_is_sentencepiece(add_dummy_prefix):
    content = made.sentencepiece_model(add_dummy_prefix=add_dummy_prefix)
    loaded = load_sentencepiece(content, source="made")
    twin = score_twin(loaded.spec.model, has_prefix=add_dummy_prefix, specials=loaded.specials)
    reference = sentencepiece.SentencePieceProcessor(model_proto=content)
    for document in DOCUMENTS:
        buffer, offsets = flatten_texts([document])
        ids = twin.encode_batch(buffer, offsets, special_tokens="text", num_threads=1)[0]
        assert ids.tolist() == reference.encode_as_ids(document)


def test_the_users_own_object_is_never_changed():
    reference: Tokenizer = made.byte_level()
    before = reference.to_str()
    gristmill.load_tokenizer(reference).encode("a", special_tokens="parse")
    assert reference.to_str() == before
    assert reference.encode_special_tokens is False
