"""The page's server: what it says is the ledger's, who may ask, and what it never serves."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import gristmill
from gristmill.dash.metrics import render_metrics
from gristmill.dash.start import listen, settle_token
from gristmill.errors import ConfigError
from gristmill.report.html import ASSETS, read_asset, render_report
from gristmill.report.run_watch import RunWatch
from gristmill.report.shown_runs import ShownRuns
from gristmill.run.folder import read_manifest
from made_runs import make_corpus, run

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
TOKEN = "abcdefgh12345678"


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    """A finished run, with a bad document that is markup."""
    place = tmp_path_factory.mktemp("dash")
    make_corpus(place / "corpus")
    with (place / "corpus" / "part-9.jsonl").open("w") as file:
        file.write(SCRIPT + "\n" + json.dumps({"text": SCRIPT}) + "\n")
    run(tokenizer, place / "corpus", place / "shards")
    return place / "shards"


@pytest.fixture(scope="module")
def serve(folder):
    """Start `gristmill dash` with arguments; what is given back asks it."""
    processes = []

    def start(*arguments, folders=(folder,)):
        command = [sys.executable, "-m", "gristmill", "dash", *map(str, folders), "--port", "0", *arguments]
        environment = os.environ | {"PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        processes.append(process)
        address = process.stdout.readline().split()[0]
        port = int(address.split(":")[2].split("/")[0])
        return Client(port)

    yield start
    for process in processes:
        process.terminate()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def local(serve):
    return serve()


class Client:
    """Asks a server; targets are sent as they stand, which no client library would do."""

    def __init__(self, port):
        self.address = "127.0.0.1", port

    def __call__(self, target, **options):
        return ask(self.address, target, **options)

    def first_event(self):
        with socket.create_connection(self.address, timeout=20) as connection:
            connection.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with connection.makefile("rb") as stream:
                return next(line for line in stream if line.startswith(b"data: "))


def ask(address, target, *, method="GET", host="127.0.0.1", **headers):
    """Status, headers and body."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *rest = head.decode().split("\r\n")
    named = {line.partition(":")[0].lower(): line.partition(": ")[2] for line in rest}
    if named.get("transfer-encoding") == "chunked":
        body = b"".join(body.split(b"\r\n")[1::2])
    return int(status.split()[1]), named, body


@pytest.mark.parametrize("target", ["/", "/page.css", "/page.js", "/charts.js", "/api/runs", "/metrics"])
def test_every_answer_has_headers_against_framing_and_sniffing(local, target):
    status, headers, _ = local(target)
    assert status == 200
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/runs/0/files/../manifest.json",
        "/runs/0/files/..%2fconfig.yaml",
        "/runs/0/files/%2e%2e/shards/config.yaml",
        "/runs/0/files/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/runs/0/files//etc/passwd",
        "/runs/0/files/%2fetc%2fpasswd",
        "/runs/0/files/units/00000.json",
        "/runs/0/files/.lock",
        "/runs/0/files/config.yaml%00",
        "/runs/7/files/config.yaml",
        "/runs/-1/files/config.yaml",
        "/../../etc/passwd",
        "/page/../../html.py",
        "/api/runs/9",
        pytest.param("/api/runs/" + "1" * 5000, id="no number"),
    ],
)
def test_a_path_that_is_no_file_of_the_run_is_not_found(local, path):
    assert local(path)[0] == 404


def test_a_file_of_the_run_is_sent_as_text_to_keep(local, folder):
    status, headers, body = local("/runs/0/files/manifest.json")
    assert status == 200
    assert body == (folder / "manifest.json").read_bytes()
    assert headers["content-type"].startswith("text/plain")
    assert headers["content-disposition"].startswith("attachment")


def test_a_link_in_the_run_folder_leads_nowhere(serve, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").symlink_to(tmp_path / "secret")
    assert serve(folders=[tmp_path / "run"])("/runs/0/files/config.yaml")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(local, method):
    assert local("/api/runs", method=method)[0] == 405


def test_another_site_that_takes_this_address_is_refused(local):
    assert local("/api/runs", host="evil.example")[0] == 403
    assert local("/api/runs", host="localhost:1")[0] == 200


@pytest.fixture(scope="module")
def beyond(serve):
    return serve("--host", "0.0.0.0", "--token", TOKEN)


@pytest.mark.parametrize(
    "target", ["/", "/page.js", "/api/runs", "/api/events", "/metrics", "/runs/0/files/config.yaml", "/none"]
)
def test_beyond_loopback_nothing_is_answered_without_the_token(beyond, target):
    assert beyond(target)[0] == 401
    assert beyond(f"{target}?token=wrong")[0] == 401
    assert beyond(target, Authorization=f"Bearer {TOKEN[:-1]}")[0] == 401
    assert beyond(target, Cookie="gristmill_1=x; =")[0] == 401


def test_the_token_opens_the_page_and_moves_into_a_cookie(beyond):
    status, headers, _ = beyond(f"/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert beyond("/", Cookie=cookie.split(";")[0])[0] == 200
    assert beyond("/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_token_is_made_where_none_is_given_and_others_could_reach_the_page():
    assert settle_token("127.0.0.1", None) is None
    assert settle_token("::1", None) is None
    assert len(settle_token("0.0.0.0", None)) >= 32
    with pytest.raises(ConfigError, match="letters and digits"):
        settle_token("0.0.0.0", "short")


def test_a_port_that_is_taken_is_refused_where_it_was_asked_for():
    with listen("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="choose another --port"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_the_metrics_are_the_ledger_to_the_prometheus_parser(local, folder):
    _, headers, body = local("/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            assert sample.labels["run"] == str(folder)
            found[sample.name, sample.labels.get("reason") or sample.labels.get("state")] = sample.value
    ledger = read_manifest(folder).ledger
    for name in ledger.__struct_fields__:
        value = getattr(ledger, name)
        if isinstance(value, dict):
            assert {k[1]: v for k, v in found.items() if k[0] == f"gristmill_{name}_total"} == value
        else:
            shown = [found.get((f"gristmill_{name}{end}", None)) for end in ("_total", "")]
            assert value in shown
    assert found["gristmill_state", "finished"] == 1


def test_a_folder_with_an_odd_name_is_still_one_label(tmp_path):
    watch = RunWatch(tmp_path / 'a"b\\c\nd')
    families = list(text_string_to_metric_families(render_metrics([watch])))
    assert {s.labels["run"] for family in families for s in family.samples} == {str(watch.folder)}


def test_the_api_gives_the_ledger_and_the_bad_document_as_text(local, folder):
    overview = json.loads(local("/api/runs/0")[2])
    ledger = json.loads((folder / "manifest.json").read_bytes())["ledger"]
    assert overview["ledger"] == ledger
    assert overview["balance"]["is_balanced"]
    assert [(s["reason"], s["excerpt"]) for s in overview["samples"]] == [("bad_json", SCRIPT)]
    assert overview["reproduce"].endswith("-o NEW_FOLDER")


def test_the_first_event_has_all_there_is(local, folder):
    """The stream goes on for ever; its first event is read and the connection closed."""
    update = json.loads(local.first_event().removeprefix(b"data: "))
    assert update["runs"][0]["overview"]["state"] == "finished"
    assert update["runs"][0]["from"] is None
    assert len(update["runs"][0]["points"]) >= 2


def test_the_report_holds_markup_of_a_corpus_as_text_alone(folder):
    watch = RunWatch(folder)
    watch.read_all()
    page = render_report(watch)
    assert "alert(1)" in page
    assert SCRIPT not in page
    assert "<img" not in page
    assert page.count("<script") == 3
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_the_page_is_small_and_asks_nobody_else():
    texts = [read_asset(name) for name in ASSETS]
    assert sum(len(text.encode()) for text in texts) < 150_000
    for text in texts:
        assert "https://" not in text
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "innerHTML" not in text


def test_a_folder_of_runs_stands_for_them(folder, tmp_path):
    assert [watch.folder for watch in ShownRuns([str(folder.parent)]).watches] == [folder]
    shown = ShownRuns([str(folder), str(tmp_path / "none"), str(folder)]).watches
    assert [watch.folder for watch in shown] == [folder, tmp_path / "none"]


def test_runs_that_begin_later_in_a_folder_are_shown_and_numbers_stay(folder, tmp_path):
    place = tmp_path / "runs"
    shown = ShownRuns([str(place), str(folder)])
    assert [watch.folder for watch in shown.watches] == [place, folder]
    for name in ("b", "a"):
        shutil.copytree(folder, place / name)
        shown.look()
    assert [watch.folder for watch in shown.watches] == [place / "b", folder, place / "a"]
    shown.look()
    assert len(shown.watches) == 3


def test_what_is_waited_for_is_said(folder, tmp_path):
    (tmp_path / "shards").mkdir()
    shown = ShownRuns([str(tmp_path / "shard"), str(tmp_path), str(folder), str(folder.parent)])
    missing, empty, run, runs = shown.describe()
    assert f"is not there yet (did you mean {tmp_path / 'shards'}?); waiting" in missing
    assert "holds no run and no folder of one yet; waiting" in empty
    assert run == f"{folder}: a run"
    assert runs == f"{folder.parent}: 1 run; new ones are shown as they begin"


def test_the_command_says_what_it_waits_for_and_shows_what_begins(tmp_path, folder):
    command = [sys.executable, "-m", "gristmill", "dash", str(tmp_path / "runs"), "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            client = Client(int(process.stdout.readline().split()[0].split(":")[2].split("/")[0]))
            assert "waiting for a run to begin" in process.stdout.readline()
            assert json.loads(client("/api/runs")[2])[0]["state"] == "waiting"
            shutil.copytree(folder, tmp_path / "runs" / "first")
            deadline = time.monotonic() + 30
            while (shown := json.loads(client("/api/runs")[2]))[0]["state"] != "finished":
                assert time.monotonic() < deadline
            assert [run["name"] for run in shown] == ["first"]
        finally:
            process.terminate()


def test_the_first_answer_says_that_a_finished_run_is_finished(serve):
    assert [run["state"] for run in json.loads(serve()("/api/runs")[2])] == ["finished"]


def test_a_run_that_has_not_begun_is_waited_for(serve, tmp_path):
    later = serve(folders=[tmp_path / "later"])
    assert json.loads(later("/api/runs")[2])[0]["state"] == "waiting"
    assert json.loads(later("/api/runs/0")[2])["plan"] is None


def test_without_its_packages_the_dash_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['starlette'] = None; from gristmill.cli import main;"
        f"sys.exit(main(['dash', {str(tmp_path)!r}]))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "pip install 'gristmill[dash]'" in done.stderr


def test_tokenizing_imports_nothing_of_the_page():
    code = "import sys, gristmill.cli, gristmill.cli_run, gristmill.report.html;"
    code += "print([n for n in ('starlette', 'uvicorn', 'anyio') if n in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "[]"


def damage(folder, name):
    """A run folder with one thing wrong, beside the whole one."""
    events, plan = folder / "events.jsonl", folder / "plan.json"
    lines = events.read_bytes().splitlines(keepends=True)
    if name == "events are a folder":
        events.unlink()
        events.mkdir()
    elif name == "events are a pipe":
        events.unlink()
        os.mkfifo(events)
    elif name == "a deep line":
        events.write_bytes(lines[0] + b'{"workers":' + b"[" * 200_000 + b"\n" + b"".join(lines[1:]))
    elif name == "a huge number":
        events.write_bytes(lines[-1].replace(b'"bytes_total":', b'"bytes_total":' + b"9" * 400))
    elif name == "no files":
        content = json.loads(plan.read_bytes())
        plan.write_text(json.dumps(content | {"files": []}))
    elif name == "many buckets":
        (record,) = sorted((folder / "units").glob("*.json"))[:1]
        content = json.loads(record.read_bytes())
        content["measured"]["document_bytes"] = [1] * 100_000
        record.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "name",
    ["events are a folder", "events are a pipe", "a deep line", "a huge number", "no files", "many buckets"],
)
def test_a_damaged_folder_does_not_hide_the_run_beside_it(folder, tmp_path, name):
    shutil.copytree(folder, tmp_path / "damaged")
    damage(tmp_path / "damaged", name)
    watches = ShownRuns([str(tmp_path / "damaged"), str(folder)]).watches
    for watch in watches:
        watch.read_all()
    damaged, whole = (watch.overview() for watch in watches)
    assert len(msgspec.json.encode(damaged)) < 1 << 20
    assert whole["state"] == "finished"
    if name == "a deep line":  # what stands after it counts
        assert (damaged["state"], damaged["damaged_lines"]) == ("finished", 1)
