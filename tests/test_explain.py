"""`plan --explain` names the limit that decides, and what would help; small memory works."""

import gzip
import json
import os

import msgspec
import pytest

from gristmill.cli import main
from gristmill.report.estimate import READ_AND_ENCODE_SHARE, _time, estimate_run
from gristmill.report.sampling import Kind, KindCounts, Sample
from gristmill.run import process, resources
from gristmill.run.budget import MIN_BLOCK_BYTES, RUN_BYTES, settle_budget
from made_runs import make_config, make_corpus


@pytest.fixture
def corpus(tmp_path):
    make_corpus(tmp_path / "corpus")
    return tmp_path / "corpus"


def explain(tokenizer, corpus, tmp_path, **options):
    return estimate_run(make_config(tokenizer, corpus, tmp_path / "out", **options)).explanation


def test_the_limit_that_decides_the_workers_is_named(tokenizer, corpus, tmp_path, monkeypatch):
    with_cores(monkeypatch, 3)
    local = {"run__backend": "local"}
    assert "one for each of the 3 cores" in explain(tokenizer, corpus, tmp_path, **local)["workers"]
    assert "run.workers asks" in explain(tokenizer, corpus, tmp_path, run__workers=2, **local)["workers"]
    little = explain(tokenizer, corpus, tmp_path, run__memory="400MB", **local)["workers"]
    assert little.startswith("1 (local): the memory holds no more")
    assert "raise run.memory" in little
    few = explain(tokenizer, corpus, tmp_path, read__unit_bytes="1GB", **local)["workers"]
    assert few.startswith("1 of 3 have something to do")
    assert "preset streaming" in explain(tokenizer, corpus, tmp_path)["workers"]


def with_cores(monkeypatch, number):
    for module in ("run.budget", "run.process", "run.warn", "report.explain", "report.estimate"):
        monkeypatch.setattr(f"gristmill.{module}.num_cores", lambda: number)


def test_more_workers_than_cores_promise_no_more_speed(tokenizer, corpus, tmp_path, monkeypatch):
    with_cores(monkeypatch, 2)
    monkeypatch.setattr("gristmill.report.estimate.START_S", 0.0)
    options = {"run__backend": "local", "run__memory": "8GB"}
    many = make_config(tokenizer, corpus, tmp_path / "out", run__workers=8, **options)
    estimate = estimate_run(many)
    assert "more workers than the 2 cores do not help" in estimate.explanation["workers"]
    assert "unit_bytes" not in estimate.explanation["workers"]
    assert "run.workers is 8; more than the 2 cores do not help" in estimate.warnings
    sample, budget = Sample({Kind("jsonl", "none"): KindCounts(seconds=7.0)}), settle_budget(many)
    assert _time(sample, budget, 100) == pytest.approx(7.0 / READ_AND_ENCODE_SHARE / 2)


def test_memory_is_explained_by_what_decides_it(tokenizer, corpus, tmp_path, monkeypatch):
    for module in ("explain", "estimate"):
        monkeypatch.setattr(f"gristmill.report.{module}.available_memory", lambda: 23 * 10**9)
    config = make_config(tokenizer, corpus, tmp_path / "out", run__memory="100GB")
    estimate = estimate_run(config)
    told = estimate.explanation["memory"]
    assert told == "100 GB: run.memory asks for it, and only 23 GB are available now"
    assert any("100 GB, and 23 GB are available now" in text for text in estimate.warnings)
    enough = explain(tokenizer, corpus, tmp_path, run__memory="1GB")["memory"]
    assert enough == "1 GB: run.memory asks for it; 23 GB are available now"
    assert "the preset streaming" in explain(tokenizer, corpus, tmp_path, run__preset="streaming")["memory"]
    assert "from what is available now" in explain(tokenizer, corpus, tmp_path)["memory"]
    monkeypatch.setattr("gristmill.report.explain.memory_limit", lambda: 2 * 10**9)
    monkeypatch.setattr(process, "memory_limit", lambda: 2 * 10**9)
    contained = explain(tokenizer, corpus, tmp_path, run__memory="100GB")["memory"]
    assert contained == "1.88 GB: run.memory asks for 100GB, and the container has 2 GB"


def test_the_limit_that_decides_blocks_and_units_is_named(tokenizer, corpus, tmp_path):
    found = explain(tokenizer, corpus, tmp_path, run__block_bytes="2MB")
    assert "run.block_bytes asks" in found["blocks"]
    assert "read.unit_bytes asks" in found["units"]
    assert "the preset ultra" in explain(tokenizer, corpus, tmp_path)["blocks"]
    small = explain(tokenizer, corpus, tmp_path, run__memory="300MB", run__backend="local")["blocks"]
    assert "raise run.memory" in small


def test_a_compressed_file_is_told_to_be_one_unit(tokenizer, tmp_path, monkeypatch):
    (tmp_path / "corpus").mkdir()
    line = json.dumps({"text": "x" * 5000}).encode() + b"\n"
    noise = b"".join(json.dumps({"text": os.urandom(3000).hex()}).encode() + b"\n" for _ in range(40))
    (tmp_path / "corpus" / "a.jsonl.gz").write_bytes(gzip.compress(line + noise))
    found = explain(tokenizer, tmp_path / "corpus", tmp_path)
    assert found["units"].startswith("1: a compressed or CSV file is one unit; for more, split it")
    assert "gzip takes longer" in found["input"]
    with_cores(monkeypatch, 2)
    workers = explain(tokenizer, tmp_path / "corpus", tmp_path, run__backend="local")["workers"]
    assert workers.startswith("1 of 2 have something to do")
    assert "split it" in workers
    assert "unit_bytes" not in workers
    (tmp_path / "corpus" / "b.jsonl").write_bytes(noise)
    mixed = explain(tokenizer, tmp_path / "corpus", tmp_path)["units"]
    assert "because a compressed or CSV file is one unit" in mixed


def test_the_command_prints_it_and_json_holds_it(tokenizer, corpus, capsys):
    arguments = ["plan", str(corpus), "-t", str(tokenizer), "--eos-id", "0", "--explain"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "what decides:" in shown
    assert main([*arguments, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["explanation"]) >= {"workers", "blocks", "units", "memory"}


def test_inputs_far_away_are_read_ahead(tokenizer, tmp_path):
    config = make_config(tokenizer, "s3://bucket/x.jsonl", tmp_path / "out")
    assert settle_budget(config).blocks.read_ahead
    near = msgspec.structs.replace(config, read=msgspec.structs.replace(config.read, inputs=("a.jsonl",)))
    assert not settle_budget(near).blocks.read_ahead


@pytest.mark.parametrize("backend", ["local", "inline"])
def test_half_a_gigabyte_is_enough(tokenizer, corpus, tmp_path, backend):
    config = make_config(tokenizer, corpus, tmp_path / "out", run__memory="512MB", run__backend=backend)
    budget = settle_budget(config, worker_bytes=200 << 20)  # with a vocabulary of 128,000
    assert budget.num_workers >= 1
    assert budget.blocks.block_bytes >= MIN_BLOCK_BYTES


def test_a_run_takes_no_more_than_its_container_has(tokenizer, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(process, "memory_limit", lambda: 512 * 10**6)
    config = make_config(tokenizer, corpus, tmp_path / "out", run__memory="8GB")
    assert process.memory_of(config.run) < 500 * 10**6
    # Which documents are too large is the same in every container.
    assert settle_budget(config).blocks.max_document_bytes == 8 * 10**9 // 16


def test_the_memory_of_a_cluster_is_not_bounded_by_the_container_of_its_driver(
    tokenizer, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(process, "memory_limit", lambda: 512 * 10**6)
    options = {"run__memory": "64GB", "run__workers": 16, "run__backend": "ray"}
    budget = settle_budget(make_config(tokenizer, corpus, tmp_path / "out", **options))
    assert (budget.num_workers, budget.memory_bytes) == (16, 64 * 10**9)
    # A worker has its part, and no document may need more.
    assert budget.blocks.max_document_bytes == (64 * 10**9 - RUN_BYTES) // 16 // 16
    estimate = estimate_run(make_config(tokenizer, corpus, tmp_path / "out", **options))
    assert "CPUs of all nodes" in estimate.explanation["workers"]
    assert estimate.explanation["memory"].endswith("of all nodes together")
    assert not [text for text in estimate.warnings if "run.memory" in text or "run.workers" in text]


@pytest.mark.parametrize(("available", "taken"), [(480, 384), (700, 500), (4000, 2000)])
def test_where_little_is_available_more_than_half_of_it_is_taken(
    tokenizer, corpus, tmp_path, monkeypatch, available, taken
):
    monkeypatch.setattr(process, "available_memory", lambda: available * 10**6)
    config = make_config(tokenizer, corpus, tmp_path / "out")
    assert process.memory_of(config.run) == taken * 10**6


def test_the_limit_of_the_own_cgroup_is_found_in_either_version(tmp_path, monkeypatch):
    def read(path):
        return files.get(str(path))

    monkeypatch.setattr(resources, "_read", read)
    files = {
        "/proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job",
        "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "512000000",
        "/sys/fs/cgroup/memory/job/memory.usage_in_bytes": "100000000",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": str(1 << 62),
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1",
    }
    assert resources.memory_limit() == 512_000_000
    files = {
        "/proc/self/cgroup": "0::/user/job",
        "/sys/fs/cgroup/user/job/memory.max": "max",
        "/sys/fs/cgroup/user/memory.max": "700000000",
        "/sys/fs/cgroup/user/memory.current": "5",
    }
    assert resources.memory_limit() == 700_000_000
    files = {}
    assert resources.memory_limit() is None
