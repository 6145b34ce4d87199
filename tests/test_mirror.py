"""A run in a store is watched through copies of its small files: while it goes on, when it has ended, and by
the live page; nothing of it is changed."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import fsspec
import pytest

import gristmill
from gristmill.report.html import write_report
from gristmill.report.run_watch import RunWatch
from gristmill.report.shown_runs import ShownRuns
from gristmill.run.clean import clean
from gristmill.store import Mirror
from gristmill.store.objects import Objects
from made_runs import make_corpus, run
from made_store import BUCKET, contents, faulty_s3, settings_of


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_docs=60)
    with (folder / "part-1.jsonl").open("a") as file:
        file.write('{"no text": 1}\n')
    return folder


def look(watch):
    """All that the store has, whenever it was looked at last."""
    watch.read_all()
    return watch.overview()


def test_a_finished_run_shows_what_its_ledger_says_and_stays_as_it_is(tokenizer, corpus, memory):
    result = run(tokenizer, corpus, "memory://runs/a", read__unit_bytes=50_000)
    before = contents("memory://runs/a")
    (watch,) = ShownRuns(["memory://runs/a"]).watches
    seen = look(watch)
    assert (seen["folder"], seen["name"], seen["state"]) == ("memory://runs/a", "a", "finished")
    assert seen["ledger"]["tokens_written"] == result.manifest.ledger.tokens_written
    assert seen["is_final"]
    assert [sample["reason"] for sample in seen["samples"]] == ["missing_field"]
    assert "memory://runs/a/config.yaml" in seen["reproduce"]
    assert contents("memory://runs/a") == before


def test_a_run_at_work_is_followed(tokenizer, corpus, memory):
    run(tokenizer, corpus, "memory://runs/whole", read__unit_bytes=50_000)
    whole, live = contents("memory://runs/whole"), Objects("memory://runs/live")
    records = sorted(name for name in whole if name.startswith("units/") and name.endswith(".json"))
    start = whole["events.jsonl"].splitlines(keepends=True)[0]
    late = {*records[3:], "manifest.json", "events.jsonl"}
    for name in whole.keys() - late:
        live.put(name, whole[name])
    live.put("events.jsonl", start)
    watch = RunWatch(Mirror("memory://runs/live"))
    seen = look(watch)
    assert not seen["is_final"]
    assert seen["ledger"]["documents_read"] > 0
    for name in sorted(late):
        live.put(name, whole[name])
    seen = look(watch)
    assert seen["is_final"]
    assert seen["units_read"] == len(records)


def test_a_store_that_cannot_be_reached_is_told_on_the_page():
    watch = RunWatch(Mirror("memory://nowhere/run"))
    watch._mirror.objects.sizes = lambda: (_ for _ in ()).throw(OSError("no route"))
    assert watch.refresh()
    assert watch.overview()["error"] == "no route"


def test_the_report_lies_beside_the_run_and_is_no_leftover(tokenizer, corpus, memory):
    result = run(tokenizer, corpus, "memory://runs/b")
    write_report(result.folder, is_new=True)
    page = contents("memory://runs/b")["report.html"].decode()
    assert f'"tokens_written":{result.manifest.ledger.tokens_written}' in page
    assert "gristmill-mirror" not in page
    write_report(result.folder, is_new=False)
    assert contents("memory://runs/b")["report.html"].decode() == page
    assert clean("memory://runs/b") == []
    assert "report.html" in contents("memory://runs/b")


def test_the_live_page_shows_a_run_at_a_url(tokenizer, corpus, monkeypatch):
    with faulty_s3() as proxy:
        for name, value in settings_of(proxy).items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/shown"
        result = run(tokenizer, corpus, url)
        command = [sys.executable, "-m", "gristmill", "dash", url, "--port", "0"]
        environment = os.environ | {"PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as page:
            try:
                address = page.stdout.readline().split()[0]
                seen = {"is_final": False}
                while not seen["is_final"]:  # the first answers come before all is read
                    with urllib.request.urlopen(f"{address}api/runs/0") as answer:
                        seen = json.load(answer)
            finally:
                page.terminate()
        fsspec.filesystem("s3").clear_instance_cache()
    assert seen["folder"] == url
    assert seen["ledger"]["documents_encoded"] == result.manifest.ledger.documents_encoded
