"""README says what is so: its example runs as typed, its commands exist, its tree is the tree."""

import re
import shutil
import subprocess
from pathlib import Path

import datasets
import pytest
import yaml

from gristmill import cli
from gristmill.causal.opening import ALIASES
from gristmill.causal.settings import as_causal
from gristmill.sample import train_sample_tokenizer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language=""):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def readme_tree():
    """Return every path in README's tree; a folder ends in a slash."""
    tree = next(
        block for block in re.findall(r"^```\w*\n(.*?)^```$", README, re.M | re.S) if "native/" in block
    )
    folders, paths = [], []
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names = re.match(r"[^\s,]+(?:, [^\s,]+)*", line.strip()).group().split(", ")
        folders[depth:] = [names[0]] if names[0].endswith("/") else []
        paths += ["".join(folders[:depth]) + name for name in names]
    return paths


def project_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, f"the tree is compared in a git checkout alone: {listed.stderr}"
    return [line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def test_the_first_two_commands_are_demo_and_test():
    assert re.findall(r"^make (\w+)", blocks()[0], flags=re.MULTILINE) == ["demo", "test"]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_make_command_exists(name):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = (ROOT / name).read_text(encoding="utf-8")
    used = re.findall(r"^make ([\w-]+)|`make ([\w-]+)`", text, flags=re.MULTILINE)
    assert {first or second for first, second in used} <= set(targets)


def test_every_gristmill_command_exists():
    text = cli.build_parser().format_help()
    for command in re.findall(r"^gristmill (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^ +{command}\b", text, flags=re.MULTILINE)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder that has what the examples name."""
    for folder in (tmp_path / "path" / "to" / "tokenizer", tmp_path / "corpus"):
        folder.mkdir(parents=True)
    train_sample_tokenizer(tmp_path / "path" / "to")
    train_sample_tokenizer(tmp_path / "path" / "to" / "tokenizer")
    config = tmp_path / "path" / "to" / "tokenizer" / "tokenizer_config.json"
    config.write_text('{"eos_token": "<|endoftext|>"}')
    (tmp_path / "corpus" / "a.jsonl").write_text('{"text": "The mill stands by the river."}\n' * 20)
    (tmp_path / "configs").mkdir()
    shutil.copy(ROOT / "configs" / "causal_lm.yaml", tmp_path / "configs")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("number", "output"),
    [
        (0, r"\d+\n"),
        (1, r"(?s).*20 \['input_ids', 'attention_mask', 'labels'\]\n"),
        (3, r"\d+ native\n"),
        (4, r"(?s).*The mill stands by the river\.\n"),
    ],
    ids=["run", "datasets", "train", "ids"],
)
def test_an_example_runs_as_typed(number, output, place, capsys):
    example = blocks("python")[number]
    assert len([line for line in example.splitlines() if line]) <= 10
    exec(compile(example, "README.md", "exec"), {})
    assert re.fullmatch(output, capsys.readouterr().out)


def test_the_example_of_a_dataset_runs_as_typed(place, capsys):
    for name in ("rows", "code"):
        options = ["-o", name, "--format", "parquet", "--sequence-length", "16", "--quiet"]
        assert cli.main(["tokenize", "corpus/", "-t", "path/to/tokenizer", *options]) == 0
    capsys.readouterr()
    names = {}
    exec(compile(blocks("python")[2], "README.md", "exec"), names)
    assert capsys.readouterr().out == "(16,) (4, 16)\n"
    assert (names["state"]["epoch"], names["state"]["position"]) == (1, 0)
    assert len(names["mixed"]) == 2 * len(names["ds"])


def test_there_is_no_example_that_is_not_run():
    assert len(blocks("python")) == 5


def test_the_block_for_datasets_is_taken_as_it_is():
    (block,) = [block for block in blocks("yaml") if "context_length" in block]
    config = as_causal(yaml.safe_load(block))
    assert [config.context_length, config.overlap, config.batch_size] == [2048, 128, 2000]


def test_every_alias_of_a_tokenizer_is_listed():
    (line,) = re.findall(r"a hub name, or (.*)\.$", README, flags=re.MULTILINE)
    assert line.split(", ") == list(ALIASES)


def test_the_first_tokenize_command_runs_as_typed(place, capsys):
    pattern = r"^gristmill ((?:plan|tokenize) corpus/ .*?)(?: {2,}#.*)?$"
    lines = re.findall(pattern, README, flags=re.MULTILINE)
    assert len(lines) >= 2
    for line in lines[:2]:
        assert cli.main(line.split()) == 0
    assert (place / "shards" / "manifest.json").exists()


def test_the_training_commands_run_as_typed(place, capsys):
    (block,) = [block for block in blocks(r"\w*") if block.startswith("gristmill train")]
    (place / "more").mkdir()
    (place / "more" / "b.jsonl").write_text('{"text": "Twice weighed, once ground."}\n' * 20)
    for line in block.splitlines():
        assert cli.main(line.partition("#")[0].removeprefix("gristmill ").split()) == 0, line
    assert (place / "tokens" / "manifest.json").exists()


def test_the_command_line_is_listed_in_full():
    (block,) = [block for block in blocks(r"\w*") if block.startswith("gristmill demo")]
    assert set(re.findall(r"^gristmill (\w+)", block, flags=re.MULTILINE)) == set(cli.COMMANDS)
    assert set(re.findall(r"^ +gristmill (\w+)", cli.EXAMPLES, flags=re.MULTILINE)) == set(cli.COMMANDS)


def test_every_path_in_the_tree_exists():
    missing = [path for path in readme_tree() if not (ROOT / path).exists()]
    assert not missing


def test_a_folder_whose_files_are_listed_lists_all_of_them():
    tree = readme_tree()
    opened = {
        folder
        for folder in tree
        if folder.endswith("/") and any(p.startswith(folder) and p != folder for p in tree)
    }
    for folder in ["", *sorted(opened)]:
        children = {
            re.sub(r"(?<=/).*", "", p.removeprefix(folder)) for p in project_files() if p.startswith(folder)
        }
        listed = {p.removeprefix(folder) for p in tree if p.startswith(folder) and p != folder}
        listed = {p for p in listed if "/" not in p.rstrip("/")}
        assert listed == {c for c in children if not c.startswith(".git")}, (
            f"README's tree of {folder or 'the root'}"
        )


def test_the_benchmark_markers_are_there_once():
    assert README.count("<!-- bench:start -->") == README.count("<!-- bench:end -->") == 1
