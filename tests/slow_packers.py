"""What the packers and columns do, said as plainly as Python can: lists, a loop a token, no speed."""

from dataclasses import dataclass

from gristmill.pack import best_fit


@dataclass(frozen=True)
class Piece:
    document: int
    start: int
    ids: tuple[int, ...]
    num_repeated: int = 0

    def fresh(self):
        return Piece(self.document, self.start + self.num_repeated, self.ids[self.num_repeated :])


@dataclass(frozen=True)
class Row:
    pieces: tuple[Piece, ...]

    @property
    def num_tokens(self):
        return sum(len(piece.ids) for piece in self.pieces)

    @property
    def num_repeated(self):
        return sum(piece.num_repeated for piece in self.pieces)


def pack_slowly(pieces, config, *, is_last):
    """Rows of all the pieces, and the pieces that fill none."""
    return SLOW_PACKERS[config.mode](pieces, config, is_last)


def is_padded_at_end(config, is_last):
    return config.tail == "pad" or (config.tail == "carry" and is_last)


def concat(pieces, config, is_last):
    stream = [
        (number, piece.document, piece.start + i, piece.ids[i])
        for number, piece in enumerate(pieces)
        for i in range(len(piece.ids))
    ]
    rows, at, num_seen = [], 0, 0
    while at + config.sequence_length <= len(stream):
        rows.append(row_of(stream[at : at + config.sequence_length], num_seen - at))
        num_seen = at + config.sequence_length
        at = num_seen - config.overlap
    if num_seen == len(stream):
        return rows, []
    if is_padded_at_end(config, is_last):
        return [*rows, row_of(stream[at:], num_seen - at)], []
    return rows, list(row_of(stream[num_seen:], 0).pieces)


def row_of(tokens, num_repeated):
    pieces = []
    for number in dict.fromkeys(token[0] for token in tokens):
        own = [(i, token) for i, token in enumerate(tokens) if token[0] == number]
        repeats = sum(i < num_repeated for i, _ in own)
        _, (_, document, start, _) = own[0]
        pieces.append(Piece(document, start, tuple(token[3] for _, token in own), repeats))
    return Row(tuple(pieces))


def windows_of(pieces, config):
    for piece in pieces:
        at = num_seen = 0
        while num_seen < len(piece.ids):
            ids = piece.ids[at : at + config.sequence_length]
            yield Piece(piece.document, piece.start + at, ids, num_seen - at)
            num_seen = at + len(ids)
            at = num_seen - config.overlap


def pad(pieces, config, is_last):
    return [Row((window,)) for window in windows_of(pieces, config)], []


def fit_best(pool, length):
    row = []
    while fitting := [w for w in pool if len(w.ids) <= length - sum(len(p.ids) for p in row)]:
        longest = max(fitting, key=lambda window: len(window.ids))  # of equal ones, the first
        pool.remove(longest)
        row.append(longest)
    return Row(tuple(row))


def best_fit_pack(pieces, config, is_last):
    length, rows, pool = config.sequence_length, [], []
    for window in windows_of(pieces, config):
        if len(window.ids) == length:
            rows.append(Row((window,)))
            continue
        pool.append(window)
        max_tokens = max(best_fit.MAX_POOL_TOKENS, 2 * length)
        while len(pool) > config.lookahead or sum(len(w.ids) for w in pool) > max_tokens:
            rows.append(fit_best(pool, length))
    waiting, left = list(pool), []
    while waiting:
        row = fit_best(waiting, length)
        if is_padded_at_end(config, is_last) or row.num_tokens >= best_fit.LEAST_FILL * length:
            rows.append(row)
        else:
            left.extend(row.pieces)
    return rows, [window.fresh() for window in pool if window in left]


SLOW_PACKERS = {"concat": concat, "pad": pad, "best_fit": best_fit_pack}


def slow_labels(rows, length, *, mask_first_token):
    out = []
    for row in rows:
        line = []
        for piece in row.pieces:
            line.extend(piece.ids)
            if mask_first_token and piece.start == 0:
                line[-len(piece.ids)] = -100
        out.append(line + [-100] * (length - len(line)))
    return out


def slow_attention_mask(rows, length):
    return [[1] * row.num_tokens + [0] * (length - row.num_tokens) for row in rows]


def slow_position_ids(rows, length):
    out = []
    for row in rows:
        line = [i for piece in row.pieces for i in range(len(piece.ids))]
        out.append(line + list(range(length - len(line))))
    return out


def slow_cu_seqlens(rows):
    out = []
    for row in rows:
        line = [0]
        for piece in row.pieces:
            line.append(line[-1] + len(piece.ids))
        out.append(line)
    return out
