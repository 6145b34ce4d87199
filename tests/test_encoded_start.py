"""A head start changes when the first documents of a run are encoded, and nothing else."""

import json
import threading
import weakref

import pytest
from msgspec.structs import replace

from adversarial_texts import random_texts
from gristmill import head_start, load_tokenizer, pipeline, unit_input
from gristmill.errors import RunError
from gristmill.head_start import EncodedStart
from gristmill.read import Blocks, InputFile, Slice, describe_file
from gristmill.run import early as run_early
from gristmill.run.early import Early, start_early
from gristmill.run.tokenize import tokenize
from made_runs import make_config, output_bytes

BLOCK_BYTES = 4096
BLOCKS = Blocks(block_bytes=9000, max_document_bytes=1 << 20, memory_map=False, read_ahead=False)


@pytest.fixture(autouse=True)
def small_start(monkeypatch):
    """Small files are worth it, and their blocks are small."""
    monkeypatch.setattr(run_early, "LEAST_FILE_BYTES", 0)
    monkeypatch.setattr(head_start, "BLOCK_BYTES", BLOCK_BYTES)


def records(count=800):
    """With names of special tokens, which a policy may make tokens."""
    texts = random_texts(count, seed=count, parts=["<|endoftext|>", "<s>"])
    return [
        json.dumps({"text": text or "empty"}, ensure_ascii=number % 2 == 0).encode()
        for number, text in enumerate(texts)
    ]


def write_lines(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


@pytest.fixture
def corpus(tmp_path):
    return write_lines(tmp_path / "texts.jsonl", records())


def make_job(tokenizer, corpus, output, **options):
    settings = {"run__backend": None, "run__workers": 2} | options
    return make_config(tokenizer, corpus, output, **settings)


def started(tokenizer, corpus, *, policy="text"):
    """A head start that has ended by itself."""
    start = EncodedStart(str(corpus), "text", policy)
    start.run(load_tokenizer(tokenizer)._engine._engine)
    return start


def slice_of(corpus, *, stop=None):
    num_bytes, version = describe_file(str(corpus))
    file = InputFile(
        path=str(corpus), num_bytes=num_bytes, version=version, format="jsonl", compression="none"
    )
    return file, Slice(file=0, start=0, stop=stop or num_bytes, num_bytes=stop or num_bytes)


class Seen:
    """A head start, and what was taken of it."""

    def __init__(self, start):
        self._start = start
        self.taken = []

    def take(self, *arguments):
        self.taken.append(taken := self._start.take(*arguments))
        self.num_documents = [len(batch.offsets) - 1 for batch in taken.read.batches] if taken else []
        return taken

    def end(self):
        self._start.end()


def assert_same(tokenizer, corpus, folder, **options):
    """A run with all the head start it can have, and one without; how many blocks were taken over."""
    folder.mkdir()
    seen = Seen(started(tokenizer, corpus, policy=options.get("encode__special_tokens", "text")))
    tokenize(make_job(tokenizer, corpus, folder / "started", **options), early=Early(head_start=seen))
    tokenize(make_job(tokenizer, corpus, folder / "plain", **options))
    assert output_bytes(folder / "started") == output_bytes(folder / "plain")
    assert len(seen.taken) == 1
    return len(seen.num_documents)


@pytest.mark.parametrize(
    "options",
    [
        {"write__format": ["megatron", "nanogpt"]},
        {"encode__special_tokens": "parse"},
        {"encode__add_bos": True, "encode__bos_id": 0},
        {"write__format": ["parquet"], "pack__mode": "concat", "pack__sequence_length": 64},
        {"write__format": ["parquet"], "pack__mode": "best_fit", "pack__sequence_length": 64},
        {"write__format": ["arrow"], "pack__mode": "pad", "pack__sequence_length": 64},
    ],
)
def test_a_run_with_a_head_start_writes_the_same(tokenizer, corpus, tmp_path, options):
    assert assert_same(tokenizer, corpus, tmp_path / "runs", **options) == 4  # of 20 KB, less the last


def test_so_it_does_wherever_it_is_stopped(tokenizer, corpus, tmp_path, monkeypatch):
    load_tokenizer(tokenizer)  # so that it can be recalled
    tokenize(make_job(tokenizer, corpus, tmp_path / "plain"))
    taken = []
    for num_blocks in range(6):
        monkeypatch.setattr(head_start, "MOST_ENCODED_BYTES", num_blocks * BLOCK_BYTES)
        job = make_job(tokenizer, corpus, tmp_path / str(num_blocks))
        early = start_early(job)
        for thread in threading.enumerate():
            if thread.name == "recall":
                thread.join()
        seen = Seen(early.head_start)
        tokenize(job, early=early._replace(head_start=seen))
        assert output_bytes(tmp_path / str(num_blocks)) == output_bytes(tmp_path / "plain")
        taken.append(len(seen.num_documents))
    assert taken[0] == 0
    assert len(set(taken)) > 3, "it got further and less far"


def test_ids_are_not_held_longer_than_they_are_needed(tokenizer, corpus, tmp_path, monkeypatch):
    seen, alive = Seen(started(tokenizer, corpus)), []
    take, finish = seen.take, pipeline.UnitOutput.finish_packing

    def taking(*arguments):
        encoded = take(*arguments)
        seen.taken.clear()
        alive.extend(weakref.ref(tokens.ids) for tokens in encoded.tokens)
        return encoded

    def finishing(output, **options):
        if output._index == 0:  # another unit may be done while this one goes on
            assert not any(ids() is not None for ids in alive)
        return finish(output, **options)

    seen.take = taking
    monkeypatch.setattr(pipeline.UnitOutput, "finish_packing", finishing)
    tokenize(make_job(tokenizer, corpus, tmp_path / "run"), early=Early(head_start=seen))
    assert len(alive) == 4


def test_a_file_that_cannot_be_read_on_is_dealt_with_as_any(tokenizer, corpus, tmp_path, monkeypatch):
    seen = Seen(started(tokenizer, corpus))
    check = unit_input._check_unchanged

    def check_and_remove(file):
        check(file)
        corpus.unlink(missing_ok=True)

    monkeypatch.setattr(unit_input, "_check_unchanged", check_and_remove)
    job = make_job(tokenizer, corpus, tmp_path / "run", read__unit_bytes=10**7)
    result = tokenize(job, early=Early(head_start=seen))
    (encoded,) = seen.taken
    assert result.manifest.ledger.bad_files == {"unreadable": 1}
    assert result.manifest.ledger.documents_encoded == sum(seen.num_documents)
    assert encoded.read.batches == []


@pytest.mark.parametrize(
    ("changed", "blocks"),
    [
        ({}, {"max_documents": 1}),
        ({}, {"max_document_bytes": BLOCK_BYTES - 1}),
        ({"start": 10}, {}),
        ({"compression": "gzip"}, {}),
        ({"format": "text"}, {}),
        ({"num_bytes": 5}, {}),
        ({"version": "1"}, {}),
        ({"path": "/other.jsonl"}, {}),
    ],
)
def test_it_is_of_no_use_for_another_part_or_in_other_blocks(tokenizer, corpus, changed, blocks):
    file, part = slice_of(corpus)
    assert started(tokenizer, corpus).take(file, part, BLOCKS) is not None
    if "start" in changed:
        part = replace(part, **changed)
    else:
        file = replace(file, **changed)
    assert started(tokenizer, corpus).take(file, part, BLOCKS._replace(**blocks)) is None


def test_a_document_over_the_limit_is_not_encoded_before(tokenizer, corpus, tmp_path):
    assert_same(tokenizer, corpus, tmp_path / "runs", read__max_document_bytes=200)


@pytest.mark.parametrize(("at", "num_taken"), [(0, 0), (3, 0), (60, None), (790, 4)])
@pytest.mark.parametrize("line", [b"{", b'{"text": 5}', b'{"text": "\xff"}', b"", b'{"text": ""}'])
def test_bad_lines_are_named_alike(tokenizer, tmp_path, line, at, num_taken):
    lines = records()
    lines[at:at] = [line, line]
    corpus = write_lines(tmp_path / "texts.jsonl", lines)
    found = assert_same(tokenizer, corpus, tmp_path / "runs")
    if num_taken is not None and line:
        assert found == num_taken


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\n\n", b"\r\n", b" "])
def test_what_stands_before_the_first_line_changes_nothing(tokenizer, tmp_path, mark):
    corpus = tmp_path / "texts.jsonl"
    corpus.write_bytes(mark + b"\n".join(records(400)))
    assert_same(tokenizer, corpus, tmp_path / "runs")


def test_lines_longer_than_a_block_are_left_to_the_run(tokenizer, tmp_path):
    lines = records(300)
    lines[40] = json.dumps({"text": "long " * BLOCK_BYTES}).encode()
    corpus = write_lines(tmp_path / "texts.jsonl", lines)
    assert assert_same(tokenizer, corpus, tmp_path / "runs") < 4


def test_of_a_file_that_changed_since_nothing_is_taken(tokenizer, corpus, tmp_path):
    seen = Seen(started(tokenizer, corpus))
    write_lines(corpus, records()[::-1])
    tokenize(make_job(tokenizer, corpus, tmp_path / "started"), early=Early(head_start=seen))
    tokenize(make_job(tokenizer, corpus, tmp_path / "plain"))
    assert seen.taken == [None]
    assert output_bytes(tmp_path / "started") == output_bytes(tmp_path / "plain")


def test_a_file_that_is_gone_when_the_run_takes_over_is_an_error(tokenizer, corpus, tmp_path):
    seen = Seen(started(tokenizer, corpus))
    job = make_job(tokenizer, corpus, tmp_path / "started")
    take = seen.take

    def take_and_remove(*arguments):
        corpus.unlink()
        return take(*arguments)

    seen.take = take_and_remove
    with pytest.raises(RunError, match=r"texts.jsonl: is gone since the run was planned"):
        tokenize(job, early=Early(head_start=seen))


def test_it_ends_when_it_is_taken(tokenizer, tmp_path):
    corpus = write_lines(tmp_path / "texts.jsonl", records(20_000))
    engine = load_tokenizer(tokenizer)._engine._engine
    most = 0
    for number in range(10):
        start = EncodedStart(str(corpus), "text", "text")
        thread = threading.Thread(target=start.run, args=(engine,))
        thread.start()
        thread.join(timeout=number / 1000)
        taken = start.take(*slice_of(corpus), BLOCKS)
        thread.join(timeout=60)
        assert not thread.is_alive()
        if taken:
            assert taken.read.stop == sum(batch.num_bytes for batch in taken.read.batches)
            most = max(most, len(taken.tokens))
        assert start.take(*slice_of(corpus), BLOCKS) is None, "it is taken once"
        start.run(engine)
        assert start.take(*slice_of(corpus), BLOCKS) is None, "and does nothing after"
    assert most > 0


def test_what_reaches_past_the_part_is_left_to_the_run(tokenizer, corpus):
    for stop in (BLOCK_BYTES // 2, 3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 7):
        taken = started(tokenizer, corpus).take(*slice_of(corpus, stop=stop), BLOCKS)
        assert (taken.read.stop if taken else 0) < stop
        assert bool(taken) == (stop > BLOCK_BYTES)


@pytest.mark.parametrize(
    "options",
    [
        {"run__workers": 1},
        {"run__memory": "300MB"},
        {"run__max_rows": 10},
        {"run__max_tokens": 1000},
        {"encode__special_tokens": "error"},
        {"tokenizer__engine": "tokenizers"},
        {"read__text_field": "doc.text"},
        {"read__text_field": ["text", "id"]},
        {"read__id_field": "id"},
        {"read__format": "text"},
        {"read__compression": "gzip"},
        {"write__output": "memory://run"},
    ],
)
def test_a_job_that_reads_otherwise_has_no_head_start(tokenizer, corpus, tmp_path, options):
    early = start_early(make_job(tokenizer, corpus, tmp_path / "run", **options))
    early.end()
    assert early.head_start is None


def test_neither_has_one_that_was_begun_before(tokenizer, corpus, tmp_path):
    job = make_job(tokenizer, corpus, tmp_path / "run")
    tokenize(job)
    (tmp_path / "run" / "manifest.json").unlink()
    assert start_early(job).head_start is None
    assert start_early(make_job(tokenizer, tmp_path / "nowhere.jsonl", tmp_path / "new")).head_start is None


def test_nor_has_one_that_reads_several_files(tokenizer, corpus, tmp_path):
    job = make_job(tokenizer, corpus, tmp_path / "run", read__inputs=[str(corpus), str(corpus)])
    assert start_early(job).head_start is None


def test_one_that_is_of_no_use_ends(tokenizer, corpus, tmp_path):
    load_tokenizer(tokenizer)
    early = start_early(make_job(tokenizer, corpus, tmp_path / "run"))
    early.end()
    assert early.head_start.take(*slice_of(corpus), BLOCKS) is None
    assert all(thread.name != "recall" or not thread.join(60) for thread in threading.enumerate())


def test_what_goes_wrong_in_it_is_left_to_the_run(tokenizer, tmp_path, capfd):
    corpus = tmp_path / "gone.jsonl"
    write_lines(corpus, records(10))
    start = EncodedStart(str(corpus), "text", "text")
    corpus.unlink()
    corpus.mkdir()
    start.run(load_tokenizer(tokenizer)._engine._engine)
    assert start._native.take() == []
    assert capfd.readouterr().err == ""
