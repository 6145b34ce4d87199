"""A store that is busy or out of reach is asked again, later and later; what waiting does not mend is told
at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from gristmill.errors import GristmillError

MAX_ATTEMPTS = 9
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 15.0
LASTING = (
    GristmillError,
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ImportError,
    NotImplementedError,
    TypeError,
    ValueError,
)
LASTING_NAMES = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "DefaultCredentialsError",
    "RefreshError",
    "ClientAuthenticationError",
)
"""Of errors that stores' own packages raise where credentials are missing or refused."""

UNREACHED_NAMES = (
    "ConnectError",
    "ConnectTimeout",
    "ClientConnectorError",
    "EndpointConnectionError",
    "ConnectTimeoutError",
    "gaierror",
)
"""Of errors of httpx, aiohttp, botocore and of looking up a name (`socket`) where nothing answers."""

STRANGER_PATIENCE_S = 2.0
"""With a store that was never reached, until it is said to be out of reach."""

PASSING_STATUSES = (408, 425, 429)
"""Of HTTP, among those that blame the client."""

Result = TypeVar("Result")


class UnreachableError(OSError):
    """A store that goes on failing for reasons that should pass."""


def is_lasting(error: BaseException) -> bool:
    """Whether asking again would give the same."""
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    is_refused = isinstance(status, int) and 400 <= status < 500 and status not in PASSING_STATUSES
    return is_refused or isinstance(error, LASTING) or type(error).__name__ in LASTING_NAMES


def is_unreached(error: BaseException) -> bool:
    """Whether nobody was there to answer."""
    is_named = any(kind.__name__ in UNREACHED_NAMES for kind in type(error).__mro__)
    return is_named or isinstance(error, ConnectionRefusedError)


def retried(
    call: Callable[[], Result],
    *,
    is_lasting: Callable[[BaseException], bool] = is_lasting,
    is_known: bool = True,
) -> Result:
    """What a call gives; one that fails for a passing reason is made again, each time after a longer wait.

    A known store was reached before, and may be gone for a moment; another one may not be there at all."""
    missed_at: float | None = None
    for attempt in range(MAX_ATTEMPTS):
        try:
            return call()
        except Exception as error:  # stores raise what they like
            if is_lasting(error):
                raise
            said = " ".join(str(error).split())[:300] or type(error).__name__
            if missed_at is None and is_unreached(error):
                missed_at = time.monotonic()
            is_missed = missed_at is not None and time.monotonic() - missed_at >= STRANGER_PATIENCE_S
            if not is_known and is_missed and is_unreached(error):
                remedy = "check the network, the address or endpoint, and proxies"
                raise UnreachableError(f"cannot be reached ({said}); {remedy}") from error
            if attempt == MAX_ATTEMPTS - 1:
                raise UnreachableError(f"tried {MAX_ATTEMPTS} times, at last: {said}") from error
        import random

        # Those who were turned away together do not come back together.
        time.sleep(min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S) * random.uniform(0.5, 1.0))
    raise AssertionError("the last attempt returns or raises")
