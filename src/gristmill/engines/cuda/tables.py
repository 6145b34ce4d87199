"""A compiled tokenizer -> the arrays that the kernels read, all made from what the native engine is made
from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.engines.cuda.characters import class_bytes, first_bytes
from gristmill.engines.cuda.cuts import CutTables, cut_tables
from gristmill.engines.cuda.keys import PHRASE_WORDS, WORD_WORDS, key_table
from gristmill.errors import UnsupportedTokenizerError
from gristmill.pattern import compile_splits
from gristmill.pattern.bimachine import Bimachine, Monoid, bimachine, monoid
from gristmill.spec import MergeModel, RankModel, TokenizerSpec

Arrays = dict[str, NDArray[Any]]

WORD_BITS = 22
"""Large, so that few pieces lie elsewhere than where they are first looked for; those in use stay in the
cache."""
PHRASE_BITS = 18
MAX_ID = 1 << 21
MAX_SHARED_BYTES = 16 << 10
"""For the automata: what 48 KiB of shared memory leave beside eight tiles of text."""
NO_RESULT = 0xFFFFFFFF


class Sizes(NamedTuple):
    """How large the automata are; the kernels are compiled for it."""

    class_bits: int
    num_forward: int
    num_backward: int
    num_forward_elements: int
    num_backward_elements: int


LARGEST = {4: Sizes(4, 16, 32, 256, 256), 5: Sizes(5, 27, 32, 256, 256)}
"""By class bits: what the kernels can have at most, and what the emulator is compiled for."""


class Tables(NamedTuple):
    """All that the kernels know of a tokenizer: arrays and numbers by their names in `struct Work`."""

    sizes: Sizes
    is_narrow: bool
    arrays: Arrays
    numbers: dict[str, int]


def build_tables(
    spec: TokenizerSpec, model: Any, *, word_bits: int = WORD_BITS, is_padded: bool = False
) -> Tables:
    """The tables of a tokenizer, for automata as large as they are, or padded to the largest."""
    _require_fitting(spec)
    machine = compile_splits(spec.splits).transducer
    both = None if machine is None else bimachine(machine)
    if machine is None or both is None:
        raise UnsupportedTokenizerError("its split pattern cannot be read from both ends")
    forward, backward = monoid(both.forward), monoid(both.backward)
    if forward is None or backward is None:
        raise UnsupportedTokenizerError("its split pattern has too many states to be read in many places")
    sizes = _sizes(machine.num_classes, both, forward, backward)
    if is_padded:
        sizes = LARGEST[sizes.class_bits]
    flat, offsets = model.token_bytes()
    if len(offsets) > MAX_ID:
        raise UnsupportedTokenizerError("it has more than two million ids")
    merges = _merge_arrays(model.merges().reshape(-1, 4), flat, offsets)
    cuts = cut_tables(flat, offsets)
    is_narrow = len(offsets) - 1 <= 1 << 16 and len(merges["results"]) < 0xFFFE
    classes = class_bytes(machine, spec.normalization.form, merges["byte_ids"] == NO_RESULT)
    arrays = {
        **_automata(sizes, both, forward, backward),
        **_characters(classes, sizes),
        **merges,
        **_known_pieces(model, flat, offsets, word_bits),
        "token_bytes": np.minimum(np.diff(offsets), 0xFFFF).astype(np.uint16),
        "odd_tokens": _odd_tokens(model, flat, offsets),
        "cut_pairs": cuts.pairs,
        "cut_windows": cuts.windows,
        "cut_contexts": cuts.contexts,
        "cut_near": cuts.near,
    }
    return Tables(sizes, is_narrow, arrays, _numbers(arrays, cuts, model, word_bits))


def added_token_tables(
    contents: Iterable[str], tables: Tables
) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Class bytes and prefixes with which documents are found that may hold one of these added tokens."""
    return first_bytes(contents, tables.arrays["byte_class"])


def _require_fitting(spec: TokenizerSpec) -> None:
    model = spec.model
    is_bytes = isinstance(model, RankModel) or (
        isinstance(model, MergeModel) and model.token_text == "byte_level"
    )
    if not is_bytes:
        raise UnsupportedTokenizerError("it is no byte-level BPE")
    if spec.prefix is not None or spec.normalization.replace_spaces:
        raise UnsupportedTokenizerError("it changes the text before splitting it")
    if not spec.splits:
        raise UnsupportedTokenizerError("it has no split pattern")


def _sizes(num_classes: int, both: Bimachine, forward: Monoid, backward: Monoid) -> Sizes:
    own = (len(both.forward), len(both.backward), len(forward.elements), len(backward.elements))
    for bits, largest in LARGEST.items():
        # Two classes are taken: inside a character, and the start of a document.
        fits = num_classes <= (1 << bits) - 2 and all(a <= b for a, b in zip(own, largest[1:], strict=True))
        shared = 256 + ((own[0] + 4 * own[1] + own[2] + own[3]) << bits)
        if fits and shared <= MAX_SHARED_BYTES:
            return Sizes(bits, *own)
    raise UnsupportedTokenizerError("its split pattern has too many classes or states")


def _automata(sizes: Sizes, both: Bimachine, forward: Monoid, backward: Monoid) -> Arrays:
    num_columns = 1 << sizes.class_bits
    num_classes = both.forward.shape[1]
    forward_step = np.zeros((sizes.num_forward, num_columns), np.uint8)
    forward_step[: len(both.forward), :num_classes] = both.forward
    forward_step[:, -1] = np.arange(sizes.num_forward)
    backward_step = np.zeros((sizes.num_backward, num_columns), np.int64)
    backward_step[: len(both.backward), :num_classes] = both.backward
    backward_step[:, -1] = np.arange(sizes.num_backward)
    masks = np.zeros(sizes.num_backward, np.int64)
    masks[: len(both.backward)] = both.ends.T @ (1 << np.arange(len(both.forward)))
    packed = backward_step | masks[backward_step] << 5
    return {
        "forward_step": forward_step,
        "backward_step": packed.astype(np.uint32),
        **_monoid_arrays("forward", forward, sizes.num_forward_elements, num_columns),
        **_monoid_arrays("backward", backward, sizes.num_backward_elements, num_columns),
    }


def _monoid_arrays(name: str, own: Monoid, num_elements: int, num_columns: int) -> Arrays:
    count = len(own.elements)
    extend = np.zeros((num_elements, num_columns), np.uint8)
    extend[:count, : len(own.of_class) - 1] = own.compose[:, own.of_class[:-1]]
    extend[:count, -2] = own.compose[:, own.of_class[-1]]
    extend[:count, -1] = np.arange(count)
    join = np.zeros((num_elements, num_elements), np.uint8)
    join[:count, :count] = own.compose
    value = np.zeros(num_elements, np.uint8)
    is_constant = (own.elements == own.elements[:, :1]).all(axis=1)
    value[:count] = own.elements[:, 0] | is_constant * 0x80
    return {f"{name}_extend": extend, f"{name}_join": join, f"{name}_value": value}


def _characters(classes: NDArray[np.uint8], sizes: Sizes) -> Arrays:
    blocks: dict[bytes, int] = {}
    pages = [blocks.setdefault(row.tobytes(), len(blocks)) for row in classes.reshape(-1, 256)]
    byte_class = np.full(256, (1 << sizes.class_bits) - 1, np.uint8)
    byte_class[:128] = classes[:128]
    return {
        "byte_class": byte_class,
        "class_page": np.array(pages, np.uint16),
        "class_of": np.frombuffer(b"".join(blocks), np.uint8),
    }


def _merge_arrays(merges: NDArray[np.uint32], flat: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Arrays:
    ranks, dense = np.unique(merges[:, 2], return_inverse=True)
    results = np.zeros(max(len(ranks), 1), np.uint32)
    results[dense] = merges[:, 3]
    if (results[dense] != merges[:, 3]).any():
        raise UnsupportedTokenizerError("merges of one rank make different tokens")
    byte_ids = np.full(256, NO_RESULT, np.uint32)
    singles = np.flatnonzero(np.diff(offsets) == 1)
    byte_ids[flat[offsets[singles]]] = singles
    byte_of = np.full(len(offsets), -1)
    byte_of[singles] = flat[offsets[singles]]
    byte_ranks = np.full((256, 256), 0xFFFFFFFF, np.uint32)
    left, right = byte_of[merges[:, 0]], byte_of[merges[:, 1]]
    both = (left >= 0) & (right >= 0)
    byte_ranks[left[both], right[both]] = dense[both]
    return {
        "pairs": _pair_table(merges, dense),
        "byte_ranks": byte_ranks,
        "results": results,
        "byte_ids": byte_ids,
    }


def _pair_table(merges: NDArray[np.uint32], ranks: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Open addressing: a pair lies at its hash, or as near behind it as there was room."""
    keys = merges[:, 0].astype(np.uint64) << np.uint64(21) | merges[:, 1]
    entries = keys << np.uint64(22) | ranks.astype(np.uint64)
    table = np.full(1 << max(4, (2 * len(keys)).bit_length()), ~np.uint64(0))
    places = ((keys * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)).astype(np.int64)
    pending = np.arange(len(keys))
    while len(pending):
        slots = places[pending] & len(table) - 1
        free = np.flatnonzero(table[slots] == ~np.uint64(0))
        taken, first = np.unique(slots[free], return_index=True)
        table[taken] = entries[pending[free[first]]]
        pending = np.delete(pending, free[first])
        places[pending] += 1
    return table


def _known_pieces(model: Any, flat: NDArray[np.uint8], offsets: NDArray[np.int64], word_bits: int) -> Arrays:
    """The tokens that a piece can be; one that merging does not reach counts for a whole piece only."""
    reachable = model.reachable().astype(bool)
    sizes = np.diff(offsets)
    found = {}
    limits = (("words", 1, 15, WORD_WORDS, word_bits), ("phrases", 16, 31, PHRASE_WORDS, PHRASE_BITS))
    for name, least, most, width, bits in limits:
        wanted = (sizes >= least) & (sizes <= most) & (reachable | model.whole_piece_first)
        ids = np.flatnonzero(wanted)
        ids = ids[np.argsort(reachable[ids], kind="stable")]  # what must have a place comes first
        headers = ids.astype(np.uint32) | np.where(reachable[ids], 0, 0x10000000).astype(np.uint32)
        num_needed = int((~reachable[ids]).sum())
        found[name] = key_table(flat, offsets[ids], sizes[ids], headers, width, bits, num_needed)
    return found


def _odd_tokens(model: Any, flat: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Tokens of 32 bytes that count for whole pieces only: too long for the tables, too short for a
    search."""
    is_odd = ~model.reachable().astype(bool) & (np.diff(offsets) > 31) & model.whole_piece_first
    ids = np.flatnonzero(is_odd)
    if (np.diff(offsets)[ids] > 32).any():
        raise UnsupportedTokenizerError("a token of more than 32 bytes counts for whole pieces only")
    return np.array([flat[offsets[i] : offsets[i + 1]] for i in ids], np.uint8).reshape(-1, 32)


def _numbers(arrays: Arrays, cuts: CutTables, model: Any, word_bits: int) -> dict[str, int]:
    return {
        "pair_mask": len(arrays["pairs"]) - 1,
        "word_bits": word_bits,
        "phrase_bits": PHRASE_BITS,
        "max_words": 1 << word_bits - 2,
        "max_phrases": 1 << PHRASE_BITS - 1,
        "space_cut": int(cuts.has_no_double_space),
        "has_whole_only": int(model.whole_piece_first and not model.reachable().all()),
        "num_odd_tokens": len(arrays["odd_tokens"]),
        "num_tokens": len(arrays["token_bytes"]),
    }
