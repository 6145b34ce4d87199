"""The command `dash`, and the page beside a run. `cli.py` lists the commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TOKEN_VARIABLE = "GRISTMILL_DASH_TOKEN"


def add_dash(parser: argparse.ArgumentParser) -> None:
    """Describe `dash`."""
    parser.add_argument(
        "folders", nargs="+", metavar="FOLDER", help="or URL of a run; a folder may also hold several"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="where to listen; beyond this machine a token is asked for (default: %(default)s)",
    )
    parser.add_argument("--port", type=int, help="default: 8417, or a free one where that is taken")
    parser.add_argument(
        "--token",
        help=f"letters and digits that the page asks for (default: {TOKEN_VARIABLE} in the environment, "
        "else one is made where --host is beyond this machine)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.epilog = (
        f"{parser.epilog}\n\nit only reads the folders: a run may be at work there, have ended, or not have "
        "begun.\n/metrics is for Prometheus, /api/runs for programs; Ctrl-C ends it"
    )
    parser.set_defaults(run=run_dash_command)


def run_dash_command(arguments: argparse.Namespace) -> int:
    """Serve the page until interrupted."""
    from gristmill.dash.start import address_of, listen, require_packages, settle_token

    require_packages()
    from gristmill.dash.serve import serve
    from gristmill.report.run_watch import watch_runs

    watches = watch_runs(arguments.folders)
    token = settle_token(arguments.host, arguments.token or os.environ.get(TOKEN_VARIABLE))
    listener = listen(arguments.host, arguments.port)
    address = address_of(listener, arguments.host, token)
    print(f"{address}  (Ctrl-C ends it)", flush=True)
    if arguments.open:
        import webbrowser

        webbrowser.open(address)
    with suppress(KeyboardInterrupt):
        serve(watches, listener, token=token, host=arguments.host)
    return 0


def add_dash_options(parser: argparse.ArgumentParser) -> None:
    """Let the page be opened with a run."""
    parser.add_argument(
        "--dash", action="store_true", help="serve a live page beside the run, at the address that is shown"
    )
    parser.add_argument(
        "--dash-port", type=int, metavar="PORT", help="of that page (default: 8417 or a free one)"
    )


@contextmanager
def page_beside(place: str, arguments: argparse.Namespace) -> Iterator[None]:
    """The page of a run while it lasts, where it is asked for."""
    if not arguments.dash and arguments.dash_port is None:
        yield
        return
    from gristmill.dash.start import BesideRun

    with BesideRun(place, arguments.dash_port) as page:
        print(f"gristmill: see it work at {page.address}", file=sys.stderr, flush=True)
        yield
