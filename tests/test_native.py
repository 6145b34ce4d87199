"""The native engine against its slow twins, and the same ids for any threads, batches and cache."""

import random
import threading
import time

import numpy as np
import pytest

import made_tokenizers as made
import real_tokenizers as real
from gristmill import _native
from gristmill.batch import flatten_texts
from gristmill.config import DEFAULT_CACHE_BYTES
from gristmill.engines.native import NativeEngine
from gristmill.engines.twins import merge_ranks
from native_engines import SPECS, documents, encode, random_words

MEGABYTE = 1 << 20


@pytest.fixture(scope="module", params=SPECS)
def spec(request):
    return SPECS[request.param]()


@pytest.fixture(scope="module")
def byte_level():
    return NativeEngine(SPECS["byte level"]())


# Merging


def random_ranks(size, *, seed, alphabet):
    """Tokens grown from random pairs of earlier ones."""
    chance = random.Random(seed)
    tokens = [bytes([byte]) for byte in range(256)]
    parts = [bytes([byte]) for byte in alphabet]
    while len(tokens) < 256 + size:
        token = chance.choice(parts) + chance.choice(parts)
        if len(token) <= 40 and token not in tokens:
            tokens.append(token)
            parts.append(token)
    return {token: rank for rank, token in enumerate(tokens)}


def score_model(*, num_scores, seed, alphabet="abcé水🙂 "):
    """Pieces that share scores: equal ones go left to right, whatever they make."""
    chance = random.Random(seed)
    pieces = list(alphabet)
    while len(pieces) < 150:
        piece = chance.choice(pieces) + chance.choice(pieces)
        if piece not in pieces:
            pieces.append(piece)
    ranks = [chance.randrange(num_scores) for _ in pieces]
    marked = [piece.replace(" ", "▁") for piece in pieces]
    return _native.compile_scores(marked, list(range(256, 256 + len(pieces))), ranks, list(range(256)))


def merge_model():
    value = made.byte_level_json(vocab_size=700)["model"]
    return _native.compile_merges(value["vocab"], value["merges"], "byte_level", False, False)


def fallback_model():
    value = made.spaced_json()["model"]
    return _native.compile_merges(value["vocab"], value["merges"], "marks", True, False)


MODELS = {
    "two letters": (lambda: _native.compile_ranks(random_ranks(60, seed=1, alphabet=b"ab"), 0), "ab"),
    "four letters": (lambda: _native.compile_ranks(random_ranks(300, seed=2, alphabet=b"abcd"), 0), "abcd"),
    "any bytes": (lambda: _native.compile_ranks(random_ranks(900, seed=3, alphabet=range(256)), 0), None),
    "trained": (merge_model, "the quickbrown jumps 犬をüberé🙂"),
    "byte fallback": (fallback_model, "the quickbrown jumps 犬をüberé🙂"),
    "scores": (lambda: score_model(num_scores=1000, seed=4), "abcé水🙂 x"),
    "few scores": (lambda: score_model(num_scores=3, seed=5), "abcé水🙂 x"),
    "one score": (lambda: score_model(num_scores=1, seed=6), "abc é水🙂x"),
    "cl100k": (
        lambda: _native.compile_ranks(real.real_ranks("cl100k"), 0),
        "the quick 犬をüé🙂\n  \t123.,'s",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_merge_gives_the_same_tokens(name):
    build, alphabet = MODELS[name]
    model = build()
    chance = random.Random(name)
    sizes = [*range(40), *(chance.choice([3, 8, 15, 16, 17, 31, 32, 33, 64, 200]) for _ in range(1500))]
    for size in sizes:
        text = (
            chance.randbytes(size) if alphabet is None else "".join(chance.choices(alphabet, k=size)).encode()
        )
        assert model.merge_fast(text) == model.merge_slowly(text), text


def test_merging_by_rank_is_tiktokens():
    ranks = random_ranks(300, seed=2, alphabet=b"abcd")
    model = _native.compile_ranks(ranks, 0)
    chance = random.Random(8)
    for size in [*range(40), 100, 300]:
        text = bytes(chance.choices(b"abcd", k=size))
        # Doubled, it is no token: those are taken whole before anything is merged.
        assert model.merge_slowly(text * 2) == merge_ranks(text * 2, ranks)


@pytest.mark.parametrize("name", ["cl100k", "llama3"])
def test_a_token_is_reachable_if_merging_its_bytes_gives_it(name):
    model = _native.compile_ranks(real.real_ranks(name), 0)
    ids = random.Random(9).sample(range(model.num_ids), 3000)
    for id_ in ids:
        assert model.is_reachable(id_) == (model.merge_slowly(model.token(id_)) == [id_])


# Threads, batches, cache


def test_ids_are_the_same_for_any_threads_and_any_batch(spec):
    texts = documents()
    for special_tokens in ("text", "parse"):
        options = {"special_tokens": special_tokens}
        expected = encode(NativeEngine(spec), texts, **options)
        engine = NativeEngine(spec)
        for num_threads in (2, 3, 8):
            assert encode(engine, texts, num_threads=num_threads, **options) == expected
        reversed_ids = encode(engine, texts[::-1], num_threads=2, **options)
        assert reversed_ids[::-1] == expected
        singly = [encode(engine, [text], **options)[0] for text in texts[:400]]
        assert singly == expected[:400]
        buffer, offsets = flatten_texts(texts)
        counts = engine.count_batch(buffer, offsets, num_threads=3, **options)
        assert counts.tolist() == list(map(len, expected))


def test_a_tiny_cache_changes_no_id(spec):
    texts = [random_words(40_000, seed=2), *documents()]
    assert encode(NativeEngine(spec, cache_bytes=1), texts) == encode(NativeEngine(spec), texts)


@pytest.mark.parametrize("cache_bytes", [1, MEGABYTE, 8 * MEGABYTE])
def test_memory_stays_under_the_bound_whatever_is_encoded(cache_bytes):
    engine = NativeEngine(SPECS["byte level"](), cache_bytes=cache_bytes)
    words = random_words(400_000, seed=3)
    step = len(words) // 8
    texts = [words[i * step + shift : (i + 1) * step] for shift in range(8) for i in range(8)]
    held = []
    for start in range(0, len(texts), 8):
        encode(engine, texts[start : start + 8], num_threads=1)
        held.append(engine.state_bytes)
    # A thread also holds the tables' smallest size, one of characters, and room for a block of text.
    assert max(held) <= cache_bytes + 3 * MEGABYTE


def test_the_default_cache_keeps_a_thread_under_200_megabytes():
    assert DEFAULT_CACHE_BYTES <= 190 * MEGABYTE
    engine = NativeEngine(SPECS["scores"]())
    for seed in range(4):
        encode(engine, [random_words(200_000, seed=10 + seed)])
    assert engine.state_bytes <= 200 * MEGABYTE


def test_what_one_huge_document_needed_is_given_back():
    engine = NativeEngine(SPECS["byte level"](), cache_bytes=1)
    encode(engine, [" " * 4_000_000])
    encode(engine, ["small"])
    assert engine.state_bytes <= 4 * MEGABYTE


def test_many_callers_at_once_get_the_same_ids(spec):
    engine = NativeEngine(spec, cache_bytes=1)
    texts = documents()[-600:]
    expected = {policy: encode(engine, texts, special_tokens=policy) for policy in ("text", "parse")}
    wrong = []

    def work(policy, num_threads):
        for _ in range(3):
            if encode(engine, texts, num_threads=num_threads, special_tokens=policy) != expected[policy]:
                wrong.append(policy)

    callers = [threading.Thread(target=work, args=(("text", "parse")[i % 2], 1 + i % 3)) for i in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def longest_pause(call):
    """How long, as a share of the call's time, another Python thread stood still during a call."""
    is_over = threading.Event()
    pauses = []

    def watch():
        last = time.perf_counter()
        while not is_over.is_set():
            now = time.perf_counter()
            pauses.append(now - last)
            last = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    call()
    took_s = time.perf_counter() - start
    is_over.set()
    watcher.join()
    return max(pauses) / took_s


def test_other_python_threads_run_while_it_encodes(byte_level):
    buffer, offsets = flatten_texts([random_words(600_000, seed=5)])

    def call():
        byte_level.encode_batch(buffer, offsets, special_tokens="text", num_threads=1)

    # Were the lock held, it would be the whole of it every time; a busy machine makes it so now and then.
    assert any(longest_pause(call) < 0.5 for _ in range(5))


# Decoding


@pytest.mark.parametrize("name", ["byte level", "ranks", "cl100k"])
def test_decoding_gives_the_bytes_back(name):
    engine = NativeEngine(SPECS[name]())
    texts = documents()
    for text, ids in zip(texts, encode(engine, texts), strict=True):
        assert engine.decode(np.array(ids, np.uint32)).decode() == text


def test_decoding_a_special_token_gives_its_text(byte_level):
    (ids,) = encode(byte_level, ["a<|endoftext|>b"], special_tokens="parse")
    assert len(ids) == 3
    assert byte_level.decode(np.array(ids, np.uint32)) == b"a<|endoftext|>b"
