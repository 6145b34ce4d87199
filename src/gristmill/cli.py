"""The `gristmill` command: reads arguments, calls the library, prints, and alone catches GristmillError."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from gristmill.config import BenchConfig, check_section
from gristmill.errors import GristmillError, InputError
from gristmill.files import write_whole
from gristmill.tokenizer import EngineChoice, SpecialTokenPolicy, Tokenizer, load_tokenizer

EXAMPLES = """\
examples:
  gristmill demo                                     see it work, in a few seconds
  gristmill tokenizer path/to/llama3                 what was understood of a tokenizer
  gristmill encode -t path/to/llama3 "Hello, you"    text to ids
  gristmill encode -t cl100k_base.tiktoken --json < page.txt
  gristmill bench -t path/to/llama3 corpus.jsonl     which way to encode is fastest here
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the status is 1 where ids differ, 2 for the user's mistake, 130 when interrupted."""
    try:
        arguments = build_parser().parse_args(argv)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except GristmillError as error:
        print(f"gristmill: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Python flushes stdout once more at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="gristmill",
        description="Text to token ids, exactly as the reference libraries do it, faster.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="encode embedded text, check it, show the speed")
    demo.set_defaults(run=run_demo_command)

    tokenizer = commands.add_parser("tokenizer", help="show what was understood of a tokenizer")
    tokenizer.add_argument("tokenizer", metavar="TOKENIZER", help="file, folder or hub name")
    add_engine(tokenizer)
    tokenizer.add_argument("--json", action="store_true", help="print JSON")
    tokenizer.set_defaults(run=run_tokenizer_command)

    encode = commands.add_parser("encode", help="turn text into ids")
    encode.add_argument("texts", nargs="*", metavar="TEXT", help="documents; none: standard input is one")
    encode.add_argument("-t", "--tokenizer", required=True, help="file, folder or hub name")
    encode.add_argument(
        "-f", "--file", action="append", default=[], metavar="FILE", help="a file is a document"
    )
    add_engine(encode)
    encode.add_argument(
        "--special-tokens",
        choices=get_args(SpecialTokenPolicy),
        default="text",
        help="what text that spells a special token becomes (default: %(default)s)",
    )
    encode.add_argument("--json", action="store_true", help="print one JSON object a document")
    encode.set_defaults(run=run_encode_command)

    add_bench(commands.add_parser("bench", help="time the ways to encode a text"))
    return parser


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Let the user choose the engine."""
    parser.add_argument(
        "--engine", choices=get_args(EngineChoice), default="auto", help="default: %(default)s"
    )


def add_bench(bench: argparse.ArgumentParser) -> None:
    """Describe `bench`; absent options are left out, so that their defaults live in config alone."""
    bench.argument_default = argparse.SUPPRESS
    bench.add_argument("texts", nargs="*", metavar="FILE", help="text or JSONL; none: embedded text")
    bench.add_argument("-t", "--tokenizer", help="file, folder or hub name; none: a small one")
    bench.add_argument("--num-docs", type=int, help="use the first so many documents")
    bench.add_argument("--rounds", type=int, help="fresh processes a method; medians are shown")
    bench.add_argument("--threads", type=int, help="threads of the parallel methods; none: all cores")
    bench.add_argument("--repeat", action="store_true", dest="is_repeated", help="also time a second pass")
    bench.add_argument("--json", default=None, metavar="FILE", help="write raw times; - prints them")
    bench.add_argument("--plot", default=None, metavar="FILE", help="draw a bar chart (.png, .svg or .pdf)")
    bench.set_defaults(run=run_bench_command)


class ShowVersion(argparse.Action):
    """Prints the version; looks it up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_arguments: object) -> None:
        from gristmill import __version__

        print(f"gristmill {__version__}")
        parser.exit()


def run_demo_command(_arguments: argparse.Namespace) -> int:
    """Show the demo; ids that differ from the reference are a failure."""
    from gristmill.demo import render_demo, run_demo

    demo = run_demo()
    print(render_demo(demo))
    return 0 if demo.wrong_document is None else 1


def run_tokenizer_command(arguments: argparse.Namespace) -> int:
    """Show what a tokenizer is."""
    start = time.perf_counter()
    tokenizer = load_tokenizer(arguments.tokenizer, engine=arguments.engine)
    facts = describe(tokenizer) | {"load_s": round(time.perf_counter() - start, 3)}
    if arguments.json:
        print(msgspec.json.encode(facts).decode())
        return 0
    for name, value in facts.items():
        print(f"{name:<15} {'-' if value is None else value}")
    return 0


def describe(tokenizer: Tokenizer) -> dict[str, object]:
    """List what a user may want to know of a tokenizer."""
    return {
        "engine": tokenizer.engine_name,
        "why_not_native": tokenizer.why_not_native,
        "vocab_size": tokenizer.vocab_size,
        "bos_id": tokenizer.bos_id,
        "eos_id": tokenizer.eos_id,
        "pad_id": tokenizer.pad_id,
        "token_dtype": str(tokenizer.token_dtype),
        "fingerprint": tokenizer.fingerprint,
    }


def run_encode_command(arguments: argparse.Namespace) -> int:
    """Print the ids of each document on a line of its own."""
    documents: list[str | bytes] = [*arguments.texts, *map(read_document, arguments.file)]
    if not documents:
        documents = [sys.stdin.buffer.read()]
    tokenizer = load_tokenizer(arguments.tokenizer, engine=arguments.engine)
    batch = tokenizer.encode_batch(documents, special_tokens=arguments.special_tokens)
    for document in batch:
        ids = document.tolist()
        if arguments.json:
            print(msgspec.json.encode({"num_tokens": len(ids), "ids": ids}).decode())
        else:
            print(*ids)
    return 0


def read_document(path: str) -> bytes:
    """Read a file as one document; whether it is UTF-8 is for the encoder to say."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def run_bench_command(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write what was asked for."""
    from gristmill.bench import run_bench
    from gristmill.bench_report import check_plot_path, render_json, render_table, write_plot

    values = {key: value for key, value in vars(arguments).items() if key in BenchConfig.__struct_fields__}
    config = check_section(BenchConfig, values, name="bench")
    if arguments.plot:
        check_plot_path(Path(arguments.plot))
    report = run_bench(config, on_step=show_step)
    show_step("")
    if arguments.json == "-":
        print(render_json(report).decode(), end="")
    else:
        print(render_table(report))
    if arguments.json not in (None, "-"):
        write_whole(Path(arguments.json), render_json(report))
    if arguments.plot:
        write_plot(report, Path(arguments.plot))
    return 1 if any(m.status == "mismatch" and m.method == "native" for m in report.measurements) else 0


def show_step(step: str) -> None:
    """Show on a terminal what is being measured, in place."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{step}", end="", file=sys.stderr, flush=True)
