"""A run: the same bytes whatever the workers, a ledger that balances, limits, resuming, refusals."""

import gc
import json
import shutil
import threading
import weakref
from contextlib import closing

import pyarrow.parquet as pq
import pytest

import gristmill
import made_tokenizers as made
from gristmill.config import RunConfig
from gristmill.errors import ConfigError, InputError, ResumeError, RunError
from gristmill.job import read_job_file
from gristmill.pipeline import UnitOutput
from gristmill.plan import Unit, UnitPlan
from gristmill.records import VERSION, Ledger, UnitRecord
from gristmill.run.done import DoneUnits
from gristmill.run.folder import read_manifest, read_plan
from gristmill.run.outcome import Outcome
from gristmill.run.progress import Progress
from gristmill.run.work import Work
from gristmill.sample import train_sample_tokenizer
from made_runs import make_config, make_corpus, output_bytes, payload_documents, run, write_jsonl

from gristmill.run.tokenize import tokenize  # isort: skip
from gristmill.store import LocalFolder

SAMPLES = ["mds", "litdata", "pt", "npy", "webdataset"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return folder, make_corpus(folder)


def rows_of(folder):
    """All rows of a parquet run, in order."""
    manifest = read_manifest(folder)
    tables = [pq.read_table(folder / shard.files["parquet"][0].path) for shard in manifest.shards]
    return [row for table in tables for row in table["input_ids"].to_pylist()]


def test_every_document_comes_out_in_order_with_eos(tokenizer, corpus, tmp_path):
    folder, documents = corpus
    result = run(tokenizer, folder, tmp_path / "out")
    loaded = gristmill.load_tokenizer(tokenizer)
    expected = [[*loaded.encode(text).tolist(), 0] for text in documents]
    assert payload_documents(tmp_path / "out") == expected
    ledger = result.manifest.ledger
    assert ledger.documents_read == ledger.documents_encoded == len(documents)
    assert ledger.tokens_written == sum(map(len, expected))
    assert len(result.manifest.shards) > 10


@pytest.mark.parametrize(
    "options",
    [
        {"write__format": ["megatron", "olmo", "datatrove", "nanogpt", "llmc"]},
        {"write__format": "parquet", "pack__mode": "concat", "pack__sequence_length": 100},
        {"write__format": "parquet", "pack__mode": "best_fit", "pack__sequence_length": 300},
        {"write__format": "arrow", "pack__mode": "pad", "pack__sequence_length": 64, "pack__overlap": 8},
        {"write__format": SAMPLES, "pack__mode": "documents"},
        {"write__format": SAMPLES, "pack__mode": "best_fit", "pack__sequence_length": 100},
    ],
    ids=["documents", "concat", "best_fit", "pad", "samples of documents", "samples of rows"],
)
def test_bytes_are_the_same_for_any_workers_backend_preset_and_block_size(
    tokenizer, corpus, tmp_path, options
):
    folder, _ = corpus
    run(tokenizer, folder, tmp_path / "inline", **options)
    expected = output_bytes(tmp_path / "inline")
    variants = [
        {"run__backend": "local", "run__workers": 1},
        {"run__backend": "local", "run__workers": 2},
        {"run__backend": "local", "run__workers": 5, "run__preset": "extreme"},
        {"run__backend": "inline", "run__workers": 2},
        {"run__backend": "inline", "run__workers": 5, "run__block_bytes": 5000},
        {"run__preset": "streaming"},
        {"run__preset": "extreme", "run__block_bytes": 1000},
        {"run__block_bytes": 700},
    ]
    for number, variant in enumerate(variants):
        output = tmp_path / str(number)
        run(tokenizer, folder, output, **options, **variant)
        assert output_bytes(output) == expected, variant


@pytest.mark.parametrize("mode", ["concat", "best_fit"])
def test_no_row_is_padded_because_a_unit_ended(tokenizer, corpus, tmp_path, mode):
    folder, _ = corpus
    options = {"write__format": "parquet", "pack__mode": mode, "pack__sequence_length": 300}
    result = run(tokenizer, folder, tmp_path / "out", **options)
    ledger = result.manifest.ledger
    assert ledger.tokens_encoded == ledger.tokens_written
    assert ledger.rows * 300 == ledger.tokens_written + ledger.padding
    if mode == "concat":
        assert ledger.padding < 300
    assert len(rows_of(tmp_path / "out")) == ledger.rows


def test_no_block_is_held_while_what_is_left_is_packed(tokenizer, corpus, tmp_path, monkeypatch):
    add, finish = UnitOutput.add, UnitOutput.finish_packing
    seen, held = [], []

    def watch(output, documents, *others, **options):
        seen.append(weakref.ref(documents.text))
        add(output, documents, *others, **options)

    def look(output, **options):
        held.extend(text for text in seen if text() is not None)
        finish(output, **options)

    monkeypatch.setattr(UnitOutput, "add", watch)
    monkeypatch.setattr(UnitOutput, "finish_packing", look)
    run(tokenizer, corpus[0], tmp_path / "out", write__format="parquet", pack__sequence_length=100)
    assert len(seen) > 10
    assert held == []


def test_a_dropped_tail_is_counted(tokenizer, corpus, tmp_path):
    folder, _ = corpus
    options = {"write__format": "parquet", "pack__sequence_length": 300, "pack__tail": "drop"}
    ledger = run(tokenizer, folder, tmp_path / "out", **options).manifest.ledger
    assert ledger.padding == 0
    assert ledger.tokens_encoded == ledger.tokens_written + ledger.tokens_dropped["tail"]
    assert 0 < ledger.tokens_dropped["tail"] < 300


@pytest.mark.parametrize("backend", ["inline", "local"])
@pytest.mark.parametrize("limit", [1, 37, 100, 10**6])
def test_max_rows_gives_a_prefix(tokenizer, corpus, tmp_path, limit, backend):
    folder, _ = corpus
    options = {"write__format": "parquet", "pack__sequence_length": 300, "run__backend": backend}
    run(tokenizer, folder, tmp_path / "full", **options)
    run(tokenizer, folder, tmp_path / "some", **options, run__max_rows=limit)
    assert rows_of(tmp_path / "some") == rows_of(tmp_path / "full")[:limit]


@pytest.mark.parametrize("limit", [1, 5000, 20_000])
def test_max_tokens_gives_whole_documents(tokenizer, corpus, tmp_path, limit):
    folder, _ = corpus
    run(tokenizer, folder, tmp_path / "full")
    result = run(tokenizer, folder, tmp_path / "some", run__max_tokens=limit)
    some, full = payload_documents(tmp_path / "some"), payload_documents(tmp_path / "full")
    assert some == full[: len(some)]
    assert sum(map(len, some)) <= limit < sum(map(len, full[: len(some) + 1]))
    assert result.manifest.ledger.rows == len(some)


def test_the_same_command_again_answers_from_the_manifest(tokenizer, corpus, tmp_path):
    folder, _ = corpus
    first = run(tokenizer, folder, tmp_path / "out")
    before = output_bytes(tmp_path / "out")
    again = run(tokenizer, folder, tmp_path / "out")
    assert again.last is None
    assert again.manifest == first.manifest
    assert output_bytes(tmp_path / "out") == before


def test_a_run_cut_short_is_taken_up(tokenizer, corpus, tmp_path):
    folder, _ = corpus
    run(tokenizer, folder, tmp_path / "full")
    run(tokenizer, folder, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    for number in (1, 4):
        (tmp_path / "out" / "units" / f"{number:05d}.json").unlink()
        for path in (tmp_path / "out" / "megatron").glob(f"shard-{number:05d}*"):
            path.unlink()
    (tmp_path / "out" / "megatron" / ".shard-left-over.tmp").write_bytes(b"x")
    (tmp_path / "out" / "megatron" / "shard-00001-777.bin").write_bytes(b"x")
    run(tokenizer, folder, tmp_path / "out")
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "full")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pack__sequence_length": 512}, "pack.sequence_length was 2048, is now 512"),
        ({"encode__add_bos": True, "encode__bos_id": 1}, "encode.add_bos"),
        ({"write__format": "olmo"}, "write.format"),
        ({"run__max_rows": 5}, "run.max_rows"),
    ],
)
def test_another_option_is_refused_by_name(tokenizer, corpus, tmp_path, options, named):
    folder, _ = corpus
    run(tokenizer, folder, tmp_path / "out")
    with pytest.raises(ResumeError, match=named):
        run(tokenizer, folder, tmp_path / "out", **options)


def test_a_changed_input_is_refused_by_name_and_force_starts_over(tokenizer, tmp_path):
    make_corpus(tmp_path / "corpus", num_files=2, num_docs=10)
    run(tokenizer, tmp_path / "corpus", tmp_path / "out")
    write_jsonl(tmp_path / "corpus" / "part-1.jsonl", ["another text"])
    with pytest.raises(ResumeError, match=r"part-1\.jsonl was"):
        run(tokenizer, tmp_path / "corpus", tmp_path / "out")
    write_jsonl(tmp_path / "corpus" / "part-2.jsonl", ["one more"])
    with pytest.raises(ResumeError, match=r"part-2\.jsonl is new"):
        run(tokenizer, tmp_path / "corpus", tmp_path / "out")
    config = make_config(tokenizer, tmp_path / "corpus", tmp_path / "out")
    assert tokenize(config, force=True).manifest.ledger.documents_read == 12


def test_inputs_in_another_order_are_refused(tokenizer, tmp_path):
    paths = [str(write_jsonl(tmp_path / f"{name}.jsonl", [name])) for name in "ab"]
    run(tokenizer, paths[0], tmp_path / "out", read__inputs=paths)
    with pytest.raises(ResumeError, match="another order"):
        run(tokenizer, paths[0], tmp_path / "out", read__inputs=paths[::-1])


def test_a_size_may_be_spelled_otherwise_when_a_run_is_resumed(tokenizer, corpus, tmp_path):
    sizes = {"read__unit_bytes": "1MB", "read__max_document_bytes": "2MB", "write__shard_bytes": "1GB"}
    run(tokenizer, corpus[0], tmp_path / "out", **sizes)
    sizes = {"read__unit_bytes": "1000KB", "read__max_document_bytes": 2_000_000, "write__shard_bytes": 10**9}
    assert run(tokenizer, corpus[0], tmp_path / "out", **sizes).last is None


def test_config_and_plan_have_the_options_the_run_was_resumed_with(tokenizer, corpus, tmp_path):
    run(tokenizer, corpus[0], tmp_path / "out", run__block_bytes="1MB")
    run(tokenizer, corpus[0], tmp_path / "out", run__block_bytes="2MB")
    assert read_plan(tmp_path / "out").config.run.block_bytes == "2MB"
    assert read_job_file(tmp_path / "out" / "config.yaml")["run"]["block_bytes"] == "2MB"


def test_files_that_were_half_written_at_a_kill_are_not_in_the_way(tokenizer, corpus, tmp_path):
    (tmp_path / "out").mkdir()
    for name in (".config.yaml.x1y2z3", ".plan.json.a1b2c3", ".quarantine.jsonl.12-0123abcd.tmp"):
        (tmp_path / "out" / name).write_bytes(b"{")
    run(tokenizer, corpus[0], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").glob(".*")] == [".lock"]


def test_force_refuses_what_it_cannot_remove(tokenizer, corpus, tmp_path):
    run(tokenizer, corpus[0], tmp_path / "out")
    (tmp_path / "out" / "units").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / "units").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"units: is a link"):
        tokenize(make_config(tokenizer, corpus[0], tmp_path / "out"), force=True)
    assert list((tmp_path / "elsewhere").iterdir())


class ThreeUnits:
    """A backend whose last unit fails before the others are done, each of one row."""

    def run(self, tasks, progress):
        for task in reversed(tasks):
            empty = {"slice_records": (), "shards": (), "sidecars": (), "stage_s": {}}
            made = UnitRecord(unit=task.unit, ledger=Ledger(rows=1), **empty)
            yield Outcome(task, None, "broken") if task.unit == 2 else Outcome(task, made, None)


@pytest.mark.parametrize(("max_rows", "failed"), [(1, {}), (5, {2: "broken"})])
def test_a_unit_that_fails_past_the_limit_is_no_failure(tmp_path, max_rows, failed):
    units = tuple(Unit(index=index, slices=()) for index in range(3))
    plan = UnitPlan(version=VERSION, identity={}, files=(), units=units, max_document_bytes=1)
    done = DoneUnits(len(units))
    with closing(Progress(plan, done, tmp_path / "events.jsonl", None)) as progress:
        work = Work(plan, RunConfig(max_rows=max_rows), ThreeUnits(), progress, done, LocalFolder(tmp_path))
        work.do_units([0, 1, 2])
    assert work.failed == failed


def test_another_tokenizer_is_refused(tokenizer, corpus, tmp_path):
    folder, _ = corpus
    (tmp_path / "other").mkdir()
    other = train_sample_tokenizer(tmp_path / "other", vocab_size=700)
    run(tokenizer, folder, tmp_path / "out")
    with pytest.raises(ResumeError, match="tokenizer was"):
        run(other, folder, tmp_path / "out")


def test_a_folder_with_something_else_in_it_is_refused(tokenizer, corpus, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    config = make_config(tokenizer, corpus[0], tmp_path / "out")
    with pytest.raises(RunError, match=r"thesis\.tex"):
        tokenize(config, force=True)
    assert (tmp_path / "out" / "thesis.tex").exists()


def test_a_tokenizer_without_eos_is_refused_with_the_remedy(tokenizer, corpus, tmp_path):
    with pytest.raises(ConfigError, match=r"encode\.add_eos=false"):
        run(tokenizer, corpus[0], tmp_path / "out", encode__eos_id=None)
    run(tokenizer, corpus[0], tmp_path / "out", encode__eos_id=None, encode__add_eos=False)
    assert read_plan(tmp_path / "out").layout.eos_id is None


def test_no_matching_file_is_an_error_and_leaves_no_folder_in_the_way(tokenizer, corpus, tmp_path):
    with pytest.raises(InputError, match="nothing"):
        run(tokenizer, tmp_path / "nothing-*.jsonl", tmp_path / "out")
    run(tokenizer, corpus[0], tmp_path / "out")


def test_a_job_of_bad_documents_only_is_an_error(tokenizer, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    with pytest.raises(RunError, match="missing_field 2"):
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", read__text_field="body")


def test_too_many_bad_documents_stop_the_run(tokenizer, tmp_path):
    lines = [json.dumps({"text": "good"}), "{bad"] * 30
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(RunError, match="bad_json 30"):
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", run__max_bad_fraction=0.1)
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", run__max_bad_fraction=0.6)


def test_no_unit_goes_on_when_too_many_bad_documents_have_stopped_the_run(tokenizer, tmp_path):
    lines = ["{bad"] * 2000 + [json.dumps({"text": "good " * 20})] * 20_000
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    before = set(threading.enumerate())
    options = {"run__max_bad_fraction": 0.1, "run__workers": 2}
    with pytest.raises(RunError, match=r"of the first \d+ documents are bad, .* quarantine files in units/"):
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", **options)
    assert set(threading.enumerate()) <= before
    assert len(list((tmp_path / "out" / "units").glob("*.json"))) < 50
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", **options | {"run__max_bad_fraction": 0.99})


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_first_documents_decide_whether_too_many_are_bad_whatever_ends_first(
    tokenizer, tmp_path, workers
):
    good = [json.dumps({"text": "good " * 20})]
    (tmp_path / "a.jsonl").write_text("\n".join(good * 3000 + ["{bad"] * 300 + good * 3000))
    options = {"run__workers": workers, "read__unit_bytes": 20_000}
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", **options, run__max_bad_fraction=0.1)
    with pytest.raises(RunError, match=r"of the first 3[0-9]{3} documents are bad"):
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / "too many", **options, run__max_bad_fraction=0.05)


def test_a_file_name_that_is_nearly_right_is_told_the_right_one_first(tokenizer, tmp_path):
    for name in ("a", "b", "c", "d", "e", "f", "pages.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"there is \S*/pages\.jsonl, \S*/a, "):
        run(tokenizer, tmp_path / "pages.jsnl", tmp_path / "out")


def test_a_tokenizer_without_pad_is_told_what_rows_may_be_filled_with(tmp_path):
    tokenizer = train_sample_tokenizer(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", ["one"])
    options = {"encode__add_eos": False, "encode__eos_id": None, "write__format": "parquet"}
    with pytest.raises(ConfigError, match=r"add pack\.pad_id=0 \(<\|endoftext\|>\)"):
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", **options)


def test_a_program_that_collects_no_garbage_goes_on_so(tokenizer, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["one"])
    gc.disable()
    try:
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_quarantine_is_in_the_order_of_records_for_any_block_size(tokenizer, tmp_path):
    lines = ["{bad", json.dumps({"text": "one <|endoftext|>"})] * 20
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, json.dumps({"text": "good"})]))
    entries = []
    for block_bytes in (100, 100_000):
        options = {"encode__special_tokens": "error", "run__block_bytes": block_bytes}
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / f"{block_bytes}", **options)
        entries.append((tmp_path / f"{block_bytes}" / "quarantine.jsonl").read_text())
    assert entries[0] == entries[1]
    assert [json.loads(line)["record"] for line in entries[0].splitlines()] == list(range(40))


def test_ten_thousand_tiny_files_are_read(tokenizer, tmp_path):
    (tmp_path / "tiny").mkdir()
    for number in range(10_000):
        (tmp_path / "tiny" / f"{number:05d}.txt").write_text(f"file {number}")
    result = run(tokenizer, tmp_path / "tiny", tmp_path / "out", run__backend="local", run__workers=2)
    assert result.manifest.ledger.documents_encoded == 10_000
    shutil.rmtree(tmp_path / "tiny")


def test_a_tokenizer_whose_ids_are_random_is_refused(corpus, tmp_path):
    value = made.byte_level_json()
    value["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))
    for engine in ("auto", "tokenizers"):
        with pytest.raises(ConfigError, match="has a dropout"):
            run(tmp_path / "tokenizer.json", corpus, tmp_path / "out", tokenizer__engine=engine)
