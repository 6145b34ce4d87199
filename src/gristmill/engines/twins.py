"""Slow twins of tiktoken and sentencepiece: what the native engine is checked against where those are not
installed.

They follow the definitions and nothing else, so they also say in a few lines what the fast paths must
compute.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping

import tokenizers

from gristmill.engines.slow import SlowEngine
from gristmill.errors import TokenizerFormatError
from gristmill.spec import ScoreModel

SPACE_MARK = "▁"


def merge_ranks(piece: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """Ranks of a piece: itself if it is a token, else bytes merged, lowest rank first, leftmost among
    equals."""
    if piece in ranks:
        return [ranks[piece]]
    parts = [bytes([byte]) for byte in piece]
    while len(parts) > 1:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], len(ranks) << 24))
        if parts[best] + parts[best + 1] not in ranks:
            break
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return [ranks[part] for part in parts]


def rank_twin(
    ranks: Mapping[bytes, int], pattern: str, *, specials: Mapping[str, int], id_offset: int
) -> SlowEngine:
    """Twin of tiktoken; the text is cut by the regex engine of `tokenizers`, which differs on new code
    points only."""
    try:
        regex = tokenizers.Regex(_as_oniguruma(pattern))
        cut = tokenizers.pre_tokenizers.Split(regex, "removed", invert=True)
    except Exception as error:
        raise TokenizerFormatError(f"the pattern is not one tokenizers can run: {error}") from error

    def encode(text: str) -> list[int]:
        pieces = [text[start:end] for _, (start, end) in cut.pre_tokenize_str(text)]
        return [rank + id_offset for piece in pieces for rank in merge_ranks(piece.encode(), ranks)]

    by_id = {rank + id_offset: token for token, rank in ranks.items()}
    by_id.update({id_: text.encode() for text, id_ in specials.items()})
    return SlowEngine(encode, lambda ids: b"".join(by_id[i] for i in ids), specials=specials, parallel=False)


JOIN_CONTROLS = r"\x{200C}\x{200D}"
WORD = r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}" + JOIN_CONTROLS + "]"
OTHERS = {r"\w": WORD, r"\W": WORD.replace("[", "[^", 1)}
"""Escapes that have another meaning: Oniguruma takes join controls for no part of a word."""


def _as_oniguruma(pattern: str) -> str:
    # {n,m}+ is possessive in Rust's syntax and repeated in Oniguruma's; $ is the end of the text and of a
    # line.
    pattern = re.sub(r"(?<!\\)\$", r"\\z", re.sub(r"(\{\d+(?:,\d*)?\})\+", r"\1", pattern))
    return re.sub(r"\\.", lambda escape: OTHERS.get(escape[0], escape[0]), pattern, flags=re.DOTALL)


def merge_scores(text: str, scores: Mapping[str, float]) -> list[str]:
    """Symbols of normalised text: characters merged, highest score of the result first, leftmost among
    equals."""
    symbols: list[str] = list(text)
    before, after = list(range(-1, len(text) - 1)), [*range(1, len(text)), -1]
    agenda: list[tuple[float, int, str]] = []

    def propose(left: int, right: int) -> None:
        if left >= 0 and right >= 0 and symbols[left] + symbols[right] in scores:
            joined = symbols[left] + symbols[right]
            heapq.heappush(agenda, (-scores[joined], left, joined))

    for i in range(len(symbols) - 1):
        propose(i, i + 1)
    while agenda:
        _, left, joined = heapq.heappop(agenda)
        right = after[left]
        # Either may have been merged since; an emptied symbol is one that its left neighbour took.
        if not symbols[left] or right < 0 or symbols[left] + symbols[right] != joined:
            continue
        symbols[left], symbols[right] = joined, ""
        after[left] = after[right]
        if after[left] >= 0:
            before[after[left]] = left
        propose(before[left], left)
        propose(left, after[left])
    return [symbol for symbol in symbols if symbol]


def score_twin(model: ScoreModel, *, has_prefix: bool, specials: Mapping[str, int]) -> SlowEngine:
    """Twin of sentencepiece's BPE with the identity normalizer and byte fallback."""
    scores = dict(zip(model.pieces, model.scores, strict=True))
    ids = dict(zip(model.pieces, model.ids, strict=True))

    def encode(text: str) -> list[int]:
        if not text:
            return []
        marked = (SPACE_MARK if has_prefix else "") + text.replace(" ", SPACE_MARK)
        out: list[int] = []
        for symbol in merge_scores(marked, scores):
            out.extend([ids[symbol]] if symbol in ids else [model.byte_ids[byte] for byte in symbol.encode()])
        return out

    by_id = {id_: piece.replace(SPACE_MARK, " ").encode() for piece, id_ in ids.items()}
    by_id.update({id_: bytes([byte]) for byte, id_ in enumerate(model.byte_ids)})
    by_id.update({id_: text.encode() for text, id_ in specials.items()})
    return SlowEngine(encode, lambda out: b"".join(by_id[i] for i in out), specials=specials, parallel=False)
