"""Runs in object stores give the bytes of local ones: a real S3 server that fails, memory://, killed runs."""

import glob
import hashlib
import io
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import fsspec
import msgspec
import numpy as np
import pytest
from blake3 import blake3

import gristmill
from gristmill.convert import convert
from gristmill.errors import ConfigError, ResumeError, RunError
from gristmill.read.ranges import RangeReader
from gristmill.records import FileRecord, Manifest
from gristmill.retry import MAX_ATTEMPTS, UnreachableError, retried
from gristmill.run.clean import clean
from gristmill.run.folder import held
from gristmill.run.tokenize import tokenize
from gristmill.store import open_folder, remote
from gristmill.store.lease import EXPIRES_S, LEASE, here
from gristmill.store.objects import Objects
from gristmill.verify import verify
from made_runs import make_config, make_corpus, output_bytes, run, write_jsonl
from made_store import BUCKET, contents, faulty_s3, settings_of

SHARE = 0.2
JOBS = {
    "documents": {"write__format": ["megatron", "datatrove"]},
    "rows": {
        "write__format": ["parquet", "mds", "webdataset"],
        "pack__mode": "best_fit",
        "pack__sequence_length": 100,
        "read__unit_bytes": 50_000,
    },
    "limited": {"write__format": ["npy"], "pack__sequence_length": 50, "run__max_rows": 777},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three files, one of them with a bad record."""
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_docs=60)
    with (folder / "part-1.jsonl").open("a") as file:
        file.write('{"no text": 1}\n')
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory, corpus):
    """The S3 server, which holds the corpus; every process finds it by the environment."""
    with faulty_s3() as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in settings_of(proxy).items():
            patch.setenv(name, value)
        store = fsspec.filesystem("s3")
        store.put(str(corpus), f"{BUCKET}/texts", recursive=True)
        yield proxy
        store.clear_instance_cache()


@pytest.fixture
def s3(server):
    server.share = 0.0
    server.on_request = lambda method, path: None
    yield server
    server.share = 0.0
    server.on_request = lambda method, path: None


@pytest.fixture(scope="module")
def local(tokenizer, corpus, tmp_path_factory):
    """What each job gives in a local folder."""
    folder = tmp_path_factory.mktemp("local")
    return {name: run(tokenizer, corpus, folder / name, **options) for name, options in JOBS.items()}


def digests(manifest, there):
    """BLAKE3 of every file of every shard, in order, as the objects have it."""
    return [
        (shard.name, name, [blake3(there[file.path]).hexdigest() for file in files])
        for shard in manifest.shards
        for name, files in shard.files.items()
    ]


def assert_same(url, before):
    """The run at the URL is the local one: shards, ledger, quarantine; and there is nothing else."""
    there = contents(url)
    manifest = msgspec.json.decode(there["manifest.json"], type=Manifest)
    expected = [
        (shard.name, name, [file.blake3 for file in files])
        for shard in before.manifest.shards
        for name, files in shard.files.items()
    ]
    assert digests(manifest, there) == expected
    assert manifest.ledger == before.manifest.ledger
    quarantine = os.path.join(before.folder, "quarantine.jsonl")
    if os.path.exists(quarantine):
        entries = [json.loads(line) | {"file": ""} for line in there["quarantine.jsonl"].splitlines()]
        with open(quarantine) as lines:
            assert entries == [json.loads(line) | {"file": ""} for line in lines]
    records = [json.loads(there[name]) for name in there if re.fullmatch(r"units/\d+\.json", name)]
    named = {file["path"] for record in records for file in record["sidecars"]}
    named |= {file.path for shard in manifest.shards for files in shard.files.values() for file in files}
    named |= {file.path for file in manifest.sidecars}
    named |= {f"units/{record['unit']:05d}.json" for record in records}
    named = {name for name in named if not name.endswith(".tail")}
    named.add("report.html")  # by the command line
    assert set(there) - named == {"config.yaml", "plan.json", "manifest.json", "events.jsonl"} | (
        {"quarantine.jsonl"} if os.path.exists(quarantine) else set()
    )


@pytest.mark.parametrize(("job", "backend"), [("documents", "local"), ("rows", "inline")])
def test_a_failing_store_gives_the_bytes_of_a_local_run(s3, tokenizer, local, job, backend):
    s3.share = SHARE
    result = run(tokenizer, f"s3://{BUCKET}/texts", f"s3://{BUCKET}/{job}", run__backend=backend, **JOBS[job])
    s3.share = 0.0
    assert result.failed == {}
    assert set(s3.faults) == {"busy", "broken", "dropped", "unanswered", "cut", "slow"}
    assert_same(f"s3://{BUCKET}/{job}", local[job])
    assert verify(f"s3://{BUCKET}/{job}").is_sound


@pytest.mark.parametrize("job", JOBS)
def test_memory_gives_the_bytes_of_a_local_run(memory, tokenizer, corpus, local, job):
    memory.put(str(corpus), "/texts", recursive=True)
    run(tokenizer, "memory://texts", "memory://out", **JOBS[job])
    assert_same("memory://out", local[job])
    found = verify("memory://out")
    assert found.is_sound, found
    assert run(tokenizer, "memory://texts", "memory://out", **JOBS[job]).last is None


def test_a_run_killed_in_the_middle_goes_on_where_it_was(s3, tokenizer, corpus, local):
    url = f"s3://{BUCKET}/killed"
    options = ["read.unit_bytes=20000", "encode.eos_id=0", "--format", "megatron,datatrove"]
    command = [sys.executable, "-m", "gristmill", "tokenize", f"s3://{BUCKET}/texts", "-o", url]
    command += ["-t", str(tokenizer), "--backend", "local", "--workers", "2", "--quiet", *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment)
    seen = []

    def kill(method, path):
        if method == "PUT" and "/units/" in path and path.split("?")[0].endswith(".json"):
            seen.append(path)
            if len(seen) == 3:
                process.send_signal(signal.SIGKILL)

    s3.on_request = kill
    assert process.wait(60) == -signal.SIGKILL
    s3.on_request = lambda method, path: None
    objects = Objects(url)
    assert 2 <= sum(name.endswith(".json") and name.startswith("units/") for name in objects.sizes()) < 8
    assert objects.get("manifest.json") is None
    s3.share = SHARE
    subprocess.run(command, env=environment, check=True, timeout=120)
    s3.share = 0.0
    assert_same(url, local["documents"])
    stage = f"gristmill-{blake3(url.encode()).hexdigest()[:12]}-*"
    assert glob.glob(f"{tempfile.gettempdir()}/{stage}") == []


def test_a_file_that_is_gone_makes_its_unit_be_done_again(memory, tokenizer, corpus, local):
    run(tokenizer, corpus, "memory://out", **JOBS["documents"])
    memory.rm_file("/out/manifest.json")
    memory.rm_file(next(name for name in memory.find("/out/megatron") if "shard-00003" in name))
    result = run(tokenizer, corpus, "memory://out", **JOBS["documents"])
    assert result.last.units_before == result.last.units_total - 1
    assert_same("memory://out", local["documents"])


def test_force_starts_over_and_a_changed_job_is_refused(memory, tokenizer, corpus):
    run(tokenizer, corpus, "memory://out")
    with pytest.raises(ResumeError, match=r"holds a run of another job: encode\.eos_id"):
        run(tokenizer, corpus, "memory://out", encode__eos_id=1)
    tokenize(make_config(tokenizer, corpus, "memory://out", write__format="npy"), force=True)
    assert memory.find("/out/megatron") == []
    assert verify("memory://out", sample=0).is_sound


def test_a_place_that_holds_something_else_is_refused(memory, tokenizer, corpus):
    memory.pipe_file("/out/letter.txt", b"dear")
    with pytest.raises(RunError, match=r"is no run folder and is not empty \(it holds letter.txt\)"):
        run(tokenizer, corpus, "memory://out")
    assert memory.find("/out") == ["/out/letter.txt"]


def holder(**changes):
    now = {"token": "t", "host": "elsewhere", "boot": "b", "pid": 1, "birth": "", "renewed": time.time()}
    return json.dumps(now | changes).encode()


def test_a_second_run_is_refused_while_the_first_is_alive(memory, tokenizer, corpus):
    with held(open_folder("memory://out")):
        with pytest.raises(ResumeError, match=f"process {os.getpid()} of this machine"):
            run(tokenizer, corpus, "memory://out")
        with pytest.raises(ResumeError, match="another run is at work"):
            clean("memory://out")
    memory.pipe_file(f"/out/{LEASE}", holder(renewed=time.time() - EXPIRES_S / 2))
    with pytest.raises(ResumeError, match=r"on elsewhere, process 1, heard of 3\d s ago"):
        run(tokenizer, corpus, "memory://out")
    assert run(tokenizer, corpus, "memory://other").failed == {}


def test_the_lease_of_a_dead_run_is_taken(memory, tokenizer, corpus):
    memory.pipe_file(f"/out/{LEASE}", holder(renewed=time.time() - EXPIRES_S - 1))
    assert run(tokenizer, corpus, "memory://out").failed == {}
    assert not memory.exists(f"/out/{LEASE}")
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    host, boot = here()
    memory.pipe_file(f"/out2/{LEASE}", holder(host=host, boot=boot, pid=process.pid))
    assert run(tokenizer, corpus, "memory://out2").failed == {}


def test_a_process_of_another_container_is_not_judged_by_its_number(memory, tokenizer, corpus, monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()  # of that number there is none here
    host, boot = here()
    memory.pipe_file(f"/out/{LEASE}", holder(host=host, boot=f"{boot}0", pid=process.pid))
    with pytest.raises(ResumeError, match=f"on {host}, process {process.pid}, heard of"):
        run(tokenizer, corpus, "memory://out")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(remote, "here", lambda: (host, f"{boot}0"))
        stage = remote._make_stage("memory://out")
    dead = stage.rename(str(stage).replace(f"-{os.getpid()}-", f"-{process.pid}-"))
    own = remote._make_stage("memory://out")
    assert dead.exists()
    for folder in (dead, own):
        folder.rmdir()


def made_file(store, name, content):
    path = store.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return FileRecord(path=name, num_bytes=len(content), blake3=blake3(content).hexdigest())


def test_of_two_attempts_the_first_to_commit_counts_and_the_other_leaves_nothing(memory):
    store = open_folder("memory://out")
    with held(store):
        files = [made_file(store, f"megatron/shard-0{store.new_attempt()}.bin", b"ids") for _ in range(2)]
        assert files[0].path != files[1].path
        made = {"give_names": lambda: None, "is_again": False}
        assert store.commit("units/00000.json", b"first", files[:1], **made) == b"first"
        assert store.commit("units/00000.json", b"second", files[1:], **made) == b"first"
        assert set(store.sizes()) == {"units/00000.json", files[0].path}
        assert not list(store.path.rglob("*.bin"))


@pytest.mark.parametrize("is_again", [False, True])
def test_a_record_whose_answer_is_lost_keeps_its_files(memory, monkeypatch, is_again):
    def loses_answers(self, name, content):
        before = call(self, name, content)
        if name.startswith("units/"):
            raise UnreachableError("no answer")
        return before

    store = open_folder("memory://out")
    with held(store):
        files = [made_file(store, f"megatron/shard-0{store.new_attempt()}.bin", b"ids") for _ in range(2)]
        made = {"give_names": lambda: None, "is_again": is_again}
        name = "put" if is_again else "create"
        call = getattr(Objects, name)
        monkeypatch.setattr(Objects, name, loses_answers)
        with pytest.raises(UnreachableError):
            store.commit("units/00000.json", b"first", files[:1], **made)
        monkeypatch.setattr(Objects, name, call)
        assert set(store.sizes()) == {"units/00000.json", files[0].path}
        assert not (store.path / files[0].path).exists()  # the next attempt makes its own
        counts = store.commit("units/00000.json", b"second", files[1:], **made)
        named = files[1] if is_again else files[0]
        assert counts == store.objects.get("units/00000.json") == (b"second" if is_again else b"first")
        assert named.path in store.sizes()


def test_an_attempt_of_a_run_that_went_on_without_it_commits_nothing(memory):
    store = open_folder("memory://out")
    with held(store):
        file = made_file(store, "megatron/shard-0-12345678.bin", b"ids")
        memory.pipe_file(f"/out/{LEASE}", holder())
        with pytest.raises(RunError, match="the run went on without this attempt"):
            store.commit(
                "units/00000.json", b"record", [file], give_names=lambda: None, is_again=False
            )
        assert store.sizes() == {}
    assert memory.exists(f"/out/{LEASE}")  # another's


@pytest.mark.parametrize("where", ["memory://out", "folder"])
def test_clean_lists_and_removes_what_no_record_names(memory, tokenizer, corpus, tmp_path, where):
    url = where if "://" in where else str(tmp_path / where)
    run(tokenizer, corpus, url, **JOBS["rows"])
    store = fsspec.core.url_to_fs(url)
    before = {name: store[0].cat_file(name) for name in store[0].find(store[1])}
    for name in ("parquet/shard-00000-000-deadbeef.parquet", "units/00001-deadbeef.tail"):
        store[0].pipe_file(f"{store[1]}/{name}", b"left")
    found = clean(url, is_dry=True)
    assert {left.path: left.num_bytes for left in found} == {
        "parquet/shard-00000-000-deadbeef.parquet": 4,
        "units/00001-deadbeef.tail": 4,
    }
    assert clean(url) == found
    assert clean(url) == []
    assert {name: store[0].cat_file(name) for name in store[0].find(store[1])} == before
    with pytest.raises(RunError, match="is no run folder"):
        clean(f"{url}-other")


def test_clean_removes_what_a_killed_count_had_spilled(tokenizer, corpus, tmp_path):
    run(tokenizer, corpus, tmp_path / "out")
    spilled = tmp_path / "out" / "units" / ".00000.spilled"
    spilled.mkdir()
    (spilled / "run-0").write_bytes(b"12345")
    (tmp_path / "out" / "units" / "of somebody else").mkdir()
    found = clean(str(tmp_path / "out"), is_dry=True)
    assert [(left.path, left.num_bytes) for left in found] == [("units/.00000.spilled", 5)]
    assert clean(str(tmp_path / "out")) == found
    assert not spilled.exists()
    assert clean(str(tmp_path / "out")) == []


def test_clean_ends_uploads_that_were_never_finished(s3, tokenizer, corpus):
    url = f"s3://{BUCKET}/uploads"
    run(tokenizer, corpus, url)
    store = fsspec.filesystem("s3")
    store.call_s3("create_multipart_upload", Bucket=BUCKET, Key="uploads/megatron/shard-1.bin")
    assert [left.path for left in clean(url)] == ["upload of uploads/megatron/shard-1.bin"]
    assert clean(url) == []


def test_a_large_file_goes_up_in_parts_through_all_faults(s3, tmp_path):
    content = random.Random(1).randbytes(20 << 20)
    (tmp_path / "large").write_bytes(content)
    methods = []
    s3.on_request = lambda method, path: methods.append((method, "partNumber=" in path))
    s3.share = SHARE
    objects = Objects(f"s3://{BUCKET}/large")
    objects.upload(tmp_path / "large", "file")
    record = FileRecord(path="file", num_bytes=len(content), blake3=blake3(content).hexdigest())
    objects.download(record, tmp_path / "back")
    assert methods.count(("PUT", True)) >= 4
    assert (tmp_path / "back").read_bytes() == content


def test_a_remote_run_is_opened_like_a_local_one(s3, tokenizer, corpus, local, tmp_path):
    url = f"s3://{BUCKET}/opened"
    run(tokenizer, corpus, url, **JOBS["rows"])
    s3.share = SHARE
    options = {"columns": ["input_ids", "position_ids"], "format": "parquet"}
    remote = gristmill.open(url, cache_dir=tmp_path / "cache", **options)
    here = gristmill.open(local["rows"].folder, **options)
    assert len(remote) == len(here) > 100
    for name in options["columns"]:
        np.testing.assert_array_equal(remote[:][name], here[:][name])
    s3.share = 0.0
    s3.on_request = lambda method, path: pytest.fail(f"asked again for {path}") if "shard" in path else None
    again = pickle.loads(pickle.dumps(remote))
    np.testing.assert_array_equal(again[5]["input_ids"], here[5]["input_ids"])
    batches = [batch["input_ids"] for batch in again.loader(batch_size=16)]
    np.testing.assert_array_equal(
        np.concatenate(batches), np.concatenate([b["input_ids"] for b in here.loader(batch_size=16)])
    )


READ_ALL = """
import hashlib, sys, gristmill
dataset = gristmill.open(sys.argv[1], cache_dir=sys.argv[2], cache_bytes=int(sys.argv[3]))
print(hashlib.sha256(b"".join(dataset[i]["input_ids"].tobytes() for i in range(len(dataset)))).hexdigest())
"""


def test_processes_share_a_small_cache(s3, tokenizer, corpus, tmp_path):
    url = f"s3://{BUCKET}/shared"
    run(tokenizer, corpus, url)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", READ_ALL, url, str(tmp_path), "1000"]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    dataset = gristmill.open(url, cache_dir=tmp_path)
    ids = b"".join(dataset[i]["input_ids"].tobytes() for i in range(len(dataset)))
    expected = hashlib.sha256(ids).hexdigest()
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == [expected] * 2


def test_the_cache_stays_within_its_bound(memory, tokenizer, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.store.cached.GRACE_S", 0.0)
    result = run(tokenizer, corpus, "memory://out")
    size = max(sum(f.num_bytes for f in shard.files["megatron"]) for shard in result.manifest.shards)
    dataset = gristmill.open("memory://out", cache_dir=tmp_path, cache_bytes=3 * size)
    for item in range(len(dataset)):
        assert len(dataset[item]["input_ids"])
        kept = sum(path.stat().st_size for path in tmp_path.rglob("*.bin"))
        assert kept <= 3 * size
    assert kept > 0


def test_an_object_with_other_content_is_refused_and_found_by_verify(memory, tokenizer, corpus, tmp_path):
    run(tokenizer, corpus, "memory://out")
    name = next(name for name in memory.find("/out/megatron") if name.endswith(".bin"))
    content = memory.cat_file(name)
    memory.pipe_file(name, bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(RunError, match="has other content than when it was written"):
        gristmill.open("memory://out", cache_dir=tmp_path)[0]
    faults = [fault for check in verify("memory://out", sample=0).checks for fault in check.faults]
    assert any("has other content" in fault for fault in faults)
    memory.rm_file(name)
    faults = [fault for check in verify("memory://out", sample=0).checks for fault in check.faults]
    assert any("missing" in fault for fault in faults)


def test_a_manifest_cannot_name_files_outside_the_cache(memory, tokenizer, corpus, tmp_path):
    run(tokenizer, corpus, "memory://out")
    manifest = json.loads(memory.cat_file("/out/manifest.json"))
    manifest["shards"][0]["files"]["megatron"][0]["path"] = "../../outside.bin"
    memory.pipe_file("/out/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(RunError, match="damaged"):
        gristmill.open("memory://out", cache_dir=tmp_path / "cache")[0]
    store = open_folder("memory://out")
    with pytest.raises(RunError, match="is no path of a file of a run"):
        store.fetch([FileRecord(path="../x", num_bytes=1, blake3="")])
    store.close()


def test_a_remote_run_is_converted_to_a_local_folder(memory, tokenizer, corpus, local, tmp_path):
    run(tokenizer, corpus, "memory://out", **JOBS["rows"])
    convert("memory://out", "pt", output=tmp_path / "remote")
    convert(local["rows"].folder, "pt", output=tmp_path / "local")
    assert output_bytes(tmp_path / "remote") == output_bytes(tmp_path / "local")
    with pytest.raises(ConfigError, match="name a folder of this machine"):
        convert("memory://out", "pt")
    with pytest.raises(ConfigError, match="a conversion is written to this machine only"):
        convert("memory://out", "pt", output="memory://other")


def test_what_is_wrong_with_a_place_is_told_before_any_work(s3, tokenizer, corpus, monkeypatch):
    with pytest.raises(RunError, match="make the bucket or container first"):
        run(tokenizer, corpus, "s3://no-such-bucket/out")
    with pytest.raises(ConfigError, match="in the memory of this process alone"):
        run(tokenizer, corpus, "memory://out", run__backend="local")
    learn = {"output": "memory://t.json", "vocab_size": 300}
    with pytest.raises(ConfigError, match="a tokenizer is written to this machine only"):
        gristmill.train({"read": {"inputs": [str(corpus)]}, "learn": learn})
    with pytest.raises(RunError, match=r"has no manifest\.json \(no run\)"):
        gristmill.open(f"s3://{BUCKET}/nothing")
    store = fsspec.filesystem("s3")
    store.clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RunError, match="credentials"):
        run(tokenizer, corpus, f"s3://{BUCKET}/out")
    store.clear_instance_cache()


def test_passing_errors_are_tried_again_and_lasting_ones_are_told_at_once(monkeypatch):
    waits = []
    monkeypatch.setattr("gristmill.retry.time.sleep", waits.append)
    answers = [OSError("busy"), ConnectionResetError(), 7]

    def ask():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert retried(ask) == 7
    assert len(waits) == 2
    assert waits[1] > 0.1
    answers = [PermissionError("no"), 7]
    with pytest.raises(PermissionError):
        retried(ask)
    answers = [OSError("busy")] * MAX_ATTEMPTS
    with pytest.raises(UnreachableError, match=f"tried {MAX_ATTEMPTS} times, at last: busy"):
        retried(ask)
    assert answers == []


@pytest.mark.parametrize("seed", range(5))
def test_ranges_give_what_a_plain_file_gives(monkeypatch, seed):
    monkeypatch.setattr("gristmill.read.ranges.PART_BYTES", 1000)
    monkeypatch.setattr("gristmill.read.ranges.PAST_BYTES", 100)
    draw = random.Random(seed)
    content = draw.randbytes(draw.randrange(20_000))
    plain = io.BytesIO(content)
    with RangeReader(lambda a, b: content[a:b], len(content), draw.choice([None, 5000])) as ranges:
        for _ in range(50):
            if draw.random() < 0.3:
                place = draw.randrange(len(content) + 10)
                assert ranges.seek(place) == plain.seek(place)
            size = draw.randrange(3000)
            found = b""
            while len(found) < size and (part := ranges.read(size - len(found))):
                found += part
            assert found == plain.read(size)


def test_nothing_far_past_the_end_of_a_slice_is_read(monkeypatch):
    monkeypatch.setattr("gristmill.read.ranges.PART_BYTES", 1000)
    monkeypatch.setattr("gristmill.read.ranges.PAST_BYTES", 100)
    asked = []

    def read_range(start, end):
        asked.append((start, end))
        return bytes(end - start)

    with RangeReader(read_range, 100_000, 5000) as ranges:
        ranges.seek(3500)
        while ranges.tell() < 5050:
            ranges.read(500)
    assert sorted(asked) == [(3500, 4500), (4500, 5000), (5000, 5100)]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl.zst"])
def test_files_of_any_format_are_read_through_all_faults(s3, tokenizer, tmp_path, kind):
    import pyarrow as pa
    import pyarrow.parquet as pq
    import zstandard

    texts = [f"document {number} " * (number % 50) + "x" for number in range(2000)]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"text": texts}), path, row_group_size=300)
    elif kind == "arrow":
        with pa.ipc.new_file(path, pa.schema({"text": pa.string()})) as writer:
            writer.write_table(pa.table({"text": texts}), max_chunksize=300)
    else:
        write_jsonl(tmp_path / "a", texts)
        path.write_bytes(zstandard.compress((tmp_path / "a").read_bytes()))
    fsspec.filesystem("s3").put_file(str(path), f"{BUCKET}/formats/a.{kind}")
    here = run(tokenizer, path, tmp_path / "out")
    s3.share = SHARE
    there = run(tokenizer, f"s3://{BUCKET}/formats/a.{kind}", tmp_path / "remote")
    assert there.manifest == here.manifest
    assert here.manifest.ledger.documents_encoded == 2000
