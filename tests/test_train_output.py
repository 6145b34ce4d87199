"""Where a trained tokenizer goes: what stands there before, what is left of earlier trainings, odd names."""

import os

import pytest

from gristmill import cli
from made_runs import make_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, num_docs=20)
    return folder


@pytest.fixture
def train(corpus, tmp_path, monkeypatch):
    """Run `gristmill train` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, inputs=(str(corpus),)):
        return cli.main(["train", *inputs, "--vocab-size", "400", "--quiet", *arguments])

    return run


def test_a_training_that_left_rare_pieces_out_can_be_started_over(train, tmp_path):
    assert train("-o", "t.json", "learn.min_count=2") == 0
    first = (tmp_path / "t.json").read_bytes()
    assert train("-o", "t.json", "learn.min_count=2", "--force") == 0
    assert (tmp_path / "t.json").read_bytes() == first


def test_a_training_from_counts_leaves_no_folder_that_a_plain_one_refuses(train, tmp_path):
    assert train("-o", "first.json") == 0
    assert train("-o", "t.json", "--from-counts", "first.json.run", "learn.min_count=2", inputs=()) == 0
    assert train("-o", "t.json") == 0
    assert (tmp_path / "t.json").read_bytes() == (tmp_path / "first.json").read_bytes()


def test_what_a_link_names_is_written_and_the_link_stays(train, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "real.json").write_text("before")
    (tmp_path / "link.json").symlink_to(tmp_path / "kept" / "real.json")
    assert train("-o", "link.json") == 0
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "kept" / "real.json").read_text().startswith("{")


def test_a_pipe_is_not_replaced(train, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.json")
    assert train("-o", "pipe.json") == 2
    assert "pipe.json: is no plain file" in capsys.readouterr().err
    assert (tmp_path / "pipe.json").is_fifo()


def test_the_folder_one_is_in_can_be_named_by_a_dot(train, tmp_path):
    (tmp_path / "here").mkdir()
    os.chdir(tmp_path / "here")
    assert train("-o", ".") == 0
    assert (tmp_path / "here" / "tokenizer.json").exists()
    assert (tmp_path / "here.run" / "counts.json").exists()


def test_a_root_has_no_name_for_a_tokenizer(train, capsys):
    assert train("-o", "/") == 2
    assert "/: has no name" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        f"learn.vocab_size={2**64}",
        f"learn.vocab_size={2**63}",
        f"learn.min_frequency={2**63}",
        f"learn.max_token_length={2**64}",
        f"learn.min_count={2**64}",
        f"count.weights={{x: {2**64}}}",
    ],
)
def test_numbers_that_nothing_can_hold_are_refused_at_once(train, tmp_path, capsys, option):
    assert train("-o", "t.json", option) == 2
    assert option.partition("=")[0].rpartition(".")[2] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_inventories_of_units_that_a_kill_left_behind_are_removed(train, tmp_path):
    assert train("-o", "t.json") == 0
    left = tmp_path / "t.json.run" / "units" / "00000.pieces"
    left.write_bytes(b"left behind")
    assert train("-o", "t.json") == 0
    assert not left.exists()
