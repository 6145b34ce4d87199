"""An S3 server on loopback (moto's), and a proxy before it that fails as stores do, by a seeded draw."""

import http.client
import logging
import random
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gristmill.store.objects import Objects

BUCKET = "corpus"
SLOW_S = 0.05
BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
BROKEN = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
NOT_PASSED_ON = ("connection", "transfer-encoding", "keep-alive")


class FaultyProxy(BaseHTTPRequestHandler):
    """Passes requests on; some get an error, a late answer, half an answer, or none."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_any(self):
        self.server.on_request(self.command, self.path)
        fault = self.server.draw()
        body = self.read_body()
        if body is None:  # a store keeps nothing of an upload whose sender is gone
            return self.drop()
        if fault == "busy":
            return self.answer(503, BUSY)
        if fault == "broken":
            return self.answer(500, BROKEN)
        if fault == "dropped":
            return self.drop()
        if fault == "slow":
            time.sleep(SLOW_S)
        status, headers, content = self.ask(body)
        if fault == "unanswered":  # done, and nobody is told
            return self.drop()
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in NOT_PASSED_ON and name.lower() not in ("server", "date"):
                self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if fault == "cut":
            self.wfile.write(content[: len(content) // 2])
            return self.drop()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_any  # noqa: N815

    def read_body(self):
        """What was sent, or None where it ends too soon."""
        try:
            if self.headers.get("Transfer-Encoding") == "chunked":
                return self.read_chunks()
            return self.read_exactly(int(self.headers.get("Content-Length") or 0))
        except (OSError, EOFError):
            return None

    def read_chunks(self):
        parts = []
        while size := int(self.read_line().split(b";")[0], 16):
            parts.append(self.read_exactly(size))
            self.read_line()
        while self.read_line().strip():
            pass
        return b"".join(parts)

    def read_line(self):
        line = self.rfile.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line

    def read_exactly(self, size):
        content = self.rfile.read(size)
        if len(content) < size:
            raise EOFError
        return content

    def ask(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in NOT_PASSED_ON}
        headers["Content-Length"] = str(len(body))
        connection.request(self.command, self.path, body=body, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.getheaders(), content

    def answer(self, status, content):
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def drop(self):
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class FaultyServer(ThreadingHTTPServer):
    """The proxy; `share` of the requests go wrong."""

    daemon_threads = True

    def __init__(self, behind, *, seed=0):
        super().__init__(("127.0.0.1", 0), FaultyProxy)
        self.behind = behind
        self.share = 0.0
        self.on_request = lambda method, path: None
        self.faults = Counter()
        self.num_requests = 0
        self._random = random.Random(seed)
        self._turn = threading.Lock()

    def draw(self):
        with self._turn:
            self.num_requests += 1
            if self._random.random() >= self.share:
                return None
            fault = self._random.choice(["busy", "broken", "dropped", "unanswered", "cut", "slow"])
            self.faults[fault] += 1
            return fault

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


def settings_of(proxy):
    """The environment in which any process finds the server."""
    return {
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@contextmanager
def faulty_s3(*, seed=0):
    """A proxy before a fresh S3 server that has one bucket; faults begin when its `share` is set."""
    from moto.moto_api._internal import mock_random
    from moto.server import ThreadedMotoServer

    mock_random.seed(seed)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    proxy = FaultyServer(port, seed=seed)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for method, path in [("POST", "/moto-api/reset"), ("PUT", f"/{BUCKET}")]:
            connection.request(method, path)  # its objects are the process's: others may have left some
            answer = connection.getresponse()
            assert answer.status == 200
            answer.read()
        connection.close()
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.stop()


def contents(url):
    """Every object under a URL."""
    objects = Objects(url)
    return {name: objects.get(name) for name in objects.sizes()}
