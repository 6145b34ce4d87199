"""`python -m gristmill` is the `gristmill` command."""

import atexit
import gc
import os
import signal
import sys
from typing import NoReturn

from gristmill.signals import end_if_told, end_untold, end_when_told

GC_THRESHOLD = 200_000
"""New objects before cycles are looked for: few are made here, and most objects are modules that stay."""
STACK_SLOTS = 33_000
"""Of the frame that the command runs in. CPython takes its stack from the system in pieces of 16 KB, or of
the power of two that the next frame needs; what that frame calls has the rest of the piece, here a quarter of
a megabyte. Imports nest so deep that they went over the end of a small piece and back a thousand times, and
each time the system took memory back, for which it interrupts all other threads."""


def run() -> NoReturn:
    """The command as a whole process, which ends without taking apart what it holds: the system is faster."""
    gc.set_threshold(GC_THRESHOLD)
    end_when_told()
    status = 1
    try:
        _import_msgspec()
        from gristmill.cli import main

        end_if_told()
        status = main()
    except KeyboardInterrupt:  # while modules were imported
        status = 128 + signal.SIGINT
    except SystemExit as end:  # told to end, or argparse has said what is wrong
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _end(status)


def _import_msgspec() -> None:
    """Without `typing_extensions`, which takes longer to import than all of msgspec: it is taken where it
    is installed, and not needed from Python 3.11 on."""
    if sys.version_info < (3, 11) or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _end(status: int) -> NoReturn:
    end_untold()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


run.__code__ = run.__code__.replace(co_stacksize=STACK_SLOTS)

if __name__ == "__main__":
    run()
