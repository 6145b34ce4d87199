"""The commands on what a run has written: inspect, verify, convert. `cli.py` lists them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import get_args

import msgspec

from gristmill.config import OutputFormat


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Describe `inspect`."""
    parser.add_argument("folder", metavar="OUT", help="the folder of a finished run")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--row", type=int, metavar="N", help="row N of the run, from 0; document N of a run without rows"
    )
    chosen.add_argument(
        "--document", metavar="ID", help="by id, where the run has read.id_field, or FILE:RECORD, from 0"
    )
    parser.add_argument(
        "--format", choices=get_args(OutputFormat), help="read this one, where the run wrote several"
    )
    parser.add_argument("--full", action="store_true", help="cut no long text and no long list of ids")
    parser.add_argument("--json", action="store_true", help="print JSON, with all ids")
    parser.epilog = f"{parser.epilog}\n\n{INSPECT_NOTES}"
    parser.set_defaults(run=run_inspect_command)


INSPECT_NOTES = """\
without a choice: a summary of the run, and its first row or document. Lines of text begin with a bar;
everything between ⟦ and ⟧ is said about the tokens: borders of documents with their source, BOS, EOS,
masked labels, padding, ids. Control characters are shown as escapes."""


def run_inspect_command(arguments: argparse.Namespace) -> int:
    """Show a row or document."""
    from gristmill.report.inspect import inspect_run, render_inspection

    found = inspect_run(
        Path(arguments.folder), row=arguments.row, document=arguments.document, format=arguments.format
    )
    if arguments.json:
        print(msgspec.json.encode(found).decode())
    else:
        print(render_inspection(found, is_full=arguments.full))
    return 0
