"""The page, the JSON API, events pushed to browsers, metrics, and the files of run folders.

Starlette is an extra; this module and `serve.py` import it and uvicorn.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gristmill.dash.guard import App, Guard
from gristmill.dash.metrics import CONTENT_TYPE, render_metrics
from gristmill.report.html import ASSETS, read_asset
from gristmill.report.run_watch import FILES, RunWatch

FRESH_S = 0.5
PUSH_EVERY_S = 1.0
ALIVE_EVERY_S = 15.0
CHUNK_BYTES = 1 << 18


class Runs:
    """The runs that are shown, read again when someone asks and what is known is old."""

    def __init__(self, watches: list[RunWatch]) -> None:
        self.watches = watches
        self.ended = asyncio.Event()
        """The run this page was opened with is over: tell the browsers, then go."""
        self.num_listening = 0
        self._lock = asyncio.Lock()
        self._read_at = 0.0
        self._is_read = True

    async def refresh(self) -> bool:
        """Read what is new; whether all there is was read."""
        async with self._lock:
            if time.monotonic() - self._read_at >= (FRESH_S if self._is_read else 0.0):
                self._is_read = await asyncio.to_thread(self._read)
                self._read_at = time.monotonic()
        return self._is_read

    def _read(self) -> bool:
        are_read = [watch.refresh() for watch in self.watches]
        return all(are_read)

    async def read_end(self) -> None:
        """All there is, now that nothing is added any more."""
        async with self._lock:
            for watch in self.watches:
                await asyncio.to_thread(watch.read_all)
            self._read_at, self._is_read = time.monotonic() + 60, True


def make_app(runs: Runs, *, token: str | None, host: str) -> App:
    """The application; with a token, nothing is answered without it."""
    routes = [Route("/", _asset("page.html"))]
    routes += [Route(f"/{name}", _asset(name)) for name in ASSETS if name != "page.html"]
    routes += [
        Route("/api/runs", _list_runs),
        Route("/api/runs/{index:int}", _show_run),
        Route("/api/events", _push_events),
        Route("/metrics", _show_metrics),
        Route("/runs/{index:int}/files/{name}", _send_file),
    ]
    app = Starlette(routes=routes)
    app.state.runs = runs
    return Guard(app, token=token, host=host)


def _asset(name: str) -> Any:
    async def answer(_request: Request) -> Response:
        return Response(read_asset(name), media_type=ASSETS[name])

    return answer


async def _list_runs(request: Request) -> Response:
    runs: Runs = request.app.state.runs
    await runs.refresh()
    listed = [
        {"index": index, "name": watch.name, "folder": watch.place, "state": watch.state()}
        for index, watch in enumerate(runs.watches)
    ]
    return _json(listed)


async def _show_run(request: Request) -> Response:
    runs: Runs = request.app.state.runs
    index = request.path_params["index"]
    if index >= len(runs.watches):
        return _missing()
    await runs.refresh()
    watch = runs.watches[index]
    return _json(watch.overview() | {"course": watch.course()})


async def _show_metrics(request: Request) -> Response:
    runs: Runs = request.app.state.runs
    while not await runs.refresh():  # half a sum would be taken for the sum
        pass
    return Response(render_metrics(runs.watches), media_type=CONTENT_TYPE)


async def _push_events(request: Request) -> Response:
    return StreamingResponse(_updates(request.app.state.runs), media_type="text/event-stream")


async def _updates(runs: Runs) -> AsyncIterator[bytes]:
    """What is new of the runs, about once a second, as server-sent events."""
    browser = _Browser()
    runs.num_listening += 1
    try:
        while True:
            has_ended = runs.ended.is_set()
            is_read = await runs.refresh()
            update = browser.news(runs.watches)
            if update or browser.is_silent():
                yield update or b": still here\n\n"
            if has_ended:
                yield b"event: end\ndata: {}\n\n"
                return
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(runs.ended.wait(), PUSH_EVERY_S if is_read else PUSH_EVERY_S / 10)
    finally:
        runs.num_listening -= 1


class _Browser:
    """What one browser has been told."""

    def __init__(self) -> None:
        self._told: dict[int, bytes] = {}
        self._courses: dict[int, tuple[int, int]] = {}
        self._last = 0.0

    def is_silent(self) -> bool:
        """Whether it has heard nothing for so long that the connection may be taken for dead."""
        return time.monotonic() - self._last > ALIVE_EVERY_S

    def news(self, watches: list[RunWatch]) -> bytes:
        """An event with the runs that have changed; nothing where none has."""
        changed = [
            news for index, watch in enumerate(watches) if (news := self._run_news(index, watch)) is not None
        ]
        if not changed:
            return b""
        self._last = time.monotonic()
        return b"data: " + msgspec.json.encode({"runs": changed}) + b"\n\n"

    def _run_news(self, index: int, watch: RunWatch) -> dict[str, Any] | None:
        told = msgspec.json.encode(watch.overview())
        if self._told.get(index) == told:
            return None
        self._told[index] = told
        course, num_kept = watch.course(), len(watch.history.series.points)
        epoch, num_told = self._courses.get(index, (-1, 0))
        self._courses[index] = course["epoch"], num_kept
        start = num_told if epoch == course["epoch"] else None
        points = course["points"][start or 0 :]
        news = {"index": index, "time": time.time(), "from": start, "points": points}
        return news | {"overview": msgspec.Raw(told)}


async def _send_file(request: Request) -> Response:
    runs: Runs = request.app.state.runs
    index, name = request.path_params["index"], request.path_params["name"]
    if index >= len(runs.watches) or name not in FILES:
        return _missing()
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(runs.watches[index].folder / name, flags)
    except OSError:
        return _missing()
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_chunks(descriptor), media_type="text/plain; charset=utf-8", headers=headers)


def _chunks(descriptor: int) -> Iterator[bytes]:
    with open(descriptor, "rb", buffering=0) as file:
        while content := file.read(CHUNK_BYTES):
            yield content


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _missing() -> Response:
    return PlainTextResponse("not found\n", status_code=404)
