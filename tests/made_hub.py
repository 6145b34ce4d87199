"""A small hub on loopback: datasets with commits, as much of the hub as `huggingface_hub` asks for, and the
ways in which a real one fails."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_secret"
PIECE_BYTES = 1 << 12


def digest_of(content: bytes, *, is_large: bool) -> str:
    if is_large:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class MadeHub:
    """Its repositories, what was asked of it, and what it does wrong."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        """By repository and commit: files."""
        self.refs: dict[str, dict[str, str]] = {}
        self.gated: set[str] = set()
        self.requests: list[tuple[str, str, str | None, str | None]] = []
        """Method, path, range, authorization."""
        self.sent: dict[str, int] = {}
        """Bytes of content sent, by path in the repository."""
        self.drops: dict[str, list[int]] = {}
        """By path: after how many bytes the connection is lost, once for each number."""
        self.busy: dict[str, int] = {}
        """By a part of the request: how often the answer is 429."""
        self.wrong: dict[str, bytes] = {}
        """By path: content that is not what was listed."""
        self.listed: dict[str, dict[str, object]] = {}
        """By path: what a listing says of it that is not so."""
        self.etags: dict[str, str] = {}
        """By path: the ETag of its answers, where that is no digest."""
        self.ignores_ranges = False
        self.shortened: dict[str, list[int]] = {}
        """By path: how many bytes an answer has, once for each number."""
        self.store: str | None = None
        """Address of the server that large files are at, where that is another."""
        self.named_commit: str | None = None
        """What is called the commit of a branch, where that is none."""
        self.release = threading.Event()
        self.hold_at: dict[str, int] = {}
        """By path: after how many bytes the answer waits for `release`, and ends."""
        self.page_size = 1000
        self.lock = threading.Lock()

    def commit(self, repo: str, files: dict[str, bytes], *, ref: str = "main") -> str:
        """Files as a new commit, which the ref points to from now on."""
        content = json.dumps({path: hashlib.sha256(data).hexdigest() for path, data in sorted(files.items())})
        sha = hashlib.sha1(f"{repo} {ref} {content}".encode()).hexdigest()
        self.commits.setdefault(repo, {})[sha] = dict(files)
        self.refs.setdefault(repo, {})[ref] = sha
        return sha

    def asked(self, method: str, part: str) -> list[str | None]:
        """Ranges of the requests whose path holds a text."""
        return [range_ for verb, path, range_, _ in self.requests if verb == method and part in path]

    def entry(self, path: str, content: bytes) -> dict[str, object]:
        is_large = _is_large(path)
        oid = digest_of(content, is_large=False)
        found = {"type": "file", "path": path, "size": len(content), "oid": oid}
        if is_large:
            lfs = {"oid": digest_of(content, is_large=True), "size": len(content), "pointerSize": 134}
            found |= {"lfs": lfs}
        return found | self.listed.get(path, {})


def _is_large(path: str) -> bool:
    return not path.endswith((".md", ".py", ".jsonl"))


class Handler(BaseHTTPRequestHandler):
    hub: MadeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer()

    def answer(self):
        hub = self.hub
        with hub.lock:
            wanted, token = self.headers.get("Range"), self.headers.get("Authorization")
            hub.requests.append((self.command, self.path, wanted, token))
            for part, times in hub.busy.items():
                if part in self.path and times:
                    hub.busy[part] -= 1
                    return self.reply(429, headers={"Retry-After": "1"})
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/datasets/"):
            return self.answer_api(path.removeprefix("/api/datasets/").split("/"))
        if path.startswith("/datasets/"):
            owner, name, verb, *rest = path.removeprefix("/datasets/").split("/")
            assert verb == "resolve"
            return self.answer_file(f"{owner}/{name}", rest)
        if path.startswith("/store/"):
            return self.answer_store(path.removeprefix("/store/"))
        return self.reply(404)

    def find(self, repo, rest):
        """Commit, files and what is left of the path after the revision; None where it was refused."""
        refs, commits = self.hub.refs.get(repo), self.hub.commits.get(repo)
        if refs is None:
            return self.reply(401, headers={"X-Error-Code": "RepoNotFound"})
        for size in (3, 1):
            revision = "/".join(rest[:size])
            sha = refs.get(revision, revision)
            if sha in commits:
                return sha, commits[sha], "/".join(rest[size:])
        return self.reply(404, headers={"X-Error-Code": "RevisionNotFound"})

    def answer_api(self, parts):
        repo, verb, rest = "/".join(parts[:2]), (parts[2:3] or ["revision"])[0], parts[3:] or ["main"]
        found = self.find(repo, rest)
        if found is None:
            return None
        sha, files, folder = found
        entries = [self.hub.entry(path, content) for path, content in sorted(files.items())]
        if verb == "revision":
            siblings = [{"rfilename": path} for path in sorted(files)]
            info = {"id": repo, "sha": self.hub.named_commit or sha, "siblings": siblings}
            gated = "auto" if repo in self.hub.gated else False
            return self.reply_json(info | {"private": False, "gated": gated})
        if verb == "paths-info":
            sent = self.body.decode()
            wanted = json.loads(sent)["paths"] if sent.startswith("{") else parse_qs(sent)["paths"]
            return self.reply_json([entry for entry in entries if entry["path"] in wanted])
        assert verb == "tree"
        under = [entry for entry in entries if not folder or str(entry["path"]).startswith(f"{folder}/")]
        if folder and not under:
            return self.reply(404, headers={"X-Error-Code": "EntryNotFound"})
        query = parse_qs(urlsplit(self.path).query)
        if query.get("recursive", ["false"])[0].lower() != "true":
            under = self.direct(under, folder)
        start = int(query.get("cursor", ["0"])[0])
        stop = start + self.hub.page_size
        headers = {}
        if stop < len(under):
            kept = "&".join(f"{k}={v[0]}" for k, v in query.items() if k != "cursor")
            host = self.headers["Host"]
            address = f"http://{host}{urlsplit(self.path).path}?{kept}&cursor={stop}"
            headers = {"Link": f'<{address}>; rel="next"'}
        return self.reply_json(under[start:stop], headers)

    def direct(self, entries, folder):
        """What lies in a folder itself."""
        before = f"{folder}/" if folder else ""
        found = {}
        for entry in entries:
            name = entry["path"].removeprefix(before).split("/")
            path = before + name[0]
            folder_entry = {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}
            found[path] = entry if len(name) == 1 else folder_entry
        return list(found.values())

    def answer_file(self, repo, rest):
        found = self.find(repo, rest)
        if found is None:
            return None
        sha, files, path = found
        if repo in self.hub.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.reply(403, headers={"X-Error-Code": "GatedRepo", "X-Repo-Commit": sha})
        if path not in files:
            return self.reply(404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
        digest = self.hub.etags.get(path) or digest_of(files[path], is_large=_is_large(path))
        headers = {"X-Repo-Commit": sha, "ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
        if not _is_large(path):
            return self.send_content(path, files[path], headers)
        headers |= {"X-Linked-ETag": f'"{digest}"', "X-Linked-Size": str(len(files[path]))}
        store = self.hub.store or f"http://{self.headers['Host']}"
        headers |= {"Location": f"{store}/store/{repo}/{sha}/{path}"}
        return self.reply(302, headers=headers)

    def answer_store(self, path):
        owner, name, sha, inside = path.split("/", 3)
        return self.send_content(inside, self.hub.commits[f"{owner}/{name}"][sha][inside], {})

    def send_content(self, path, content, headers):
        content = self.hub.wrong.get(path, content)
        if self.hub.shortened.get(path) and self.command == "GET":
            content = content[: self.hub.shortened[path].pop(0)]
        status, part, start = 200, content, 0
        if (wanted := self.headers.get("Range")) and not self.hub.ignores_ranges:
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first)
            if start >= len(content):
                return self.reply(416, headers={"Content-Range": f"bytes */{len(content)}"})
            part = content[start : int(last) + 1 if last else None]
            status = 206
            headers = headers | {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(content)}"}
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(part))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.send_part(path, part)
        return None

    def send_part(self, path, part):
        """Send it, as far as this hub is able to."""
        hub = self.hub
        with hub.lock:
            drops = hub.drops.get(path, [])
            stop = drops.pop(0) if drops else None
        hold = hub.hold_at.get(path)
        for at in range(0, len(part), PIECE_BYTES):
            if stop is not None and at >= stop:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            if hold is not None and at >= hold:
                hub.release.wait(60)
                self.close_connection = True
                return
            piece = part[at : at + PIECE_BYTES]
            try:
                self.wfile.write(piece)
            except OSError:
                self.close_connection = True
                return
            with hub.lock:
                hub.sent[path] = hub.sent.get(path, 0) + len(piece)

    def reply_json(self, value, headers=None):
        self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"} | (headers or {}))

    def reply(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in ((headers or {}) | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def serving(hub: MadeHub):
    """The hub on a port of its own; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("MadeHandler", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        hub.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


def environment(address: str, home, **more: str) -> dict[str, str]:
    """Of a process that has never seen the real hub."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
    settings = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return inherited | settings | more


def start_commands(commands, env) -> subprocess.Popen[str]:
    """Command lines one after the other in a process of their own, as long as each ends as it should."""
    code = (
        "import json, sys\n"
        "from gristmill import cli\n"
        "for status, arguments in json.loads(sys.argv[1]):\n"
        "    found = cli.main(arguments)\n"
        "    assert found == status, (found, arguments)\n"
    )
    plain = json.dumps([(status, [*map(str, arguments)]) for status, arguments in commands])
    command = [sys.executable, "-c", code, plain]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_command(arguments, env) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "gristmill", *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
