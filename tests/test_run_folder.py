"""The run folder and the world round it: nothing of others is touched, kills and damage are mended."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gristmill.convert import convert
from gristmill.errors import ConfigError, InputError, ResumeError, RunError
from gristmill.read.find import is_run_folder
from gristmill.run.folder import CONFIG, LOCK, PLAN, locked
from gristmill.run.process import WorkerProcess
from gristmill.run.resources import give_back_memory, resident_bytes
from gristmill.sample import train_sample_tokenizer
from made_runs import make_config, make_corpus, output_bytes, run

from gristmill.run.tokenize import tokenize  # isort: skip

ROWS = {"write__format": "parquet", "pack__sequence_length": 100}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_sample_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=2, num_docs=60)
    return folder


@pytest.fixture(scope="module")
def whole(tokenizer, corpus, tmp_path_factory):
    """A finished run, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    run(tokenizer, corpus, folder, **ROWS)
    return folder


def cut_short(whole, output):
    """A copy of a run that is not finished."""
    shutil.copytree(whole, output)
    (output / "manifest.json").unlink()
    return output


def change_json(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def everything(folder):
    return sorted((str(path), path.is_file() and path.read_bytes()) for path in folder.rglob("*"))


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["config.yaml", "manifest.json", "parquet/.hidden", "units/a"])
def test_a_refused_job_leaves_the_folder_of_another_as_it_was(tokenizer, corpus, tmp_path, name, force):
    mine = tmp_path / "mine" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    before = everything(tmp_path)
    with pytest.raises(RunError, match="is no run folder and is not empty"):
        tokenize(make_config(tokenizer, corpus, tmp_path / "mine"), force=force)
    assert everything(tmp_path) == before


def test_force_removes_nothing_where_the_plan_is_of_something_else(tokenizer, corpus, tmp_path):
    (tmp_path / "parquet").mkdir()
    (tmp_path / "parquet" / "data.parquet").write_text("mine")
    (tmp_path / PLAN).write_text('{"plan": "mine"}')
    with pytest.raises(RunError, match="is not that of a run"):
        tokenize(make_config(tokenizer, corpus, tmp_path), force=True)
    assert (tmp_path / "parquet" / "data.parquet").read_text() == "mine"


def test_what_a_kill_left_of_the_plan_is_no_hindrance_and_is_removed(tokenizer, corpus, whole, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    (output / f".{PLAN}.k2_x9a1b").write_bytes(b'{"job"')
    (output / ".quarantine.jsonl.77-0a1b2c3d.tmp").write_bytes(b"{")
    run(tokenizer, corpus, output, **ROWS)
    assert output_bytes(output) == output_bytes(whole)


def test_a_kill_before_the_config_was_written_is_made_up_for(tokenizer, corpus, whole, tmp_path):
    output = cut_short(whole, tmp_path / "out")
    (output / CONFIG).unlink()
    run(tokenizer, corpus, output, **ROWS)
    assert "sequence_length: 100" in (output / CONFIG).read_text()


def test_a_lock_whose_file_was_removed_before_it_was_held_is_taken_anew(tmp_path, monkeypatch):
    lock = tmp_path / "out" / LOCK
    flock, calls = fcntl.flock, []

    def remove_then_lock(file, operation):
        calls.append(operation)
        if len(calls) == 1:  # as a refused job does that ends at this moment
            lock.unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    with locked(tmp_path / "out"):
        assert lock.exists()
        with pytest.raises(ResumeError, match="another run is at work"), locked(tmp_path / "out"):
            pass
    assert len(calls) == 3
    assert not (tmp_path / "out").exists()


def test_a_folder_with_a_manifest_of_somebody_else_is_read(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=5)
    (tmp_path / "corpus" / "manifest.json").write_text('{"name": "gristmill", "version": 3}')
    result = run(tokenizer, tmp_path / "corpus", tmp_path / "out")
    assert result.manifest.ledger.documents_encoded == 5


def test_a_folder_or_a_pipe_in_place_of_a_manifest_is_none(tmp_path):
    (tmp_path / "a" / "manifest.json").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "manifest.json")
    writer = os.open(tmp_path / "b" / "manifest.json", os.O_RDWR)
    before = os.listdir("/dev/fd")
    assert not is_run_folder(str(tmp_path / "a"))
    assert not is_run_folder(str(tmp_path / "b"))
    assert os.listdir("/dev/fd") == before
    os.close(writer)


@pytest.mark.parametrize("pattern", ["", "/**/*.json*"])
def test_a_run_folder_inside_its_input_is_not_read(tokenizer, tmp_path, pattern):
    make_corpus(tmp_path / "corpus", num_files=2, num_docs=30)
    inputs = f"{tmp_path / 'corpus'}{pattern}"
    first = run(tokenizer, inputs, tmp_path / "corpus" / "out")
    (tmp_path / "corpus" / "out" / "manifest.json").unlink()
    again = run(tokenizer, inputs, tmp_path / "corpus" / "out")
    assert again.manifest == first.manifest
    with pytest.raises(InputError, match="is a run folder"):
        run(tokenizer, tmp_path / "corpus" / "out", tmp_path / "corpus" / "out")


def test_the_same_inputs_in_another_order_are_another_job(tokenizer, corpus, tmp_path):
    names = [str(corpus / "part-0.jsonl"), str(corpus / "part-1.jsonl")]
    run(tokenizer, corpus, tmp_path / "out", read__inputs=names)
    with pytest.raises(ResumeError, match="in another order"):
        run(tokenizer, corpus, tmp_path / "out", read__inputs=names[::-1])


@pytest.mark.parametrize("name", ["parquet", "units", "events.jsonl", LOCK])
@pytest.mark.parametrize("force", [False, True])
def test_a_link_in_the_run_folder_leads_nobody_out_of_it(tokenizer, corpus, whole, tmp_path, name, force):
    output = cut_short(whole, tmp_path / "out")
    other = tmp_path / "other"
    if (output / name).is_dir():
        shutil.copytree(output / name, other)
        shutil.rmtree(output / name)
        (other / "mine.txt").write_text("mine")
        (other / ".mine").write_text("mine")
    else:
        (output / name).unlink()
        other.write_text("mine")
    (output / name).symlink_to(other)
    before = everything(other) or other.read_bytes()
    config = make_config(tokenizer, corpus, output, **ROWS)
    try:
        tokenize(config, force=force)
    except RunError as error:
        assert "is a link" in str(error) or "cannot be" in str(error)  # noqa: PT017 (either is right)
    assert (everything(other) or other.read_bytes()) == before


@pytest.mark.parametrize(
    "name", ["units/00001.documents", "units/00001.segments", "parquet/shard-00001-000.parquet"]
)
@pytest.mark.parametrize("size", [None, 3])
def test_a_unit_whose_files_are_gone_or_short_is_done_again(tokenizer, corpus, whole, tmp_path, name, size):
    output = cut_short(whole, tmp_path / "out")
    (output / name).unlink() if size is None else os.truncate(output / name, size)
    run(tokenizer, corpus, output, **ROWS)
    assert output_bytes(output) == output_bytes(whole)


def test_a_unit_whose_tail_is_gone_before_tails_were_packed_is_done_again(tokenizer, corpus, whole, tmp_path):
    output = cut_short(whole, tmp_path / "out")
    sorted(output.glob("units/*.json"))[-1].unlink()
    assert not list(output.glob("units/*.tail"))
    run(tokenizer, corpus, output, **ROWS)
    assert output_bytes(output) == output_bytes(whole)


def test_the_quarantine_of_an_attempt_that_was_not_committed_is_not_taken(
    tokenizer, corpus, whole, tmp_path
):
    output = cut_short(whole, tmp_path / "out")
    (output / "units" / "00001.quarantine").write_bytes(b'{"file": "left over"}\n')
    run(tokenizer, corpus, output, **ROWS)
    assert output_bytes(output) == output_bytes(whole)


def test_a_damaged_quarantine_is_named(tokenizer, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{bad\n')
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    path = tmp_path / "out" / "units" / "00000.quarantine"
    path.write_bytes(b"x" * len(path.read_bytes()))
    with pytest.raises(RunError, match=r"00000\.quarantine: cannot be read"):
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out")


def other_unit(record):
    record["unit"] = 1


def more_slices(record):
    record["slice_records"] += [1]


@pytest.mark.parametrize("change", [other_unit, more_slices])
def test_a_record_of_another_unit_is_refused(tokenizer, corpus, whole, tmp_path, change):
    output = cut_short(whole, tmp_path / "out")
    change_json(output / "units" / "00000.json", change)
    with pytest.raises(RunError, match="record of unit 0 is not"):
        run(tokenizer, corpus, output, **ROWS)


def other_index(plan):
    plan["units"][0]["index"] = 7


def no_such_file(plan):
    plan["units"][0]["slices"][0]["file"] = 9


def other_file(plan):
    plan["files"][0]["path"] = "/etc/hostname"


def other_formats(plan):
    plan["layout"]["formats"] = ["arrow"]


@pytest.mark.parametrize("change", [other_index, no_such_file, other_file, other_formats])
def test_a_doctored_plan_changes_nothing(tokenizer, corpus, whole, tmp_path, change):
    output = cut_short(whole, tmp_path / "out")
    change_json(output / PLAN, change)
    run(tokenizer, corpus, output, **ROWS)
    assert output_bytes(output) == output_bytes(whole)


def test_the_tokenizer_may_have_moved(tokenizer, corpus, whole, tmp_path):
    output = cut_short(whole, tmp_path / "out")
    shutil.copytree(Path(tokenizer).parent, tmp_path / "moved")
    before = (output / "units/00000.json").stat().st_mtime_ns
    run(tmp_path / "moved", corpus, output, **ROWS)
    assert (output / "units/00000.json").stat().st_mtime_ns == before  # nothing was begun anew
    bytes_of = [output_bytes(folder) for folder in (output, whole)]
    for one in bytes_of:
        del one["manifest.json"]  # it names the place
    assert bytes_of[0] == bytes_of[1]


def test_workers_import_nothing_from_the_current_folder(tmp_path, monkeypatch):
    before = os.getcwd()
    for name in ("queue", "signal", "gristmill", "numpy"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [os.path.join(before, path) for path in sys.path])
    worker = WorkerProcess(is_frugal=False)
    worker.orders.write(b'{"type": "load", "tokenizer": {"source": "nowhere"}}\n')
    assert b'"failed"' in worker.answers.readline()
    worker.end()
    assert not (tmp_path / "imported").exists()


def test_a_worker_that_fails_says_why_and_ends_while_its_run_may_still_speak_to_it():
    worker = WorkerProcess(is_frugal=False)
    worker.orders.write(b'{"type": "load", "tokenizer": {"source": "./nowhere"}}\n')
    assert b"no such file" in worker.answers.read()  # to its end
    words = worker.last_words()
    worker.end()
    assert "ended with status 1:" in words
    assert words.endswith("and no hub name (owner/name)")


def test_as_many_workers_start_early_as_the_memory_holds(monkeypatch, tokenizer, tmp_path):
    from gristmill.run import early, process

    started = []
    monkeypatch.setattr(process, "WorkerProcess", lambda **_: started.append(1))
    job = make_config(tokenizer, "a", "b", run__backend="local", run__workers=1000, run__memory="600MB")
    early.start_early(job)
    assert 1 <= len(started) <= 5


POISON = """
import os, signal, sys

def die(event, arguments):
    if event == "open" and str(arguments[0]).endswith("tokenizer.json"):
        lives = sorted(os.listdir(LIVES))
        if lives:
            os.unlink(os.path.join(LIVES, lives[0]))
            os.kill(os.getpid(), signal.SIGKILL)

if "gristmill.run.worker" in " ".join(sys.orig_argv):
    sys.addaudithook(die)
"""


@pytest.mark.parametrize("num_deaths", [1, 2, 3])
def test_workers_that_die_while_they_load_are_replaced_twice(
    tokenizer, corpus, tmp_path, monkeypatch, num_deaths
):
    (tmp_path / "lives").mkdir()
    for number in range(num_deaths):
        (tmp_path / "lives" / str(number)).touch()
    (tmp_path / "sitecustomize.py").write_text(f"LIVES = {str(tmp_path / 'lives')!r}\n{POISON}")
    monkeypatch.syspath_prepend(tmp_path)
    config = make_config(tokenizer, corpus, tmp_path / "out", run__backend="local", run__workers=1)
    if num_deaths < 3:
        assert tokenize(config).manifest is not None
    else:
        with pytest.raises(RunError, match="by signal 9 while it loaded the tokenizer"):
            tokenize(config)


@pytest.mark.parametrize("backend", ["inline", "local"])
def test_what_the_calling_program_holds_is_no_memory_of_the_run(tokenizer, tmp_path, backend):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=3000)
    held = bytearray(b"x" * 500_000_000)
    options = {"run__backend": backend, "run__workers": 1, "run__memory": "400MB"}
    slow = {"tokenizer__engine": "tokenizers", "read__unit_bytes": 10**8}  # seen at work by who looks
    result = run(tokenizer, tmp_path / "corpus", tmp_path / "out", **options, **slow)
    assert result.failed == {}
    assert len(held) == 500_000_000


@pytest.mark.parametrize("backend", ["inline", "local"])
@pytest.mark.parametrize("change", ["gone", "longer", "shorter"])
def test_a_file_that_changes_while_the_run_goes_on_ends_it(tokenizer, tmp_path, backend, change):
    make_corpus(tmp_path / "corpus", num_files=4, num_docs=300)
    last = tmp_path / "corpus" / "part-3.jsonl"

    def disturb(_snapshot):
        if change == "gone":
            last.unlink(missing_ok=True)
        else:
            os.truncate(last, 100 if change == "shorter" else 10**6)

    options = {"run__backend": backend, "run__workers": 1, "read__unit_bytes": 3000}
    config = make_config(tokenizer, tmp_path / "corpus", tmp_path / "out", **options)
    with pytest.raises(RunError, match=r"part-3\.jsonl: (has changed|is gone) since the run was planned"):
        tokenize(config, on_progress=disturb)


def test_a_file_that_changes_while_it_is_read_is_noticed(tokenizer, tmp_path, monkeypatch):
    make_corpus(tmp_path / "corpus", num_files=1, num_docs=300)
    from gristmill import unit_input

    def read_and_disturb(*arguments):
        yield from read_slice(*arguments)
        with (tmp_path / "corpus" / "part-0.jsonl").open("ab") as file:
            file.write(b"more")

    read_slice = unit_input.read_slice
    monkeypatch.setattr(unit_input, "read_slice", read_and_disturb)
    with pytest.raises(RunError, match="has changed since"):
        run(tokenizer, tmp_path / "corpus", tmp_path / "out", read__unit_bytes=10**7)
    assert not list((tmp_path / "out").glob("units/*"))


@pytest.mark.parametrize("backend", ["inline", None])
@pytest.mark.parametrize("given", ["", "lost.jsonl", "*.jsonl"])
def test_a_link_to_nothing_is_refused(tokenizer, corpus, tmp_path, given, backend):
    shutil.copytree(corpus, tmp_path / "corpus")
    (tmp_path / "corpus" / "lost.jsonl").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"lost\.jsonl: is a link to nothing"):
        run(tokenizer, tmp_path / "corpus" / given, tmp_path / "out", run__backend=backend)


@pytest.mark.parametrize("backend", ["inline", None])
def test_a_pipe_and_a_device_are_refused(tokenizer, tmp_path, backend):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in (tmp_path / "pipe.jsonl", "/dev/null"):
        with pytest.raises(InputError, match="is no regular file"):
            run(tokenizer, name, tmp_path / "out", run__backend=backend, read__format="jsonl")


def command(*arguments, cwd=None, **environment):
    line = [sys.executable, "-m", "gristmill", *map(str, arguments)]
    environment |= {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    return subprocess.run(
        line, capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | environment
    )


def test_a_terminal_without_unicode_is_shown_escapes(whole):
    done = command("inspect", whole, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert r"\u27e6" in done.stdout


def test_names_that_begin_with_a_dash_come_after_two_dashes(tokenizer, corpus, tmp_path):
    shutil.copy(corpus / "part-0.jsonl", tmp_path / "-x.jsonl")
    flags = ["-t", tokenizer, "-o", "out", "encode.eos_id=0", "--quiet", "--backend", "inline"]
    assert command("tokenize", *flags, "--", "-x.jsonl", cwd=tmp_path).returncode == 0
    assert "--what" in command("tokenize", *flags, "--what", "--", "-x.jsonl", cwd=tmp_path).stderr


def test_an_error_is_one_printable_line_whatever_the_name(tokenizer, tmp_path):
    done = command("tokenize", tmp_path / "a\n\x1b[31m.jsonl", "-t", tokenizer, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert r"a\n\x1b[31m.jsonl" in done.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (b"--text-field=\xff", "read.text_field is"),
        (b"--output=\xff", "write.output is"),
        (b"--tokenizer=\xff", "tokenizer.source is"),
        (rb'read.inputs="a\0b"', "no file can be called that"),
        (rb'write.output="a\0b"', "no file can be called that"),
        (rb'read.join="\ud800"', "is not UTF-8"),
    ],
)
def test_a_job_with_text_that_cannot_be_written_down_is_refused(tokenizer, corpus, tmp_path, option, message):
    done = command("tokenize", corpus, "-t", tokenizer, "-o", "out", os.fsdecode(option), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_empty_separator_is_refused(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("one two")
    with pytest.raises(ConfigError, match=r"read\.separator is empty"):
        run(tokenizer, tmp_path / "a.txt", tmp_path / "out", read__document="separator", read__separator="")


def no_files(record):
    record["shards"][0]["files"] = {}


def other_count(record):
    record["shards"][0]["num_rows"] = 5


@pytest.mark.parametrize("change", [no_files, other_count])
def test_a_damaged_record_is_an_error_of_convert(tokenizer, corpus, tmp_path, change):
    run(tokenizer, corpus, tmp_path / "out")
    change_json(tmp_path / "out" / "units" / "00000.json", change)
    with pytest.raises(RunError, match="verify says more"):
        convert(tmp_path / "out", "nanogpt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "Input/output error")])
def test_a_unit_that_fails_in_this_process_is_given_up_and_the_rest_goes_on(
    tokenizer, corpus, tmp_path, monkeypatch, error
):
    from gristmill.run import inline

    def fail_once(job, task, on_block):
        if task.unit == 1:
            raise error
        return run_task(job, task, on_block)

    run_task = inline.run_task
    monkeypatch.setattr(inline, "run_task", fail_once)
    assert set(run(tokenizer, corpus, tmp_path / "out").failed) == {1}
    monkeypatch.undo()
    assert run(tokenizer, corpus, tmp_path / "out").manifest is not None


def test_memory_that_a_thread_is_done_with_goes_back_to_the_system():
    kept = []

    def fill():
        blocks = [b"x" * size for size in range(99_000, 100_000)]
        kept.append(blocks[-1])  # all below it would stay with the allocator

    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    before = resident_bytes()
    give_back_memory()
    assert before - resident_bytes() > 50_000_000
