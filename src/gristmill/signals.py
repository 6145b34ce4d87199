"""How a command is told to end, by Ctrl-C or SIGTERM.

Python raises what a handler raises wherever the main thread happens to be. Where that is the machinery of
imports, the exception is lost or a lock stays held for ever; inside msgspec, as it reads the types of a
struct, the process crashes. So a signal that comes there is sent once more, a moment later."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

AGAIN_S = 0.01
FRAGILE = ("<frozen importlib", os.path.join("msgspec", "_utils.py"))
"""In names of files whose functions must not be left by an exception from nowhere."""
COMMAND = os.path.join("gristmill", "cli.py")
"""Whose `main` the command runs in; what has called that does not matter."""

_told: list[int] = []
"""The signals that have come."""


def end_when_told() -> None:
    """From now on SIGINT is KeyboardInterrupt, unless it is ignored, and SIGTERM ends this process, and its
    workers with it."""
    _told.clear()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)


def end_untold() -> None:
    """From now on they do nothing: the process ends anyway."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def end_if_told() -> None:
    """Where a signal came and what it raised was lost, or is yet to be raised, it is raised now."""
    if _told:
        _end(_told[-1])


def _on_signal(number: int, frame: FrameType | None) -> None:
    _told.append(number)
    if _is_fragile(frame):
        _thread.start_new_thread(_send_again, (number,))
    else:
        _end(number)


def _end(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _is_fragile(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if any(name in code.co_filename for name in FRAGILE):
            return True
        if code.co_name == "main" and code.co_filename.endswith(COMMAND):
            return False
        frame = frame.f_back
    return False


def _send_again(number: int) -> None:
    time.sleep(AGAIN_S)
    os.kill(os.getpid(), number)
