"""A run as it goes, in the terminal: a bar and rates, or plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, TextIO

from gristmill.report.words import duration, of_bytes, of_count
from gristmill.run.progress import Snapshot

LINE_EVERY_S = 10.0


class View:
    """Shows snapshots on a stream until it is closed; a context, so that the terminal is left as it was."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar = _Bar(self._stream) if self._stream.isatty() else None
        self._last_line = time.monotonic()

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, snapshot: Snapshot) -> None:
        """Show the run now."""
        if self._bar is not None:
            self._bar.show(snapshot)
        elif time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            print(render_line(snapshot), file=self._stream, flush=True)


class _Bar:
    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=stream), transient=True, refresh_per_second=5)
        self._is_started = False

    def show(self, snapshot: Snapshot) -> None:
        if not self._is_started:
            self._live.start()
            self._is_started = True
        self._live.update(_draw(snapshot))

    def close(self) -> None:
        if self._is_started:
            self._live.stop()


def _draw(snapshot: Snapshot) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    bar = ProgressBar(total=max(snapshot.bytes_total, 1), completed=snapshot.bytes_done)
    style = "red" if snapshot.units_failed or snapshot.bad_documents else "none"
    return Group(bar, Text(render_line(snapshot), style=style, overflow="fold"))


def render_line(snapshot: Snapshot) -> str:
    """The run now, in a line."""
    fraction = snapshot.bytes_done / max(snapshot.bytes_total, 1)
    parts = [
        f"{fraction:.0%}",
        f"{of_bytes(snapshot.bytes_done)} of {of_bytes(snapshot.bytes_total)}",
        f"{of_bytes(snapshot.bytes_per_s)}/s",
        f"{of_count(snapshot.tokens_per_s)} tokens/s",
        f"{eta(snapshot)} left",
        f"{of_count(snapshot.documents)} documents",
        f"{of_bytes(snapshot.memory_bytes)} memory",
        f"{snapshot.num_workers} workers",
    ]
    if snapshot.bad_documents:
        parts.append(f"{of_count(snapshot.bad_documents)} bad documents")
    if snapshot.units_failed:
        parts.append(f"{snapshot.units_failed} units FAILED")
    return " · ".join(parts)


def eta(snapshot: Snapshot) -> str:
    """Time still needed at the rate so far."""
    if snapshot.bytes_per_s <= 0:
        return "?"
    return duration((snapshot.bytes_total - snapshot.bytes_done) / snapshot.bytes_per_s)
