"""The page in a real browser, beside a real run: it shows what happens, and at the end what the ledger says.

Screenshots are left in build/screenshots."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

import gristmill
from gristmill.report.html import write_report
from gristmill.report.words import duration
from made_runs import make_config, make_corpus, run

ROOT = Path(__file__).parents[1]
SCREENSHOTS = ROOT / "build" / "screenshots"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
PLANTED = "<script>document.title='owned'</script> this line is no JSON"
TEXT_BYTES = 36_000_000


@pytest.fixture(scope="module")
def browser():
    named = os.environ.get("GRISTMILL_CHROMIUM")
    path = named or next((found for name in BROWSERS if (found := shutil.which(name))), None)
    assert path, "no Chromium: apt-get install chromium, or set GRISTMILL_CHROMIUM to one"
    root_flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=[*FLAGS, *root_flags])
        yield opened
        opened.close()


class Witness:
    """A page that keeps what it asks for and complains of."""

    def __init__(self, browser, **options):
        self.page = browser.new_page(**options)
        self.asked, self.complaints = [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, said):
        if said.type == "error":
            self.complaints.append(said.text)

    def figure(self, name):
        return self.page.locator(f'[data-figure="{name}"]').first.inner_text()

    def wait_for(self, name, words):
        script = "([n, w]) => document.querySelector(`[data-figure=\"${n}\"]`)?.textContent.includes(w)"
        self.page.wait_for_function(script, arg=[name, words], timeout=60_000)

    def photograph(self, name):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def write_real_text(folder):
    """The sources of the standard library as documents, and a line that is none."""
    folder.mkdir()
    size = 0
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    with (folder / "sources.jsonl").open("w", encoding="utf-8") as file:
        file.write(PLANTED + "\n")
        while size < TEXT_BYTES:
            for source in sources:
                text = source.read_text(encoding="utf-8", errors="replace")
                size += file.write(json.dumps({"text": text}) + "\n")
    return folder


@pytest.fixture
def live(tokenizer, tmp_path):
    """A run at work with its page; its workers stand still until the test lets them go on."""
    corpus, output = write_real_text(tmp_path / "corpus"), tmp_path / "shards"
    command = [sys.executable, "-m", "gristmill", "tokenize", corpus, "-t", tokenizer, "-o", output]
    command += ["--eos-id", "0", "--engine", "tokenizers", "--backend", "local", "--workers", "2"]
    command += ["--format", "parquet", "--dash-port", "0", "--quiet", "read.unit_bytes=1MB"]
    environment = os.environ | {"PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, env=environment)
    address = process.stderr.readline().split()[-1]
    held = wait_for_busy_workers(output)
    for worker in held:
        os.kill(worker, signal.SIGSTOP)
    yield process, address, output, held
    for worker in held:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    process.kill()
    process.wait()
    process.stderr.close()


def wait_for_busy_workers(output):
    """The processes of two workers that have a unit each, as soon as the run has noted them."""
    events, deadline = output / "events.jsonl", time.monotonic() + 60
    while time.monotonic() < deadline:
        noted = events.read_text().split("\n")[:-1] if events.exists() else []
        for workers in (json.loads(line).get("workers", ()) for line in noted):
            busy = [int(name) for name, unit, *_ in workers if unit is not None]
            if len(busy) == 2:
                return busy
        time.sleep(0.01)
    raise AssertionError("no two workers at work within a minute")


def test_a_run_is_seen_from_its_start_to_its_end_and_its_figures_are_the_ledgers(live, browser):
    process, address, output, (victim, other) = live
    seen = Witness(browser, viewport={"width": 1200, "height": 900})
    seen.page.goto(address)
    worker = seen.page.locator("#workers tbody tr").filter(has_not_text="idle").filter(has_text=str(victim))
    worker.wait_for(timeout=60_000)
    os.kill(victim, signal.SIGKILL)
    seen.wait_for("retries", "1")
    assert "ended by signal 9" in seen.page.locator("#problems").inner_text()
    assert str(victim) in seen.page.locator("#problems").inner_text()
    assert seen.figure("state") == "running"
    seen.photograph("running")
    os.kill(other, signal.SIGCONT)
    seen.page.locator("#bad td", has_text=PLANTED).wait_for(timeout=60_000)
    seen.wait_for("state", "finished")
    seen.wait_for("progress", "100%")
    assert process.wait(timeout=60) == 0
    ledger = json.loads((output / "manifest.json").read_bytes())["ledger"]
    check_figures(seen, ledger)
    seen.page.locator("#connection", has_text="report.html").wait_for()
    seen.photograph("finished")
    assert seen.page.title().startswith("100% ")
    assert all(url.startswith(address) for url in seen.asked)
    assert seen.complaints == []
    check_report(browser, output, ledger)


def check_figures(seen, ledger):
    shown = {
        "ledger documents read": ledger["documents_read"],
        "ledger documents encoded": ledger["documents_encoded"],
        "ledger documents dropped: bad_json": 1,
        "ledger tokens encoded": ledger["tokens_encoded"],
        "ledger tokens written": ledger["tokens_written"],
        "ledger rows": ledger["rows"],
        "documents": ledger["documents_encoded"],
        "tokens": ledger["tokens_encoded"],
        "dropped bad_json": 1,
    }
    assert {name: seen.figure(name) for name in shown} == {k: f"{v:,}" for k, v in shown.items()}
    assert seen.figure("balance") == "balances"
    assert "bad_json" in seen.page.locator("#bad").inner_text()


def check_report(browser, output, ledger):
    """The report opens from disk, on a phone in the dark, with the same figures."""
    report = Witness(browser, viewport={"width": 390, "height": 800}, color_scheme="dark")
    report.page.goto(f"file://{output}/report.html")
    check_figures(report, ledger)
    assert PLANTED in report.page.locator("#bad").inner_text()
    assert report.page.title() != "owned"
    assert "--config" in report.figure("reproduce")
    wide = report.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    report.photograph("report-phone-dark")
    assert report.asked == [f"file://{output}/report.html"] + [url for url in report.asked if url == "data:,"]
    assert report.complaints == []


def test_the_report_of_a_short_training_says_what_was_learned_and_draws_no_course(tmp_path, browser):
    make_corpus(tmp_path / "corpus", num_files=1)
    job = {
        "read": {"inputs": [str(tmp_path / "corpus")]},
        "count": {"held_out": 0.2},
        "learn": {"output": str(tmp_path / "t.json"), "vocab_size": 400},
    }
    result = gristmill.train(job)
    report = Witness(browser, viewport={"width": 1200, "height": 900})
    report.page.goto(f"file://{tmp_path}/t.json.run/report.html")
    assert report.figure("state") == "finished"
    assert report.figure("learned") == "400 of 400"
    assert report.figure("took").split(": ")[1].startswith("count ")
    assert "learn " in report.figure("stage_peak")
    assert report.figure("unused").startswith(f"{result.fit.num_unused:,} ")
    assert report.figure("sample_bytes_per_token") == f"{result.fit.text.bytes_per_token:.3f}"
    assert json.dumps(result.longest_tokens[0][:60], ensure_ascii=False) in report.figure("longest")
    dropped = result.counted.ledger.documents_dropped
    assert report.figure("left out held out") == str(dropped["held out"])
    assert report.page.locator("#bad").count() == report.page.locator("#course").count() == 0
    assert report.page.locator("#training figure").count() == 2
    shown = report.page.locator("main").inner_text()
    assert "logarithmic" in shown
    assert "of all that was counted" in shown
    assert "of the documents held out" in shown
    assert "1 file (jsonl)" in shown
    assert "largest document" not in shown
    report.photograph("training")
    assert report.complaints == []


def test_while_merges_are_learned_the_page_tells_how_many_and_nothing_of_time_left(tmp_path, browser):
    make_corpus(tmp_path / "corpus", num_files=1)
    learn = {"output": str(tmp_path / "t.json"), "vocab_size": 400}
    gristmill.train({"read": {"inputs": [str(tmp_path / "corpus")]}, "learn": learn})
    events = tmp_path / "t.json.run" / "events.jsonl"
    *counted, trained = events.read_text().splitlines()
    half_way = {"event": "learning", "time": time.time(), "num_tokens": 300, "curve": []}
    half_way["peak_memory_bytes"] = 7_000_000_000
    lines = [*counted, json.dumps(json.loads(trained) | half_way)]
    events.write_text("\n".join(lines) + "\n")
    write_report(str(tmp_path / "t.json.run"), is_new=True)
    report = Witness(browser)
    report.page.goto(f"file://{tmp_path}/t.json.run/report.html")
    assert report.figure("state") == "counted; learning merges"
    assert (report.figure("progress"), report.figure("learned")) == ("75%", "300 of 400")
    assert report.figure("peak") == "7.00 GB"
    assert report.page.locator('[data-figure="eta"], #workers').count() == 0
    assert report.page.title().startswith("75% ")


def test_the_report_of_a_short_run_has_no_chart_and_the_time_of_the_terminal(tokenizer, tmp_path, browser):
    make_corpus(tmp_path / "corpus", num_files=1)
    options = {"tokenizer__engine": "tokenizers"}
    result = gristmill.tokenize(make_config(tokenizer, tmp_path / "corpus", tmp_path / "shards", **options))
    report = Witness(browser)
    report.page.goto(f"file://{tmp_path}/shards/report.html")
    assert report.page.locator("#course").count() == 0
    assert report.figure("took").split(" (")[0] == duration(result.last.elapsed_s + result.loading_s)
    assert report.figure("engine") == "tokenizers"
    assert "not native: the engine asked for" in report.figure("why_not_native")
    assert "This run writes whole documents; what rows" in report.page.locator("#modes").inner_text()
    assert report.complaints == []


def test_several_runs_stand_side_by_side_and_the_keyboard_reaches_all(tokenizer, tmp_path, browser):
    (tmp_path / "corpus.txt").write_text("The mill stands by the river.\n" * 4000)
    for name, mode in (("first", "concat"), ("second", "pad")):
        options = {"write__format": "parquet", "pack__mode": mode, "read__document": "line"}
        run(tokenizer, tmp_path / "corpus.txt", tmp_path / name, **options)
    with dash(tmp_path / "first", tmp_path / "second") as address:
        seen = Witness(browser)
        seen.page.goto(address)
        seen.page.locator("#compared").wait_for()
        assert seen.page.locator("#compared th").all_inner_texts() == ["", "first", "second"]
        assert "own" in seen.page.locator("#modes tr", has_text="concat").first.get_attribute("class")
        second = seen.page.get_by_role("button", name="second")
        second.focus()
        seen.page.keyboard.press("Enter")
        seen.page.locator("#modes tr.own", has_text="pad").wait_for()
        assert seen.page.locator("#connection").inner_text() == "connected; no run is under way"
        seen.page.reload()
        seen.page.locator("#modes tr.own", has_text="pad").wait_for()
        assert second.get_attribute("aria-pressed") == "true"
        second.focus()
        before = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.page.keyboard.press("Tab")
        seen.page.keyboard.press("Enter")
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        seen.photograph("side-by-side")
        assert seen.complaints == []


def test_many_runs_are_rows_that_fit_and_a_killed_one_has_no_time_left(tokenizer, tmp_path, browser):
    make_corpus(tmp_path / "corpus", num_files=1)
    run(tokenizer, tmp_path / "corpus", tmp_path / "runs" / "run-00")
    for number in range(1, 9):
        shutil.copytree(tmp_path / "runs" / "run-00", tmp_path / "runs" / f"run-{number:02}")
    learn = {"output": str(tmp_path / "runs" / "t.json"), "vocab_size": 400}
    gristmill.train({"read": {"inputs": [str(tmp_path / "corpus")]}, "learn": learn})
    kill_half_way(tmp_path / "runs" / "run-08")
    with dash(tmp_path / "runs") as address:
        seen = Witness(browser, viewport={"width": 1280, "height": 900})
        seen.page.goto(address)
        rows = seen.page.locator("#compared tbody tr")
        rows.nth(9).wait_for()
        assert rows.count() == 10
        seen.page.locator("#compared tr", has_text="run-07").locator("td", has_text="megatron").wait_for()
        script = "(section => section.scrollWidth - section.clientWidth)(document.getElementById('compared'))"
        assert seen.page.evaluate(script) <= 0
        training = seen.page.locator("#compared tr", has_text="t.json.run").locator("td").all_inner_texts()
        assert "0" not in training[3:5]
        assert "400" in training
        seen.page.get_by_role("button", name="run-08").first.click()
        seen.wait_for("state", "stopped, or out of reach")
        assert "no news since" in seen.figure("state")
        assert seen.page.locator('[data-figure="eta"]').count() == 0
        seen.photograph("many-runs")
        assert seen.complaints == []


def kill_half_way(folder):
    """As a run looks that was killed a minute ago."""
    (folder / "manifest.json").unlink()
    first = json.loads((folder / "events.jsonl").read_bytes().splitlines()[0])
    late = {"event": "progress", "time": first["time"] - 60, "bytes_done": first["bytes_total"] // 2}
    lines = [first | {"time": first["time"] - 61}, first | late | {"bytes_per_s": 1.0}]
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@contextmanager
def dash(*folders):
    """The address of a page over folders."""
    command = [sys.executable, "-m", "gristmill", "dash", *folders, "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(Path(gristmill.__file__).parents[1])}
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process.stdout.readline().split()[0]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
