"""Datasets by name, with the real client against a hub on loopback, in real processes: what is fetched, kept,
checked and taken up again, and what is said when the hub, the network or the cache fails."""

import gzip
import io
import json
import signal
import subprocess
import sys
import threading
import time
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from huggingface_hub import hf_hub_download, scan_cache_dir

from gristmill.hub.names import ALIASES
from gristmill.run.folder import read_any_plan, read_manifest
from gristmill.sample import made_documents
from made_hub import PIECE_BYTES, TOKEN, MadeHub, environment, serving, start_command, start_commands
from made_runs import output_bytes, payload_documents, run, write_jsonl

REPO = "someone/tiny"
FOLDER = "datasets--someone--tiny"
CARD = b"""---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*
  - split: test
    path: held/*.jsonl
- config_name: few
  data_files: data/part-0.parquet
---
# Tiny
"""


def parquet(texts, field="text"):
    buffer = io.BytesIO()
    pq.write_table(pa.table({field: texts, "n": range(len(texts))}), buffer, row_group_size=40)
    return buffer.getvalue()


def lines(texts):
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


TEXTS = [made_documents(160, seed=seed) for seed in range(4)]
FILES = {
    "README.md": CARD,
    "data/part-0.parquet": parquet(TEXTS[0]),
    "data/part-1.jsonl.gz": gzip.compress(lines(TEXTS[1]), mtime=0),
    "data/part-2.jsonl": lines(TEXTS[2]),
    "data/NOTES": b"no data",
    "held/a.jsonl": lines(TEXTS[3]),
}
BIG = parquet([f"{number} {text}" for number in range(6) for text in made_documents(400, seed=number + 9)])


class Place:
    """A hub, a machine that has never seen it, and a way to run commands there."""

    def __init__(self, hub, address, folder, tokenizer):
        self.hub, self.address, self.folder, self.tokenizer = hub, address, folder, tokenizer
        self.cache = folder / "home" / "hub"

    def start(self, *arguments, **settings):
        env = environment(self.address, self.folder / "home", **settings)
        return start_command(arguments, env)

    def job(self, name, *arguments, dataset=REPO, workers=None):
        """Arguments of a run in its own folder."""
        how = ["run.backend=inline"] if workers is None else ["--workers", workers]
        job = ["-t", self.tokenizer, "--eos-id", 0, "read.unit_bytes=20000", "-o", self.folder / name, *how]
        return ["tokenize", "--dataset", dataset, *job, *arguments]

    def tokenize(self, name, *arguments, dataset=REPO, workers=None, **settings):
        return self.start(*self.job(name, *arguments, dataset=dataset, workers=workers), **settings)

    def all(self, *commands, status=0, **settings):
        """Commands in one process, one after the other; what they say of errors."""
        env = environment(self.address, self.folder / "home", **settings)
        return end(start_commands([(status, command) for command in commands], env))

    def incomplete(self):
        return list(self.cache.glob(f"{FOLDER}/blobs/*.incomplete"))

    def blob(self, path, repo=REPO):
        (found,) = (self.cache / f"datasets--{repo.replace('/', '--')}" / "snapshots").glob(f"*/{path}")
        return found.resolve()


@pytest.fixture
def place(tmp_path, tokenizer):
    hub = MadeHub()
    hub.commit(REPO, FILES)
    with serving(hub) as address:
        yield Place(hub, address, tmp_path, tokenizer)


def wait_for(measure, *, at_least):
    """What is measured once it is large enough."""
    deadline = time.monotonic() + 60
    while (found := measure()) < at_least:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    return found


def end(process, *, status=0):
    said, errors = process.communicate(timeout=100)
    assert process.returncode == status, errors + said
    return errors


def test_cached_and_streamed_give_the_same_bytes_for_any_number_of_workers(place, tmp_path):
    place.all(place.job("streamed", "--streaming", workers=2))
    assert {path.name for path in place.cache.glob("*/snapshots/*/**/*") if path.is_file()} <= {"README.md"}
    verify = ["verify", tmp_path / "cached", "--sample", 50]
    place.all(place.job("cached"), place.job("parallel", workers=2), verify)
    for name in ("cached", "parallel"):
        assert output_bytes(tmp_path / name) == output_bytes(tmp_path / "streamed")
    local = write_jsonl(tmp_path / "all.jsonl", chain(*TEXTS[:3]))
    run(place.tokenizer, local, tmp_path / "local")
    assert payload_documents(tmp_path / "cached") == payload_documents(tmp_path / "local")


def test_what_was_fetched_is_reused_by_other_runs_and_needs_no_network(place, tmp_path):
    end(place.tokenize("a"))
    data = [path for path in FILES if path.startswith("data/part")]
    sizes = {path: len(FILES[path]) for path in data}
    assert place.hub.sent == sizes | {"README.md": len(CARD)}
    last = json.loads((tmp_path / "a" / "events.jsonl").read_text().splitlines()[-1])
    assert 0 < last["fetched_bytes"] <= last["fetch_bytes"] == sum(sizes.values())
    place.hub.requests.clear()
    end(place.tokenize("b"))
    assert [path for _, path, _, _ in place.hub.requests if "resolve" in path or "store" in path] == []
    place.hub.requests.clear()
    place.all(place.job("c"), place.job("a"), HF_HUB_OFFLINE="1")
    assert place.hub.requests == []
    assert output_bytes(tmp_path / "c") == output_bytes(tmp_path / "a")


def test_other_programs_find_the_files_in_the_cache(place, tmp_path):
    commit = place.hub.refs[REPO]["main"]
    place.all(place.job("a", "--cache-dir", tmp_path / "cache"))
    path = hf_hub_download(
        REPO,
        "data/part-0.parquet",
        repo_type="dataset",
        revision=commit,
        cache_dir=tmp_path / "cache",
        local_files_only=True,
    )
    assert Path(path).read_bytes() == FILES["data/part-0.parquet"]
    assert {info.repo_id for info in scan_cache_dir(tmp_path / "cache").repos} == {REPO}
    assert scan_cache_dir(tmp_path / "cache").warnings == []


@pytest.mark.parametrize("streaming", [[], ["--streaming"]], ids=["cached", "streamed"])
def test_a_lost_connection_and_a_busy_hub_cost_time_and_nothing_else(place, tmp_path, streaming):
    place.all(place.job("calm", "--cache-dir", tmp_path / "other"))
    place.hub.requests.clear()
    place.hub.drops = {"data/part-1.jsonl.gz": [PIECE_BYTES], "data/part-0.parquet": [PIECE_BYTES]}
    place.hub.busy = {"/tree/": 1, "part-2.jsonl": 1}
    end(place.tokenize("stormy", *streaming))
    assert output_bytes(tmp_path / "stormy") == output_bytes(tmp_path / "calm")
    assert place.hub.busy == {"/tree/": 0, "part-2.jsonl": 0}
    assert place.hub.drops == {"data/part-1.jsonl.gz": [], "data/part-0.parquet": []}
    # A stream that had given nothing yet begins anew; a copy goes on.
    is_continued = f"bytes={PIECE_BYTES}-" in place.hub.asked("GET", "part-1.jsonl.gz")
    assert is_continued == (not streaming)


def test_a_killed_download_is_taken_up_where_it_was_cut_off(place, tmp_path):
    place.hub.commit(REPO, {"a.parquet": parquet(TEXTS[0]), "b.parquet": BIG})
    half = len(BIG) // 2 // PIECE_BYTES * PIECE_BYTES
    place.hub.hold_at = {"b.parquet": half}
    killed = place.tokenize("out")
    wait_for(lambda: max((part.stat().st_size for part in place.incomplete()), default=0), at_least=half)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    place.hub.hold_at.clear()
    place.hub.release.set()
    place.hub.requests.clear()
    place.hub.sent.clear()
    kept = [path.stat().st_size for path in (place.cache / FOLDER / "blobs").iterdir()]
    place.all(place.job("out"), place.job("straight"))
    assert f"bytes={half}-" in place.hub.asked("GET", "/store/someone/tiny")
    assert sum(place.hub.sent.values()) == len(parquet(TEXTS[0])) + len(BIG) - sum(kept)
    assert place.blob("b.parquet").read_bytes() == BIG
    assert place.incomplete() == []
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "straight")


def test_two_runs_share_a_cache_and_each_file_is_fetched_once(place, tmp_path):
    place.hub.commit(REPO, {f"{number}.parquet": parquet(TEXTS[number]) for number in range(4)})
    for process in [place.tokenize(f"out-{number}") for number in range(3)]:
        end(process)
    assert place.hub.sent == {f"{number}.parquet": len(parquet(TEXTS[number])) for number in range(4)}
    assert output_bytes(tmp_path / "out-0") == output_bytes(tmp_path / "out-1")


def test_a_damaged_copy_is_found_and_fetched_again(place, tmp_path):
    end(place.tokenize("a"))
    blob = place.blob("data/part-0.parquet")
    content = bytearray(blob.read_bytes())
    content[1000] ^= 1
    blob.write_bytes(content)
    place.blob("data/part-2.jsonl").write_bytes(b"")
    place.hub.sent.clear()
    end(place.tokenize("b"))
    assert set(place.hub.sent) == {"data/part-0.parquet", "data/part-2.jsonl"}
    assert blob.read_bytes() == FILES["data/part-0.parquet"]
    assert output_bytes(tmp_path / "a") == output_bytes(tmp_path / "b")


def test_content_that_is_not_what_the_hub_lists_is_refused(place):
    place.hub.wrong = {"data/part-2.jsonl": FILES["data/part-2.jsonl"].replace(b"e", b"a", 1)}
    said = end(place.tokenize("out"), status=2)
    assert "someone/tiny: data/part-2.jsonl does not have the digest that the hub lists" in said
    assert place.incomplete() == []


def test_a_run_keeps_its_commit_when_the_branch_moves_until_it_is_forced(place, tmp_path):
    before = place.hub.refs[REPO]["main"]
    place.hub.wrong = {"data/part-2.jsonl": b"{}"}
    place.all(place.job("out", "--quiet"), status=2)
    assert len(list((tmp_path / "out" / "units").glob("*.json"))) > 1
    after = place.hub.commit(REPO, FILES | {"data/part-2.jsonl": lines(["another text"])})
    place.hub.wrong.clear()
    end(place.tokenize("out"))
    assert read_any_plan(tmp_path / "out").commit == before
    assert read_manifest(tmp_path / "out").ledger.documents_encoded == 480
    said = end(place.tokenize("out", "--revision", after), status=2)
    assert "holds a run of another job: input hf://datasets/someone/tiny@" in said
    assert "use --force to start over" in said
    end(place.tokenize("out", "--force"))
    assert read_any_plan(tmp_path / "out").commit == after
    assert read_manifest(tmp_path / "out").ledger.documents_encoded == 321


@pytest.mark.parametrize("streaming", [[], ["--streaming"]], ids=["cached", "streamed"])
def test_a_restricted_dataset_names_the_way_in(place, streaming):
    place.hub.gated.add(REPO)
    said = end(place.tokenize("out", *streaming), status=2)
    assert f"someone/tiny is restricted: accept its terms at {place.address}/datasets/someone/tiny" in said
    assert "HF_TOKEN" in said
    end(place.tokenize("out", *streaming, HF_TOKEN=TOKEN))


def test_a_restricted_dataset_whose_files_are_known_names_the_way_in_when_they_are_read(place):
    place.hub.commit("bigcode/the-stack", {"data/python/train-0.parquet": parquet(TEXTS[0], field="content")})
    place.hub.gated.add("bigcode/the-stack")
    said = place.all(
        place.job("out", dataset="the-stack"), place.job("out", "--streaming", dataset="the-stack"), status=2
    )
    assert ["set HF_TOKEN" in line for line in said.splitlines()] == [True, True]


def test_the_errors_of_the_hub_are_there_whoever_imported_what():
    program = "from gristmill.hub.client import load_client; print(load_client('x').errors.__name__)"
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert asked.stdout == "huggingface_hub.errors\n"


def test_without_a_network_the_error_says_so_and_a_copy_serves(place):
    away = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    said = place.all(place.job("out"), status=2, **away)
    assert "someone/tiny: http://127.0.0.1:9 cannot be reached" in said
    assert "check the network, HF_ENDPOINT and proxies" in said
    by_url = ["tokenize", f"hf://datasets/{REPO}/held/a.jsonl", "-t", place.tokenizer, "--eos-id", 0]
    said = place.all([*by_url, "-o", place.folder / "out"], status=2, **away)
    assert f"{REPO}/held/a.jsonl: cannot be reached ([Errno 111] Connection refused); check the" in said
    said = end(place.tokenize("out", HF_HUB_OFFLINE="1"), status=2)
    assert "someone/tiny: is not all in the cache, and HF_HUB_OFFLINE forbids to fetch it" in said
    end(place.tokenize("few", "--max-rows", 3))
    end(place.tokenize("again", "--max-rows", 3, **away))
    said = end(place.tokenize("more", HF_HUB_OFFLINE="1"), status=2)
    assert "is not all in the cache" in said


def test_what_is_not_on_the_hub_is_said_with_what_there_is(place):
    tries = {
        "someone/tiny has no revision 'v9'": ["--revision", "v9"],
        "someone/tiny has no config 'many'; it has default, few": ["--dataset-config", "many"],
        "has no split 'train[:1%]'; it has train, test (--split); a part": ["--split", "train[:1%]"],
        "someone/else is no dataset of http": ["--dataset", "someone/else"],
        "read.dataset is 'finewebbedu' (did you mean finewebedu?)": ["--dataset", "finewebbedu"],
        "there are inputs and a dataset": ["corpus/"],
    }
    said = place.all(*(place.job("out", *arguments) for arguments in tries.values()), status=2)
    for expected, line in zip(tries, said.splitlines(), strict=True):
        assert expected in line


def test_a_limit_is_exact_for_any_number_of_workers_and_fetches_what_it_needs(place, tmp_path):
    chunks = ("--chunk-size", 64, "--max-chunks", 250)
    runs = (("one", 1), ("inline", None), ("three", 3))
    jobs = [place.job(name, *chunks, "read.unit_bytes=10000", workers=workers) for name, workers in runs]
    place.all(*jobs, ["verify", tmp_path / "three", "--sample", 20])
    manifest = read_manifest(tmp_path / "one")
    assert (manifest.ledger.rows, manifest.ledger.tokens_written) == (250, 16000)
    assert manifest.formats == ("parquet",)
    assert output_bytes(tmp_path / "one") == output_bytes(tmp_path / "three")
    assert output_bytes(tmp_path / "one") == output_bytes(tmp_path / "inline")
    place.hub.sent.clear()
    other = ("--cache-dir", tmp_path / "other", "read.unit_bytes=4000")
    end(place.tokenize("few", "--chunk-size", 64, "--max-chunks", 3, *other))
    assert set(place.hub.sent) <= {"README.md", "data/part-0.parquet"}
    table = pq.read_table(tmp_path / "few" / "parquet")
    assert [len(row) for row in table["input_ids"].to_pylist()] == [64] * 3


def test_a_batch_size_changes_nothing(place, tmp_path):
    place.all(place.job("all"), place.job("few", "--batch-size", 7))
    assert output_bytes(tmp_path / "few") == output_bytes(tmp_path / "all")


def test_plan_samples_a_dataset_and_keeps_no_copy_of_it(place):
    job = ["-t", place.tokenizer, "--eos-id", 0, "read.unit_bytes=20000"]
    process = place.start("plan", "--dataset", REPO, *job)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "documents   480" in said
    assert "of the dataset are fetched into" in said
    assert list(place.cache.glob("*/snapshots/*/data/*")) == []


def test_a_tokenizer_is_trained_on_a_dataset(place, tmp_path):
    job = ["--dataset", REPO, "--dataset-config", "few", "--vocab-size", 300, "-o", tmp_path / "t.json"]
    end(place.start("train", *job))
    assert json.loads((tmp_path / "t.json").read_bytes())["model"]["type"] == "BPE"


def test_a_job_in_yaml_names_a_dataset_as_the_flags_do(place, tmp_path):
    job = f"""
tokenizer: {place.tokenizer}
read: {{dataset: {REPO}, dataset_config: few, streaming: true, unit_bytes: 20000}}
encode: {{eos_id: 0}}
write: {{output: {tmp_path / "yaml"}}}
run: {{backend: inline}}
"""
    (tmp_path / "job.yaml").write_text(job)
    flags = place.job("flags", "--dataset-config", "few", "--streaming")
    place.all(flags, ["tokenize", "--config", tmp_path / "job.yaml"])
    assert output_bytes(tmp_path / "yaml") == output_bytes(tmp_path / "flags")


def test_a_listing_in_pages_is_read_to_its_end(place, tmp_path):
    place.hub.page_size = 2
    end(place.tokenize("out"))
    assert read_manifest(tmp_path / "out").ledger.documents_encoded == 480


def test_names_that_lead_out_of_the_cache_are_refused(place):
    card = CARD.replace(b"data/*", b'"**"')
    place.hub.commit(REPO, {"README.md": card, "x/../../../../evil.jsonl": lines(["x"])})
    assert "which names no file" in end(place.tokenize("out"), status=2)


def test_an_etag_that_leads_out_of_the_cache_writes_nothing_there(place, tmp_path):
    place.hub.etags = dict.fromkeys(("README.md", "data/part-2.jsonl"), "../../../../../../evil")
    end(place.tokenize("out"))
    assert not list(tmp_path.parent.parent.rglob("evil*"))


def test_what_a_hub_lists_that_cannot_be_is_refused(place):
    sizes = [-1, None, "many", 1.5, 1 << 45]
    for number, size in enumerate(sizes):
        place.hub.listed = {"data/part-2.jsonl": {"size": size}}
        errors = place.all(place.job(f"size-{number}"), status=2)
        assert f"'data/part-2.jsonl' with a size of {size} bytes" in errors
    place.hub.listed = {"data/part-2.jsonl": {"path": "data/part-0.parquet"}}
    assert "without end, 'data/part-0.parquet' twice" in place.all(place.job("twice"), status=2)
    place.hub.named_commit = "../../evil"
    assert "names '../../evil' as its commit" in place.all(place.job("commit"), status=2)


def test_a_card_without_end_is_left_alone(place):
    place.hub.wrong = {"README.md": bytes(1 << 24)}
    assert "its card has more than 8,388,608 bytes" in end(place.tokenize("out"), status=2)


def test_a_hub_that_begins_anew_each_time_and_never_ends_is_given_up(place):
    whole = FILES["data/part-2.jsonl"]
    place.hub.ignores_ranges = True
    place.hub.shortened = {"data/part-2.jsonl": [len(whole) // 2, len(whole) // 3] * 50}
    errors = end(place.tokenize("out"), status=2)
    assert "sends nothing more of data/part-2.jsonl" in errors


def test_a_file_that_is_said_to_be_on_this_machine_is_not_read(place):
    place.hub.store = "file:///etc"
    assert "unsupported protocol 'file://'" in end(place.tokenize("out"), status=2)


def test_a_token_stays_with_the_hub_when_files_are_elsewhere(place, tmp_path):
    with serving(place.hub) as elsewhere:
        place.hub.store = elsewhere.replace("127.0.0.1", "localhost")
        end(place.tokenize("out", HF_TOKEN=TOKEN))
        end(place.tokenize("streamed", "--streaming", HF_TOKEN=TOKEN))
    sent = {(path.split("/")[1], token) for _, path, _, token in place.hub.requests}
    assert sent == {("api", f"Bearer {TOKEN}"), ("datasets", f"Bearer {TOKEN}"), ("store", None)}


def test_a_run_that_is_told_to_end_does_not_wait_for_a_download(place):
    place.hub.commit(REPO, {"b.parquet": BIG})
    place.hub.hold_at = {"b.parquet": PIECE_BYTES}
    process = place.tokenize("out", workers=1)
    wait_for(lambda: sum(part.stat().st_size for part in place.incomplete()), at_least=1)
    process.send_signal(signal.SIGTERM)
    end(process, status=143)


LINES = lines(["a"])
SAMPLED = b"""---
configs:
- {config_name: default, data_files: [{split: train, path: data/*/*}]}
- {config_name: sample-10BT, data_files: [{split: train, path: sample/10BT/*}]}
---
"""
KNOWN = {
    "fineweb": {"README.md": SAMPLED, "sample/10BT/0.parquet": parquet(["a"]), "data/CC/0.parquet": b"x"},
    "finewebedu": {"README.md": SAMPLED, "sample/10BT/0.parquet": parquet(["a"]), "data/CC/0.parquet": b"x"},
    "dolma": {"README.md": b"#", "data/train-00000-of-00002.parquet": parquet(["a"])},
    "c4": {"en/c4-train.00000-of-01024.json.gz": gzip.compress(LINES), "de/c4-train.0.json.gz": b"x"},
    "openwebtext": {"README.md": b"#", "data/train-00000-of-00080.parquet": parquet(["a"])},
    "wikipedia": {"20231101.en/train-0.parquet": parquet(["a"]), "20231101.de/train-0.parquet": b"x"},
    "the-stack": {"data/python/train-0.parquet": parquet(["a"], field="content"), "licenses.json": b"x"},
    "redpajama": {"c4_sample.jsonl": LINES, "RedPajama-Data-1T-Sample.py": b"", "urls.txt": b"x"},
    "slimpajama": {"train/chunk1/a.jsonl.zst": zstandard.compress(LINES), "test/chunk1/a.jsonl.zst": b"x"},
    "tinystories": {"data/train-0.parquet": parquet(["a"]), "TinyStories-train.txt": b"x"},
}


def test_every_alias_reads_the_files_of_its_dataset_and_no_other(place, tmp_path):
    assert set(KNOWN) == set(ALIASES)
    for alias, files in KNOWN.items():
        place.hub.commit(ALIASES[alias].repo, files)
    place.all(*(place.job(alias, "--streaming", dataset=alias) for alias in KNOWN))
    for alias in KNOWN:
        ledger = read_manifest(tmp_path / alias).ledger
        assert (ledger.documents_read, ledger.documents_encoded, ledger.bad_files) == (1, 1, {}), alias


def test_a_script_is_not_run_but_what_the_hub_made_of_it_is_read(place, tmp_path):
    script = {"README.md": b"#", "x.py": b"raise SystemExit", "urls/v1.txt": b"http://127.0.0.1/a.jsonl"}
    converted = {"default/train/0000.parquet": parquet(["a"])}
    place.hub.commit("someone/made", script)
    place.hub.commit("someone/made", converted, ref="refs/convert/parquet")
    place.hub.commit("someone/lost", script)
    place.hub.commit("allenai/dolma", script)
    place.all(place.job("made", dataset="someone/made"))
    assert read_manifest(tmp_path / "made").ledger.documents_encoded == 1
    lost, dolma = (place.job("out", dataset=name) for name in ("someone/lost", "allenai/dolma"))
    said = place.all(lost, dolma, status=2).splitlines()
    assert "someone/lost has no files of text but a script (x.py), which is not run; look for" in said[0]
    assert "use --dataset dolma, which is emozilla/dolma-v1_7-305B" in said[1]
