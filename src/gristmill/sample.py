"""Embedded text and a tokenizer trained on it: what `bench` uses when the user names nothing, and `demo`
where it finds no other text."""

from __future__ import annotations

import random
from importlib import resources
from pathlib import Path

SYLLABLES = (
    "ba",
    "den",
    "fo",
    "gri",
    "hal",
    "in",
    "ka",
    "lor",
    "mi",
    "nes",
    "or",
    "pel",
    "qua",
    "rin",
    "sto",
)


def sample_documents() -> list[str]:
    """Return the embedded documents: prose in a dozen languages, code, numbers and emoji."""
    text = resources.files("gristmill").joinpath("sample.txt").read_text(encoding="utf-8")
    return [document for document in text.strip().split("\n\n") if document]


def made_documents(num_docs: int, *, seed: int = 0) -> list[str]:
    """Return documents made from the embedded ones with invented words mixed in, so that no two are alike."""
    random_source = random.Random(seed)
    samples = sample_documents()
    return [_made_document(samples, random_source) for _ in range(num_docs)]


def _made_document(samples: list[str], random_source: random.Random) -> str:
    words: list[str] = []
    for sample in random_source.sample(samples, 3):
        words += sample.split(" ")
    for _ in range(len(words) // 8):
        invented = "".join(random_source.choices(SYLLABLES, k=random_source.randint(2, 4)))
        words[random_source.randrange(len(words))] = invented
    return " ".join(words)


def train_sample_tokenizer(folder: Path, *, vocab_size: int = 2000) -> Path:
    """Train a small byte-level BPE on the embedded text, with `tokenizers`; return its tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(made_documents(200), trainer=trainer)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path
