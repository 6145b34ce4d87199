"""One-pass and repeated speed of Gristmill and of the fastest public encoders, for tokenizers x texts.

    python benchmarks/speed.py --tokenizers DIR --texts DIR [--max-mb 30] [--rounds 5] [--threads 1 2]

A tokenizer is a folder or file under the one given; a text is a .jsonl (field `text`) or plain text file,
named by its stem (english.jsonl, code.jsonl, ...). All sides get the same bytes, each in a fresh process, in
alternated rounds; ids are compared with the reference first. Documents that spell a special token are left
out. Raw results go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from gristmill import load_tokenizer
from gristmill.bench import BenchReport, Plan, measure, median_s, read_input
from gristmill.bench_report import render_json, title
from gristmill.config import BenchConfig
from gristmill.errors import GristmillError
from gristmill.files import write_whole
from sources import tokenizer_sources

RESULTS = Path(__file__).parent / "results"
SIDES = ("native", "gigatoken", "tiktoken", "sentencepiece", "tokenizers batch 1000")


def main() -> int:
    arguments = read_arguments()
    sources = tokenizer_sources(arguments.tokenizers, only=arguments.only)
    texts = sorted(path for path in arguments.texts.iterdir() if path.suffix in (".jsonl", ".ndjson", ".txt"))
    if not sources or not texts:
        print("no tokenizer or no text found", file=sys.stderr)
        return 2
    arguments.results.mkdir(parents=True, exist_ok=True)
    config = BenchConfig(rounds=arguments.rounds, is_repeated=True)
    plans = [Plan(side, threads) for threads in arguments.threads for side in arguments.sides]
    is_exact = True
    for name, source in sources.items():
        for text in texts:
            try:
                plain = without_special_text(read_input(str(text)), load_tokenizer(source).special_tokens)
                documents = take_bytes(plain, int(arguments.max_mb * 1e6))
                report = measure(str(source), documents, plans, config=config, on_step=show)
            except GristmillError as error:
                print(f"{name}, {text.stem}: {error}", file=sys.stderr)
                continue
            report.tokenizer = name
            write_whole(arguments.results / f"{name}.{text.stem}.json", render_json(report))
            print(summary(report, text.stem), flush=True)
            is_exact &= all(m.status != "mismatch" for m in report.measurements if m.method == "native")
    return 0 if is_exact else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokenizers", type=Path, required=True, help="folder with tokenizer folders or files"
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these tokenizers only")
    parser.add_argument("--texts", type=Path, required=True, help="folder with .jsonl or .txt files")
    parser.add_argument("--max-mb", type=float, default=30.0, help="of each text, for all sides alike")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def without_special_text(documents: Iterable[str], specials: Iterable[str]) -> Iterator[str]:
    """Leave out documents that spell a special token: libraries differ on what it should become."""
    spelled = re.compile("|".join(map(re.escape, specials)) or r"(?!)")
    return (document for document in documents if not spelled.search(document))


def take_bytes(documents: Iterable[str], max_bytes: int) -> list[str]:
    """Take whole documents until there are `max_bytes` of them."""
    taken, num_bytes = [], 0
    for document in documents:
        if num_bytes >= max_bytes:
            break
        taken.append(document)
        num_bytes += len(document.encode())
    return taken


def summary(report: BenchReport, text: str) -> str:
    """One line a cell: MB/s of one pass and, after a slash, of repeated text."""
    cells = []
    for m in report.measurements:
        if m.status == "ok":
            once, repeated = (report.num_bytes / median_s(times) / 1e6 for times in (m.once_s, m.repeated_s))
            cells.append(f"{title(m)} {once:.1f}/{repeated:.1f}")
        elif m.status != "absent":
            cells.append(f"{title(m)} {m.status.upper()} ({m.reason})")
    return f"{report.tokenizer}, {text}, {report.num_bytes / 1e6:.1f} MB: {'; '.join(cells)}"


def show(step: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{step}", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
