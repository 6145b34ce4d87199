"""A head start changes when pieces are counted, and nothing else."""

import json
from pathlib import Path

import numpy as np
import pytest

from adversarial_texts import random_texts
from gristmill import _native, engine_cache, head_start, unit_input
from gristmill.errors import BadFileError, ConfigError, RunError
from gristmill.head_start import Begun, Counted
from gristmill.job import make_training
from gristmill.read import Blocks, InputFile, Slice, describe_file, read_slice
from gristmill.run import early as run_early
from gristmill.run.early import NOTHING, Early, start_early
from gristmill.run.folder import COUNTED, INVENTORY, QUARANTINE
from gristmill.run.train import train
from gristmill.training.counting import PieceCounter
from gristmill.training.cut import NAMES, build_cut, cut_of, cut_steps

BLOCK_BYTES = 4096


def make_texts(count):
    return [text or "empty" for text in random_texts(count, seed=count)]


@pytest.fixture(autouse=True)
def small_start(tmp_path, monkeypatch):
    """Small files are worth it, their blocks are small, and what is kept is kept for the test."""
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run_early, "LEAST_FILE_BYTES", 0)
    monkeypatch.setattr(head_start, "BLOCK_BYTES", BLOCK_BYTES)
    engine_cache.remember_cut(None, None, steps=cut_steps(cut_of("gpt2")))


def write_lines(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def records(texts):
    return [
        json.dumps({"text": text}, ensure_ascii=number % 2 == 0).encode() for number, text in enumerate(texts)
    ]


@pytest.fixture
def corpus(tmp_path):
    return write_lines(tmp_path / "texts.jsonl", records(make_texts(800)))


def make_config(corpus, output, **options):
    values = {
        "read": {"inputs": [str(corpus)]},
        "learn": {"output": str(output), "vocab_size": 400},
        "run": {"workers": 2},
    }
    return make_training(values, [(*name.split("__"), value) for name, value in options.items()])


def trained(config, early=NOTHING):
    """All that a training leaves which may not depend on how it began."""
    result = train(config, early=early)
    folder = Path(result.folder)
    files = [Path(config.learn.output), folder / INVENTORY, folder / QUARANTINE]
    return [file.read_bytes() for file in files if file.exists()], result.counted.ledger, result.fit


def head_started(config):
    """The same with a head start, and what that came to."""
    early = start_early(config)
    assert early.head_start is not None
    taken = []
    take = early.head_start.take

    def noted(*arguments, **options):
        taken.append(take(*arguments, **options))
        return taken[-1]

    early.head_start.take = noted
    return trained(config, early), taken


def whole_file(corpus):
    """A file as a run takes it: with the slice that is all of it, and how it is read."""
    num_bytes, version = describe_file(str(corpus))
    file = InputFile(
        path=str(corpus), num_bytes=num_bytes, version=version, format="jsonl", compression="none"
    )
    part = Slice(file=0, start=0, stop=num_bytes, num_bytes=num_bytes)
    blocks = Blocks(block_bytes=9000, max_document_bytes=1 << 20, memory_map=False, read_ahead=False)
    return file, part, blocks


class Found:
    """A head start that came to what is given."""

    def __init__(self, begun):
        self._begun = begun

    def take(self, *_, **__):
        begun, self._begun = self._begun, None
        return begun

    def end(self):
        pass


def counted_before(corpus, config, *, num_batches, num_counted=None):
    """So many batches read, and of the last so many documents counted, else all."""
    file, part, blocks = whole_file(corpus)
    batches = list(read_slice(file, part, config, blocks))[:num_batches]
    counted = [len(batch) for batch in batches]
    counted[-1] = counted[-1] if num_counted is None else num_counted
    counter = _native.PieceCounter(build_cut(cut_of("gpt2")), 1 << 22, False)
    for batch, num in zip(batches, counted, strict=True):
        counter.add(batch.text, np.ascontiguousarray(batch.offsets[: num + 1]), 1, lambda: None)
    return Counted(Begun(batches, sum(batch.num_bytes for batch in batches)), counted, counter)


def test_a_training_with_a_head_start_is_the_same(corpus, tmp_path):
    for number in range(4):  # the thread gets further or less far
        started, taken = head_started(make_config(corpus, tmp_path / f"started{number}.json"))
        assert len(taken) == 1
        assert started == trained(make_config(corpus, tmp_path / f"plain{number}.json"))


@pytest.mark.parametrize("num_counted", [0, 1, 17, None])
@pytest.mark.parametrize("num_batches", [1, 3])
def test_wherever_it_stopped_every_document_counts_once(corpus, tmp_path, num_counted, num_batches):
    config = make_config(corpus, tmp_path / "started.json")
    counted = counted_before(corpus, config.read, num_batches=num_batches, num_counted=num_counted)
    started = trained(config, Early(head_start=Found(counted)))
    assert started == trained(make_config(corpus, tmp_path / "plain.json"))


def test_a_file_that_is_gone_when_the_run_takes_over_is_dealt_with_as_any(corpus, tmp_path, monkeypatch):
    check = unit_input._check_unchanged

    def check_and_remove(file):
        check(file)
        corpus.unlink(missing_ok=True)

    config = make_config(corpus, tmp_path / "started.json")
    counted = counted_before(corpus, config.read, num_batches=3)
    num_documents = sum(counted.documents)
    monkeypatch.setattr(unit_input, "_check_unchanged", check_and_remove)
    _, ledger, _ = trained(config, Early(head_start=Found(counted)))
    assert ledger.bad_files == {"unreadable": 1}
    assert ledger.documents_read == num_documents


def test_what_was_counted_of_a_file_that_cannot_be_looked_at_is_no_count(corpus, tmp_path, monkeypatch):
    def fail(_file):
        raise BadFileError("unreadable", "made up")

    config = make_config(corpus, tmp_path / "started.json")
    early = Early(head_start=Found(counted_before(corpus, config.read, num_batches=1)))
    monkeypatch.setattr(unit_input, "_check_unchanged", fail)
    with pytest.raises(RunError, match=r"texts.jsonl: made up; run the same command again"):
        trained(config, early)


@pytest.mark.parametrize("at", [0, 3, 100, 700])
@pytest.mark.parametrize("line", [b"{", b'{"text": 5}', b'{"text": "\xff"}', b"", b'{"text": ""}'])
def test_bad_lines_are_named_alike(tmp_path, line, at):
    lines = records(make_texts(800))
    lines[at:at] = [line, line]
    corpus = write_lines(tmp_path / "texts.jsonl", lines)
    started, _ = head_started(make_config(corpus, tmp_path / "started.json"))
    assert started == trained(make_config(corpus, tmp_path / "plain.json"))


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\n\n", b"\r\n", b" "])
def test_what_stands_before_the_first_line_changes_nothing(tmp_path, mark):
    corpus = tmp_path / "texts.jsonl"
    corpus.write_bytes(mark + b"\n".join(records(make_texts(400))))
    started, _ = head_started(make_config(corpus, tmp_path / "started.json"))
    assert started == trained(make_config(corpus, tmp_path / "plain.json"))


def test_lines_longer_than_a_block_are_left_to_the_run(tmp_path):
    texts = make_texts(300)
    texts[100] = "long " * BLOCK_BYTES
    corpus = write_lines(tmp_path / "texts.jsonl", records(texts))
    started, _ = head_started(make_config(corpus, tmp_path / "started.json"))
    assert started == trained(make_config(corpus, tmp_path / "plain.json"))


def test_a_file_that_changed_since_is_counted_anew(corpus, tmp_path):
    config = make_config(corpus, tmp_path / "started.json")
    early = start_early(config)
    write_lines(corpus, records(make_texts(900)[::-1]))
    assert trained(config, early) == trained(make_config(corpus, tmp_path / "plain.json"))


def test_a_head_start_is_taken_once(corpus):
    early = start_early(make_config(corpus, "x.json"))
    file, part, blocks = whole_file(corpus)
    early.head_start.take(file, part, blocks)
    assert early.head_start.take(file, part, blocks) is None


@pytest.mark.parametrize(
    "options",
    [
        {"count__sample": 0.5},
        {"count__held_out": 0.1},
        {"count__max_documents": 10},
        {"count__weights": {"*.jsonl": 2}},
        {"count__when_full": "forget"},
        {"run__workers": 1},
        {"run__memory": "300MB"},
        {"read__text_field": "doc.text"},
        {"read__id_field": "id"},
        {"read__format": "text"},
        {"count__pattern": "llama3"},
    ],
)
def test_a_job_that_counts_otherwise_has_no_head_start(corpus, options):
    assert start_early(make_config(corpus, "x.json", **options)).head_start is None


def test_a_run_that_was_begun_before_has_no_head_start(corpus, tmp_path):
    config = make_config(corpus, tmp_path / "tokenizer.json")
    train(config)
    assert Path(f"{config.learn.output}.run", COUNTED).exists()
    assert start_early(config).head_start is None


@pytest.mark.parametrize("pattern", [*NAMES, "none", "metaspace", r"\w+|\W"])
@pytest.mark.parametrize("form", [None, "nfkc"])
def test_a_pattern_that_was_kept_cuts_as_the_one_that_is_compiled(tmp_path, pattern, form):
    cut = cut_of(pattern, form=form)
    engine_cache.remember_cut(pattern, form, steps=cut_steps(cut))
    build = _native.Build()
    for name, arguments in engine_cache.recall_cut(pattern, form):
        getattr(build, name)(*arguments)
    texts = [text.encode() for text in random_texts(300, seed=3)]
    flat = np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)])
    kept = _native.PieceCounter(build, 1 << 24, False)
    kept.add(*flat, 1, lambda: None)
    compiled = PieceCounter(cut, tmp_path, max_bytes=1 << 24)
    compiled.add(*flat)
    for ours, theirs in zip(kept.gather()[:3], compiled.take(), strict=True):
        assert np.array_equal(ours, theirs)


def test_a_kept_pattern_that_is_damaged_is_compiled_anew(corpus, tmp_path):
    (kept,) = (tmp_path / "cache" / "compiled").iterdir()
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    assert start_early(make_config(corpus, "x.json")) == NOTHING
    assert not kept.exists(), "so that it is kept anew"


@pytest.mark.parametrize(
    "steps",
    [[("nothing", [])], [("set_form", [7])], [("set_form", [])], [("__class__", [])]],
    ids=["no such call", "wrong kind", "nothing given", "no call"],
)
def test_kept_steps_that_no_build_takes_count_for_nothing(steps):
    engine_cache.remember_cut("made up", steps=steps)
    assert engine_cache.recall_cut("made up") is None


def test_a_kept_pattern_under_the_name_of_another_counts_for_nothing(corpus, tmp_path):
    engine_cache.remember_cut("o200k", None, steps=cut_steps(cut_of("o200k", form=None)))
    folder = tmp_path / "cache" / "compiled"
    one, other = sorted(folder.iterdir())
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert engine_cache.recall_cut("o200k", None) is None
    assert start_early(make_config(corpus, "x.json")) == NOTHING


def test_a_training_keeps_the_pattern_it_has_compiled(corpus, tmp_path):
    config = make_config(corpus, tmp_path / "tokenizer.json", count__pattern="o200k")
    assert start_early(config).steps is None
    train(config)
    assert start_early(config).steps is not None


def test_a_pattern_that_cannot_be_compiled_is_refused_as_before(corpus):
    with pytest.raises(ConfigError, match="the pattern is one of"):
        train(make_config(corpus, "x.json", count__pattern=r"(a)\1"))
