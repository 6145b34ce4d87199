"""`python -m gristmill` is the `gristmill` command."""

import atexit
import gc
import os
import sys
from typing import NoReturn

from gristmill.cli import main

GC_THRESHOLD = 200_000
"""New objects before cycles are looked for: few are made here, and most objects are modules that stay."""


def run() -> NoReturn:
    """The command as a whole process, which ends without taking apart what it holds: the system is faster."""
    gc.set_threshold(GC_THRESHOLD)
    status = main()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
