"""Hostile patterns and tokenizer files end in success or in our own error, never in anything else.

`make fuzz` runs the same with more examples.
"""

import base64
import copy
import io
import json
import os
import random

import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import load_tokenizer
from gristmill.errors import GristmillError
from gristmill.pattern import compile_splits
from gristmill.sample import sample_documents, train_sample_tokenizer
from gristmill.spec import Split

FUZZ = settings(
    max_examples=int(os.environ.get("GRISTMILL_FUZZ_EXAMPLES", "60")),
    deadline=None,
    derandomize="GRISTMILL_FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
RANK_PATTERN = r"\p{L}+|\s+|[^\p{L}\s]"
TEXT = "Hello, wörld 123 \n\n <|endoftext|> 水車 👩‍🌾\tx"

ATOMS = st.sampled_from(
    [
        *(
            "a",
            "b",
            r"\p{L}",
            r"\p{N}",
            r"\p{Lu}",
            r"\P{M}",
            r"\s",
            r"\S",
            r"\d",
            r"\w",
            ".",
            "[a-z]",
            "'s",
            " ",
        ),
        *(
            r"[^\s\p{L}\p{N}]",
            r"\n",
            r"\r",
            "$",
            "^",
            r"(?!\S)",
            "(?=x)",
            "(?i:ll)",
            r"\x{4e00}",
            "[一-龥]",
            "é",
        ),
        *(r"\u0041", "[[:alpha:]]", r"[\p{L}--\p{Lu}]", "[a-z&&[^b]]", r"\b", r"\1", "(?<=a)", "(?P<n>a)"),
        *("()", "[]", "(", "[", "*"),
    ]
)
QUANTIFIERS = st.sampled_from(
    ["", "", "", "?", "*", "+", "??", "*?", "+?", "?+", "++", "*+", "{1,3}", "{2}", "{0}", "{,5}", "{9999}"]
)


def grown(inner):
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.tuples(inner, QUANTIFIERS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda pattern: f"({pattern})"),
    )


PATTERNS = st.one_of(
    st.recursive(st.tuples(ATOMS, QUANTIFIERS).map("".join), grown, max_leaves=8),
    st.text(alphabet=r"\pLNsS{}()[]^$|?*+-,.:'ab01 <>=!&", max_size=30),
    st.text(max_size=10),
)
SPLITS = st.lists(
    st.builds(
        Split,
        pattern=PATTERNS,
        dialect=st.sampled_from(["oniguruma", "rust"]),
        behavior=st.sampled_from(
            ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
        ),
        invert=st.booleans(),
    ),
    min_size=1,
    max_size=2,
)
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 255, 2**31, 2**32, 2**63, 2**64, 10**400, -0.5, 1e308]),
    st.sampled_from(
        ["", "a", "BPE", "Unigram", "ByteLevel", "Split", "NFC", "\ud800", "Ġ", "▁", "<0x00>", "(", "\\p{"]
    ),
    st.just([]),
    st.just({}),
    st.just([["a", "b", "c"]]),
    st.just({"type": "Sequence", "pretokenizers": []}),
    st.just([[[[[[[[[[]]]]]]]]]]),
)


def only_our_errors(call):
    """Run it; a GristmillError is a fine answer, any other exception (a Rust panic too) fails the test."""
    try:
        return call()
    except GristmillError as error:
        if not str(error):
            pytest.fail("an error without a message")
        return None


def load_and_encode(path, **options):
    tokenizer = only_our_errors(lambda: load_tokenizer(path, **options))
    if tokenizer is not None:
        only_our_errors(lambda: tokenizer.encode_batch([TEXT, ""]))


def mutate_bytes(content, seed):
    """Cut, double, overwrite and swap stretches; where nothing else happens, truncate."""
    choose = random.Random(seed)
    mutated = bytearray(content)
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(mutated) + 1)
        length = min(choose.choice([1, 1, 2, 8, 64, 1024]), len(mutated) - at)
        action = choose.randrange(5)
        if action == 0:
            del mutated[at : at + length]
        elif action == 1:
            mutated[at:at] = mutated[at : at + length]
        elif action == 2:
            mutated[at : at + length] = choose.randbytes(length)
        elif action == 3:
            mutated[at:at] = choose.choice(
                [b"\x00", b"\xff" * 9, b"\n", b"0", b"-", b'"', b"{", b" 99999999999999999999"]
            )
        else:
            del mutated[at:]
    return bytes(mutated)


def places(node, path=()):
    """Yield the path of every value in a JSON document, but of a long list or dict only the first few."""
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for number, (key, child) in enumerate(children):
        if number < 12:
            yield from places(child, (*path, key))


def put(content, path, value, *, is_removed):
    if not path:
        return value
    changed = copy.deepcopy(content)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    if is_removed:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return changed


# Fixtures are paths, not bytes: hypothesis prints the arguments of a failing example.


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    return train_sample_tokenizer(tmp_path_factory.mktemp("tokenizer"), vocab_size=270)


@pytest.fixture(scope="module")
def rank_file(tmp_path_factory):
    tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" the", b"in", b"ing", "é".encode()]
    path = tmp_path_factory.mktemp("ranks") / "whole.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))
    assert load_tokenizer(path, pattern=RANK_PATTERN).engine_name == "native"
    return path


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def sentencepiece_model(request, tmp_path_factory):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sample_documents()),
        model_writer=model,
        model_type=request.param,
        vocab_size=700,
        byte_fallback=True,
        hard_vocab_limit=False,
        character_coverage=0.98,
        # The default rule is a table of 240 KB, and nearly all mutations would fall into it.
        normalization_rule_name="identity",
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("sentencepiece") / "whole.model"
    path.write_bytes(model.getvalue())
    assert load_tokenizer(path).vocab_size > 256
    return path


@FUZZ
@given(splits=SPLITS)
def test_any_pattern_compiles_or_is_refused(splits):
    only_our_errors(lambda: compile_splits(tuple(splits)))


@FUZZ
@given(data=st.data())
def test_any_value_anywhere_in_tokenizer_json_loads_or_is_refused(data, tokenizer_json, tmp_path):
    content = json.loads(tokenizer_json.read_bytes())
    for _ in range(data.draw(st.integers(1, 2))):
        paths = list(places(content))
        path = data.draw(st.sampled_from(paths))
        content = put(content, path, data.draw(JUNK), is_removed=data.draw(st.booleans()))
    file = tmp_path / "tokenizer.json"
    file.write_bytes(json.dumps(content).encode())
    load_and_encode(file)


@FUZZ
@given(seed=st.integers(0, 2**32))
def test_any_bytes_of_tokenizer_json_load_or_are_refused(seed, tokenizer_json, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_bytes(mutate_bytes(tokenizer_json.read_bytes(), seed))
    load_and_encode(file)


@FUZZ
@given(seed=st.integers(0, 2**32))
def test_any_rank_file_loads_or_is_refused(seed, rank_file, tmp_path):
    file = tmp_path / "x.tiktoken"
    file.write_bytes(mutate_bytes(rank_file.read_bytes(), seed))
    load_and_encode(file, pattern=RANK_PATTERN)


@FUZZ
@given(seed=st.integers(0, 2**32))
def test_any_sentencepiece_model_loads_or_is_refused(seed, sentencepiece_model, tmp_path):
    file = tmp_path / "tokenizer.model"
    file.write_bytes(mutate_bytes(sentencepiece_model.read_bytes(), seed))
    load_and_encode(file)


@FUZZ
@given(
    content=st.binary(max_size=200),
    name=st.sampled_from(["tokenizer.json", "x.tiktoken", "x.model", "tekken.json", "x"]),
)
def test_any_small_file_is_refused_or_loads(content, name, tmp_path):
    file = tmp_path / name
    file.write_bytes(content)
    load_and_encode(file)
