"""A head start changes when the first documents of a run are encoded, and nothing else."""

import json
import threading

import pytest

from adversarial_texts import random_texts
from gristmill import head_start, load_tokenizer
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
    monkeypatch.setattr(head_start, "ENCODED_BLOCK_BYTES", BLOCK_BYTES)


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
        self.taken.append(self._start.take(*arguments))
        return self.taken[-1]

    def end(self):
        self._start.end()


def assert_same(tokenizer, corpus, folder, **options):
    """A run with all the head start it can have, and one without; how many blocks were taken over."""
    folder.mkdir()
    seen = Seen(started(tokenizer, corpus, policy=options.get("encode__special_tokens", "text")))
    tokenize(make_job(tokenizer, corpus, folder / "started", **options), early=Early(head_start=seen))
    tokenize(make_job(tokenizer, corpus, folder / "plain", **options))
    assert output_bytes(folder / "started") == output_bytes(folder / "plain")
    (taken,) = seen.taken
    return len(taken.tokens) if taken else 0


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


def test_so_it_does_wherever_it_is_stopped(tokenizer, corpus, tmp_path):
    load_tokenizer(tokenizer)  # so that it can be recalled
    tokenize(make_job(tokenizer, corpus, tmp_path / "plain"))
    for number in range(8):
        job = make_job(tokenizer, corpus, tmp_path / str(number))
        early = start_early(job)
        assert early.head_start is not None
        tokenize(job, early=early)
        assert output_bytes(tmp_path / str(number)) == output_bytes(tmp_path / "plain")


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
    for number in range(10):
        start = EncodedStart(str(corpus), "text", "text")
        thread = threading.Thread(target=start.run, args=(engine,))
        thread.start()
        thread.join(timeout=number / 1000)
        taken = start.take(*slice_of(corpus), BLOCKS)
        thread.join(timeout=60)
        assert not thread.is_alive()
        stop = taken.begun.stop if taken else 0
        assert stop == sum(batch.num_bytes for batch in taken.begun.batches) if taken else stop == 0
        assert start.take(*slice_of(corpus), BLOCKS) is None, "it is taken once"
        start.run(engine)
        assert start.take(*slice_of(corpus), BLOCKS) is None, "and does nothing after"


def test_what_reaches_past_the_part_is_left_to_the_run(tokenizer, corpus):
    for stop in (BLOCK_BYTES // 2, 3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 7):
        taken = started(tokenizer, corpus).take(*slice_of(corpus, stop=stop), BLOCKS)
        assert (taken.begun.stop if taken else 0) < stop
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
