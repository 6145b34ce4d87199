"""Runs on a real Ray cluster of three nodes: the bytes of a local run, whatever is killed on the way."""

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import fsspec
import pytest
import ray
from blake3 import blake3
from ray.cluster_utils import Cluster

from gristmill.config import RunConfig
from gristmill.errors import ConfigError, RunError
from gristmill.job import as_training
from gristmill.run.ray import CLIENT_TRIES, RayCluster, _Actor
from gristmill.run.tokenize import tokenize
from gristmill.run.train import train
from made_runs import make_config, make_corpus, output_bytes, run
from made_store import BUCKET, faulty_s3, settings_of
from test_resume import children_of, wait_until
from test_store import SHARE, assert_same

OPTIONS = {
    "write__format": ["parquet", "npy"],
    "pack__mode": "best_fit",
    "pack__sequence_length": 200,
    "read__unit_bytes": 40_000,
}
SLOW = {"tokenizer__engine": "tokenizers"}
"""So that a run lasts long enough to be disturbed."""
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "memory": 4 << 30}


@pytest.fixture(scope="module")
def server():
    """An S3 server that every node finds by its environment."""
    with faulty_s3() as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in settings_of(proxy).items():
            patch.setenv(name, value)
        yield proxy
        fsspec.filesystem("s3").clear_instance_cache()


@pytest.fixture(scope="module")
def cluster(server):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = Cluster(initialize_head=True, head_node_args=NODE | {"ray_client_server_port": port})
    made.client_address = f"ray://127.0.0.1:{port}"
    made.add_node(**NODE)
    made.add_node(**NODE)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_files=5, num_docs=2000)
    return folder


@pytest.fixture(scope="module")
def whole(tokenizer, corpus, tmp_path_factory):
    """What a local run writes."""
    folder = tmp_path_factory.mktemp("whole")
    tokenize(make_config(tokenizer, corpus, folder, **OPTIONS))
    return output_bytes(folder)


def workers_of(cluster, title=b"ray::_Actor"):
    """Processes of the workers on all nodes; Ray gives them a title that tells what they are at."""
    found = []
    for node in cluster.list_all_nodes():
        for raylet in node.all_processes.get("raylet", []):
            found += [pid for pid in children_of(raylet.process.pid) if title_of(pid).startswith(title)]
    return found


def title_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for_units(output, process, count):
    """Wait until some units are committed, in a run that goes on."""
    found = lambda: len(list(Path(output).glob("units/*.json")))  # noqa: E731
    wait_until(lambda: process.poll() is not None or found() >= count, seconds=120)
    assert process.poll() is None, process.stderr.read().decode()


def start(cluster, tokenizer, corpus, output):
    """A run as a user starts it, on the cluster."""
    command = [
        *(sys.executable, "-m", "gristmill", "tokenize", str(corpus), "-t", str(tokenizer)),
        *("-o", str(output), "--backend", "ray", "--ray-address", cluster.address),
        *("--engine", "tokenizers", "--format", "parquet,npy", "--pack", "best_fit"),
        *("--sequence-length", "200", "read.unit_bytes=40000", "--eos-id", "0"),
    ]
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_three_nodes_write_the_bytes_of_a_local_run(cluster, tokenizer, corpus, whole, tmp_path, capfd):
    options = OPTIONS | {"run__backend": "ray", "run__ray_address": cluster.address}
    result = tokenize(make_config(tokenizer, corpus, tmp_path / "out", **options))
    assert output_bytes(tmp_path / "out") == whole
    assert (result.last.num_workers, result.last.num_nodes) == (3, 3)
    assert not [path for path in (tmp_path / "out").rglob(".*") if path.name != ".lock"]
    assert capfd.readouterr().err == ""


def test_a_killed_worker_and_a_removed_node_change_no_byte(cluster, tokenizer, corpus, whole, tmp_path):
    output = tmp_path / "out"
    process = start(cluster, tokenizer, corpus, output)
    wait_for_units(output, process, 3)
    # One that is at a unit: another may just have come, and nothing would be lost with it.
    wait_until(lambda: process.poll() is not None or workers_of(cluster, b"ray::_Actor.run"), seconds=120)
    os.kill(workers_of(cluster, b"ray::_Actor.run")[0], signal.SIGKILL)
    wait_for_units(output, process, 6)
    removed = cluster.list_all_nodes()[-1]
    cluster.remove_node(removed, allow_graceful=False)
    cluster.add_node(**NODE)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()
    assert output_bytes(output) == whole
    assert out.startswith(b"documents ")
    # Those that replace the lost may come when all is done.
    assert re.search(rb" \d workers?( on [23] nodes)?$", out, re.MULTILINE)
    assert b"retry" in (output / "events.jsonl").read_bytes()


def test_a_killed_driver_is_resumed_on_this_machine_with_the_same_bytes(
    cluster, tokenizer, corpus, whole, tmp_path
):
    output = tmp_path / "out"
    process = start(cluster, tokenizer, corpus, output)
    wait_for_units(output, process, 4)
    process.kill()
    process.communicate()
    # Nobody waits for workers that may not know it yet.
    options = OPTIONS | SLOW | {"run__backend": "local", "run__workers": 2}
    result = tokenize(make_config(tokenizer, corpus, output, **options))
    assert result.last.units_before >= 4
    assert output_bytes(output) == whole
    wait_until(lambda: not workers_of(cluster), seconds=120)
    assert output_bytes(output) == whole


def test_a_local_run_is_resumed_on_the_cluster_and_an_interrupted_one_leaves_nothing_behind(
    cluster, tokenizer, corpus, whole, tmp_path
):
    output = tmp_path / "out"
    process = start(cluster, tokenizer, corpus, output)
    wait_for_units(output, process, 4)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors.decode()
    assert re.search(rb"^gristmill: interrupted; \d+ of \d+ units are done", errors, re.MULTILINE)
    assert not [path for path in output.rglob(".*") if path.name != ".lock"]
    wait_until(lambda: not workers_of(cluster), seconds=120)
    min(output.glob("units/*.json")).unlink()  # whichever was done: a worker may be slow with the first
    options = OPTIONS | {"run__backend": "ray", "run__ray_address": cluster.address, "run__workers": 2}
    assert tokenize(make_config(tokenizer, corpus, output, **options)).last.units_before >= 3
    assert output_bytes(output) == whole


def test_counting_on_the_cluster_gives_the_same_tokenizer(cluster, corpus, tmp_path):
    def job(name, **run):
        return as_training(
            {
                "read": {"inputs": [str(corpus)], "unit_bytes": 300_000},
                "learn": {"output": str(tmp_path / name), "vocab_size": 600},
                "run": run,
            }
        )

    train(job("inline.json", backend="inline"))
    train(job("ray.json", backend="ray", ray_address=cluster.address))
    assert (tmp_path / "ray.json").read_bytes() == (tmp_path / "inline.json").read_bytes()
    folders = [tmp_path / f"{name}.json.run" for name in ("ray", "inline")]
    ours, theirs = ({k: v for k, v in output_bytes(f).items() if k != "report.json"} for f in folders)
    assert ours == theirs


def test_from_store_to_store_the_cluster_writes_the_bytes_of_a_local_run(
    cluster, server, tokenizer, tmp_path
):
    make_corpus(tmp_path / "texts", num_docs=60)
    fsspec.filesystem("s3").put(str(tmp_path / "texts"), f"{BUCKET}/texts", recursive=True)
    options = {"write__format": ["megatron"], "run__workers": 2}
    local = run(tokenizer, tmp_path / "texts", tmp_path / "local", **options)
    options |= {"run__backend": "ray", "run__ray_address": cluster.address}
    server.share = SHARE
    result = run(tokenizer, f"s3://{BUCKET}/texts", f"s3://{BUCKET}/out", **options)
    server.share = 0.0
    assert result.failed == {}
    assert server.faults
    assert_same(f"s3://{BUCKET}/out", local)
    stages = f"gristmill-{blake3(f's3://{BUCKET}/out'.encode()).hexdigest()[:12]}-*"
    assert not list(Path(tempfile.gettempdir()).glob(stages))


def test_a_driver_outside_the_cluster_gets_the_same_bytes(cluster, tokenizer, corpus, whole, tmp_path):
    options = OPTIONS | {"run__backend": "ray", "run__ray_address": cluster.client_address}
    result = run(tokenizer, corpus, tmp_path / "out", **options)
    assert output_bytes(tmp_path / "out") == whole
    assert result.last.num_nodes == 3


@pytest.mark.parametrize("failures", [2, CLIENT_TRIES])
def test_a_driver_outside_tries_again_and_one_that_is_refused_leaves_ray_as_it_was(
    cluster, monkeypatch, failures
):
    def fail_first(*given):
        if next(attempts) < failures:
            raise ConnectionAbortedError("Starting Ray client server failed.")
        return usual(*given)

    usual, attempts = ray.util.client.worker.Worker._server_init, itertools.count()
    monkeypatch.setattr(ray.util.client.worker.Worker, "_server_init", fail_first)
    client = RunConfig(backend="ray", ray_address=cluster.client_address)
    if failures < CLIENT_TRIES:
        RayCluster(client).close()
    else:
        with pytest.raises(RunError, match="Starting Ray client server failed"):
            RayCluster(client)
    joined = RayCluster(RunConfig(backend="ray", ray_address=cluster.address))
    assert joined.room().num_workers >= 3
    joined.close()


def test_a_worker_that_does_not_fit_any_node_is_refused(cluster, tokenizer, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.run.ray.PATIENCE_S", 0.5)
    options = {"run__backend": "ray", "run__ray_address": cluster.address}
    with pytest.raises(ConfigError, match=r"no node .* 1 CPU and 90\.0 GB"):
        run(tokenizer, corpus, tmp_path / "out", run__memory="90.1GB", run__workers=1, **options)


def test_an_address_without_a_cluster_is_refused_with_what_to_do(tokenizer, corpus, tmp_path):
    options = {"run__backend": "ray", "run__ray_address": "127.0.0.1:9"}
    with pytest.raises(RunError, match=r"127\.0\.0\.1:9 .* --ray-address local"):
        tokenize(make_config(tokenizer, corpus, tmp_path / "out", **options))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("address", ["head", "http://head:8265", ""])
def test_what_is_no_address_is_refused_with_what_one_is(tokenizer, corpus, tmp_path, address):
    options = {"run__backend": "ray", "run__ray_address": address}
    with pytest.raises(ConfigError, match=rf"run\.ray_address is '{address}'; .* HOST:6379 .* ray://HOST:10001"):
        tokenize(make_config(tokenizer, corpus, tmp_path / "out", **options))


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_server_of_something_else_is_told_from_a_cluster(tokenizer, corpus, tmp_path, scheme, server):
    options = {"run__backend": "ray", "run__ray_address": scheme + server.url.removeprefix("http://")}
    with pytest.raises(RunError, match=r"what listens there is not Ray"):
        tokenize(make_config(tokenizer, corpus, tmp_path / "out", **options))


def test_a_cluster_is_joined_again_after_it_was_left_without_waiting(cluster):
    first, again = (RunConfig(backend="ray", ray_address=cluster.address) for _ in range(2))
    RayCluster(first, is_last=True).close()
    joined = RayCluster(again)
    assert joined.room().num_workers >= 3
    joined.close()
    assert not ray.is_initialized()


def test_driver_and_workers_do_not_import_what_is_for_objects_that_are_never_sent(cluster):
    class Probe(_Actor):
        def modules(self, names: bytes) -> bytes:
            return b" ".join(name for name in names.split() if name.decode() in sys.modules)

    joined = RayCluster(RunConfig(backend="ray", ray_address=cluster.address))
    probe = ray.remote(Probe).remote()
    assert ray.get(probe.modules.remote(b"gristmill")) == b"gristmill"
    assert ray.get(probe.modules.remote(b"pydantic starlette pyarrow")) == b""
    ray.kill(probe)
    joined.close()
