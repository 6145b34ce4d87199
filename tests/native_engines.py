"""Native engines of every kind, and text for them."""

import json

import numpy as np

import adversarial_texts as adversarial
import made_tokenizers as made
import real_tokenizers as real
from gristmill.batch import flatten_texts
from gristmill.load.hf_json import load_tokenizer_json
from gristmill.load.sentencepiece_model import load_sentencepiece
from gristmill.load.tiktoken_ranks import Encoding, load_rank_model
from gristmill.pattern import PATTERNS


def spec_of_json(value):
    return load_tokenizer_json(json.dumps(value).encode(), source="made").spec


def spec_of_ranks(ranks, pattern="llama3"):
    return load_rank_model(ranks, Encoding(PATTERNS[pattern], {}), id_offset=0, source="made").spec


def chain_json():
    """A pipeline that drops text, so that the chain of plain splitters runs instead of the transducer."""
    value = made.byte_level_json()
    cut = {"type": "Split", "pattern": {"Regex": r"\p{L}+|\n"}, "behavior": "Removed", "invert": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return value | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, byte_level]}}


SPECS = {
    "byte level": lambda: spec_of_json(made.byte_level_json()),
    "nfc": lambda: spec_of_json(made.byte_level_json() | {"normalizer": {"type": "NFC"}}),
    "chain": lambda: spec_of_json(chain_json()),
    "spaced": lambda: spec_of_json(made.spaced_json()),
    "scores": lambda: load_sentencepiece(made.sentencepiece_model(), source="made").spec,
    "ranks": lambda: spec_of_ranks(made.ranks()),
    "cl100k": lambda: spec_of_ranks(real.real_ranks("cl100k"), "cl100k_base"),
}


def encode(engine, texts, *, num_threads=1, special_tokens="text"):
    buffer, offsets = flatten_texts(texts)
    ids, ends = engine.encode_batch(buffer, offsets, special_tokens=special_tokens, num_threads=num_threads)
    return [part.tolist() for part in np.split(ids, ends[1:-1])]


def random_words(count, *, seed):
    """Words that hardly ever come back, short and long, of one to four bytes a character."""
    chance = np.random.default_rng(seed)
    alphabets = [range(0x61, 0x7B), range(0xE0, 0x17F), range(0x4E00, 0x5E00), range(0x1F600, 0x1F640)]
    words = []
    for alphabet, share in zip(alphabets, (0.7, 0.1, 0.15, 0.05), strict=True):
        sizes = chance.integers(1, 24, int(count * share))
        letters = "".join(map(chr, chance.choice(alphabet, int(sizes.sum()))))
        ends = np.cumsum(sizes)
        words += [letters[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    chance.shuffle(words)
    return " ".join(words)


def documents():
    special = ["<|endoftext|>", "<s>"]
    texts = adversarial.TEXTS + adversarial.random_texts(2000, seed=3, parts=special)
    return [*texts, random_words(3000, seed=1), *texts[:50], " ".join(texts), ""]
