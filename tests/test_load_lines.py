"""`load with` loads all there is: where a reader opens one shard at a time, it says how to get the others."""

import re
import subprocess
from pathlib import Path

import pytest
from megatron.core.datasets.indexed_dataset import IndexedDataset

from gristmill import cli
from gristmill.report.summary import render_manifest
from gristmill.run.folder import read_manifest
from made_runs import make_corpus, run


def loading(folder: Path) -> str:
    return render_manifest(read_manifest(folder), folder).partition("load with")[2]


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
