"""The commands that train tokenizers: train and counts. `cli.py` lists them."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from gristmill.cli_dash import add_dash_options, page_beside
from gristmill.cli_run import (
    DATASET_OPTIONS,
    RUN_OPTIONS,
    TEXT_FIELD,
    end_help_with,
    gather_options,
    progress_of,
    render_options,
    show_interrupted,
    show_warnings,
)
from gristmill.config import LARGEST, InputFormat, TrainConfig
from gristmill.errors import ConfigError
from gristmill.job import OF_TOKENIZE, TRAINING_SECTIONS, make_training
from gristmill.signals import end_if_told

if TYPE_CHECKING:
    from gristmill.run.early import Early
    from gristmill.run.train import TrainResult

OPTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "--vocab-size": (
        "learn",
        "vocab_size",
        {"type": int, "metavar": "N", "help": "tokens in all, special ones and the alphabet among them"},
    ),
    "--output": (
        "learn",
        "output",
        {
            "metavar": "FILE",
            "help": "the tokenizer.json; FOLDER/ also gets what transformers asks for, such as the EOS token",
        },
    ),
    "--pattern": (
        "count",
        "pattern",
        {
            "metavar": "NAME",
            "help": "gpt2, gpt4, o200k, llama3, qwen2, tekken, bloom, metaspace, none, or a regex "
            "(default: that of --extend, else gpt2)",
        },
    ),
    "--special-tokens": (
        "learn",
        "special_tokens",
        {
            "action": "append",
            "metavar": "TEXT,...",
            "help": "they get the first ids; spaces round a comma do not count (default: <|endoftext|>)",
        },
    ),
    "--min-frequency": (
        "learn",
        "min_frequency",
        {"type": int, "metavar": "N", "help": "merge no pair that occurs less often"},
    ),
    "--max-token-length": (
        "learn",
        "max_token_length",
        {"type": int, "metavar": "N", "help": "merged tokens have fewer characters of the alphabet"},
    ),
    "--initial-alphabet": (
        "learn",
        "initial_alphabet",
        {"choices": ("bytes", "corpus"), "help": "all 256 bytes are tokens, or those that occur"},
    ),
    "--tie-break": (
        "learn",
        "tie_break",
        {
            "choices": ("tokenizers", "bytes"),
            "help": "of pairs that occur equally often: the one with the smaller ids, or the smaller bytes",
        },
    ),
    "--limit-documents": (
        "count",
        "max_documents",
        {"type": int, "metavar": "N", "help": "count the first N documents"},
    ),
    "--sample": (
        "count",
        "sample",
        {"type": float, "metavar": "SHARE", "help": "count this share of the documents, such as 0.1"},
    ),
    "--held-out": (
        "count",
        "held_out",
        {"type": float, "metavar": "SHARE", "help": "share not counted: the report is of these documents"},
    ),
    "--from-counts": (
        "learn",
        "from_counts",
        {"action": "append", "metavar": "FILE,...", "help": "inventories counted before"},
    ),
    "--extend": ("learn", "extend", {"metavar": "FILE", "help": "a tokenizer.json to go on from"}),
    "--counts": ("count", "folder", {"metavar": "FOLDER", "help": "run folder (default: OUTPUT.run)"}),
    "--input-format": ("read", "format", {"choices": get_args(InputFormat), "help": "default: by suffix"}),
    "--text-field": TEXT_FIELD,
    **DATASET_OPTIONS,
    **RUN_OPTIONS,
}
CLEARED = "\r\x1b[K"
"""The line of a terminal, to be written anew."""


def add_train(parser: argparse.ArgumentParser) -> None:
    """Describe `train`."""
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="files, folders, globs or URLs; or section.key=value for any option",
    )
    parser.add_argument("-c", "--config", metavar="FILE", help="the job as YAML; what stands beside it wins")
    for flag, (_section, _key, how) in OPTIONS.items():
        names = [flag, "-o"] if flag == "--output" else [flag]
        parser.add_argument(*names, default=None, dest=flag, **how)
    parser.add_argument(
        "--plot", metavar="FILE", help="draw merge counts and compression (.png, .svg or .pdf)"
    )
    parser.add_argument("--force", action="store_true", help="count again")
    parser.add_argument("--quiet", action="store_true", help="show nothing but warnings and errors")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_dash_options(parser)
    end_help_with(parser, lambda: render_options(TRAINING_SECTIONS, without=OF_TOKENIZE))
    parser.set_defaults(run=run_train_command)


def run_train_command(arguments: argparse.Namespace) -> int:
    """Count, learn, write the tokenizer, and say what came of it."""
    from gristmill.run.early import NOTHING, start_early

    values, overrides = gather_options(arguments, OPTIONS, TRAINING_SECTIONS)
    job = make_training(values, overrides)
    if arguments.plot is not None:
        from gristmill.bench_report import check_plot_path

        check_plot_path(Path(arguments.plot))
    from gristmill.training.output import Output

    folder = Path(job.count.folder or Output.of(job.learn.output).run_folder)
    early = NOTHING if job.learn.from_counts else start_early(job)
    try:
        with page_beside(str(folder), arguments):
            result = _train(job, early, arguments)
            end_if_told()
    except (KeyboardInterrupt, SystemExit):
        show_interrupted(str(folder))
        raise
    finally:
        early.end()
    if arguments.plot is not None:
        from gristmill.report.training_plot import write_training_plot

        write_training_plot(result, Path(arguments.plot))
    show_warnings(result.warnings)
    if arguments.json:
        print(msgspec.json.encode(result).decode())
    elif not arguments.quiet:
        from gristmill.report.training import render_training

        print(render_training(result, plot=arguments.plot))
    return 0


def _train(job: TrainConfig, early: Early, arguments: argparse.Namespace) -> TrainResult:
    # Imported while the workers start.
    from gristmill.report.view import View
    from gristmill.run.train import train

    end_if_told()
    is_shown = not arguments.quiet and not arguments.json
    is_terminal = is_shown and sys.stderr.isatty()
    try:
        with View() if is_shown else nullcontext() as view:
            result = train(
                job,
                force=arguments.force,
                on_progress=progress_of(view, "gristmill.report.html", "gristmill.report.training"),
                on_learning=_show_learning if is_terminal else None,
                early=early,
            )
    finally:
        if is_terminal:
            print(CLEARED, end="", file=sys.stderr, flush=True)
    from gristmill.report.html import write_report

    write_report(result.folder, is_new=True)
    return result


def _show_learning(num_tokens: int, wanted: int) -> None:
    print(f"{CLEARED}learning: {num_tokens:,} of {wanted:,} tokens", end="", file=sys.stderr, flush=True)


def add_counts(parser: argparse.ArgumentParser) -> None:
    """Describe `counts`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="inventory, or run folder of a training")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="show so many pieces (default: 20)")
    parser.add_argument("--merge", metavar="FILE", help="write the sum of all of them as one inventory")
    parser.add_argument("--min-count", type=int, default=1, metavar="N", help="leave rarer pieces out of it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_counts_command)


def run_counts_command(arguments: argparse.Namespace) -> int:
    """Show inventories, or add them up."""
    from gristmill.report.training import describe_counts, render_counts
    from gristmill.run.folder import INVENTORY
    from gristmill.training.inventory import Inventory, merge_inventories

    paths = [Path(name) / INVENTORY if Path(name).is_dir() else Path(name) for name in arguments.files]
    if arguments.merge:
        if not 1 <= arguments.min_count <= LARGEST:
            raise ConfigError(f"--min-count is {arguments.min_count}; it needs 1 or more")
        merge_inventories(paths, Path(arguments.merge), min_count=arguments.min_count)
        paths = [Path(arguments.merge)]
    shown = [describe_counts(Inventory(path), num_top=arguments.top) for path in paths]
    if arguments.json:
        print(msgspec.json.encode(shown).decode())
    else:
        print("\n\n".join(map(render_counts, shown)))
    return 0
