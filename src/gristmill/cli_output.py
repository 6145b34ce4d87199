"""The commands on what a run has written: inspect, verify, convert, clean. `cli.py` lists them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import get_args

import msgspec

from gristmill.config import OutputFormat
from gristmill.errors import ConfigError


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Describe `inspect`."""
    parser.add_argument("folder", metavar="OUT", help="the folder of a finished run, or its URL")
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
        arguments.folder, row=arguments.row, document=arguments.document, format=arguments.format
    )
    if arguments.json:
        print(msgspec.json.encode(found).decode())
    else:
        print(render_inspection(found, is_full=arguments.full))
    return 0


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Describe `verify`."""
    parser.add_argument(
        "folder", metavar="OUT", help="the folder of a finished run, or its URL; or that of a conversion"
    )
    parser.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="read and encode so many documents again, with the tokenizer's own library (default: 100; "
        "0: none); where given, a document that cannot be read again makes the status 1",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = f"{parser.epilog}\n\n{VERIFY_NOTES}"
    parser.set_defaults(run=run_verify_command)


VERIFY_NOTES = """\
checks:
  records  manifest, plan and unit records say the same
  files    every file is there, with its size and BLAKE3, and no other
  shards   every shard is whole in the eyes of its format, with the dtype of the run
  ledger   documents and tokens in are those out and dropped, for each unit and the run
  borders  documents begin and end where the sidecars say, with BOS, EOS and padding
  sample   documents read from the input again give the ids that the shards have
an input or a tokenizer that is gone or has changed since the run is no fault of the run: the sample is then
"partly" checked or not at all ("-"), and the reason is told. The status is 1 where anything is wrong."""


def run_verify_command(arguments: argparse.Namespace) -> int:
    """Check a run; a fault is status 1."""
    from gristmill.verify import verify
    from gristmill.verify.lines import render_verification

    if arguments.sample is not None and arguments.sample < 0:
        raise ConfigError(f"--sample is {arguments.sample}; it needs a number of documents, or 0")
    found = verify(arguments.folder, sample=arguments.sample, seed=arguments.seed, on_step=_show_step)
    print(msgspec.json.encode(found).decode() if arguments.json else render_verification(found))
    is_as_asked = found.is_complete or not arguments.sample
    return 0 if found.is_sound and is_as_asked else 1


def _show_step(step: str) -> None:
    """Show on a terminal what is being done, in place."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{step}", end="", file=sys.stderr, flush=True)


def add_convert(parser: argparse.ArgumentParser) -> None:
    """Describe `convert`."""
    parser.add_argument("folder", metavar="OUT", help="the folder of a finished run, or its URL")
    parser.add_argument(
        "--to", required=True, choices=get_args(OutputFormat), metavar="FORMAT", help=FORMAT_NAMES
    )
    parser.add_argument("--single-file", action="store_true", help="one shard, named train, with everything")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="default: beside the run, as OUT-FORMAT")
    parser.add_argument("--force", action="store_true", help="replace an earlier conversion")
    parser.add_argument("--json", action="store_true", help="print the new manifest as JSON")
    parser.epilog = f"{parser.epilog}\n\n{CONVERT_NOTES}"
    parser.set_defaults(run=run_convert_command)


FORMAT_NAMES = ", ".join(get_args(OutputFormat))
CONVERT_NOTES = """\
a run of documents becomes any format, one of rows becomes arrow, parquet, mds, litdata, pt, npy or
webdataset; nothing is encoded again, and ids that both formats keep in the same bytes are linked, not copied.
The folder appears when it is whole, with a manifest.json of checksums."""


def add_clean(parser: argparse.ArgumentParser) -> None:
    """Describe `clean`."""
    parser.add_argument("folder", metavar="OUT", help="the folder of a run, finished or not, or its URL")
    parser.add_argument("--dry-run", action="store_true", help="only list what would be removed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = f"{parser.epilog}\n\n{CLEAN_NOTES}"
    parser.set_defaults(run=run_clean_command)


CLEAN_NOTES = """\
a worker or machine that dies may leave files of a unit that it did not finish: no reader looks at them, and
the end of the run removes them. This removes them now, also where the run will not be taken up again; of
s3:// it also ends uploads that were never finished, which cost money. What is done stays done. It is refused
while a run is at work in the folder."""


def run_clean_command(arguments: argparse.Namespace) -> int:
    """Remove what lost attempts left."""
    from gristmill.report.words import of_bytes, plural, printable
    from gristmill.run.clean import clean

    found = clean(arguments.folder, is_dry=arguments.dry_run)
    if arguments.json:
        print(msgspec.json.encode(found).decode())
        return 0
    for left in found:
        print(f"{printable(left.path)}  {of_bytes(left.num_bytes) if left.num_bytes else ''}".rstrip())
    verb = "would be removed" if arguments.dry_run else "removed"
    total = of_bytes(sum(left.num_bytes for left in found))
    print(f"{plural(len(found), 'leftover')} {verb}, {total}" if found else "nothing is left over")
    return 0


def run_convert_command(arguments: argparse.Namespace) -> int:
    """Convert a run, and say how to load what was made."""
    from gristmill.convert import convert
    from gristmill.report.summary import render_conversion

    made = convert(
        arguments.folder,
        arguments.to,
        output=arguments.output,
        is_single_file=arguments.single_file,
        force=arguments.force,
        on_step=_show_step,
    )
    if arguments.json:
        print(msgspec.json.encode(made).decode())
    else:
        print(render_conversion(made.manifest, Path(made.folder), arguments.folder))
    return 0
