"""A Ray cluster: workers are actors, and nothing but calls and their small answers passes through it."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Literal

from gristmill.config import RunConfig, RunJob
from gristmill.errors import ConfigError, MissingPackageError, RunError
from gristmill.run.cluster import MAX_IN_FLIGHT, PATIENCE_S, ClusterBackend
from gristmill.run.nodes import Reply, Room
from gristmill.run.remote_worker import RemoteWorker
from gristmill.run.resources import num_cores

# Read when Ray is imported: what becomes of units is told by the run, and standard output is the user's.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
try:
    import ray
except ImportError as error:
    raise MissingPackageError("run.backend=ray needs Ray: pip install 'gristmill[ray]'") from error

OBJECT_STORE_BYTES = 80 << 20
"""Of a cluster of our own: the least that Ray accepts. Answers are too small to go there."""
MAX_WORDS = 500
COLOURS = re.compile(r"(\x1b|\\x1b)\[\d*m")
"""Put into words by Ray, at times spelled out."""
CONNECT_S = 10.0
ADDRESS = re.compile(r"(ray://)?(\[[0-9a-fA-F:]+\]|[^:/\[\]\s]+)(?::(\d{1,5}))?")
CLIENT_PORT = 10001
HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a client begins: the words of the standard, and a frame of settings that sets nothing."""
HTTP2_SETTINGS = b"\4"
"""The type of the frame with which a server answers."""
SETTINGS_HERE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # actors are asked for at once: nothing else would use them
    "RAY_worker_niceness": "0",  # as local workers have it
}
"""Of a cluster of our own, which its processes find in their environment."""
START_ONE = "start one with `ray start --head`, or use --ray-address local"
LET_IN = (
    "something answers there: if it is a cluster that asks for a token, set RAY_AUTH_MODE=token; if not, is "
    "it another port, or another version of Ray?"
)
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
CLIENT_TRIES = 5
"""What a cluster starts for each driver outside it crashes at times while it is forked (one time in ten)."""
TELL_S = 0.03
"""In which a cluster is told that a driver leaves; one that was not told sees it."""


class RayCluster:
    """Workers are actors of one CPU each, with their memory declared, spread over the nodes."""

    def __init__(self, run: RunConfig, *, is_last: bool = False) -> None:
        """Join or start it; `is_last`: the process ends with the run, and need not wait until it has left."""
        _wait_until_left()
        # One that this program has connected to before is used, and left alone at the end.
        self._is_own = not ray.is_initialized()
        self._is_left_behind = False
        if self._is_own:
            with _own_signals():
                self._is_left_behind = connect(run) == "joined" and is_last
        self._inbox: queue.SimpleQueue[tuple[Any, str, Future[bytes]]] = queue.SimpleQueue()
        self._actor = ray.remote(_Actor)
        self._asked_for = 0
        self._heard_at = time.monotonic()

    def _nodes(self) -> list[dict[str, float]]:
        """What there is on each node that has a CPU."""
        found = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return [resources for resources in found if resources.get("CPU", 0) >= 1]

    def room(self) -> Room:
        """CPUs of all nodes, and the memory there is for each on the node that has least."""
        found = self._nodes()
        if not found:
            return Room(1, 4 << 30)  # a cluster that grows when it is asked to
        least = min(resources.get("memory", 0) / int(resources["CPU"]) for resources in found)
        return Room(sum(int(resources["CPU"]) for resources in found), int(least))

    def start(self, *, memory_bytes: int) -> Any:
        """Ask for an actor; Ray places it where a CPU and the memory are free."""
        self._asked_for = memory_bytes
        return self._actor.options(
            num_cpus=1,
            memory=memory_bytes,
            max_restarts=0,  # what is lost is done again by another
            max_concurrency=MAX_IN_FLIGHT + 1,
            scheduling_strategy="SPREAD",
        ).remote()

    def call(self, worker: Any, method: str, *arguments: bytes) -> None:
        """Call an actor; the reply will be heard."""
        future = getattr(worker, method).remote(*arguments).future()
        future.add_done_callback(lambda done: self._inbox.put((worker, method, done)))

    def heard(self, timeout_s: float) -> list[Reply]:
        """Replies that have come, after so much waiting at most."""
        try:
            heard = [self._inbox.get(timeout=timeout_s)]
        except queue.Empty:
            self._check_room()
            return []
        self._heard_at = time.monotonic()
        with suppress(queue.Empty):
            while True:
                heard.append(self._inbox.get_nowait())
        return [_reply(*each) for each in heard]

    def _check_room(self) -> None:
        """Refuse to wait any longer for a node that can hold a worker."""
        if time.monotonic() - self._heard_at < PATIENCE_S:
            return
        self._heard_at = time.monotonic()
        found = self._nodes()
        if not any(node.get("memory", 0) >= self._asked_for for node in found):
            most = max((node.get("memory", 0) for node in found), default=0)
            raise ConfigError(
                f"no node has the 1 CPU and {self._asked_for / 1e9:.1f} GB that a worker needs (the largest "
                f"has {most / 1e9:.1f} GB for such); lower run.memory, or raise run.workers"
            )

    def is_lost(self, node: str) -> bool:
        """Whether a node is no longer there."""
        return not any(each["NodeID"] == node and each["Alive"] for each in ray.nodes())

    def end(self, worker: Any) -> None:
        """Let an actor end now."""
        with suppress(Exception):  # it is gone, or its node is
            ray.kill(worker)

    def close(self) -> None:
        """Leave the cluster, or end it where it is our own."""
        if not self._is_own:
            return
        self._is_own = False
        if self._is_left_behind:
            _leave_behind()
        else:
            with _own_signals():
                ray.shutdown()


LEAVING: list[threading.Thread] = []
"""At most one, as a process has one connection."""


def _leave_behind() -> None:
    """Leave meanwhile: the cluster is told at once, then Ray waits 0.25 s for a poll of its own."""
    atexit.unregister(ray.shutdown)  # it is called here, and by the interpreter no more
    thread = threading.Thread(target=ray.shutdown, name="leave")
    LEAVING.append(thread)
    thread.start()
    thread.join(TELL_S)


def _wait_until_left() -> None:
    while LEAVING:
        LEAVING.pop().join()


class _Actor(RemoteWorker):
    """The worker, which Ray can tell where it is."""

    def __init__(self) -> None:
        _spare_serializers()
        super().__init__()

    def load(self, message: bytes, node: str = "") -> bytes:
        """Load the tokenizer; says what it is, and who answers."""
        return super().load(message, node or ray.get_runtime_context().get_node_id())


def open_ray(config: RunJob, *, is_last: bool = False) -> ClusterBackend:
    """A backend whose workers are on a Ray cluster, and on their way."""
    cluster = RayCluster(config.run, is_last=is_last)
    try:
        return ClusterBackend(config, cluster)
    except BaseException:
        cluster.close()
        raise


Connected = Literal["joined", "client", "started"]


def connect(run: RunConfig) -> Connected:
    """Join the cluster that a job names, from within or as a client of it, or start one here."""
    is_given = run.ray_address not in (None, "auto")
    named = run.ray_address if is_given else os.environ.get("RAY_ADDRESS") or None
    address = "auto" if named is None else named
    if address == "local":
        return _start_here(run)
    source = "run.ray_address" if is_given else "RAY_ADDRESS in the environment"
    endpoint, remedy = _endpoint(address, source), START_ONE
    try:
        if endpoint is not None:
            _check_reachable(*endpoint)
            remedy = LET_IN
        return _join(address)
    except Exception as error:
        if named is None and run.ray_address is None:
            return _start_here(run)
        raise RunError(f"no Ray cluster could be joined at {address} ({_words(error)}); {remedy}") from error


def _start_here(run: RunConfig) -> Connected:
    for name, value in SETTINGS_HERE.items():
        os.environ.setdefault(name, value)
    ray.init(
        address="local",
        num_cpus=run.workers or num_cores(),
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        **QUIET,
    )
    _spare_serializers()
    return "started"


def _spare_serializers() -> None:
    """Keep Ray from importing pydantic, starlette and pyarrow (0.1 s and 35 MB in every process) in case an
    object of theirs is sent: nothing but bytes is. Where Ray has changed it does as it likes."""
    with suppress(ImportError, AttributeError):
        worker, addons = ray._private.worker.global_worker, ray.util.serialization_addons
        usual, addons.apply = addons.apply, lambda _context: None
        try:
            worker.get_serialization_context()  # made once, and kept until this process leaves
        finally:
            addons.apply = usual


def _join(address: str) -> Connected:
    is_client = address.startswith("ray://")
    for tries_left in reversed(range(CLIENT_TRIES if is_client else 1)):
        try:
            ray.init(address=address, **QUIET)
            break
        except Exception as error:
            ray.shutdown()  # a client that failed leaves Ray in its mode, where nothing else can be joined
            is_lost = isinstance(error, ConnectionError) and not isinstance(error, ConnectionAbortedError)
            if is_lost or not tries_left:  # lost: after all the time that Ray gives it
                raise
    if is_client:
        return "client"
    _spare_serializers()
    return "joined"


def _endpoint(address: str, source: str) -> tuple[str, int] | None:
    """Where a cluster listens; None where only Ray knows."""
    found = ADDRESS.fullmatch(address)
    scheme, host, port = found.groups() if found else (None, "", None)
    if found and (port or scheme):
        return host.strip("[]"), int(port or CLIENT_PORT)
    if address == "auto" or ("://" in address and not address.startswith("http")):
        return None
    raise ConfigError(
        f"{source} is {address!r}; it is auto, local, HOST:6379 (what `ray start --head` prints) or "
        "ray://HOST:10001"
    )


def _check_reachable(host: str, port: int) -> None:
    """Refuse at once what does not begin to speak HTTP/2, as Ray does: it would itself try for a minute."""
    with socket.create_connection((host, port), timeout=CONNECT_S) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() not in ("", "0", "false"):
            return
        connection.sendall(HTTP2_HELLO)
        try:
            answer = connection.recv(4, socket.MSG_WAITALL)
        except TimeoutError:
            answer = b""
        if answer[3:] != HTTP2_SETTINGS:
            raise ConnectionError("what listens there is not Ray; is it another port?")


def _reply(worker: Any, method: str, done: Future[bytes]) -> Reply:
    error = done.exception()
    if error is not None:
        is_out_of_reach = isinstance(error, ray.exceptions.ActorUnavailableError)
        return Reply(worker, method, None, _words(error), is_out_of_reach=is_out_of_reach)
    return Reply(worker, method, done.result(), "")


def _words(error: BaseException) -> str:
    """What went wrong, without the traces that Ray puts round it."""
    lines = [line.strip() for line in COLOURS.sub("", str(error)).splitlines()]
    return " | ".join(line for line in lines if line.strip("^~"))[:MAX_WORDS] or type(error).__name__


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes over signals when it starts; whoever runs a job has decided what they do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, action in before.items():
            if action is not None:
                signal.signal(number, action)
