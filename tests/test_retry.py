"""Stores that are busy are asked again; one that was never there is given up soon."""

import socket

import aiohttp
import botocore.exceptions
import httpx
import pytest

from gristmill import retry
from gristmill.retry import MAX_ATTEMPTS, UnreachableError, is_unreached, retried

REFUSED = httpx.ConnectError("[Errno 111] Connection refused")


@pytest.fixture
def clock(monkeypatch):
    """Seconds that were slept, which is all the time that passes."""
    slept = []
    monkeypatch.setattr(retry.time, "sleep", slept.append)
    monkeypatch.setattr(retry.time, "monotonic", lambda: sum(slept))
    return slept


def failing(error):
    calls = []

    def call():
        calls.append(1)
        raise error

    return calls, call


def test_a_store_that_was_never_there_is_given_up_in_seconds(clock):
    calls, call = failing(REFUSED)
    with pytest.raises(UnreachableError, match=r"^cannot be reached \(.*refused\); check .*proxies$"):
        retried(call, is_known=False)
    assert len(calls) > 3
    assert 1 < sum(clock) < 5


def test_a_long_call_that_is_cut_off_has_a_second_try(clock):
    errors = [socket.gaierror(-3, "Temporary failure in name resolution")]

    def call():
        clock.append(60)  # a listing that takes its time
        if errors:
            raise errors.pop()
        return "listed"

    assert retried(call, is_known=False) == "listed"


@pytest.mark.parametrize(
    ("error", "is_known"),
    [(REFUSED, True), (httpx.ReadTimeout("slow"), False), (ConnectionResetError("lost"), False)],
    ids=["gone for a moment", "slow", "lost"],
)
def test_a_store_that_is_there_is_asked_as_often_as_may_help(clock, error, is_known):
    calls, call = failing(error)
    with pytest.raises(UnreachableError, match=f"tried {MAX_ATTEMPTS} times, at last: "):
        retried(call, is_known=is_known)
    assert len(calls) == MAX_ATTEMPTS
    assert sum(clock) > 10


def test_every_client_says_in_its_own_way_that_nobody_is_there():
    key = aiohttp.client_reqrep.ConnectionKey("h", 80, False, True, None, None, None)
    for error in (
        REFUSED,
        httpx.ConnectTimeout("t"),
        aiohttp.ClientConnectorDNSError(key, OSError(1, "no such host")),
        botocore.exceptions.EndpointConnectionError(endpoint_url="http://h"),
        botocore.exceptions.ConnectTimeoutError(endpoint_url="http://h"),
        ConnectionRefusedError(),
        socket.gaierror(-2, "Name or service not known"),
    ):
        assert is_unreached(error), error
    assert not is_unreached(httpx.ReadTimeout("t"))
    assert not is_unreached(TimeoutError())
