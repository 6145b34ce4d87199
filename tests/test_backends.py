"""Which backend does a job, and what threads of one process leave behind when they are told to end."""

import queue
import threading

import pytest

from emulated_device import EmulatedDevice
from gristmill import MissingPackageError, RunError
from gristmill.engines.cuda import engine as cuda_engine
from gristmill.engines.cuda import late
from gristmill.engines.cuda.engine import engine_on, put_on_device
from gristmill.engines.cuda.tables import build_tables
from gristmill.run import inline, local, process, resources
from gristmill.run.budget import settle_budget
from gristmill.run.early import start_early
from gristmill.run.messages import Done, Failed
from gristmill.run.process import choose_backend
from gristmill.run.tokenize import tokenize
from made_runs import make_config, make_corpus, output_bytes, run


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=3, num_docs=400)
    return folder


def backend_of(corpus, **options):
    return choose_backend(make_config("made", corpus, "out", **({"run__backend": None} | options)))


def test_little_input_is_done_by_threads_and_more_by_processes(corpus, monkeypatch):
    assert backend_of(corpus) == "inline"
    assert backend_of(f"{corpus}/*.jsonl") == "inline"
    monkeypatch.setattr(process, "SMALL_BYTES", 1000)
    assert backend_of(corpus) == "local"


def test_a_compressed_file_is_taken_for_more_than_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "SMALL_BYTES", 1000)
    for name, backend in {"a.jsonl": "inline", "a.jsonl.gz": "local", "a.parquet": "local"}.items():
        (tmp_path / name).write_bytes(bytes(500))
        assert backend_of(tmp_path / name) == backend


@pytest.mark.parametrize(
    "options",
    [
        {"run__memory": "1GB"},
        {"run__preset": "extreme"},
        {"run__backend": "local"},
        {"read__inputs": ["s3://bucket/corpus"]},
        {"read__inputs": ["nothing-here.jsonl"]},
    ],
    ids=["memory", "extreme", "asked for", "remote", "missing"],
)
def test_processes_do_what_threads_might_not(corpus, options):
    assert backend_of(corpus, **options) == "local"


def test_an_engine_that_is_not_native_gets_processes(tokenizer, corpus, tmp_path, monkeypatch):
    started = []
    start = process.WorkerProcess

    def counted(**options):
        started.append(options)
        return start(**options)

    monkeypatch.setattr(process, "WorkerProcess", counted)
    options = {"run__backend": None, "run__workers": 2}
    run(tokenizer, corpus, tmp_path / "native", **options)
    assert not started
    run(tokenizer, corpus, tmp_path / "tokenizers", tokenizer__engine="tokenizers", **options)
    assert len(started) == 2


def test_a_gpu_encodes_where_there_is_much_to_encode(corpus, monkeypatch):
    def encodes(path, engine="cuda"):
        return process.encodes_on_gpu(make_config("made", path, "out", tokenizer__engine=engine))

    assert not encodes(corpus)
    assert encodes("s3://bucket/corpus")
    monkeypatch.setattr(process, "GPU_INPUT_BYTES", 100)
    assert encodes(corpus)
    assert not encodes(corpus, "native")


def test_a_gpu_gets_larger_blocks(corpus, monkeypatch):
    monkeypatch.setattr(process, "GPU_INPUT_BYTES", 100)
    options = {"run__memory": "2GB", "run__workers": 1}
    native, cuda = (
        settle_budget(make_config("made", corpus, "out", tokenizer__engine=engine, **options))
        for engine in ("native", "cuda")
    )
    assert cuda.blocks.block_bytes == 2 * native.blocks.block_bytes


def test_little_input_does_not_wait_for_a_gpu(tokenizer, corpus, tmp_path, monkeypatch):
    options = {"run__backend": None, "run__workers": 2, "tokenizer__engine": "cuda"}
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"gristmill\[gpu\]"):
        run(tokenizer, corpus, tmp_path / "none", **options)
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: object())
    result = run(tokenizer, corpus, tmp_path / "cuda", **options)
    assert any("before a GPU is open" in warning for warning in result.warnings)
    run(tokenizer, corpus, tmp_path / "native", run__workers=2)
    assert output_bytes(tmp_path / "cuda") == output_bytes(tmp_path / "native")


def test_threads_of_a_run_share_one_gpu(tokenizer, corpus, tmp_path, monkeypatch):
    def open_emulated(spec, native):
        opened.append(spec)
        tables = build_tables(spec, native.model, word_bits=16, is_padded=True)
        return engine_on(put_on_device(spec, tables, EmulatedDevice(tables)), native)

    def open_at_once(self, first, open_gpu):
        self._error, self._thread = None, threading.Thread()
        self._thread.start()
        self._engine = open_gpu()

    opened = []
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(cuda_engine, "open_cuda", open_emulated)
    monkeypatch.setattr(late.LateEngine, "__init__", open_at_once)
    monkeypatch.setattr(process, "GPU_INPUT_BYTES", 100)
    options = {"run__backend": "inline", "run__workers": 3}
    run(tokenizer, corpus, tmp_path / "cuda", tokenizer__engine="cuda", **options)
    assert len(opened) == 1
    run(tokenizer, corpus, tmp_path / "native", **options)
    assert output_bytes(tmp_path / "cuda") == output_bytes(tmp_path / "native")


def allow_threads(monkeypatch, num_allowed):
    """So many more of this process are to be had."""

    class Counted(threading.Thread):
        def start(self):
            if len(started) == num_allowed:
                raise RuntimeError("can't start new thread")
            started.append(self)
            super().start()

    started = []
    monkeypatch.setattr(inline.threading, "Thread", Counted)


@pytest.mark.parametrize("num_allowed", [0, 1, 2])
def test_a_run_that_gets_no_threads_ends_with_an_error(tokenizer, corpus, tmp_path, monkeypatch, num_allowed):
    allow_threads(monkeypatch, num_allowed)
    with pytest.raises(RunError, match="can't start new thread; raise the limits"):
        run(tokenizer, corpus, tmp_path / "out", run__backend="inline", run__workers=2)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_run_that_gets_few_threads_does_with_those(tokenizer, corpus, tmp_path, monkeypatch):
    options = {"run__backend": "inline", "run__workers": 3}
    run(tokenizer, corpus, tmp_path / "all", **options)
    allow_threads(monkeypatch, 4)
    run(tokenizer, corpus, tmp_path / "few", **options)
    assert output_bytes(tmp_path / "few") == output_bytes(tmp_path / "all")


def test_a_worker_that_fails_twice_in_one_breath_is_replaced_once(tokenizer, corpus, tmp_path, monkeypatch):
    def fail_twice(worker):
        heard = receive(worker)
        if faked or not any(isinstance(message, Done) for message in heard):
            return heard
        faked.append(Failed(kind="OSError", message="no memory", is_users=False))
        return [*faked, *faked, *heard]

    faked = []
    options = {"run__backend": "local", "run__workers": 2}
    run(tokenizer, corpus, tmp_path / "whole", **options)
    receive = local._Worker.receive
    monkeypatch.setattr(local._Worker, "receive", fail_twice)
    result = run(tokenizer, corpus, tmp_path / "out", **options)
    assert faked
    assert result.failed == {}
    assert result.last.units_done == result.last.units_total
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "whole")


def test_threads_share_the_memory(corpus):
    one, four = (
        settle_budget(make_config("made", corpus, "out", run__workers=n, run__memory="1GB")) for n in (1, 4)
    )
    assert four.num_workers == 4
    assert four.blocks.block_bytes * 4 <= 10**9
    few = settle_budget(make_config("made", corpus, "out", run__workers=1000, run__memory="500MB"))
    assert 1 <= few.num_workers < 10
    assert few.blocks.block_bytes <= one.blocks.block_bytes


def test_threads_that_are_interrupted_leave_a_run_that_can_be_resumed(
    tokenizer, corpus, tmp_path, monkeypatch
):
    from gristmill.run import inline

    options = {"run__workers": 2, "run__block_bytes": 2000}
    run(tokenizer, corpus, tmp_path / "whole", **options)

    def interrupt_late(self):
        found = heard(self)
        if any(isinstance(item, inline._Ended) for item in found):
            raise KeyboardInterrupt
        return found

    heard = inline._UnitThreads.heard
    monkeypatch.setattr(inline._UnitThreads, "heard", interrupt_late)
    with pytest.raises(KeyboardInterrupt):
        run(tokenizer, corpus, tmp_path / "cut", **options)
    monkeypatch.undo()
    assert not (tmp_path / "cut" / "manifest.json").exists()
    assert not [path for path in (tmp_path / "cut").rglob("*") if ".tmp" in path.name]
    config = make_config(tokenizer, corpus, tmp_path / "cut", **options)
    assert tokenize(config).manifest is not None
    assert output_bytes(tmp_path / "cut") == output_bytes(tmp_path / "whole")


def test_an_error_of_the_user_in_a_thread_ends_the_run(tokenizer, corpus, tmp_path):
    from gristmill import InputError

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.jsonl").write_text('{"text": 1}\n' * 3)
    with pytest.raises(InputError, match=r"bad\.jsonl"):
        run(tokenizer, tmp_path / "in", tmp_path / "out", run__workers=2, read__on_bad_document="fail")


def test_a_thread_without_a_unit_helps_the_one_that_has_the_last(tokenizer, corpus, tmp_path, monkeypatch):
    run_task, seen = inline.run_task, {}
    has_ended: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()

    def watched(job, task, report):
        if task.unit == 0:
            seen["at first"] = job.num_threads()
            has_ended.get(timeout=60).join()  # the other thread, once it has done all the rest
            seen["at last"] = job.num_threads()
        elif task.unit == len(job.plan.units) - 1:
            has_ended.put(threading.current_thread())
        return run_task(job, task, report)

    monkeypatch.setattr(inline, "run_task", watched)
    options = {"run__backend": None, "run__workers": 2}
    run(tokenizer, corpus, tmp_path / "two", **options)
    assert seen == {"at first": 1, "at last": 2}
    monkeypatch.undo()
    run(tokenizer, corpus, tmp_path / "one", run__workers=1)
    assert output_bytes(tmp_path / "two") == output_bytes(tmp_path / "one")


def test_a_run_whose_tokenizer_was_recalled_early_writes_the_same(tokenizer, corpus, tmp_path):
    run(tokenizer, corpus, tmp_path / "plain", run__backend=None)
    job = make_config(tokenizer, corpus, tmp_path / "early", run__backend=None)
    early = start_early(job)
    assert early.recalling is not None
    assert early.recalling.result() is not None
    tokenize(job, early=early)
    assert output_bytes(tmp_path / "early") == output_bytes(tmp_path / "plain")


@pytest.mark.parametrize(("table_mb", "idle_mb"), [(0, 16), (40, 14), (46, 8), (64, 4)])
def test_idle_blocks_have_what_tables_of_pieces_leave(table_mb, idle_mb, monkeypatch):
    limits = []
    monkeypatch.setattr(resources._native, "limit_idle_blocks", limits.append)
    resources.keep_what_is_left(table_mb << 20)
    assert limits == [idle_mb << 20]
