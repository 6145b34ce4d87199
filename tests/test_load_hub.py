"""A tokenizer by its name on the hub: what is fetched, from where, and what is said when it cannot be."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import gristmill
import made_tokenizers as made
from gristmill.errors import TokenizerError, TokenizerFormatError

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """The little of the hub that a download needs: HEAD and GET of owner/name/resolve/revision/file."""

    files: dict[str, bytes]
    seen: list[tuple[str, str, str | None]]
    secret = "hf_secret"

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, *, with_body):
        owner, name, _, revision, file = self.path.lstrip("/").split("/", 4)
        self.seen.append((self.command, f"{revision}/{file}", self.headers.get("Authorization")))
        if owner == "gated" and self.headers.get("Authorization") != f"Bearer {self.secret}":
            return self.refuse(403, "GatedRepo")
        if (owner, name) not in (("someone", "tiny"), ("gated", "tiny")):
            return self.refuse(404, "RepoNotFound")
        if revision not in ("main", "v2", COMMIT):
            return self.refuse(404, "RevisionNotFound")
        if file not in self.files:
            return self.refuse(404, "EntryNotFound")
        content = self.files[file]
        self.send_response(200)
        self.send_header("ETag", f'"{hash(content) & 0xFFFFFFFF:x}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)
        return None

    def refuse(self, status, code):
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(tmp_path):
    """A server on loopback, and a way to load from it in a process that has never seen the real hub."""
    roles = {"bos_token": "<s>", "eos_token": "</s>"}
    handler = type("TinyHub", (Hub,), {"files": {}, "seen": []})
    handler.files["tokenizer.json"] = json.dumps(made.byte_level_json(specials=("<s>", "</s>"))).encode()
    handler.files["tokenizer_config.json"] = json.dumps(roles).encode()
    handler.files["model.safetensors"] = b"never asked for"
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def load(arguments, **environment):
        script = (
            "import gristmill\n"
            f"try:\n    t = gristmill.load_tokenizer({arguments})\n"
            "    print(t.bos_id, t.eos_id, t.encode('hello').tolist())\n"
            "except gristmill.GristmillError as e:\n    print(type(e).__name__, e)\n"
        )
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()
        }
        settings = {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=inherited | settings | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    load.server = handler
    yield load
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_hub_name_fetches_the_needed_files_only_and_then_works_offline(hub):
    online = hub("'someone/tiny'")
    assert online.startswith("0 1 [")
    asked = {path.split("/", 1)[1] for _, path, _ in hub.server.seen}
    assert asked == {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    hub.server.seen.clear()
    assert hub("'someone/tiny'", HF_HUB_OFFLINE="1") == online
    assert hub.server.seen == []


NOWHERE = "no such file or folder here, and as a hub name"


def test_without_a_network_the_cache_serves_and_what_it_lacks_is_said(hub):
    away = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    online = hub("'someone/tiny'")
    assert hub("'someone/tiny'", **away) == online
    said = hub("'someone/other'", **away)
    assert said.startswith(f"TokenizerError {NOWHERE} 'someone/other' is not in the cache, and the hub")


def test_a_commit_that_is_in_the_cache_asks_nobody(hub, tmp_path):
    online = hub("'someone/tiny'")
    (snapshot,) = tmp_path.rglob("snapshots/*")
    hub.server.seen.clear()
    assert hub(f"'someone/tiny', revision='{snapshot.name}'") == online
    assert not hub.server.seen


def test_without_a_network_a_file_that_may_be_on_the_hub_is_not_done_without(hub, tmp_path):
    hub("'someone/tiny'")
    (cached,) = tmp_path.rglob("snapshots/*/tokenizer_config.json")
    cached.unlink()
    assert "is not in the cache, and the hub cannot be reached" in hub(
        "'someone/tiny'", HF_ENDPOINT="http://127.0.0.1:9"
    )


@pytest.mark.parametrize("name", ["llama3/tokenizer.json", "tokenizer.model", "a/b.tiktoken", "vocab.TXT"])
def test_the_name_of_a_file_never_goes_to_the_hub(name, monkeypatch):
    went = lambda *_, **__: pytest.fail("went to the hub")  # noqa: E731
    monkeypatch.setattr("gristmill.load.hub.download_tokenizer", went)
    with pytest.raises(TokenizerFormatError, match="no such file or folder"):
        gristmill.load_tokenizer(name)


def test_a_path_that_is_not_there_is_told_from_its_neighbour(tmp_path):
    (tmp_path / "gpt2").mkdir()
    with pytest.raises(TokenizerFormatError, match=r"no such file or folder.*did you mean .*/gpt2\?"):
        gristmill.load_tokenizer(tmp_path / "gtp2")


def test_revision_and_token_reach_the_hub(hub):
    assert hub("'gated/tiny', revision='v2', token='hf_secret'").startswith("0 1 [")
    assert ("HEAD", "v2/tokenizer.json", "Bearer hf_secret") in hub.server.seen
    assert hub("'gated/tiny'").startswith(f"TokenizerError {NOWHERE} 'gated/tiny' is restricted")


def test_what_the_hub_does_not_have_is_said_plainly(hub):
    assert f"{NOWHERE} 'someone/tiny' has no revision 'v9'" in hub("'someone/tiny', revision='v9'")
    assert f"{NOWHERE} 'someone/else' is no repository" in hub("'someone/else'")
    hub.server.files.clear()
    assert f"{NOWHERE} 'someone/tiny' has none of tokenizer.json, tekken.json" in hub("'someone/tiny'")


def test_a_hub_repository_without_tokenizer_json_gives_its_model(hub):
    hub.server.files.clear()
    hub.server.files["tokenizer.model"] = made.sentencepiece_model()
    assert hub("'someone/tiny'").startswith("1 2 [")


def test_a_path_that_is_not_there_is_no_hub_name():
    for text in ("no/such/folder/tokenizer.json", "./missing", "../x/y", ""):
        with pytest.raises(TokenizerError):
            gristmill.load_tokenizer(text)
