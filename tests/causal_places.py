"""Tokenizers of every kind in folders, as CausalLMTokenizer names them, and real text to try them on."""

import functools
import json
import subprocess
from pathlib import Path

import datasets
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertTokenizerLegacy, ByT5Tokenizer

import adversarial_texts
import gristmill
import made_tokenizers as made
import real_tokenizers as real

ROOT = Path(__file__).parents[1]
NAMES = ["input_ids", "attention_mask", "labels"]
SUFFIXES = (".py", ".md", ".cpp", ".hpp", ".yaml", ".toml")


@functools.cache
def real_texts() -> tuple[str, ...]:
    """Paragraphs of this project's own files, some files whole, and text chosen to hurt."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    found = [ROOT / name for name in sorted(names) if name.endswith(SUFFIXES)]
    files = [path.read_text(encoding="utf-8") for path in found if path.exists()]
    paragraphs = [part for text in files for part in text.split("\n\n")]
    hard = adversarial_texts.TEXTS + adversarial_texts.random_texts(200, seed=5)
    return tuple(paragraphs + files[::20] + hard)


def byte_level(folder: Path) -> Path:
    """As gpt2: nothing is added to a text."""
    return write(folder, made.byte_level().to_str(), eos_token="<|endoftext|>", pad_token="<|pad|>")


def llama3(folder: Path) -> Path:
    """The real vocabulary, with BOS before a text, as its own tokenizer.json has it."""
    json_ = real.rank_json("llama3", "llama3", ignore_merges=True)
    bos = json_["added_tokens"][0]["content"], json_["added_tokens"][0]["id"]
    json_["post_processor"] = json.loads(
        processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos]).__getstate__()
    )
    return write(folder, json.dumps(json_), bos_token=bos[0])


def word_piece(folder: Path) -> Path:
    """As BERT: only the reference library runs it, and it puts tokens on both sides."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(made.TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return write(folder, tokenizer.to_str(), pad_token="[PAD]")


def slow_word_piece(folder: Path) -> Path:
    """The same vocabulary as a slow Python tokenizer, of which there is a fast version."""
    vocab = json.loads((word_piece(folder / "fast") / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.get)) + "\n", encoding="utf-8")
    BertTokenizerLegacy(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def slow_bytes(folder: Path) -> Path:
    """A slow Python tokenizer of which there is no other version."""
    ByT5Tokenizer().save_pretrained(folder)
    return folder


KINDS = {
    "byte_level": byte_level,
    "llama3": llama3,
    "word_piece": word_piece,
    "slow_word_piece": slow_word_piece,
    "slow_bytes": slow_bytes,
}


def write(folder: Path, tokenizer_json: str, **config: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def causal(folder, **options):
    return gristmill.CausalLMTokenizer({"tokenizer_name": str(folder), "show_progress": False} | options)


def rows_of(dataset):
    return [{name: list(row[name]) for name in NAMES} for row in dataset]


def pad_of(tokenizer):
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id


def one_text(text):
    return datasets.Dataset.from_dict({"text": [text]})
