"""The big exactness run: native ids against the reference's, on more text than `make test` has time for.

    python benchmarks/exactness.py --tokenizers DIR --corpus FILE.jsonl --random 1000000

For every tokenizer under DIR (none given: one trained on embedded text): all documents of the corpus, every
code point alone and between letters, digits, spaces and newlines, random strings over a nasty alphabet, and
random Chinese and Japanese.
A text with other ids is cut down to a smallest one that still differs, and printed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gristmill import GristmillError, load_tokenizer
from gristmill.bench import available_cores, first_difference, read_input
from gristmill.bench_methods import METHODS, REFERENCES, Encoder
from gristmill.sample import sample_documents, train_sample_tokenizer
from sources import tokenizer_sources

SURROUNDINGS = (("", ""), ("a", "a"), ("1", "1"), (" ", " "), ("\n", "\n"), ("a ", " a"), ("é", "'s"))
BATCH_CHARACTERS = 2_000_000
MAX_REPORTED = 5
# fmt: off
NASTY = [
    *"abcdefgzABCDEFGZ0123456789",
    *" \t\n\r\v\f\x00\x1c\x85\xa0\u1680\u2003\u2028\u2029\u200b\u200d\u3000\ufeff",
    *".,;:!?'\"`()[]{}<>|/\\@#$%^&*-+=_~",
    *"éßıİſÅﬁ①²½\u0301\u0308\u0327\u0345\u0f71\u0f72\uff41\uff21\uff11",
    *"дЖשלאבم١ने०ไทยกำ",
    *"水車小屋あいアが\u3099ー。、「」한글\u1100\u1161\u11a8",
    *"🙂👩\u200d🌾🏽🇩🇪\ufe0f\u20e3",
    *"\u2581\u0120\u010a\u00ad\ufffd\ufffe\uffff\U0001ffff\U000e0041\U0010ffff",
    *("'s", "'S", "'ll", "'LL", "\u2019s", "'\u017f", "\r\n", "\n\n", "  ", "    ", "\t\t", "the", " the"),
    *("<s>", "</s>", "<unk>", "<pad>", "<0x0A>", "<0xE6>", "<|endoftext|>", "<|im_start|>", "[UNK]", "ing"),
]
DENSE = [
    *"的一是不了在人有我他这个上们来到时大地为子中你说生国年着就那和要她出也得里后自以会家可下而过天去能对小多然于心学么之都好看起发当没成只如事把还用第样道想作种开",
    *"のにはをたがでてとしれさいるあこなりもらまそよかっんくアイウエオカキクンース日本語国会社年月新今大時間事",
    *"。、，．！？：；「」（）《》…—・～　１２Ａ〇々",
]
# fmt: on


def main() -> int:
    arguments = read_arguments()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.tokenizers is None:
            arguments.tokenizers = Path(folder) / "embedded"
            arguments.tokenizers.mkdir()
            train_sample_tokenizer(arguments.tokenizers)
        sources = tokenizer_sources(arguments.tokenizers, only=arguments.only)
        is_exact = [check(name, str(source), arguments) for name, source in sources.items()]
    return 0 if is_exact and all(is_exact) else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizers", type=Path, help="folder with tokenizer folders or files")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these tokenizers only")
    parser.add_argument("--corpus", type=Path, help="JSONL (field `text`) or plain text; none: embedded text")
    parser.add_argument("--random", type=int, default=100_000, help="strings of each kind of chance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-code-points", action="store_true", help="leave the code points out")
    return parser.parse_args()


def check(name: str, source: str, arguments: argparse.Namespace) -> bool:
    """Compare one tokenizer's ids with the reference's on all kinds of text; say what was found."""
    start = time.perf_counter()
    try:
        native = METHODS["native"](source, available_cores())
    except GristmillError as error:
        print(f"{name}: not native, nothing to compare: {error}", flush=True)
        return load_tokenizer(source).engine_name != "native"
    reference = open_reference(source)
    kinds: dict[str, Iterable[str]] = {"corpus": corpus(arguments.corpus)}
    if not arguments.no_code_points:
        kinds["code points"] = code_points()
    kinds["random"] = random_strings(arguments.random, arguments.seed)
    kinds["dense"] = dense_strings(arguments.random, arguments.seed)
    num_wrong = 0
    for kind, texts in kinds.items():
        num_texts, wrong = compare(native, reference, texts)
        num_wrong += len(wrong)
        print(
            f"{name}, {kind}: {num_texts:,} texts, {f'{len(wrong)} DIFFER' if wrong else 'equal'}", flush=True
        )
        for text in wrong[:MAX_REPORTED]:
            report(native, reference, text)
    print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    return num_wrong == 0


def open_reference(source: str) -> Encoder:
    """Open the library that says which ids are right."""
    for method in REFERENCES:
        try:
            return METHODS[method](source, available_cores())
        except GristmillError:
            continue
    raise SystemExit(f"{source}: no reference library reads it")


def corpus(path: Path | None) -> Iterable[str]:
    return sample_documents() if path is None else read_input(str(path))


def code_points() -> Iterator[str]:
    """Every code point that text can hold, in every surrounding."""
    for code in itertools.chain(range(0xD800), range(0xE000, 0x110000)):
        for before, after in SURROUNDINGS:
            yield before + chr(code) + after


def random_strings(num_texts: int, seed: int) -> Iterator[str]:
    """Short strings of nasty parts; a few parts come in runs, which random choice alone would never give."""
    choose = random.Random(seed)
    for _ in range(num_texts):
        parts = choose.choices(NASTY, k=choose.randint(1, 24))
        if choose.random() < 0.3:
            parts[choose.randrange(len(parts))] *= choose.randint(2, 40)
        if choose.random() < 0.1:
            parts.append(chr(choose.choice([choose.randrange(0xD800), choose.randrange(0xE000, 0x110000)])))
        yield "".join(parts)


def dense_strings(num_texts: int, seed: int) -> Iterator[str]:
    """Common characters of Chinese and Japanese, any others of theirs, and now and then a nasty part."""
    choose = random.Random(seed)
    for _ in range(num_texts):
        kinds = choose.choices((DENSE, "any", NASTY), (20, 4, 1), k=choose.randint(1, 60))
        yield "".join(
            chr(choose.randrange(0x3000, 0xA000)) if kind == "any" else choose.choice(kind) for kind in kinds
        )


def compare(native: Encoder, reference: Encoder, texts: Iterable[str]) -> tuple[int, list[str]]:
    """Return how many texts there were, and those whose ids differ."""
    num_texts, wrong = 0, []
    for batch in batches(texts):
        num_texts += len(batch)
        wrong += differing(native, reference, batch)
    return num_texts, wrong


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Group texts so that neither many short ones nor few long ones fill the memory."""
    batch, num_characters = [], 0
    for text in texts:
        batch.append(text)
        num_characters += len(text) + 20
        if num_characters >= BATCH_CHARACTERS:
            yield batch
            batch, num_characters = [], 0
    if batch:
        yield batch


def differing(native: Encoder, reference: Encoder, batch: list[str]) -> list[str]:
    """Return the texts of a batch whose ids differ."""
    wrong = []
    while batch:
        number = first_difference(ids_of(reference, batch), ids_of(native, batch))
        if number is None:
            break
        wrong.append(batch[number])
        batch = batch[number + 1 :] if len(wrong) < MAX_REPORTED else []
    return wrong


def ids_of(encoder: Encoder, texts: list[str]):  # type: ignore[no-untyped-def]
    return encoder.flatten(encoder.encode(encoder.prepare(texts)))


def report(native: Encoder, reference: Encoder, text: str) -> None:
    """Print a smallest text that still differs, with both ids."""
    smallest = shrink(
        text, lambda part: first_difference(ids_of(reference, [part]), ids_of(native, [part])) is not None
    )
    print(f"  {smallest!a}")
    print(f"    reference {ids_of(reference, [smallest])[0].tolist()}")
    print(f"    native    {ids_of(native, [smallest])[0].tolist()}", flush=True)


def shrink(text: str, is_wrong: Callable[[str], bool]) -> str:
    """Take out ever smaller stretches while what is left is still wrong."""
    size = len(text) // 2
    while size >= 1:
        start = 0
        while start < len(text):
            shorter = text[:start] + text[start + size :]
            if is_wrong(shorter):
                text = shorter
            else:
                start += size
        size //= 2
    return text


if __name__ == "__main__":
    sys.exit(main())
