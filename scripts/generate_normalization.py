"""Write native/normalize_tables.inc: Unicode normalisation exactly as the installed `tokenizers` does it.

Every fact is found by asking the library, code point by code point, because its Unicode version is older than
Python's and only its answers count. Run without arguments to write the file, with `--verify` to compare.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tokenizers import normalizers

TABLES = Path(__file__).parent.parent / "native" / "normalize_tables.inc"

NFC, NFD = normalizers.NFC(), normalizers.NFD()
NFKC, NFKD = normalizers.NFKC(), normalizers.NFKD()

# Between probes: a newline is a starter that neither changes nor composes, so probes do not touch each other.
SEPARATOR = "\n"
LOWEST_MARK, HIGH_MARK = "\u0334", "\u0301"  # combining classes 1 (the lowest there is) and 230
SYLLABLES = range(0xAC00, 0xD7A4)
LEADS, VOWELS, TAILS = range(0x1100, 0x1113), range(0x1161, 0x1176), range(0x11A8, 0x11C3)

BLOCK = 64
CLASS_BITS = 6
NOT_NFC, NOT_NFKC = 1 << CLASS_BITS, 2 << CLASS_BITS
LINE_WIDTH = 108


def ask(form: normalizers.Normalizer, probes: Sequence[str]) -> list[str]:
    """Return the library's normal form of every probe, from a single call."""
    answers = form.normalize_str(SEPARATOR.join(probes)).split(SEPARATOR)
    assert len(answers) == len(probes), "a probe contains the separator"
    return answers


@dataclass(frozen=True)
class Unicode:
    """What the library does: changed characters per form, mark classes as ranks, composing pairs."""

    nfc: dict[str, str]
    nfd: dict[str, str]
    nfkc: dict[str, str]
    nfkd: dict[str, str]
    ranks: dict[str, int]
    compositions: dict[tuple[str, str], str]


def probe_library() -> Unicode:
    """Learn what the library does; Hangul is checked by rule and left out of the decompositions."""
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and chr(c) != SEPARATOR]
    nfc, nfd, nfkc, nfkd = (
        {c: a for c, a in zip(characters, ask(form, characters), strict=True) if c != a}
        for form in (NFC, NFD, NFKC, NFKD)
    )
    for decompositions in (nfd, nfkd):
        take_out_syllables(decompositions)
    check_jamo()
    ranks = rank_marks([c for c in characters if c not in nfd and ord(c) not in SYLLABLES])
    return Unicode(nfc, nfd, nfkc, nfkd, ranks, find_compositions(nfc, nfd))


def take_out_syllables(decompositions: dict[str, str]) -> None:
    for index, syllable in enumerate(SYLLABLES):
        vowel, tail = divmod(index, len(TAILS) + 1)
        lead, vowel = divmod(vowel, len(VOWELS))
        expected = chr(LEADS[lead]) + chr(VOWELS[vowel]) + (chr(TAILS[tail - 1]) if tail else "")
        assert decompositions.pop(chr(syllable)) == expected, f"U+{syllable:04X} does not decompose by rule"


def check_jamo() -> None:
    """Compose every pair round the borders of the jamo blocks: only the ranges above may compose."""
    jamo = [chr(c) for c in range(0x10FF, 0x1201)]
    pairs = [a + b for a in [*jamo, "\uac00", "\uac01", "\ud788", "\ud7a3", "\ud7a4"] for b in jamo]
    for pair, answer in zip(pairs, ask(NFC, pairs), strict=True):
        first, second = map(ord, pair)
        expected = pair
        if first in LEADS and second in VOWELS:
            index = (first - LEADS[0]) * len(VOWELS) + second - VOWELS[0]
            expected = chr(SYLLABLES[index * (len(TAILS) + 1)])
        elif second in TAILS and pair[0] in "\uac00\ud788":
            expected = chr(first + second - TAILS[0] + 1)
        assert answer == expected, f"jamo {pair!a} compose to {answer!a}, not to {expected!a}"


def rank_marks(characters: Sequence[str]) -> dict[str, int]:
    """Rank the combining classes from 1 up; only their order matters. Characters left out have class 0."""
    after_low = ask(NFD, [c + LOWEST_MARK for c in characters])
    before_high = ask(NFD, [HIGH_MARK + c for c in characters])
    marks = [
        c
        for c, low, high in zip(characters, after_low, before_high, strict=True)
        if low != c + LOWEST_MARK or high != HIGH_MARK + c
    ]
    # A pair is swapped exactly when the first class is higher, so counting swaps orders the classes.
    pairs = [a + b for a in marks for b in marks]
    is_swapped = [a != b for a, b in zip(ask(NFD, pairs), pairs, strict=True)]
    num_lower = [sum(is_swapped[i : i + len(marks)]) for i in range(0, len(pairs), len(marks))]
    rank_of = {n: rank for rank, n in enumerate(sorted(set(num_lower)), start=1)}
    ranks = [rank_of[n] for n in num_lower]
    assert is_swapped == [a > b for a in ranks for b in ranks], "combining classes are not a total order"
    assert len(rank_of) < 1 << CLASS_BITS, "too many combining classes for the property byte"
    return dict(zip(marks, ranks, strict=True))


def find_compositions(nfc: dict[str, str], nfd: dict[str, str]) -> dict[tuple[str, str], str]:
    """Find every pair that composes: a composite is a character that NFD takes apart and NFC restores."""
    composites = [c for c in nfd if c not in nfc]
    firsts = ask(NFC, [nfd[c][:-1] for c in composites])
    compositions = {(a, nfd[c][-1]): c for a, c in zip(firsts, composites, strict=True)}
    assert all(len(first) == 1 for first in firsts), "a composite is not made of two parts"
    assert ask(NFC, [a + b for a, b in compositions]) == composites
    # No plain letter may compose with a mark in a way that the composites do not show.
    seconds = sorted({second for _, second in compositions})
    pairs = [(a, b) for a in sorted({a for a in firsts if a not in nfd}) for b in seconds]
    answers = ask(NFC, [a + b for a, b in pairs])
    assert answers == [compositions.get(pair, "".join(pair)) for pair in pairs]
    return compositions


def property_bytes(unicode: Unicode) -> list[int]:
    """One byte a code point: rank of its class, and per form whether it may change or join the one before."""
    seconds = {b for _, b in unicode.compositions} | {chr(c) for c in chain(VOWELS, TAILS)}
    properties = [0] * 0x110000
    for mark, rank in unicode.ranks.items():
        properties[ord(mark)] = rank
    for flag, changed, decomposed in (
        (NOT_NFC, unicode.nfc, unicode.nfd),
        (NOT_NFKC, unicode.nfkc, unicode.nfkd),
    ):
        joining = {c for c, parts in decomposed.items() if parts[0] in seconds}
        for character in changed.keys() | seconds | joining:
            properties[ord(character)] |= flag
    return properties


def split_blocks(properties: Sequence[int]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Cut the properties into shared blocks; block 0 is all zero and stands for all beyond the index."""
    numbers: dict[tuple[int, ...], int] = {(0,) * BLOCK: 0}
    cuts = (tuple(properties[i : i + BLOCK]) for i in range(0, len(properties), BLOCK))
    index = [numbers.setdefault(block, len(numbers)) for block in cuts]
    while index[-1] == 0:
        index.pop()
    assert len(numbers) <= 256, "too many blocks for a one-byte index"
    return index, list(numbers)


def mapping_stream(mapping: dict[str, str]) -> list[int]:
    """Flatten a decomposition table: step from the last code point, number of parts, the parts."""
    stream, last = [], 0
    for character in sorted(mapping):
        parts = [ord(part) for part in mapping[character]]
        stream += [ord(character) - last, len(parts), *parts]
        last = ord(character)
    return stream


def array(declaration: str, numbers: Iterable[int]) -> str:
    lines, line = [], ""
    for number in map(str, numbers):
        if len(line) + len(number) >= LINE_WIDTH:
            lines.append(line)
            line = ""
        line += number + ","
    return "\n".join([f"constexpr {declaration}[] = {{", *lines, line, "};"])


def render(unicode: Unicode) -> str:
    """Return the text of the tables file."""
    index, blocks = split_blocks(property_bytes(unicode))
    compatible = {c: parts for c, parts in unicode.nfkd.items() if unicode.nfd.get(c) != parts}
    triples = ((ord(a), ord(b), ord(c)) for (a, b), c in sorted(unicode.compositions.items()))
    return "\n".join(
        [
            "// Generated by scripts/generate_normalization.py by asking `tokenizers`; do not edit.",
            "// Block number of every 64 code points; block 0 is all zero and so is all beyond the index.",
            array("uint8_t kPropertyIndex", index),
            "// Bits 0-5: rank of the combining class, 0 for starters. Bit 6 (NFC), bit 7 (NFKC): the",
            "// character may change or join what stands before it.",
            array("uint8_t kPropertyBlocks", chain.from_iterable(blocks)),
            "// Full decompositions: step from the last code point, number of parts, the parts.",
            array("uint32_t kCanonicalStream", mapping_stream(unicode.nfd)),
            "// The same, of characters whose compatibility decomposition is not the canonical one.",
            array("uint32_t kCompatibleStream", mapping_stream(compatible)),
            "// First, second, composite. Hangul is arithmetic and appears in none of these tables.",
            array("uint32_t kCompositions", chain.from_iterable(triples)),
            "",
        ]
    )


def main() -> int:
    """Write the tables, or compare them with the library and return 1 when they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verify", action="store_true", help="compare with the library, write nothing")
    is_check = parser.parse_args().verify
    tables = render(probe_library())
    if not is_check:
        TABLES.write_text(tables, encoding="ascii")
        return 0
    if TABLES.exists() and TABLES.read_text(encoding="ascii") == tables:
        return 0
    print(f"{TABLES}: does not match the installed tokenizers; run {Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
