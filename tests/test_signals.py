"""Ctrl-C and SIGTERM at the worst of moments, in a real process: it ends, with the right status, and soon."""

import json
import signal
import subprocess
import sys

import pytest

from gristmill import signals
from made_runs import write_jsonl

SENDER = """
import os, signal, sys, runpy

kind, number, signum = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
seen = 0

def is_there(frame, event, what):
    code = frame.f_code
    if kind == "lock":  # the callback that forgets the lock of a module, holding the lock of all imports
        name = getattr(what, "__name__", "")
        return event == "c_return" and name == "acquire_lock" and code.co_name == "cb"
    if kind == "module":
        return event == "call" and code.co_name == "<module>"
    return event == "call" and code.co_filename.endswith(os.path.join("msgspec", "_utils.py"))

def watch(frame, event, what):
    global seen
    if is_there(frame, event, what) and signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, None):
        seen += 1
        if seen == number:
            sys.setprofile(None)
            print("sent", file=sys.stderr, flush=True)
            signal.raise_signal(signum)

sys.argv = ["gristmill", *sys.argv[4:]]
sys.setprofile(watch)
runpy.run_module("gristmill", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["lock 40", "lock 150", "module 30", "module 160", "struct 1", "struct 9"])
def test_a_signal_in_the_middle_of_an_import_ends_the_command(tokenizer, tmp_path, place, number):
    write_jsonl(tmp_path / "a.jsonl", ["Some text of a document."] * 2000)
    job = ["tokenize", tmp_path / "a.jsonl", "-t", tokenizer, "-o", tmp_path / "out", "--quiet"]
    job = [*map(str, job), "encode.eos_id=0"]
    command = [sys.executable, "-c", SENDER, *place.split(), str(int(number)), *job]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        # Somebody who runs the tests in the background ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert "sent" in ended.stderr
    assert ended.returncode == 128 + number, ended.stderr
    assert "Traceback" not in ended.stderr
    subprocess.run([sys.executable, "-m", "gristmill", *job], timeout=60, check=True)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert manifest["ledger"]["documents_encoded"] == 2000


def test_a_signal_whose_exception_was_lost_is_raised_at_the_next_look(monkeypatch):
    monkeypatch.setattr(signals, "_told", [])
    signals.end_if_told()
    with pytest.raises(SystemExit):
        signals._on_signal(signal.SIGTERM, None)  # and somebody takes it for nothing
    with pytest.raises(SystemExit) as ended:
        signals.end_if_told()
    assert ended.value.code == 143


def test_a_signal_that_waits_for_an_import_is_raised_where_it_is_looked_for(monkeypatch):
    monkeypatch.setattr(signals, "_told", [])
    monkeypatch.setattr(signals, "_is_fragile", lambda _frame: True)
    sent = []
    monkeypatch.setattr(signals._thread, "start_new_thread", lambda _send, again: sent.append(again))
    signals._on_signal(signal.SIGTERM, None)
    assert sent == [(signal.SIGTERM,)]
    with pytest.raises(SystemExit):
        signals.end_if_told()
