"""A run as it goes, in the terminal: a bar and rates, or plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, TextIO

from gristmill.report.words import duration, of_bytes, of_count, plural
from gristmill.run.progress import Snapshot

LINE_EVERY_S = 10.0
BETWEEN = " · "
MAX_LINES = 2
"""Of figures under the bar."""


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

        self._console = Console(file=stream)
        self._live = Live(console=self._console, transient=True, auto_refresh=False)
        self._is_started = False

    def show(self, snapshot: Snapshot) -> None:
        if not self._is_started:
            self._live.start()
            self._is_started = True
        self._live.update(_draw(snapshot, self._console.width), refresh=True)

    def close(self) -> None:
        if self._is_started:
            self._live.stop()


def _draw(snapshot: Snapshot, width: int) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    # A bar ends no line of its own: whatever follows it must stand in another row.
    rows = Table.grid(expand=True)
    rows.add_row(ProgressBar(total=max(snapshot.bytes_total, 1), completed=snapshot.bytes_done))
    style = "red" if snapshot.units_failed or snapshot.bad_documents else "none"
    for line in fit_figures(figures(snapshot), width):
        rows.add_row(Text(line, style=style, no_wrap=True))
    return rows


def render_line(snapshot: Snapshot) -> str:
    """The run now, in a line."""
    return BETWEEN.join(figures(snapshot))


def fit_figures(parts: list[str], width: int) -> list[str]:
    """As many of the figures, from the first on, as a few lines of this width hold."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(BETWEEN) + len(part) <= width:
            lines[-1] += BETWEEN + part
        elif len(lines) < MAX_LINES:
            lines.append(part)
        else:
            break
    return lines


def figures(snapshot: Snapshot) -> list[str]:
    """The run now, what matters most first."""
    parts = [
        f"{snapshot.bytes_done / max(snapshot.bytes_total, 1):.0%}",
        f"{of_bytes(snapshot.bytes_per_s)}/s",
        f"{eta(snapshot)} left",
    ]
    if snapshot.fetched_bytes < snapshot.fetch_bytes:
        parts.append(f"{of_bytes(snapshot.fetched_bytes)} of {of_bytes(snapshot.fetch_bytes)} fetched")
    if snapshot.units_failed:
        parts.append(f"{plural(snapshot.units_failed, 'unit')} FAILED")
    if snapshot.bad_documents:
        parts.append(f"{of_count(snapshot.bad_documents)} bad")
    return [
        *parts,
        *([f"{of_count(snapshot.tokens_per_s)} tokens/s"] if snapshot.tokens_per_s else []),
        f"{of_bytes(snapshot.memory_bytes)} memory",
        f"{of_bytes(snapshot.bytes_done)} of {of_bytes(snapshot.bytes_total)}",
        f"{of_count(snapshot.documents)} documents",
        workers_of(snapshot),
        *([f"mostly {snapshot.bottleneck}"] if snapshot.bottleneck else []),
    ]


def workers_of(snapshot: Snapshot) -> str:
    """Who is at work, and on how many nodes where there are several."""
    workers = plural(snapshot.num_workers, "worker")
    return workers if snapshot.num_nodes <= 1 else f"{workers} on {plural(snapshot.num_nodes, 'node')}"


def eta(snapshot: Snapshot) -> str:
    """Time still needed at the rate so far."""
    if snapshot.bytes_per_s <= 0:
        return "?"
    return duration((snapshot.bytes_total - snapshot.bytes_done) / snapshot.bytes_per_s)
