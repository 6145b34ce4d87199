"""Workers whose GPU another process drives: the native engine's ids, whatever becomes of that process."""

import json
import os
import signal
import socket
import struct
import time

import numpy as np
import pytest

import adversarial_texts as adversarial
import emulated_gpu
import real_tokenizers as real
from gristmill import MissingPackageError, RunError, load_tokenizer
from gristmill.batch import flatten_texts
from gristmill.config import TokenizerConfig
from gristmill.engines.cuda import shared as shared_engine
from gristmill.engines.cuda.shared import GREETING, OFFER, SharedEngine
from gristmill.run import gpu, local, process
from gristmill.run.budget import GPU_BYTES, RUN_BYTES, settle_budget
from made_runs import make_config, make_corpus, output_bytes, run

WAIT_S = 60


def waited_for(condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def emulated(monkeypatch, tmp_path):
    monkeypatch.setattr(process, "GPU_PROGRAM", emulated_gpu.PROGRAM)
    monkeypatch.setenv(emulated_gpu.LOG, str(tmp_path / "batches"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=3, num_docs=100)
    return folder


@pytest.fixture
def served(tokenizer):
    """The process, there to be reached, for batches of 64 KB."""
    started = start(tokenizer)
    waited_for(lambda: is_there(started))
    yield started
    started.end()
    assert not os.path.exists(os.path.dirname(started.gpu.address))


def start(tokenizer, batch_bytes=1 << 16):
    program = process.WorkerProcess(is_frugal=False, program=process.GPU_PROGRAM)
    return gpu.GpuProcess(program, TokenizerConfig(source=str(tokenizer), engine="native"), batch_bytes)


def is_there(started):
    if started.failure():
        raise started.failure()
    return os.path.exists(started.gpu.address)


def num_batches(tmp_path):
    path = tmp_path / "batches"
    return len(path.read_text().splitlines()) if path.exists() else 0


def engines(tokenizer, served):
    native = load_tokenizer(tokenizer, engine="native")._engine
    return native, ready(SharedEngine(native, served.gpu.address, served.gpu.batch_bytes))


def ready(shared):
    """Once it has been asked for, and has answered."""
    waited_for(lambda: shared._engine() is not shared._native)
    return shared


def assert_same(native, shared, texts):
    buffer, offsets = flatten_texts(texts)
    for policy in ("text", "parse"):
        wanted, ends = native.encode_batch(buffer, offsets, special_tokens=policy, num_threads=1)
        found = shared.encode_batch(buffer, offsets, special_tokens=policy, num_threads=1)
        assert np.array_equal(found[0], wanted)
        assert np.array_equal(found[1], ends)
        counts = shared.count_batch(buffer, offsets, special_tokens=policy, num_threads=1)
        assert np.array_equal(counts, np.diff(ends))


def test_ids_are_the_native_engines(tokenizer, served, tmp_path):
    native, shared = engines(tokenizer, served)
    other = ready(SharedEngine(native, served.gpu.address, 1 << 14))
    for texts in ([], [""], ["a", "", "b"], adversarial.TEXTS, ["too large " * 20_000, "small"]):
        assert_same(native, shared, texts)
        assert_same(native, other, texts)
    assert num_batches(tmp_path) > 4
    ids = native.encode_batch(*flatten_texts(["a b"]), special_tokens="text", num_threads=1)[0]
    assert shared.decode(ids) == b"a b"


@pytest.mark.parametrize("batch_bytes", [1, 1000])
def test_batches_may_be_tiny(tokenizer, batch_bytes):
    started = start(tokenizer, batch_bytes)
    try:
        waited_for(lambda: is_there(started))
        assert_same(*engines(tokenizer, started), ["a", "b c", " " * 900, "d" * 3000])
        assert started.failure() is None
    finally:
        started.end()


def test_ids_of_more_than_16_bits_come_in_two_arrays(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(real.rank_json("llama3", "llama3", ignore_merges=True)))
    started = start(path)
    try:
        waited_for(lambda: is_there(started))
        assert_same(*engines(path, started), [*adversarial.TEXTS, "Straße 水 and water"])
    finally:
        started.end()


def test_a_process_that_hangs_is_waited_for_no_longer(tokenizer, served, monkeypatch):
    monkeypatch.setattr(shared_engine, "ANSWER_S", 0.3)
    native, shared = engines(tokenizer, served)
    os.kill(served._process.pid, signal.SIGSTOP)
    try:
        assert_same(native, shared, ["one two three"])
    finally:
        os.kill(served._process.pid, signal.SIGCONT)
    assert shared._is_lost


def test_native_encodes_until_the_process_is_there(tokenizer, tmp_path):
    native = load_tokenizer(tokenizer, engine="native")._engine
    assert_same(native, SharedEngine(native, str(tmp_path / "nowhere"), 1 << 16), ["text"])


def test_native_goes_on_where_the_process_dies(tokenizer, served, tmp_path):
    native, shared = engines(tokenizer, served)
    assert_same(native, shared, ["one two three"])
    assert num_batches(tmp_path)
    os.kill(served._process.pid, signal.SIGKILL)
    waited_for(lambda: served._process.has_ended)
    assert_same(native, shared, ["four five six"])
    failure = served.failure()
    assert isinstance(failure, RunError)
    assert "ended by signal 9" in str(failure)
    assert served.failure() is failure


@pytest.mark.parametrize(
    "said",
    [b"", b"\0", OFFER.pack(1 << 16), OFFER.pack((1 << 16) + 1), OFFER.pack(0), struct.pack("<q", -1)],
)
def test_a_worker_that_makes_no_sense_is_left_and_others_go_on(tokenizer, served, said):
    with socket.socket(socket.AF_UNIX) as odd, open(os.devnull, "rb") as file:
        odd.connect(served.gpu.address)
        assert len(odd.recv(GREETING.size)) == GREETING.size
        if said:
            socket.send_fds(odd, [said], [file.fileno()])
        odd.shutdown(socket.SHUT_WR)
        assert odd.recv(1) == b""
    assert_same(*engines(tokenizer, served), ["one two three"])


def test_the_process_ends_with_the_run(served):
    served._process.orders.close()
    waited_for(lambda: served._process.has_ended)
    assert not os.path.exists(os.path.dirname(served.gpu.address))


def test_what_cannot_be_opened_is_said(tokenizer, tmp_path, monkeypatch):
    monkeypatch.undo()
    (tmp_path / "cupy.py").write_text("raise ImportError('no driver')")
    monkeypatch.syspath_prepend(tmp_path)
    started = start(tokenizer)
    try:
        waited_for(lambda: started._process.has_ended)
        failure = started.failure()
        assert isinstance(failure, MissingPackageError)
        assert "gristmill[gpu]" in str(failure)
        assert "no driver" in str(failure)
    finally:
        started.end()


class Awaited(gpu.GpuProcess):
    """Workers find it there."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        waited_for(lambda: is_there(self))


class Dying(Awaited):
    """Workers find it gone."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        os.kill(self._process.pid, signal.SIGKILL)
        waited_for(lambda: self._process.has_ended)


class FirstDying(Awaited):
    """One of several is gone."""

    num_made = 0

    def __init__(self, *arguments):
        super().__init__(*arguments)
        FirstDying.num_made += 1
        if FirstDying.num_made == 1:
            os.kill(self._process.pid, signal.SIGKILL)
            waited_for(lambda: self._process.has_ended)


def run_on_gpu(tokenizer, corpus, out, monkeypatch, kind):
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(process, "GPU_INPUT_BYTES", 100)
    monkeypatch.setattr(local, "GpuProcess", kind)
    monkeypatch.setattr(
        local,
        "start_worker",
        lambda config: process.WorkerProcess(is_frugal=False, program=emulated_gpu.WAITING_WORKER),
    )
    options = {"run__backend": "local", "run__workers": 3, "run__memory": "3GB"}
    return run(tokenizer, corpus, out, tokenizer__engine="cuda", **options)


def test_workers_of_a_run_share_one_gpu(tokenizer, corpus, tmp_path, monkeypatch):
    run(tokenizer, corpus, tmp_path / "native", run__backend="local", run__workers=3)
    run_on_gpu(tokenizer, corpus, tmp_path / "cuda", monkeypatch, Awaited)
    assert num_batches(tmp_path)
    assert output_bytes(tmp_path / "cuda") == output_bytes(tmp_path / "native")


def test_several_gpus_take_units_side_by_side(tokenizer, corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    run(tokenizer, corpus, tmp_path / "native", run__backend="local", run__workers=3)
    run_on_gpu(tokenizer, corpus, tmp_path / "cuda", monkeypatch, Awaited)
    assert {line.split()[1] for line in (tmp_path / "batches").read_text().splitlines()} == {"3", "GPU-5"}
    assert output_bytes(tmp_path / "cuda") == output_bytes(tmp_path / "native")


def test_a_run_goes_on_with_the_gpus_that_are_left(tokenizer, corpus, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    run(tokenizer, corpus, tmp_path / "native", run__backend="local", run__workers=3)
    run_on_gpu(tokenizer, corpus, tmp_path / "cuda", monkeypatch, FirstDying)
    assert FirstDying.num_made == 2
    assert "goes on with the other GPUs" in caplog.text
    assert {line.split()[1] for line in (tmp_path / "batches").read_text().splitlines()} == {"1"}
    assert output_bytes(tmp_path / "cuda") == output_bytes(tmp_path / "native")


def test_no_more_gpus_are_opened_than_there_are_workers(corpus, monkeypatch):
    started = []
    monkeypatch.setattr(process, "WorkerProcess", lambda **options: started.append(options["settings"]))
    monkeypatch.setattr(process, "GPU_INPUT_BYTES", 100)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    process.start_gpus(make_config("made", corpus, "out", tokenizer__engine="cuda"), 2)
    assert started == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]


@pytest.mark.parametrize(("backend", "num_gpus"), [("local", 3), ("inline", 1), ("ray", 0)])
def test_memory_is_left_for_what_drives_gpus(corpus, monkeypatch, backend, num_gpus):
    monkeypatch.setattr(process, "GPU_INPUT_BYTES", 100)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    options = {"run__backend": backend, "run__memory": "8GB", "run__workers": 1000}
    native, cuda = (
        settle_budget(make_config("made", corpus, "out", tokenizer__engine=engine, **options))
        for engine in ("native", "cuda")
    )
    assert native.memory_bytes == cuda.memory_bytes == 8 * 10**9
    per_worker = (8 * 10**9 - RUN_BYTES) / native.num_workers
    lost = native.num_workers - cuda.num_workers
    assert abs(lost - num_gpus * GPU_BYTES / per_worker) < 1


def test_every_gpu_of_the_machine_is_found(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(process, "NVIDIA_GPUS", str(tmp_path))
    assert process.gpu_settings() == [{}]
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:02:00.0").mkdir()
    assert [settings["CUDA_VISIBLE_DEVICES"] for settings in process.gpu_settings()] == ["0", "1"]
    for visible, names in (("", [None]), ("-1", [None]), ("2,-1,3", ["2"]), ("0, GPU-1", ["0", "GPU-1"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert [settings.get("CUDA_VISIBLE_DEVICES") for settings in process.gpu_settings()] == names


def test_a_run_whose_gpu_is_lost_says_so(tokenizer, corpus, tmp_path, monkeypatch):
    with pytest.raises(RunError, match="process of the GPU"):
        run_on_gpu(tokenizer, corpus, tmp_path / "cuda", monkeypatch, Dying)
