"""Who may see the page: by which name it is asked for, with which token; and headers of every answer."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
NO_TOKEN = b"gristmill dash: a token is needed; open the address that was printed, which ends in ?token=...\n"
NO_HOST = b"gristmill dash: asked for by a name that is not this machine's; --token allows it\n"
MAX_PATH = 1000
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

Scope = dict[str, Any]
App = Callable[..., Any]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """An ASGI application in front of another."""

    def __init__(self, app: App, *, token: str | None, host: str) -> None:
        self._app = app
        self._token = token
        self._names = {*LOCAL_NAMES, host}

    async def __call__(self, scope: Scope, receive: App, send: App) -> None:
        if scope["type"] != "http":
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}

        async def send_guarded(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = message | {"headers": [*message.get("headers", []), *own]}
            await send(message)

        if self._token is None:
            # Another site may give its own name this machine's address, and so read what is shown here.
            if _host_name(headers.get(b"host", "")) not in self._names:
                await _answer(send_guarded, 403, NO_HOST)
                return
        elif not self._is_known(scope, headers):
            await _answer(send_guarded, 401, NO_TOKEN, (b"www-authenticate", b"Bearer"))
            return
        elif scope["path"] == "/" and b"token=" in scope["query_string"]:
            cookie = f"{_cookie_name(scope)}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            await _answer(send_guarded, 303, b"", (b"location", b"/"), (b"set-cookie", cookie.encode()))
            return
        if len(scope["path"]) > MAX_PATH:  # an index of so many digits is no number to Python
            await _answer(send_guarded, 404, b"")
            return
        await self._app(scope, receive, send_guarded)

    def _is_known(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        given = [headers.get(b"authorization", "").removeprefix("Bearer ").strip()]
        given += parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        try:
            morsel = SimpleCookie(headers.get(b"cookie", "")).get(_cookie_name(scope))
        except CookieError:
            morsel = None
        given += [morsel.value] if morsel else []
        assert self._token is not None
        # All of them are compared, each in a time that does not tell how much of it is right.
        matches = [hmac.compare_digest(text.encode(), self._token.encode()) for text in given]
        return any(matches)


def _cookie_name(scope: Scope) -> str:
    # Browsers send cookies to every port of a host: each page needs one of its own.
    server = scope.get("server") or ("", 0)
    return f"gristmill_{server[1]}"


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


async def _answer(send: App, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    own = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})
