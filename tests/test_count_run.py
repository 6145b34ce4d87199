"""Counting as a run: the same inventory whatever the workers; limits, samples and weights."""

import numpy as np
import pytest

from gristmill.batch import DocumentBatch
from gristmill.count_pipeline import is_chosen
from gristmill.errors import ResumeError, RunError
from gristmill.job import make_training
from gristmill.read import Slice
from gristmill.run.count import count
from gristmill.run.early import NOTHING
from gristmill.run.folder import INVENTORY, locked
from gristmill.training.counting import PieceCounter
from gristmill.training.cut import cut_of
from gristmill.training.inventory import Inventory
from made_runs import make_corpus, write_jsonl


def make_config(corpus, **options):
    values = {
        "read": {"inputs": [str(corpus)], "unit_bytes": 20_000},
        "learn": {"output": "x.json", "vocab_size": 500},
        "run": {"backend": "inline"},
    }
    return make_training(values, [(*name.split("__"), value) for name, value in options.items()])


def run_count(corpus, folder, *, force=False, **options):
    with locked(folder):
        config = make_config(corpus, **options)
        return count(config, folder, force=force, on_progress=None, early=NOTHING).counted


def count_plainly(documents, folder, *, weight=1):
    counter = PieceCounter(cut_of("gpt2"), folder, max_bytes=1 << 26)
    for text in documents:
        data = text.encode()
        counter.add(*flat(data), weight=weight)
    counter.finish(folder / "plain.pieces")
    return dict(Inventory(folder / "plain.pieces"))


def flat(data):
    return np.frombuffer(data, np.uint8), np.array([0, len(data)], np.int64)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return folder, make_corpus(folder)


def test_every_piece_is_counted(corpus, tmp_path):
    folder, documents = corpus
    counted = run_count(folder, tmp_path / "run")
    assert dict(Inventory(tmp_path / "run" / INVENTORY)) == count_plainly(documents, tmp_path)
    assert counted.ledger.documents_encoded == len(documents)


@pytest.mark.parametrize(
    "options",
    [
        {"run__backend": "local", "run__workers": 2},
        {"run__backend": "local", "run__workers": 5, "run__preset": "extreme"},
        {"run__workers": 2, "run__block_bytes": 3_000},
        {"run__workers": 5, "run__block_bytes": 900},
        {"run__block_bytes": 900},
        {"read__unit_bytes": 5_000},
    ],
)
def test_the_inventory_is_the_same_for_any_workers_blocks_and_units(corpus, tmp_path, options):
    folder, _ = corpus
    run_count(folder, tmp_path / "one")
    run_count(folder, tmp_path / "other", **options)
    assert (tmp_path / "one" / INVENTORY).read_bytes() == (tmp_path / "other" / INVENTORY).read_bytes()


@pytest.mark.parametrize("limit", [1, 50, 10_000])
def test_a_limit_counts_the_first_documents(corpus, tmp_path, limit):
    folder, documents = corpus
    options = {"run__backend": "local", "run__workers": 2, "count__max_documents": limit}
    counted = run_count(folder, tmp_path / "run", **options)
    assert counted.ledger.documents_encoded == min(limit, len(documents))
    assert dict(Inventory(tmp_path / "run" / INVENTORY)) == count_plainly(documents[:limit], tmp_path)


def test_a_sample_takes_about_its_share_and_always_the_same_documents(corpus, tmp_path):
    folder, documents = corpus
    first = run_count(folder, tmp_path / "a", count__sample=0.3)
    second = run_count(folder, tmp_path / "b", count__sample=0.3, run__block_bytes=700)
    other = run_count(folder, tmp_path / "c", count__sample=0.3, count__seed=1)
    assert 0.2 * len(documents) < first.ledger.documents_encoded < 0.4 * len(documents)
    assert first.ledger.documents_dropped["not sampled"] == len(documents) - first.ledger.documents_encoded
    assert first == second
    assert first.inventory.blake3 != other.inventory.blake3


def test_weights_multiply_the_counts_of_matching_files(tmp_path):
    write_jsonl(tmp_path / "code.jsonl", ["def f"])
    write_jsonl(tmp_path / "text.jsonl", ["some text"])
    write_jsonl(tmp_path / "skip.jsonl", ["nothing"])
    weights = {"*/code*": 3, "*/skip*": 0}
    run_count(tmp_path / "*.jsonl", tmp_path / "run", count__weights=weights)
    found = dict(Inventory(tmp_path / "run" / INVENTORY))
    assert found == {b"def": 3, b" f": 3, b"some": 1, b" text": 1}


def test_a_finished_count_answers_at_once_and_another_cut_is_refused(corpus, tmp_path):
    folder, _ = corpus
    first = run_count(folder, tmp_path / "run")
    assert run_count(folder, tmp_path / "run") == first
    assert run_count(folder, tmp_path / "run", learn__vocab_size=900) == first
    with pytest.raises(ResumeError, match=r"count\.pattern was 'gpt2', is now 'llama3'"):
        run_count(folder, tmp_path / "run", count__pattern="llama3")


def test_an_empty_corpus_is_an_error(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["", ""])
    with pytest.raises(RunError, match="no document could be used"):
        run_count(tmp_path / "a.jsonl", tmp_path / "run")


def test_text_that_is_called_json_lines_is_told_how_to_be_read(tmp_path):
    (tmp_path / "a.jsonl").write_text("plain text\nand more\n")
    with pytest.raises(RunError, match=r"no document could be used .*set read\.format \(--input-format text"):
        run_count(tmp_path / "a.jsonl", tmp_path / "run")


def test_documents_past_two_gibibytes_are_sampled_like_the_others():
    documents = DocumentBatch(
        text=np.zeros(0, np.uint8),
        offsets=np.zeros(101, np.int64),
        records=np.arange(100),
        positions=np.arange(100) * 50 + 2**31,
    )
    for start in (0, 2**31, 2**40):
        part = Slice(file=0, start=start, stop=start + 1, num_bytes=1)
        chosen = is_chosen(documents, part, share=0.5, seed=1)
        assert 20 < np.count_nonzero(chosen) < 80
