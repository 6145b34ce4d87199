"""Every job in configs/ loads, and does what it says on a small corpus."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

import gristmill
from gristmill.job import SECTIONS, make_job, read_job_file
from gristmill.sample import made_documents, train_sample_tokenizer

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    train_sample_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    return folder


@pytest.fixture
def place(tmp_path, tokenizer, monkeypatch):
    """A folder in which the jobs find what they name."""
    shutil.copytree(tokenizer, tmp_path / "path" / "to" / "tokenizer")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "books").mkdir()
    for number in range(2):
        documents = made_documents(60, seed=number)
        lines = [
            json.dumps({"id": f"{number}-{i}", "title": f"Title {i}", "text": text})
            for i, text in enumerate(documents)
        ]
        (tmp_path / "corpus" / f"part-{number}.jsonl").write_text("\n".join(lines), encoding="utf-8")
        (tmp_path / "books" / f"{number}.txt").write_text("\n".join(documents), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_jobs_to_start_from():
    assert len(CONFIGS) >= 4


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_job_runs_as_it_is_where_its_inputs_are(path, place):
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values["run"] = values.get("run", {}) | {"backend": "inline"}
    result = gristmill.tokenize(values)
    ledger = result.manifest.ledger
    assert ledger.documents_read == ledger.documents_encoded == (2 if "text" in path.stem else 120)
    assert ledger.tokens_encoded == ledger.tokens_written > 10_000
    assert Path(result.folder).parent == Path("shards")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_job_teaches_only_options_that_exist(path):
    text = path.read_text(encoding="utf-8")
    config = make_job(read_job_file(path))
    section = ""
    for line in text.splitlines():
        if name := re.match(r"([a-z]+):", line):
            section = name[1]
        if key := re.match(r"  (?:# )?([a-z_]+): ", line):
            assert key[1] in SECTIONS[section].__struct_fields__, line
    assert config.read.inputs


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_job_is_listed_in_the_readme(path):
    assert f"configs/{path.name}" in README


def test_jobs_have_outputs_of_their_own():
    outputs = [make_job(read_job_file(path)).write.output for path in CONFIGS]
    assert len(set(outputs)) == len(outputs)
