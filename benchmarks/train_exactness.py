"""Merges and vocabularies against tokenizers' BpeTrainer on the parts of a real corpus, at several sizes.

    python benchmarks/train_exactness.py --corpus mixed.jsonl [--vocab-sizes 8000,32000] [--json FILE]

The corpus is JSON Lines with the fields `text` and `domain`. English, code, CJK and all of it are trained on
by both, with the same pattern, alphabet and special token. The exit status is 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import gristmill
from gristmill.pattern import PATTERNS

EOS = "<|endoftext|>"
PARTS: dict[str, Callable[[str], bool]] = {
    "english": lambda domain: domain.startswith("en_"),
    "code": lambda domain: domain == "code",
    "cjk": lambda domain: domain.startswith(("ml_zh", "ml_ja", "ml_ko")),
    "mixed": lambda domain: True,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="JSONL with the fields text and domain")
    parser.add_argument("--vocab-sizes", default="8000,32000", metavar="N,...")
    parser.add_argument("--pattern", choices=("gpt2", "llama3"), default="gpt2")
    parser.add_argument("--json", type=Path, help="keep the raw results")
    arguments = parser.parse_args()
    found = []
    for part in PARTS:
        with tempfile.TemporaryDirectory(prefix="gristmill-train-") as folder:
            texts, path = write_part(arguments.corpus, part, Path(folder))
            for vocab_size in map(int, arguments.vocab_sizes.split(",")):
                found.append(compare(part, texts, path, vocab_size, arguments.pattern))
                print(json.dumps(found[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"pattern": arguments.pattern, "parts": found}, indent=1) + "\n")
    return 0 if all(row["merges_equal"] and row["vocab_equal"] for row in found) else 1


def write_part(corpus: Path, part: str, folder: Path) -> tuple[list[str], Path]:
    """The documents of a part, also as a file."""
    texts, path = [], folder / f"{part}.jsonl"
    with corpus.open("rb") as lines, path.open("wb") as file:
        for line in lines:
            record = json.loads(line)
            if PARTS[part](record["domain"]):
                texts.append(record["text"])
                file.write(line)
    return texts, path


def compare(part: str, texts: list[str], path: Path, vocab_size: int, pattern: str) -> dict[str, Any]:
    """Train with both, and say whether they agree."""
    start = time.perf_counter()
    ours = train_gristmill(path, vocab_size, pattern)
    between = time.perf_counter()
    theirs = train_tokenizers(texts, vocab_size, pattern)
    return {
        "part": part,
        "text_bytes": sum(len(text.encode()) for text in texts),
        "vocab_size": vocab_size,
        "num_merges": len(ours["merges"]),
        "merges_equal": [list(pair) for pair in ours["merges"]] == [list(pair) for pair in theirs["merges"]],
        "vocab_equal": ours["vocab"] == theirs["vocab"],
        "gristmill_s": round(between - start, 2),
        "tokenizers_s": round(time.perf_counter() - between, 2),
    }


def train_gristmill(path: Path, vocab_size: int, pattern: str) -> dict[str, Any]:
    output = path.parent / f"{vocab_size}.json"
    gristmill.train(
        {
            "read": {"inputs": [str(path)]},
            "count": {"pattern": pattern},
            "learn": {"vocab_size": vocab_size, "output": str(output), "special_tokens": [EOS]},
        }
    )
    model: dict[str, Any] = json.loads(output.read_text())["model"]
    return model


def train_tokenizers(texts: list[str], vocab_size: int, pattern: str) -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE())
    has_own = pattern == "gpt2"
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=has_own)
    split = pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated")
    tokenizer.pre_tokenizer = bytes_ if has_own else pre_tokenizers.Sequence([split, bytes_])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return model


if __name__ == "__main__":
    sys.exit(main())
