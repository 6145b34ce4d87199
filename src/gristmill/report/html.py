"""`report.html`: the page of a run with its figures, scripts and styles in one file that opens from disk."""

from __future__ import annotations

import base64
import hashlib
import time
from functools import cache
from pathlib import Path

import msgspec

from gristmill.files import write_whole
from gristmill.read.storage import is_remote, local_path
from gristmill.report.run_watch import RunWatch
from gristmill.run.folder import PLAN, REPORT_PAGE
from gristmill.store import Mirror

PAGE = Path(__file__).parent / "page"
ASSETS = {
    "page.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}
"""Files of the page, and what they are."""
LINKS = {
    "page.css": '<link rel="stylesheet" href="page.css">',
    "charts.js": '<script src="charts.js" defer></script>',
    "page.js": '<script src="page.js" defer></script>',
}
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""What could end the element that holds the figures, written so that it cannot."""


@cache
def read_asset(name: str) -> str:
    """A file of the page."""
    return (PAGE / name).read_text(encoding="utf-8")


def write_report(place: str, *, is_new: bool) -> None:
    """Write `report.html` into the folder of a run that has ended, from what the folder holds; one that is
    there stays, unless the run is new."""
    if is_remote(local_path(place)):
        return _write_remote_report(place, is_new=is_new)
    folder = Path(local_path(place))
    if not (folder / PLAN).exists():  # a training from counts has no run of its own
        return
    if (folder / REPORT_PAGE).exists() and not is_new:
        return
    watch = RunWatch(folder)
    watch.read_all()
    write_whole(folder / REPORT_PAGE, render_report(watch).encode())


def _write_remote_report(url: str, *, is_new: bool) -> None:
    mirror = Mirror(url)
    if is_new or mirror.objects.get(REPORT_PAGE) is None:
        watch = RunWatch(mirror)
        watch.read_all()
        mirror.objects.put(REPORT_PAGE, render_report(watch).encode())


def render_report(watch: RunWatch) -> str:
    """The page of a run as one file."""
    points = watch.course()["points"]
    news = {"index": 0, "time": time.time(), "overview": watch.overview(), "from": None, "points": points}
    figures = msgspec.json.encode({"runs": [news]}).decode()
    for character, escaped in UNSAFE.items():
        figures = figures.replace(character, escaped)
    style, charts, script = (read_asset(name) for name in LINKS)
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; "
        f"script-src {_hash(charts)} {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    page = read_asset("page.html")
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<meta charset="utf-8">'
    page = page.replace('<meta charset="utf-8">', head)
    page = page.replace(LINKS["page.css"], f"<style>{style}</style>")
    page = page.replace(f"{LINKS['charts.js']}\n{LINKS['page.js']}\n", "")
    scripts = f"<script>{charts}</script>\n<script>{script}</script>\n"
    data = f'<script type="application/json" id="figures">{figures}</script>\n'
    return page.replace("</body>", f"{data}{scripts}</body>")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
