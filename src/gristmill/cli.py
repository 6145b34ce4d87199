"""The `gristmill` command: reads arguments, calls the library, prints, and alone catches GristmillError."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, get_args

import msgspec

from gristmill.cli_dash import add_dash
from gristmill.cli_output import add_clean, add_convert, add_inspect, add_verify
from gristmill.cli_run import add_plan, add_tokenize
from gristmill.cli_train import add_counts, add_train
from gristmill.config import BenchConfig, EngineChoice, Errors, SpecialTokenPolicy, check_section
from gristmill.errors import GristmillError, InputError
from gristmill.report.words import printable
from gristmill.signals import end_when_told

if TYPE_CHECKING:
    from gristmill.tokenizer import Tokenizer

NUM_SHOWN = 5
"""Of special tokens; --json has all."""
UNSHOWN = partial(argparse.HelpFormatter, width=80)
"""What formats help while a parser is described: argparse makes one for every argument, to see that it can be
shown, and each would ask the system how wide the terminal is."""
EXAMPLES = """\
examples:
  gristmill demo                                     see it work, in a minute at most
  gristmill tokenize corpus/ -t path/to/llama3 -o shards    files to shards; again to resume
  gristmill plan corpus/ -t path/to/llama3           what that would write and need, before it does
  gristmill dash shards                              a live page of the run
  gristmill inspect shards --row 0                   a row or document as text
  gristmill verify shards                            is what was written what it should be?
  gristmill convert shards --to nanogpt --single-file    another format, without encoding again
  gristmill clean shards                             remove what lost attempts left
  gristmill train corpus/ --vocab-size 32000 -o tokenizer.json    a tokenizer of your own
  gristmill counts tokenizer.json.run                the pieces it was learned from
  gristmill tokenizer path/to/llama3                 what was understood of a tokenizer
  gristmill encode -t path/to/llama3 "Hello, you"    text to ids
  gristmill encode -t cl100k_base.tiktoken --json < page.txt
  gristmill bench -t path/to/llama3 corpus.jsonl     which way to encode is fastest here
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the status is 1 where ids differ, 2 for the user's mistake, 130 when interrupted."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's idle threads spin while workers start
    with suppress(ValueError):  # not in the main thread
        end_when_told()
    try:
        given = list(sys.argv[1:] if argv is None else argv)
        arguments = parse_arguments(build_parser(only=given[0] if given else None), given)
        if sys.stdout is None:
            raise InputError("standard output is closed")
        if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may not have every character
            sys.stdout.reconfigure(errors="backslashreplace")
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except GristmillError as error:
        print(f"gristmill: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Python flushes stdout once more at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"gristmill: {printable(str(error))}", file=sys.stderr)
        return 2


def parse_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> argparse.Namespace:
    """Parse; inputs may stand before, between and after flags, which argparse alone does not allow."""
    arguments, rest = parser.parse_known_args(given)
    names = given[given.index("--") :] if "--" in given else []
    flags = [text for text in rest if text.startswith("-") and text not in names]
    if rest and (flags or not hasattr(arguments, "inputs")):
        refuse_unknown(getattr(arguments, "command", parser), flags or rest)
    if rest:
        arguments.inputs += [text for text in rest if text != "--"]
    return arguments


def refuse_unknown(parser: argparse.ArgumentParser, rest: Sequence[str]) -> NoReturn:
    """End with the usage of the command, naming what it does not know and what may have been meant."""
    import difflib

    unknown = next((text for text in rest if text.startswith("-")), rest[0])
    flags = [flag for action in parser._actions for flag in action.option_strings]
    near = difflib.get_close_matches(unknown.split("=")[0], flags, n=1)
    parser.error(f"unknown argument {unknown}" + (f" (did you mean {near[0]}?)" if near else ""))


def build_parser(*, only: str | None = None) -> argparse.ArgumentParser:
    """Describe the command line; one command alone where it is known that no other is asked for."""
    parser = argparse.ArgumentParser(
        prog="gristmill",
        description="Raw text to training-ready token shards, with exactly the reference libraries' ids.",
        epilog=EXAMPLES,
        formatter_class=UNSHOWN,
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")
    parser.set_defaults(run=lambda _arguments: show_help(parser))
    commands = parser.add_subparsers(metavar="COMMAND")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name in [only] if only in COMMANDS else COMMANDS:
        line, example, add_arguments = COMMANDS[name]
        command = commands.add_parser(
            name,
            help=line,
            description=f"{line[0].upper()}{line[1:]}.",
            epilog=f"example:\n  {example}",
            formatter_class=UNSHOWN,
        )
        add_arguments(command)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.set_defaults(command=command)
    return parser


def show_help(parser: argparse.ArgumentParser) -> int:
    """Say what there is to a user who asked for nothing."""
    parser.print_help(sys.stderr)
    return 2


def add_demo(demo: argparse.ArgumentParser) -> None:
    """Describe `demo`."""
    demo.add_argument(
        "-o", "--output", default=None, metavar="FOLDER", help="(default: gristmill-demo in this folder)"
    )
    demo.set_defaults(run=run_demo_command)


def add_tokenizer(tokenizer: argparse.ArgumentParser) -> None:
    """Describe `tokenizer`."""
    tokenizer.add_argument("tokenizer", metavar="TOKENIZER", help="file, folder or hub name")
    add_load_options(tokenizer)
    tokenizer.add_argument("--json", action="store_true", help="print JSON")
    tokenizer.set_defaults(run=run_tokenizer_command)


def add_encode(encode: argparse.ArgumentParser) -> None:
    """Describe `encode`."""
    encode.add_argument("texts", nargs="*", metavar="TEXT", help="documents; none: standard input is one")
    encode.add_argument("-t", "--tokenizer", required=True, help="file, folder or hub name")
    encode.add_argument(
        "-f", "--file", action="append", default=[], metavar="FILE", help="a file is a document"
    )
    add_load_options(encode)
    encode.add_argument(
        "--special-tokens",
        choices=get_args(SpecialTokenPolicy),
        default="text",
        help="text that spells a special token stays text, is the token (parse), or is refused (error) "
        "(default: %(default)s)",
    )
    encode.add_argument(
        "--errors",
        choices=get_args(Errors),
        default="strict",
        help="bytes that are no UTF-8 are refused (strict) or become U+FFFD (replace) (default: %(default)s)",
    )
    encode.add_argument("--json", action="store_true", help="print one JSON object a document")
    encode.set_defaults(run=run_encode_command)


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Let the user choose the engine, and say what a rank file leaves out."""
    parser.add_argument(
        "--engine",
        choices=get_args(EngineChoice),
        default="auto",
        help="native: ours; cuda: the same ids on an NVIDIA GPU; tokenizers: that library; slow: any other, "
        "through Python; "
        "auto: native where it gives the reference's ids (default: %(default)s)",
    )
    parser.add_argument("--encoding", metavar="NAME", help="encoding of a rank file, such as cl100k_base")
    parser.add_argument("--pattern", metavar="REGEX", help="split pattern of a rank file without an encoding")


def add_bench(bench: argparse.ArgumentParser) -> None:
    """Describe `bench`; absent options are left out, so that their defaults live in config alone."""
    bench.argument_default = argparse.SUPPRESS
    default = BenchConfig()
    bench.add_argument(
        "texts", nargs="*", metavar="FILE", help="anything that tokenize reads (default: embedded text)"
    )
    bench.add_argument("-t", "--tokenizer", help="file, folder or hub name (default: a small one)")
    bench.add_argument("--text-field", help=f"a name, no path (default: {default.text_field})")
    bench.add_argument(
        "--num-docs", type=int, help=f"use the first so many documents (default: {default.num_docs})"
    )
    bench.add_argument(
        "--rounds", type=int, help=f"fresh processes a method, medians shown (default: {default.rounds})"
    )
    bench.add_argument("--threads", type=int, help="threads of the parallel methods (default: all cores)")
    bench.add_argument("--repeat", action="store_true", dest="is_repeated", help="time three more passes")
    bench.add_argument("--json", action="store_true", default=False, help="print raw times as JSON")
    bench.add_argument("--plot", default=None, metavar="FILE", help="draw a bar chart (.png, .svg or .pdf)")
    bench.set_defaults(run=run_bench_command)


class ShowVersion(argparse.Action):
    """Prints the version; looks it up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_arguments: object) -> None:
        from gristmill import __version__

        print(f"gristmill {__version__}")
        parser.exit()


def run_demo_command(arguments: argparse.Namespace) -> int:
    """Show the demo: prepare it, then run its commands as a user would; the first that fails ends it."""
    from gristmill import demo as shown

    demo = shown.prepare_demo(Path(arguments.output or shown.FOLDER))
    print(f"text        {demo.source}")
    if status := _run_shown(demo.training):
        return status
    compared = shown.compare(demo.tokenizer, demo.documents)
    print(f"\n{shown.render_comparison(compared)}")
    if compared.wrong_document is not None:
        return 1
    for command in demo.commands:
        if status := _run_shown(command):
            return status
    print(f"\nThe jobs, the tokenizer and the shards are in {demo.folder}: change a job and run it again.")
    return 0


def _run_shown(command: list[str]) -> int:
    import shlex

    print(f"\n$ gristmill {shlex.join(command)}", flush=True)
    return main(command)


def run_tokenizer_command(arguments: argparse.Namespace) -> int:
    """Show what a tokenizer is."""
    start = time.perf_counter()
    tokenizer = load_asked(arguments)
    facts = tokenizer.describe() | {"load_s": round(time.perf_counter() - start, 3)}
    print(msgspec.json.encode(facts).decode() if arguments.json else render_facts(facts))
    return 0


def load_asked(arguments: argparse.Namespace) -> Tokenizer:
    """Load the tokenizer the user named, as the user asked."""
    from gristmill.tokenizer import load_tokenizer

    return load_tokenizer(
        arguments.tokenizer,
        engine=arguments.engine,
        encoding=arguments.encoding,
        pattern=arguments.pattern,
    )


def render_facts(facts: Mapping[str, object]) -> str:
    """One line a fact, one more for each further split."""
    reason = facts["why_not_named"]
    shown = {name: value for name, value in facts.items() if name != "why_not_named"}
    unknown = "left to its own library"
    absent = {"bos_id": reason, "eos_id": reason, "normalizer": unknown, "splits": unknown}
    filled = {name: absent.get(name, "-") if value is None else value for name, value in shown.items()}
    return "\n".join(f"{name:<18}  {_render_fact(value)}" for name, value in filled.items())


def _render_fact(value: object) -> str:
    if isinstance(value, list):
        return f"\n{'':<20}".join(map(_render_fact, value)) or "none"
    if isinstance(value, dict):
        shown = [f"{_render_fact(text)} {id_}" for text, id_ in islice(value.items(), NUM_SHOWN)]
        return ", ".join(shown + ["..."] * (len(value) > NUM_SHOWN)) or "none"
    return printable(str(value))


def run_encode_command(arguments: argparse.Namespace) -> int:
    """Print the ids of each document on a line of its own."""
    # Bytes as they were typed: what is not UTF-8 comes as lone surrogates.
    documents = [*map(os.fsencode, arguments.texts), *map(read_document, arguments.file)]
    if not documents:
        documents = [sys.stdin.buffer.read()]
    batch = load_asked(arguments).encode_batch(
        documents, special_tokens=arguments.special_tokens, errors=arguments.errors
    )
    for document in batch:
        ids = document.tolist()
        if arguments.json:
            line = msgspec.json.encode({"num_tokens": len(ids), "ids": ids}).decode()
        else:
            line = " ".join(map(str, ids))
        sys.stdout.write(line + "\n")
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
    if arguments.plot is not None:
        check_plot_path(Path(arguments.plot))
    report = run_bench(config, on_step=show_step)
    show_step("")
    if arguments.json:
        print(render_json(report).decode(), end="")
    else:
        print(render_table(report))
    if arguments.plot is not None:
        write_plot(report, Path(arguments.plot))
    return 1 if any(m.status == "mismatch" and m.method == "native" for m in report.measurements) else 0


def show_step(step: str) -> None:
    """Show on a terminal what is being measured, in place."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{step}", end="", file=sys.stderr, flush=True)


COMMANDS: dict[str, tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = {
    "demo": (
        "see all of it at work in a minute, on text that is found on this machine",
        "gristmill demo --output /tmp/demo",
        add_demo,
    ),
    "tokenize": (
        "turn files of text into shards of tokens, ready for training",
        "gristmill tokenize corpus/*.jsonl.zst -t path/to/llama3 -o shards --format megatron,olmo",
        add_tokenize,
    ),
    "plan": (
        "estimate what tokenize would write, and find what would stop it; writes nothing",
        "gristmill plan corpus/*.jsonl.zst -t path/to/llama3 --format parquet --pack best_fit",
        add_plan,
    ),
    "dash": (
        "serve a live page over run folders: progress, rates, workers, bad documents, the ledger",
        "gristmill dash shards other-shards --open",
        add_dash,
    ),
    "inspect": (
        "show rows or documents of a finished run as text, with their borders and sources",
        "gristmill inspect shards --document part-0.jsonl:16",
        add_inspect,
    ),
    "verify": (
        "check a finished run: checksums, counts, borders, and a sample encoded again",
        "gristmill verify shards --sample 1000",
        add_verify,
    ),
    "convert": (
        "write what a finished run holds in another format, without encoding again",
        "gristmill convert shards --to nanogpt --single-file",
        add_convert,
    ),
    "clean": (
        "remove what lost attempts left in a run folder",
        "gristmill clean s3://bucket/shards --dry-run",
        add_clean,
    ),
    "train": (
        "train a BPE tokenizer on files of text",
        "gristmill train corpus/*.jsonl --vocab-size 50000 --pattern llama3 -o tokenizer.json",
        add_train,
    ),
    "counts": (
        "show or add up the pieces that a training has counted",
        "gristmill counts tokenizer.json.run --top 50",
        add_counts,
    ),
    "tokenizer": (
        "show what was understood of a tokenizer",
        "gristmill tokenizer ranks.tiktoken --encoding cl100k_base",
        add_tokenizer,
    ),
    "encode": (
        "turn text into ids, a line for each document",
        "gristmill encode -t path/to/llama3 --special-tokens parse -f page.txt",
        add_encode,
    ),
    "bench": (
        "time the ways to encode a text, after comparing their ids",
        "gristmill bench -t path/to/llama3 corpus.jsonl --rounds 5 --plot speed.png",
        add_bench,
    ),
}
"""Of each command: a line on what it does, an example, and what adds its arguments."""
