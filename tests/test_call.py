"""`gristmill.tokenize` and `gristmill.train`: jobs as calls, from scripts as plain as people write them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import gristmill
from gristmill.sample import train_sample_tokenizer
from made_runs import make_corpus, payload_documents


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """A job over a small corpus, as plain values; the output is for each test to set."""
    folder = tmp_path_factory.mktemp("job")
    make_corpus(folder / "corpus", num_files=2, num_docs=40)
    return {
        "tokenizer": {"source": str(train_sample_tokenizer(folder))},
        "read": {"inputs": [str(folder / "corpus")]},
        "encode": {"eos_id": 0},
        "run": {"backend": "inline"},
    }


def with_output(values, output):
    return values | {"write": {"output": str(output)}}


def test_a_config_a_dict_and_a_yaml_file_are_the_same_job(values, tmp_path):
    config = gristmill.TokenizeConfig(
        tokenizer=gristmill.TokenizerConfig(**values["tokenizer"]),
        read=gristmill.ReadConfig(inputs=tuple(values["read"]["inputs"])),
        encode=gristmill.EncodeConfig(eos_id=0),
        write=gristmill.WriteConfig(output=str(tmp_path / "config")),
        run=gristmill.RunConfig(backend="inline"),
    )
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(with_output(values, tmp_path / "yaml")))
    results = [
        gristmill.tokenize(config),
        gristmill.tokenize(with_output(values, tmp_path / "dict")),
        gristmill.tokenize(tmp_path / "job.yaml"),
    ]
    assert results[0].manifest == results[1].manifest == results[2].manifest
    assert isinstance(results[0], gristmill.RunResult)
    assert len(payload_documents(tmp_path / "dict")) == 80


def test_progress_is_shown_to_the_caller_and_force_starts_over(values, tmp_path):
    job = with_output(values, tmp_path / "out")
    gristmill.tokenize(job)
    assert gristmill.tokenize(job).last is None
    assert gristmill.tokenize(job, force=True, on_progress=lambda snapshot: None).last.units_done == 1


def test_a_config_made_in_python_is_checked(values, tmp_path):
    config = gristmill.TokenizeConfig(
        tokenizer=gristmill.TokenizerConfig(**values["tokenizer"]),
        read=gristmill.ReadConfig(inputs=("corpus",), on_bad_document="ignore"),
        write=gristmill.WriteConfig(output=str(tmp_path / "out")),
    )
    with pytest.raises(gristmill.ConfigError, match=r"read\.on_bad_document.*quarantine, skip, fail"):
        gristmill.tokenize(config)


@pytest.mark.parametrize("job", [17, ["a.jsonl"], None])
def test_what_is_no_job_is_refused(job):
    with pytest.raises(gristmill.ConfigError, match="YAML file"):
        gristmill.tokenize(job)


def test_a_script_without_a_main_guard_uses_worker_processes(values, tmp_path):
    job = with_output(values, tmp_path / "out") | {"run": {"backend": "local", "workers": 2}}
    script = tmp_path / "script.py"
    script.write_text(
        f"import gristmill\nprint('once')\n"
        f"result = gristmill.tokenize({job!r})\nprint(result.manifest.ledger.documents_encoded)\n"
    )
    paths = [str(Path(gristmill.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.stderr == ""
    assert ended.stdout.split() == ["once", "80"]


def test_a_training_is_a_call_too_and_takes_the_same_kinds_of_job(values, tmp_path):
    def job(name):
        learn = {"vocab_size": 400, "output": str(tmp_path / name)}
        return {"read": values["read"], "learn": learn, "run": values["run"]}

    config = gristmill.TrainConfig(
        read=gristmill.ReadConfig(inputs=tuple(values["read"]["inputs"])),
        count=gristmill.CountConfig(pattern="gpt2"),
        learn=gristmill.LearnConfig(vocab_size=400, output=str(tmp_path / "config.json")),
        run=gristmill.RunConfig(backend="inline"),
    )
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("yaml.json")))
    results = [
        gristmill.train(config),
        gristmill.train(job("dict.json")),
        gristmill.train(tmp_path / "job.yaml"),
    ]
    assert len({Path(result.output).read_bytes() for result in results}) == 1
    assert results[0].vocab_size == 400
    assert isinstance(results[0], gristmill.TrainResult)
    assert callable(gristmill.train)


@pytest.mark.parametrize("job", [17, ["a.jsonl"], None])
def test_what_is_no_training_is_refused(job):
    with pytest.raises(gristmill.ConfigError, match="TrainConfig"):
        gristmill.train(job)
