"""The loop that drives a cluster, with workers in threads that are lost, fail and go on unheard."""

import queue
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from gristmill.errors import BadDocumentError, ConfigError, RunError
from gristmill.run import backends, manifest
from gristmill.run.attempts import MAX_LOSSES
from gristmill.run.cluster import MAX_IN_FLIGHT, ClusterBackend
from gristmill.run.folder import format_json, read_manifest, read_plan, read_records
from gristmill.run.messages import Task
from gristmill.run.nodes import Reply, Room
from gristmill.run.remote_worker import Hello, RemoteWorker
from gristmill.run.tokenize import tokenize
from gristmill.store import open_folder
from made_runs import make_config, make_corpus, output_bytes, run

OPTIONS = {"write__format": ["parquet"], "pack__mode": "best_fit", "pack__sequence_length": 100}


class Threads:
    """A cluster of threads; `fate` says what becomes of a task: None, or why its answer is lost."""

    def __init__(self, *, num_workers=3, fate=lambda task: None, node_of=str, lost_nodes=()):
        self.num_workers, self.fate, self.node_of, self.lost_nodes = num_workers, fate, node_of, lost_nodes
        self.inbox = queue.SimpleQueue()
        self.pool = ThreadPoolExecutor(16)
        self.workers, self.in_flight, self.most_in_flight = {}, Counter(), 0
        self.tasks = []
        self.lock = threading.Lock()

    def room(self):
        return Room(self.num_workers, 64 << 30)  # a worker is this process, whatever other tests left in it

    def start(self, *, memory_bytes):
        number = len(self.workers) + 1
        self.workers[number] = RemoteWorker()
        return number

    def call(self, worker, method, *arguments):
        with self.lock:
            self.in_flight[worker] += method == "run"
            self.most_in_flight = max(self.most_in_flight, self.in_flight[worker])
        self.pool.submit(self.answer, worker, method, arguments)

    def answer(self, worker, method, arguments):
        why = None
        if method == "run":
            task = msgspec.json.decode(arguments[1], type=Task)
            self.tasks.append(task)
            why = self.fate(task)
        extra = (self.node_of(worker),) if method == "load" else ()
        answer = getattr(self.workers[worker], method)(*arguments, *extra)
        with self.lock:
            self.in_flight[worker] -= method == "run"
        self.inbox.put(Reply(worker, method, None if why else answer, why or ""))

    def heard(self, timeout_s):
        try:
            return [self.inbox.get(timeout=timeout_s)]
        except queue.Empty:
            return []

    def is_lost(self, node):
        return node in self.lost_nodes

    def end(self, worker):
        pass

    def close(self):
        self.pool.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=2, num_docs=200)
    return folder


@pytest.fixture(scope="module")
def whole(tokenizer, corpus, tmp_path_factory):
    """What a run in this process writes."""
    folder = tmp_path_factory.mktemp("whole")
    run(tokenizer, corpus, folder, **OPTIONS)
    return output_bytes(folder)


@pytest.fixture
def on_threads(monkeypatch, tokenizer, corpus, tmp_path):
    """Does a job on a cluster of threads."""

    def run_on(cluster, **options):
        monkeypatch.setitem(backends.BACKENDS, "ray", lambda config, _: ClusterBackend(config, cluster))
        config = make_config(tokenizer, corpus, tmp_path / "out", run__backend="ray", **(OPTIONS | options))
        return tokenize(config)

    return run_on


def first_time(units):
    """Tasks of these units are lost when they are first tried."""
    seen = set()

    def fate(task):
        is_new = task.unit in units and task.unit not in seen
        seen.add(task.unit)
        return "gone" if is_new else None

    return fate


def test_units_whose_answers_are_lost_are_done_again_though_their_attempts_go_on(
    on_threads, whole, tmp_path
):
    result = on_threads(Threads(fate=first_time({0, 3, 4})))
    assert result.failed == {}
    assert output_bytes(tmp_path / "out") == whole
    assert not [path for path in (tmp_path / "out").rglob(".*") if path.name != ".lock"]


def test_no_worker_has_more_units_than_are_allowed_in_flight(on_threads):
    cluster = Threads()
    on_threads(cluster)
    assert cluster.most_in_flight == MAX_IN_FLIGHT


def test_a_unit_that_ends_its_worker_three_times_is_given_up_and_the_rest_is_done(on_threads, tmp_path):
    cluster = Threads(fate=lambda task: "gone" if task.unit == 2 else None)
    result = on_threads(cluster)
    assert result.failed == {2: "gone"}
    assert Counter(task.unit for task in cluster.tasks)[2] == 3
    assert result.manifest is None
    plan = read_plan(tmp_path / "out")
    assert set(read_records(tmp_path / "out", plan)) >= {u.index for u in plan.units} - {2}


def test_a_node_that_is_lost_is_not_the_fault_of_its_units(on_threads, whole, tmp_path):
    left = Counter({1: 5})

    def fate(task):
        left[task.unit] -= 1
        return "gone" if left[task.unit] >= 0 else None

    result = on_threads(Threads(fate=fate, node_of=lambda worker: "lost", lost_nodes={"lost"}))
    assert result.failed == {}
    assert output_bytes(tmp_path / "out") == whole


def test_a_unit_that_is_lost_with_every_node_is_given_up_in_the_end(on_threads):
    fate = lambda task: "out of reach" if task.unit == 1 else None  # noqa: E731
    cluster = Threads(fate=fate, node_of=lambda worker: "lost", lost_nodes={"lost"})
    result = on_threads(cluster)
    assert result.failed == {1: "out of reach"}
    assert Counter(task.unit for task in cluster.tasks)[1] == MAX_LOSSES


def test_a_unit_that_needs_too_much_memory_is_tried_again_in_smaller_blocks(
    on_threads, whole, tmp_path, monkeypatch
):
    from gristmill.run import remote_worker

    cluster = Threads(num_workers=1)
    done = remote_worker.run_task

    def too_large(job, task, on_block):
        if task.unit == 1 and task.block_bytes is None:
            raise MemoryError
        return done(job, task, on_block)

    monkeypatch.setattr(remote_worker, "run_task", too_large)
    result = on_threads(cluster)
    assert result.failed == {}
    sizes = [task.block_bytes for task in cluster.tasks if task.unit == 1]
    assert sizes[0] is None
    assert sizes[-1] is not None
    assert output_bytes(tmp_path / "out") == whole


def test_a_worker_that_holds_more_than_its_part_stops_its_unit(on_threads, monkeypatch):
    from gristmill.run import remote_worker

    monkeypatch.setattr(remote_worker, "resident_bytes", lambda: 1 << 40)
    monkeypatch.setattr(ClusterBackend, "_fit", lambda self, worker_bytes: None)
    result = on_threads(Threads(num_workers=1))
    assert result.failed
    assert all("run.memory" in why for why in result.failed.values())


def test_attempts_that_go_on_behind_a_limit_change_nothing(on_threads, tokenizer, corpus, tmp_path):
    options = OPTIONS | {"run__max_rows": 150}
    run(tokenizer, corpus, tmp_path / "inline", **options)
    cluster = Threads(fate=first_time(range(0, 100, 2)))
    on_threads(cluster, run__max_rows=150)
    cluster.pool.shutdown()
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "inline")


def test_an_error_of_the_user_ends_the_run(on_threads, tmp_path, corpus):
    (tmp_path / "bad.jsonl").write_text('{"text": 1}\n')
    with pytest.raises(BadDocumentError, match=r"bad\.jsonl"):
        on_threads(Threads(), read__inputs=[str(tmp_path / "bad.jsonl")], read__on_bad_document="fail")


def test_a_node_that_sees_another_folder_is_refused(on_threads, monkeypatch, tmp_path):
    prepare = ClusterBackend._renew_lease

    def elsewhere(self):
        prepare(self)
        self._prepare = self._prepare.replace(b"/out", b"/elsewhere")

    monkeypatch.setattr(ClusterBackend, "_renew_lease", elsewhere)
    with pytest.raises(RunError, match=r"does not see the run folder .*elsewhere.* storage that every node"):
        on_threads(Threads())


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"gristmill": "0.0.1"}, RunError, "install one version on all nodes"),
        ({"facts": "other"}, ConfigError, "not the same on all nodes"),
    ],
    ids=["version", "tokenizer"],
)
def test_a_worker_that_would_write_other_bytes_is_refused(on_threads, changed, error, words):
    class Second(Threads):
        has_come = threading.Event()

        def answer(self, worker, method, arguments):
            if method == "run":  # so that there is work left when it comes
                self.has_come.wait()
            if method == "load" and worker > 1:
                hello = msgspec.json.decode(self.workers[worker].load(*arguments), type=Hello)
                new = dict(changed)
                if "facts" in new:
                    new["facts"] = msgspec.structs.replace(hello.facts, fingerprint="other")
                hello = msgspec.structs.replace(hello, **new)
                self.inbox.put(Reply(worker, method, msgspec.json.encode(hello), ""))
                self.has_come.set()
                return
            super().answer(worker, method, arguments)

    with pytest.raises(error, match=words):
        on_threads(Second())


def test_workers_that_never_start_end_the_run(on_threads):
    class Broken(Threads):
        def answer(self, worker, method, arguments):
            self.inbox.put(Reply(worker, method, None, "no module named gristmill"))

    with pytest.raises(RunError, match="workers do not start: no module named gristmill"):
        on_threads(Broken())


def test_a_manifest_of_many_shards_is_the_same_file_and_reads_the_same(
    tokenizer, corpus, tmp_path, monkeypatch
):
    small = run(tokenizer, corpus, tmp_path / "small", **OPTIONS).manifest
    monkeypatch.setattr(manifest, "MAX_HELD", 0)
    large = run(tokenizer, corpus, tmp_path / "large", **OPTIONS).manifest
    content = (tmp_path / "large" / "manifest.json").read_bytes()
    assert content == (tmp_path / "small" / "manifest.json").read_bytes()
    assert content == format_json(small)
    assert tuple(large.shards) == small.shards
    assert tuple(large.sidecars) == small.sidecars
    assert large.shards[-1] == small.shards[-1]
    assert large.shards[1:3] == list(small.shards[1:3])
    assert read_manifest(tmp_path / "large") == small


def test_a_unit_waits_for_a_worker_that_is_on_its_way_rather_than_behind_another(on_threads, tmp_path):
    class LateSecond(Threads):
        is_first_at_work, is_second_at_work = threading.Event(), threading.Event()

        def answer(self, worker, method, arguments):
            if method == "load" and worker == 2:
                self.is_first_at_work.wait()
            if method == "run" and worker == 1:
                self.is_first_at_work.set()
                self.is_second_at_work.wait(20)
            if method == "run" and worker == 2:
                self.is_second_at_work.set()
            super().answer(worker, method, arguments)

    cluster = LateSecond(num_workers=2)
    on_threads(cluster, read__unit_bytes=140_000, pack__mode="documents", write__format=["megatron"])
    assert len(read_plan(tmp_path / "out").units) == 2
    assert cluster.most_in_flight == 1


def test_a_worker_that_fails_to_load_while_all_are_dismissed_has_no_successor(tokenizer, corpus, tmp_path):
    class Leaving(Threads):
        def call(self, worker, method, *arguments):
            if method == "leave":
                self.inbox.put(Reply(2, "load", None, "gone"))
                self.inbox.put(Reply(worker, "leave", b"", ""))

    cluster = Leaving(num_workers=2)
    backend = ClusterBackend(make_config(tokenizer, corpus, tmp_path / "out", run__workers=2), cluster)
    backend._store = open_folder("memory://dismissed")
    backend._workers[1].node = "here"
    assert sorted(backend._workers) == [1, 2]
    backend._dismiss([1, 2])
    assert not backend._workers
    assert len(cluster.workers) == 2


def test_a_wait_for_the_first_worker_is_told(on_threads, monkeypatch, caplog):
    class Busy(Threads):
        is_told = threading.Event()

        def answer(self, worker, method, arguments):
            self.is_told.wait(20)
            super().answer(worker, method, arguments)

        def heard(self, timeout_s):
            if "no worker has come yet" in caplog.text:
                self.is_told.set()
            return super().heard(timeout_s)

    monkeypatch.setattr("gristmill.run.cluster.TELL_AFTER_S", 0.0)
    assert on_threads(Busy()).failed == {}
    assert Busy.is_told.is_set()
