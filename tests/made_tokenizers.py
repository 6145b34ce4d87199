"""Small tokenizers of every kind, made by the libraries they belong to."""

import base64
import io
import json

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "The quick brown fox jumps over the lazy dog, doesn't it? 12345 67",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "素早い茶色の狐が怠け者の犬を飛び越える。日本語のテスト",
    "def f(x):\n    return x + 1  # comment\n\n\nprint(f(41))",
    "the the the then there their them themselves other another",
] * 4

GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def byte_level(
    *, vocab_size=400, specials=("<|endoftext|>", "<|pad|>"), add_prefix_space=False, normalizer=None
) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(specials),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def byte_level_json(**options) -> dict:
    return json.loads(byte_level(**options).to_str())


def spaced_json() -> dict:
    """SentencePiece-style BPE as Llama-2's tokenizer.json has it."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator([word for text in TEXTS for word in text.split()], trainer)
    made = json.loads(tokenizer.to_str())
    made["added_tokens"] = made["added_tokens"][:3]
    return made


def ranks() -> dict[bytes, int]:
    """Byte ranks of a trained byte-level tokenizer, in the order of its merges."""
    made = byte_level_json(specials=())
    table = {char: byte for byte, char in byte_characters().items()}
    tokens = [bytes(table[c] for c in token) for token in made["model"]["vocab"]]
    return {token: rank for rank, token in enumerate(tokens)}


def byte_characters() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def rank_file(table: dict[bytes, int]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in table.items())


def full_ranks(num_ranks: int) -> dict[bytes, int]:
    """As many distinct tokens as a published encoding has; single bytes first."""
    single = [bytes([byte]) for byte in range(256)]
    pairs = (i.to_bytes(3, "big") for i in range(num_ranks - 256))
    return {token: rank for rank, token in enumerate([*single, *pairs])}


def tekken_json(*, num_specials=30, listed=None, version="v3", cut=0) -> dict:
    table = ranks()
    order = sorted(table, key=table.__getitem__)
    first = [bytes([byte]) for byte in range(256)]
    order = first + [token for token in order if len(token) > 1]
    made = {
        "config": {
            "pattern": GPT2_PATTERN,
            "num_vocab_tokens": len(order),
            "default_vocab_size": len(order) + num_specials - cut,
            "default_num_special_tokens": num_specials,
            "version": version,
        },
        "vocab": [
            {"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None}
            for i, t in enumerate(order)
        ],
    }
    if listed is not None:
        made["special_tokens"] = [
            {"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(listed)
        ]
    return made


def sentencepiece_model(*, model_type="bpe", **options) -> bytes:
    out = io.BytesIO()
    settings = {
        "vocab_size": 420,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "character_coverage": 0.98,
        "hard_vocab_limit": False,
        "minloglevel": 2,
    } | options
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in TEXTS for line in text.splitlines() if line),
        model_writer=out,
        model_type=model_type,
        **settings,
    )
    return out.getvalue()
