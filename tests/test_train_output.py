"""Where a trained tokenizer goes: what stands there before, what is left of earlier trainings, odd names."""

import os

import pytest

from gristmill import cli
from made_runs import make_corpus, write_jsonl


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


def test_an_input_is_not_written_over(train, tmp_path, capsys):
    write_jsonl(tmp_path / "own.jsonl", ["some text"] * 9)
    before = (tmp_path / "own.jsonl").read_bytes()
    assert train("-o", "own.jsonl", inputs=["./own.jsonl"]) == 2
    assert "./own.jsonl: is an input, and would be written over" in capsys.readouterr().err
    assert (tmp_path / "own.jsonl").read_bytes() == before


@pytest.mark.parametrize("output", ["texts/tokenizer.json", "texts/", "texts"])
def test_a_tokenizer_beside_its_text_is_no_input_the_next_time(train, tmp_path, output, capsys):
    make_corpus(tmp_path / "texts", num_docs=20)
    made = set()
    for options in ([], [], ["--force"]):
        assert train("-o", output, *options, inputs=["texts"]) == 0
        made.add((tmp_path / "texts" / "tokenizer.json").read_bytes())
    assert len(made) == 1
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "t.json").write_text("{}")
    assert train("-o", "alone/t.json", inputs=["alone"]) == 2
    assert "t.json: is what this job writes, and there is no other input" in capsys.readouterr().err


def test_a_file_is_not_taken_for_a_folder(train, tmp_path, capsys):
    (tmp_path / "t.json").write_text("before")
    assert train("-o", "t.json/") == 2
    assert "t.json: is a file; leave the slash after it out, or name a folder" in capsys.readouterr().err


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
        "--vocab-size=0",
        "--sample=nan",
        "--held-out=nan",
    ],
)
def test_numbers_that_nothing_can_hold_are_refused_at_once(train, tmp_path, capsys, option):
    assert train("-o", "t.json", option) == 2
    name = option.partition("=")[0].rpartition(".")[2].removeprefix("--").replace("-", "_")
    assert name in (said := capsys.readouterr().err)
    assert "set the same option" not in said
    assert list(tmp_path.iterdir()) == []


def test_inventories_of_units_that_a_kill_left_behind_are_removed(train, tmp_path):
    assert train("-o", "t.json") == 0
    left = tmp_path / "t.json.run" / "units" / "00000.pieces"
    left.write_bytes(b"left behind")
    assert train("-o", "t.json") == 0
    assert not left.exists()
