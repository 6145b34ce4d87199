"""The server of the page: bound to an address, until it is told to end or its run is over."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading

import uvicorn

from gristmill.dash.server import Runs, make_app
from gristmill.report.run_watch import RunWatch, watch_runs

LINGER_S = 5.0
"""After a run's end, for browsers to be told how it ended."""


def serve(watches: list[RunWatch], listener: socket.socket, *, token: str | None, host: str) -> None:
    """Serve until interrupted."""
    asyncio.run(_serve(Runs(watches), listener, token=token, host=host))


def serve_beside(place: str, listener: socket.socket) -> None:
    """Serve the run of another process until standard input ends, as it does with that process."""
    asyncio.run(_serve_beside(Runs(watch_runs([place])), listener))


async def _serve(runs: Runs, listener: socket.socket, *, token: str | None, host: str) -> None:
    await _server(runs, token=token, host=host).serve(sockets=[listener])


async def _serve_beside(runs: Runs, listener: socket.socket) -> None:
    server = _server(runs, token=None, host="127.0.0.1")
    is_over = asyncio.Event()
    threading.Thread(
        target=_await_end, args=(asyncio.get_running_loop(), is_over), daemon=True
    ).start()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    waiting = asyncio.create_task(is_over.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    await runs.read_end()
    runs.ended.set()
    for _ in range(int(LINGER_S / 0.1)):
        if not runs.num_listening:
            break
        await asyncio.sleep(0.1)
    server.should_exit = True
    waiting.cancel()
    await serving


def _await_end(loop: asyncio.AbstractEventLoop, is_over: asyncio.Event) -> None:
    while sys.stdin.buffer.read(1):
        pass
    loop.call_soon_threadsafe(is_over.set)


def _server(runs: Runs, *, token: str | None, host: str) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            make_app(runs, token=token, host=host),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
