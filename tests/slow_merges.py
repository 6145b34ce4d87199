"""Merges learned the slow way: every pair of every piece is counted anew before every merge."""

import itertools
from collections import Counter


def merged(symbols: list[int], left: int, right: int, token: int) -> list[int]:
    out: list[int] = []
    at = 0
    while at < len(symbols):
        if symbols[at : at + 2] == [left, right]:
            out.append(token)
            at += 2
        else:
            out.append(symbols[at])
            at += 1
    return out


def learn_slowly(
    pieces: dict[bytes, int],
    tokens: list[bytes],
    alphabet: dict[int, int],
    *,
    vocab_size: int,
    min_frequency: int = 0,
    max_token_length: int | None = None,
    tie_break: str = "tokenizers",
    known: tuple[tuple[int, int, int], ...] = (),
) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Learned merges as (left, right, token) and the count of each; symbols are bytes."""
    tokens = list(tokens)
    ids = {token: id_ for id_, token in enumerate(tokens) if token}
    words = [([alphabet[byte] for byte in piece], count) for piece, count in pieces.items() if count]
    for left, right, token in known:
        words = [(merged(word, left, right, token), count) for word, count in words]
    rules, counts = [], []
    while len(tokens) < vocab_size:
        sums: Counter[tuple[int, int]] = Counter()
        for word, count in words:
            for pair in itertools.pairwise(word):
                sums[pair] += count
        allowed = {pair: count for pair, count in sums.items() if is_allowed(pair, tokens, max_token_length)}
        if not allowed:
            break
        left, right = min(allowed, key=lambda pair: rank(pair, allowed[pair], tokens, tie_break))
        if allowed[left, right] < max(1, min_frequency):
            break
        spelled = tokens[left] + tokens[right]
        token = ids.setdefault(spelled, len(tokens))
        if token == len(tokens):
            tokens.append(spelled)
        rules.append((left, right, token))
        counts.append(allowed[left, right])
        words = [(merged(word, left, right, token), count) for word, count in words]
    return rules, counts


def is_allowed(pair: tuple[int, int], tokens: list[bytes], max_token_length: int | None) -> bool:
    length = len(tokens[pair[0]]) + len(tokens[pair[1]])
    return max_token_length is None or length == 2 or length < max_token_length


def rank(pair: tuple[int, int], count: int, tokens: list[bytes], tie_break: str) -> tuple:
    if tie_break == "bytes":
        return -count, tokens[pair[0]], tokens[pair[1]]
    return -count, pair
