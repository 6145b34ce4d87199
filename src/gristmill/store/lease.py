"""One run at a time in a folder of a store: a small object says who is at work there, and is renewed.

A lease that has not been renewed for a while belongs to a run that is dead; one of this machine whose process
is gone is dead at once. Where a store has conditional writes, two runs that start together are told apart by
the store; otherwise, and where a dead lease is taken over by two at the same moment, the one that was
overwritten notices when it renews its own. Neither can harm what the other has committed: no file of one unit
has a name that another attempt at it would write."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from gristmill.errors import ResumeError
from gristmill.store.objects import Objects

LEASE = ".lease.json"
RENEW_EVERY_S = 10.0
EXPIRES_S = 60.0
"""Clocks of machines that share a folder must not differ by nearly as much."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who is at work in a folder."""

    token: str
    host: str
    boot: str
    pid: int
    birth: str
    """Of the process, so that another of the same number is not taken for it."""
    renewed: float
    """Seconds since 1970."""


class Lease:
    """The lease of a folder, renewed by a thread while it is held."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.token = os.urandom(8).hex()
        self._is_over = threading.Event()
        self._lost = ""
        self._renewed = time.monotonic()
        self._thread = threading.Thread(target=self._renew_often, name="lease", daemon=True)

    def acquire(self) -> None:
        """Take the lease, or say who has it."""
        content = self._objects.get(LEASE)
        before = _decode(content)
        if before is not None and (why := _alive(before)):
            raise ResumeError(
                f"{self._objects.url}: another run is at work in this folder ({why}); wait for it"
            )
        if content is None:
            taken = _decode(self._objects.create(LEASE, self._content()))
        else:
            self._objects.put(LEASE, self._content())
            taken = _decode(self._objects.get(LEASE))
        if taken is None or taken.token != self.token:
            raise ResumeError(f"{self._objects.url}: another run has just begun in this folder; wait for it")
        self._thread.start()

    def check(self) -> None:
        """Raise where the lease was lost."""
        if self._lost:
            raise ResumeError(f"{self._objects.url}: {self._lost}; run the same command again to go on")

    def release(self) -> None:
        """Remove the lease, if it is still ours."""
        self._is_over.set()
        self._thread.join()
        with suppress(Exception):  # it expires
            holder = _decode(self._objects.get(LEASE))
            if holder is not None and holder.token == self.token:
                self._objects.remove([LEASE])

    def _content(self) -> bytes:
        pid, (host, boot) = os.getpid(), here()
        return msgspec.json.encode(
            Holder(
                token=self.token,
                host=host,
                boot=boot,
                pid=pid,
                birth=_birth(pid),
                renewed=round(time.time(), 3),
            )
        )

    def _renew_often(self) -> None:
        while not self._is_over.wait(RENEW_EVERY_S) and not self._lost:
            try:
                holder = _decode(self._objects.get(LEASE))
                if holder is not None and holder.token != self.token:
                    self._lost = f"another run (on {holder.host}, process {holder.pid}) has taken this folder"
                    return
                self._objects.put(LEASE, self._content())
                self._renewed = time.monotonic()
            except Exception as error:  # tried again, until the others take us for dead
                if time.monotonic() - self._renewed > EXPIRES_S:
                    self._lost = f"its lease could not be renewed ({error})"


def holds(objects: Objects, token: str) -> bool:
    """Whether the lease of a folder is the one of this token."""
    holder = _decode(objects.get(LEASE))
    return holder is not None and holder.token == token


def is_process_alive(pid: int) -> bool:
    """Whether a process of this machine is there, and not only what its parent has yet to take note of."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return _stat(pid)[:1] != ["Z"]


def _alive(holder: Holder) -> str:
    """How it is known that a run is at work; nothing where it is dead."""
    age = max(time.time() - holder.renewed, 0.0)
    if (holder.host, holder.boot) == here():
        is_same = is_process_alive(holder.pid) and _birth(holder.pid) == holder.birth
        return f"process {holder.pid} of this machine" if is_same else ""
    if age > EXPIRES_S:
        return ""
    left = round(EXPIRES_S - age) + 1
    return f"on {holder.host}, process {holder.pid}, heard of {age:.0f} s ago; if it is dead, wait {left} s"


def _decode(content: bytes | None) -> Holder | None:
    try:
        return None if content is None else msgspec.json.decode(content, type=Holder)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def here() -> tuple[str, str]:
    """The host and, of its time since it was started, where a number is always one process: containers have
    numbers of their own."""
    import socket  # milliseconds that only a run in a store needs

    boot = []
    with suppress(OSError):
        boot.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        boot.append(os.readlink("/proc/self/ns/pid"))
    return socket.gethostname(), " ".join(boot)


def _birth(pid: int) -> str:
    """When a process began, in ticks of the system; nothing where that is not told."""
    return "".join(_stat(pid)[19:20])


def _stat(pid: int) -> list[str]:
    """What Linux tells of a process, from its state on; nothing elsewhere."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []
