"""A run as it goes, on a terminal of any width."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import gristmill
from gristmill.report.view import figures, fit_figures
from gristmill.run.progress import Snapshot

SCRIPT = """
from gristmill.report.view import View
from gristmill.run.progress import Snapshot
snapshot = Snapshot(
    event="progress", time=0.0, elapsed_s=10.0, units_done=3, units_total=9, units_failed=0,
    bytes_done=37_000_000, bytes_total=100_000_000, bytes_before=0, units_before=0, documents=12_345,
    bad_documents=2, tokens=9_000_000, bytes_per_s=3_700_000.0, tokens_per_s=900_000.0,
    memory_bytes=190_000_000, peak_memory_bytes=190_000_000, num_workers=1, stage_s={},
)
with View() as view:
    view.show(snapshot)
"""


def shown_on_terminal(columns):
    """What the view writes to a terminal so wide, as the lines of its first picture."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment |= {"TERM": "xterm", "PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    written = b""
    while True:
        try:
            written += os.read(master, 65536)
        except OSError:  # the other end is closed
            break
    os.close(master)
    assert process.wait() == 0, written.decode()
    # It is drawn, then drawn again over that, then wiped: each time its lines are erased first.
    pictures = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part) for part in written.decode().split("\x1b[2K")]
    drawn = next(picture for picture in pictures if picture.strip())
    return [line.rstrip() for line in drawn.splitlines() if line.strip()]


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 160])
def test_bar_and_figures_are_seen_whole_at_any_width(columns):
    bar, *figures = shown_on_terminal(columns)
    assert set(bar) <= set("━╸╺ ")
    assert len(bar) <= columns
    assert 1 <= len(figures) <= 2
    assert all(len(line) <= columns for line in figures)
    shown = " ".join(figures)
    assert all(figure in shown for figure in ("37%", "3.7 MB/s", "17 s left", "2 bad"))
    assert "…" not in shown
    assert columns < 160 or "1 worker" in shown


def test_figures_that_do_not_fit_are_left_out_from_the_end():
    parts = ["37%", "3.7 MB/s", "17 s left", "900,000 tokens/s", "190 MB memory", "1 worker"]
    assert fit_figures(parts, 40) == ["37% · 3.7 MB/s · 17 s left", "900,000 tokens/s · 190 MB memory"]
    assert fit_figures(parts, 200) == [" · ".join(parts)]


def test_a_download_under_way_is_shown_and_a_finished_one_is_not():
    none = dict.fromkeys(Snapshot.__struct_fields__, 0) | {"event": "progress", "stage_s": {}}
    going = figures(Snapshot(**none | {"fetched_bytes": 3_000_000, "fetch_bytes": 12_000_000}))
    assert "3 MB of 12 MB fetched" in going[:4]
    done = figures(Snapshot(**none | {"fetched_bytes": 12_000_000, "fetch_bytes": 12_000_000}))
    assert not any("fetched" in part for part in done)
