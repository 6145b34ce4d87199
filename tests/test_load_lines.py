"""`load with` loads all there is: where a reader opens one shard at a time, it says how to get the others."""

import re
import subprocess
from pathlib import Path
from typing import get_args

import datasets
import numpy as np
import pytest
from megatron.core.datasets.indexed_dataset import IndexedDataset

import streaming_reader  # noqa: F401
from gristmill import cli
from gristmill.config import OutputFormat
from gristmill.formats import default_mode
from gristmill.report.summary import render_manifest
from gristmill.run.folder import read_manifest
from made_runs import make_corpus, payload_documents, run

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
LINES = {
    name: re.findall(r"`(.*?)`", cell)
    for name, cell in re.findall(r"^\| [^`|]* \| `(\w+)` \| (`.*`) \|$", README, flags=re.MULTILINE)
    if name in get_args(OutputFormat)
}


def loading(folder: Path) -> str:
    return render_manifest(read_manifest(folder), str(folder)).partition("load with")[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory, tokenizer):
    """Runs of several shards and of one."""
    folder = tmp_path_factory.mktemp("made")
    make_corpus(folder / "corpus", num_files=2, num_docs=40)
    run(tokenizer, folder / "corpus", folder / "many", write__format=["megatron", "nanogpt", "olmo"])
    run(tokenizer, folder / "corpus", folder / "one", read__unit_bytes="1GB")
    return folder


def test_of_many_shards_the_number_and_the_way_to_one_file_are_told(made):
    shown = loading(made / "many")
    num_shards = len(read_manifest(made / "many").shards)
    assert num_shards > 2
    for name in ("megatron", "nanogpt"):
        command = f"gristmill convert {made / 'many'} --to {name} --single-file"
        assert f"# that is 1 of {num_shards} shards; one file of them all: {command}\n" in f"{shown}\n"
    assert "--to olmo" not in shown


def test_the_command_that_is_told_makes_one_file(made, capsys):
    (command,) = re.findall(r"gristmill (convert .* --to megatron --single-file)", loading(made / "many"))
    assert cli.main(command.split()) == 0
    stem = re.search(r'IndexedDataset\("(.*?)"\)', capsys.readouterr().out)[1]
    assert len(IndexedDataset(stem, mmap=True)) == 80


def test_the_data_path_of_megatron_names_every_shard(made):
    (stems,) = re.findall(r"--data-path \$\((.*)\)  #", loading(made / "many"))
    listed = subprocess.run(stems, shell=True, capture_output=True, text=True, check=True).stdout.split()
    assert sum(len(IndexedDataset(stem, mmap=True)) for stem in listed) == 80


def test_of_one_shard_nothing_more_is_said(made):
    assert "convert" not in loading(made / "one")


@pytest.fixture(scope="module")
def places(tmp_path_factory, tokenizer):
    """Folders with a run called shards, as the README's lines have it: documents, and rows."""
    folder = tmp_path_factory.mktemp("places")
    make_corpus(folder / "corpus", num_files=2, num_docs=60)
    formats = {"documents": [], "concat": []}
    for name in LINES:
        formats[default_mode((name,))].append(name)
    for mode, names in formats.items():
        options = {"read__unit_bytes": "1GB", "write__format": names, "pack__sequence_length": 1024}
        run(tokenizer, folder / "corpus", folder / mode / "shards", **options)
    return folder


def test_the_readme_says_how_to_load_every_format():
    assert set(LINES) == set(get_args(OutputFormat))
    assert all(len(lines) == 3 for name, lines in LINES.items() if name != "llmc")


@pytest.mark.parametrize("name", [name for name in LINES if name != "llmc"])
def test_the_lines_of_the_readme_load_the_ids(places, tmp_path, monkeypatch, name):
    monkeypatch.chdir(places / default_mode((name,)))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    found = {}
    exec("\n".join(LINES[name]), found)
    ids = np.asarray(found["ids"]).tolist()
    documents = payload_documents(places / "documents" / "shards")
    stream = [id_ for document in documents for id_ in document]
    assert len(ids) >= 1024 or ids == documents[0]
    assert ids == stream[: len(ids)]


def test_the_line_of_the_readme_for_llmc_names_its_shards(places):
    (line,) = LINES["llmc"]
    pattern = re.search(r'-i "(.*)"', line)[1]
    assert [path.name for path in (places / "documents").glob(pattern)] == ["shard-00000-000.bin"]
