"""Starting the page: an address to listen at, and a process of its own beside a run.

Imports neither Starlette nor uvicorn, so that a run without the page does not either."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from importlib.util import find_spec

from gristmill.dash.guard import is_loopback
from gristmill.errors import ConfigError, MissingPackageError

DEFAULT_PORT = 8417
LOOPBACK = "127.0.0.1"
NICE = 5
PROGRAM = f"""
import json, os, select, socket, sys
os.nice({NICE})
listener = socket.socket(fileno=int(sys.argv[3]))
if listener in select.select([listener, sys.stdin], [], [])[0]:
    sys.path[:] = json.loads(sys.argv[1])
    from gristmill.dash.serve import serve_beside
    serve_beside(sys.argv[2], listener)
"""
"""Imports the server when somebody looks, and ends where nobody has: until then the page costs nothing. Finds
modules where this process does; `-m` would look in the working directory first."""


def require_packages() -> None:
    """Refuse where the page's packages are not installed."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise MissingPackageError(f"the dash needs {' and '.join(missing)}: pip install 'gristmill[dash]'")


def settle_token(host: str, token: str | None) -> str | None:
    """The token to ask for; one is made where others than this machine can reach the page."""
    if token is not None and (len(token) < 8 or not token.isascii() or not token.isalnum()):
        raise ConfigError("--token: eight or more letters and digits are needed")
    return token if token is not None or is_loopback(host) else secrets.token_hex(16)


def listen(host: str, port: int | None) -> socket.socket:
    """A socket at an address; without a port, the usual one, or a free one where that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (DEFAULT_PORT, 0) if port is None else (port,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, wanted))
            listener.listen(128)
            return listener
        except (OSError, OverflowError) as error:
            listener.close()
            failure = error
    words = getattr(failure, "strerror", None) or str(failure)
    raise ConfigError(f"the dash cannot listen at {host}, port {port}: {words}; choose another --port")


def address_of(listener: socket.socket, host: str, token: str | None) -> str:
    """What to open in a browser."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{listener.getsockname()[1]}/" + (f"?token={token}" if token else "")


class BesideRun:
    """The page of a run, served by a process of its own that ends with the run."""

    def __init__(self, place: str, port: int | None) -> None:
        require_packages()
        listener = listen(LOOPBACK, port)
        self.address = address_of(listener, LOOPBACK, None)
        os.set_inheritable(listener.fileno(), True)
        search_path = json.dumps([path or os.getcwd() for path in sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, search_path, place, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(listener.fileno(),),
            start_new_session=True,  # Ctrl-C in a terminal reaches the run alone
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
        listener.close()

    def __enter__(self) -> BesideRun:
        return self

    def __exit__(self, *_error: object) -> None:
        """The run is over: the page tells the browsers and ends by itself, soon."""
        assert self._process.stdin is not None
        self._process.stdin.close()
