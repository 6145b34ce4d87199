"""Every job in configs/ loads, and does what it says on a small corpus."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

import gristmill
from gristmill.causal.settings import as_causal
from gristmill.config import CausalLMConfig
from gristmill.job import SECTIONS, TRAINING_SECTIONS, make_job, make_training, read_job_file
from gristmill.sample import made_documents, train_sample_tokenizer

ROOT = Path(__file__).parents[1]
TRAINING = ROOT / "configs" / "train.yaml"
CAUSAL = ROOT / "configs" / "causal_lm.yaml"
CONFIGS = sorted(set((ROOT / "configs").glob("*.yaml")) - {TRAINING, CAUSAL})
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


def test_the_training_runs_as_it_is_and_leaves_a_tokenizer(place):
    values = yaml.safe_load(TRAINING.read_text(encoding="utf-8"))
    values["run"] |= {"backend": "inline"}
    result = gristmill.train(values)
    assert result.counted.ledger.documents_encoded == 120
    assert gristmill.load_tokenizer(result.output).token_to_id("<|endoftext|>") == 0


@pytest.mark.parametrize("path", [*CONFIGS, TRAINING], ids=lambda path: path.stem)
def test_a_job_teaches_only_options_that_exist(path):
    text = path.read_text(encoding="utf-8")
    is_training = path == TRAINING
    config = (make_training if is_training else make_job)(read_job_file(path))
    known = TRAINING_SECTIONS if is_training else SECTIONS
    section = ""
    for line in text.splitlines():
        if name := re.match(r"([a-z]+):", line):
            section = name[1]
        if key := re.match(r"  (?:# )?([a-z_]+): ", line):
            assert key[1] in known[section].__struct_fields__, line
    assert config.read.inputs


def test_the_block_of_causal_lm_tokenizer_teaches_only_keys_that_exist():
    text = CAUSAL.read_text(encoding="utf-8")
    keys = re.findall(r"^  (?:# )?([a-z_]+): ", text, flags=re.MULTILINE)
    assert set(keys) <= set(CausalLMConfig.__struct_fields__)
    without_marks = re.sub(r"^  # ", "  ", text, flags=re.MULTILINE)
    assert set(yaml.safe_load(without_marks)["tokenizer"]) == set(keys)
    as_causal(yaml.safe_load(without_marks))
    as_causal(CAUSAL)


@pytest.mark.parametrize("path", [*CONFIGS, TRAINING, CAUSAL], ids=lambda path: path.stem)
def test_a_job_is_listed_in_the_readme(path):
    assert f"configs/{path.name}" in README


def test_jobs_have_outputs_of_their_own():
    outputs = [make_job(read_job_file(path)).write.output for path in CONFIGS]
    assert len(set(outputs)) == len(outputs)


def test_no_output_ends_in_the_name_of_its_format():
    """Shards lie in a folder named after their format; shards/megatron/megatron would puzzle."""
    for path in CONFIGS:
        config = make_job(read_job_file(path)).write
        assert Path(config.output).name != config.format
