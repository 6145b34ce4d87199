"""The commands round a run: tokenize and its kin. `cli.py` lists them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec

from gristmill.cli_dash import add_dash_options, page_beside
from gristmill.config import (
    Backend,
    Column,
    EngineChoice,
    InputFormat,
    OutputFormat,
    PackMode,
    Preset,
    TokenizeConfig,
)
from gristmill.errors import ConfigError
from gristmill.hub.names import ALIASES
from gristmill.job import (
    SECTIONS,
    Sections,
    literals,
    make_job,
    parse_override,
    read_job_file,
    split_list,
    suggest_override,
)
from gristmill.report.words import printable
from gristmill.signals import end_if_told

if TYPE_CHECKING:
    from gristmill.report.view import View
    from gristmill.run.early import Early
    from gristmill.run.progress import OnProgress, Snapshot

PRESETS = (
    "streaming: one process, under 500 MB; ultra: all cores; extreme: also mapped input and more threads"
)
BACKENDS = "inline: threads of this process; local: worker processes; ray: the nodes of a Ray cluster"
Options = dict[str, tuple[str, str, dict[str, Any]]]
RUN_OPTIONS: Options = {
    "--preset": ("run", "preset", {"choices": get_args(Preset), "help": PRESETS}),
    "--backend": ("run", "backend", {"choices": get_args(Backend), "help": BACKENDS}),
    "--ray-address": (
        "run",
        "ray_address",
        {"metavar": "ADDRESS", "help": "auto, ray://HOST:10001 or local; default: auto, else local"},
    ),
    "--workers": ("run", "workers", {"type": int, "metavar": "N", "help": "default: physical cores"}),
    "--memory": ("run", "memory", {"metavar": "SIZE", "help": "of all processes together, such as 2GB"}),
}
"""Flags of every job that is done in units."""
TEXT_FIELD = (
    "read",
    "text_field",
    {
        "action": "append",
        "metavar": "PATH,...",
        "help": "such as text or doc.body.text; several are joined by read.join",
    },
)
DATASET_OPTIONS: Options = {
    "--dataset": (
        "read",
        "dataset",
        {
            "metavar": "NAME",
            "help": f"of the Hugging Face hub, instead of inputs: owner/name, or {', '.join(ALIASES)}",
        },
    ),
    "--dataset-config": ("read", "dataset_config", {"metavar": "NAME", "help": "subset of the dataset"}),
    "--split": ("read", "split", {"metavar": "NAME", "help": "of the dataset (default: train)"}),
    "--revision": (
        "read",
        "revision",
        {"metavar": "NAME", "help": "branch, tag or commit of the dataset (default: the newest)"},
    ),
    "--field": (
        "read",
        "text_field",
        {"metavar": "PATH", "help": "its text (default: as known of the dataset, else text)"},
    ),
    "--cache-dir": (
        "read",
        "cache_dir",
        {"metavar": "FOLDER", "help": "where the dataset is kept (default: the cache of huggingface_hub)"},
    ),
    "--streaming": (
        "read",
        "streaming",
        {"action": "store_const", "const": True, "help": "read the dataset from the hub, and keep no copy"},
    ),
}
"""Flags that name what is read by the name of a dataset."""
CHUNK_OPTIONS: Options = {
    "--chunk-size": (
        "pack",
        "sequence_length",
        {"type": int, "metavar": "N", "help": "tokens in a row; written as parquet where --format is absent"},
    ),
    "--max-chunks": (
        "run",
        "max_rows",
        {"type": int, "metavar": "N", "help": "stop after so many rows; files are fetched as needed"},
    ),
}
"""Flags that only make sense of rows."""
OPTIONS: Options = {
    "--format": (
        "write",
        "format",
        {"action": "append", "metavar": "NAME,...", "help": ", ".join(get_args(OutputFormat))},
    ),
    "--columns": (
        "write",
        "columns",
        {"action": "append", "metavar": "NAME,...", "help": f"of rows: {', '.join(get_args(Column))}"},
    ),
    "--pack": ("pack", "mode", {"choices": get_args(PackMode), "help": "how documents become rows"}),
    "--sequence-length": (
        "pack",
        "sequence_length",
        {"type": int, "metavar": "N", "help": "tokens in a row (default: 2048)"},
    ),
    "--input-format": ("read", "format", {"choices": get_args(InputFormat), "help": "default: by suffix"}),
    "--text-field": TEXT_FIELD,
    "--id-field": (
        "read",
        "id_field",
        {"metavar": "PATH", "help": "field that names a document, for inspect and the sidecars"},
    ),
    "--eos-id": (
        "encode",
        "eos_id",
        {"type": int, "metavar": "ID", "help": "token after every document (default: the tokenizer's EOS)"},
    ),
    "--add-bos": (
        "encode",
        "add_bos",
        {"action": "store_const", "const": True, "help": "put BOS before every document"},
    ),
    "--max-rows": ("run", "max_rows", {"type": int, "metavar": "N", "help": "stop after so many rows"}),
    "--max-tokens": (
        "run",
        "max_tokens",
        {"type": int, "metavar": "N", "help": "stop before the row or document that would make it more"},
    ),
    "--engine": (
        "tokenizer",
        "engine",
        {
            "choices": get_args(EngineChoice),
            "help": "what encodes (default: auto, native where it gives the reference's ids)",
        },
    ),
    "--encoding": ("tokenizer", "encoding", {"metavar": "NAME", "help": "of a rank file: cl100k_base, ..."}),
    "--pattern": ("tokenizer", "pattern", {"metavar": "REGEX", "help": "of a rank file without an encoding"}),
    "--batch-size": (
        "run",
        "batch_size",
        {"type": int, "metavar": "N", "help": "documents encoded at a time (default: what a block holds)"},
    ),
    **DATASET_OPTIONS,
    **CHUNK_OPTIONS,
    **RUN_OPTIONS,
}
"""Flags that set an option: its section, its name, and how it is read. The other options are set as
section.key=value."""



def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe a job: inputs, tokenizer, output, and every option."""
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="files, folders, globs or URLs; or section.key=value for any option",
    )
    parser.add_argument("-t", "--tokenizer", help="file, folder or hub name")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="the run folder, or a URL such as s3://bucket/shards")
    parser.add_argument(
        "-c", "--config", metavar="FILE", help="the job as YAML; flags and section.key=value win"
    )
    for flag, (_section, _key, how) in OPTIONS.items():
        parser.add_argument(flag, default=None, dest=flag, **how)


def job_of(arguments: argparse.Namespace, *, default_output: str = "") -> TokenizeConfig:
    """The job that the arguments describe, with the default where they name no output folder."""
    values, flags = gather_options(arguments, OPTIONS, SECTIONS)
    given = [("tokenizer", "source", arguments.tokenizer)] if arguments.tokenizer else []
    given += [("write", "output", arguments.output)] if arguments.output else []
    flags = [*given, *flags]
    flags += [] if _is_given("output", values, flags) else [("write", "output", default_output)]
    has_chunks = any(vars(arguments)[flag] is not None for flag in CHUNK_OPTIONS)
    if has_chunks and not _is_given("format", values, flags):
        flags.append(("write", "format", "parquet"))
    return make_job(values, flags)


def gather_options(
    arguments: argparse.Namespace, options: Options, sections: Sections
) -> tuple[dict[str, Any], list[tuple[str, str, Any]]]:
    """What the YAML file says, and what flags, inputs and section.key=value say beside it, later ones last;
    flags that take several values may be given several times, and are split at commas."""
    values = read_job_file(arguments.config) if arguments.config else {}
    is_override = re.compile(rf"({'|'.join(sections)})\.\w+=").match
    overrides = [parse_override(text, sections) for text in arguments.inputs if is_override(text)]
    inputs = [text for text in arguments.inputs if not is_override(text)]
    for text in inputs:
        suggest_override(text, sections)
    flags: list[tuple[str, str, Any]] = [("read", "inputs", inputs)] if inputs else []
    for flag, (section, key, _) in options.items():
        value = vars(arguments)[flag]
        if isinstance(value, list):
            parts = [part for text in value for part in split_list(text)]
            flags.append((section, key, parts[0] if len(parts) == 1 else parts))
        elif value is not None:
            flags.append((section, key, value))
    _refuse_two_flags(arguments, options)
    return values, [*flags, *overrides]


def _refuse_two_flags(arguments: argparse.Namespace, options: Options) -> None:
    """Refuse two flags that set one option to different values."""
    given: dict[tuple[str, str], str] = {}
    for flag, (section, key, _) in options.items():
        value = vars(arguments)[flag]
        if value is None:
            continue
        other = given.setdefault((section, key), flag)
        if other != flag and vars(arguments)[other] != value:
            first = f"{other} {vars(arguments)[other]}"
            raise ConfigError(f"{first} and {flag} {value} set the same option; give one")


def end_help_with(parser: argparse.ArgumentParser, render: Callable[[], str]) -> None:
    """Let the help of a command end in what takes a while to make, and is made when it is asked for."""
    shown = parser.format_help
    parser.format_help = lambda: f"{shown()}\n{render()}\n"  # type: ignore[method-assign]


def render_options(sections: Sections, *, without: Collection[str] = ()) -> str:
    """Every option there is with its default and the words it can be, for --help."""
    lines = ["every option, as section.key=value or in the YAML file; docs/options.md explains them:"]
    for name, kind in sections.items():
        hints = get_type_hints(kind)
        for field in msgspec.structs.fields(kind):
            if f"{name}.{field.name}" in without:
                continue
            words = ", ".join(literals(hints[field.name]))
            option = f"  {name}.{field.name}={_shown_default(field.default)}"
            lines.append(f"{option:<38} {words}".rstrip())
    return "\n".join(lines)


def _shown_default(value: Any) -> str:
    if value is None or value is msgspec.NODEFAULT:
        return ""
    return msgspec.json.encode(value).decode().strip('"')


def _is_given(key: str, values: dict[str, Any], flags: list[tuple[str, str, Any]]) -> bool:
    """Whether an option of write is set, in the file or beside it."""
    section = values.get("write")
    is_in_file = isinstance(section, dict) and bool(section.get(key))
    return is_in_file or any(flag[:2] == ("write", key) for flag in flags)


def add_tokenize(parser: argparse.ArgumentParser) -> None:
    """Describe `tokenize`."""
    add_job_arguments(parser)
    parser.add_argument("--force", action="store_true", help="start over where the folder holds a run")
    parser.add_argument("--quiet", action="store_true", help="show nothing but warnings and errors")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_dash_options(parser)
    end_help_with(parser, lambda: render_options(SECTIONS))
    parser.set_defaults(run=run_tokenize_command)


def run_tokenize_command(arguments: argparse.Namespace) -> int:
    """Do the job and say what came of it; units that failed are status 1."""
    from gristmill.run.early import start_early

    job = job_of(arguments)
    early = start_early(job)
    try:
        with page_beside(job.write.output, arguments):
            status = _tokenize(job, early, arguments)
            end_if_told()
            return status
    except (KeyboardInterrupt, SystemExit):
        show_interrupted(job.write.output)
        raise
    finally:
        early.end()


def show_interrupted(folder: str) -> None:
    """Say what a run that was told to end leaves behind."""
    try:
        from gristmill.report.summary import render_interrupted

        said = render_interrupted(folder)
    except Exception:  # a module that was cut off while it was imported cannot be imported again
        said = "interrupted before it began"
    print(f"gristmill: {said}", file=sys.stderr, flush=True)


def _tokenize(job: TokenizeConfig, early: Early, arguments: argparse.Namespace) -> int:
    # Imported while the workers start.
    from gristmill.report.view import View
    from gristmill.run.tokenize import tokenize
    from gristmill.run.warn import option_warnings

    end_if_told()
    warned = option_warnings(job)
    show_warnings(warned)
    is_shown = not arguments.quiet and not arguments.json
    with View() if is_shown else nullcontext() as view:
        on_progress = progress_of(view, "gristmill.report.html", "gristmill.report.summary")
        result = tokenize(job, force=arguments.force, on_progress=on_progress, early=early)
    from gristmill.report.html import write_report
    from gristmill.report.summary import render_result

    write_report(result.folder, is_new=result.last is not None)
    rest = tuple(text for text in result.warnings if text not in warned)
    if arguments.json:
        print(msgspec.json.encode(result).decode())
    elif not arguments.quiet or result.failed:
        shown = render_result(msgspec.structs.replace(result, warnings=rest))
        print(shown, file=sys.stderr if result.failed else sys.stdout)
    if not is_shown:
        show_warnings(rest)
    return 1 if result.failed else 0


def progress_of(view: View | None, *needed_later: str) -> OnProgress:
    """Shows a run that is under way, if it is to be shown; imports meanwhile what its end will need."""

    def on_progress(snapshot: Snapshot) -> None:
        end_if_told()
        for name in needed_later:
            import_module(name)
        if view is not None:
            view.show(snapshot)

    return on_progress


def show_warnings(warnings: Iterable[str]) -> None:
    """Warnings go to the standard error, so that they are seen with --quiet and --json too."""
    for text in warnings:
        print(f"gristmill: warning: {printable(text)}", file=sys.stderr, flush=True)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Describe `plan`."""
    add_job_arguments(parser)
    parser.add_argument("--force", action="store_true", help="leave out what the folder holds already")
    parser.add_argument(
        "--explain", action="store_true", help="say what decides workers, blocks and units, and what helps"
    )
    parser.add_argument("--json", action="store_true", help="print the estimate as JSON")
    parser.epilog = (
        f"{parser.epilog}\n\nit takes what tokenize takes, needs no --output, and ends with status 1 where "
        "the run would fail"
    )
    parser.set_defaults(run=run_plan_command)


def run_plan_command(arguments: argparse.Namespace) -> int:
    """Say what the job would do; one that would fail is status 1."""
    from gristmill.report.estimate import estimate_run
    from gristmill.report.estimate_text import render_estimate, render_explanation

    estimate = estimate_run(job_of(arguments, default_output="."), force=arguments.force)
    print(msgspec.json.encode(estimate).decode() if arguments.json else render_estimate(estimate))
    if arguments.explain and not arguments.json:
        print(f"\n{render_explanation(estimate)}")
    return 1 if estimate.problems else 0
