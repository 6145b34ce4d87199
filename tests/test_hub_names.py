"""Which files a dataset is: by its card, by how files are called, and as `datasets` sees it."""

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gristmill.config import ReadConfig
from gristmill.errors import ConfigError, InputError, MissingPackageError
from gristmill.hub.card import Part, choose_by_names, choose_config, patterns_of, read_card
from gristmill.hub.fetch import fetch
from gristmill.hub.globs import matcher
from gristmill.hub.names import ALIASES, INSTEAD, look_up
from gristmill.job import make_job, make_training
from gristmill.read import InputFile, list_inputs, slice_file
from gristmill.read.find import split_suffixes
from made_hub import MadeHub, digest_of, environment, serving
from reading import BLOCKS, read_part


def format_of(path):
    return split_suffixes(path)[0]


def choose(paths, *, config=None, split="train", folder=""):
    return choose_by_names(paths, Part("o/n", config, split), folder, format_of)


@pytest.mark.parametrize(("alias", "dataset"), ALIASES.items())
def test_an_alias_is_found_however_it_is_written(alias, dataset):
    assert look_up(alias) is look_up(alias.upper().replace("-", "_")) is dataset
    assert look_up(dataset.repo).repo == dataset.repo


@pytest.mark.parametrize("name", ["imdb", "a/b/c", "../b", "a/..", "hf://datasets/a/b", "a--b/c", ""])
def test_what_is_no_name_of_a_dataset_is_refused_with_those_there_are(name):
    with pytest.raises(ConfigError, match="it needs owner/name as on the hub, or one of fineweb, finewebedu"):
        look_up(name)


def test_repositories_without_files_have_a_known_copy():
    for repo, alias in INSTEAD.items():
        assert look_up(alias).repo != repo


def test_a_card_lists_configs_in_every_way_it_can():
    text = """---
license: mit
configs:
- config_name: one
  data_files: a/*.parquet
- config_name: two
  default: true
  data_files:
  - split: train
    path: [./b/x.jsonl, "b/y*.jsonl"]
  - {split: test, path: c.jsonl}
- config_name: three
  data_files: [d.csv, e.csv]
- config_name: four
  data_dir: ./deep/folder
---
body
"""
    configs = read_card(text, "o/n")
    part = Part("o/n", None, "train")
    assert choose_config(configs, part).name == "two"
    wanted = {config.name: patterns_of(config, part) for config in configs}
    expected = {"one": ("a/*.parquet",), "two": ("b/x.jsonl", "b/y*.jsonl"), "three": ("d.csv", "e.csv")}
    assert wanted == expected | {"four": ()}
    assert configs[3].folder == "deep/folder"
    assert patterns_of(configs[1], part._replace(split="test")) == ("c.jsonl",)
    with pytest.raises(InputError, match="has no split 'test'; it has train"):
        patterns_of(configs[0], part._replace(split="test"))


@pytest.mark.parametrize("text", ["", "no card", "---\n---\n", "---\nlicense: mit\n---\n", "---\n- a\n---\n"])
def test_a_card_without_configs_lists_none(text):
    assert read_card(text, "o/n") == []


@given(st.text(alphabet="configs:-_name data files[]{}'\"\n &*!|>%@", max_size=60))
def test_a_hostile_card_is_an_error_and_no_crash(text):
    with suppress(InputError):
        configs = read_card(f"---\nconfigs:\n{text}\n---\n", "o/n")
        patterns_of(choose_config(configs, Part("o/n", None, "train")), Part("o/n", None, "train"))


@pytest.mark.parametrize("path", ["/etc/passwd", "../x.jsonl", "https://host/x.jsonl", "a/../../x"])
def test_a_card_that_leads_elsewhere_is_refused(path):
    [config] = read_card(f"---\nconfigs:\n- config_name: a\n  data_files: {path}\n---\n", "o/n")
    with pytest.raises(InputError, match="which is not in its repository"):
        patterns_of(config, Part("o/n", None, "train"))


def test_several_configs_without_a_default_are_listed():
    card = "---\nconfigs:\n- {config_name: a, data_files: a}\n- {config_name: b, data_files: b}\n---\n"
    with pytest.raises(InputError, match="has several configs; choose with --dataset-config: a, b"):
        choose_config(read_card(card, "o/n"), Part("o/n", None, "train"))


def test_names_of_files_tell_the_split():
    paths = ["README.md", "LICENSE.txt", "data/train-0.parquet", "data/train-1.parquet", "data/dev-0.parquet"]
    assert choose(paths) == ["data/train-0.parquet", "data/train-1.parquet"]
    assert choose(paths, split="validation") == ["data/dev-0.parquet"]
    assert choose(["b.jsonl", "a.jsonl", "dataset_infos.json"]) == ["a.jsonl", "b.jsonl"]
    assert choose(["train/test_0.csv", "test/0.csv", "train/0.csv"]) == ["train/0.csv"]
    assert choose(["en/training.jsonl", "de/training.jsonl"], config="de") == ["de/training.jsonl"]
    assert choose(["a.txt", "b.txt"]) == ["a.txt", "b.txt"]
    assert choose(["x.tar", "script.py"]) == []
    with pytest.raises(InputError, match=r"has no split 'test'; it has train \(--split\)"):
        choose(["a.jsonl"], split="test")
    with pytest.raises(InputError, match="has no config 'fr'; it has de, en"):
        choose(["en/a.jsonl", "de/a.jsonl"], config="fr")


def test_what_the_hub_has_converted_is_read_by_config_and_split_and_a_part_is_no_whole():
    paths = ["a/train/0000.parquet", "a/train/0001.parquet", "b/partial-train/0000.parquet"]
    assert choose(paths, config="a") == paths[:2]
    with pytest.raises(InputError, match="has several configs; choose with --dataset-config: a, b"):
        choose(paths)
    with pytest.raises(InputError, match=r"converted only the first part .* --split partial-train"):
        choose(paths, config="b")
    assert choose(paths, config="b", split="partial-train") == paths[2:]


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("data/*/*", "data/a/b.parquet", True),
        ("data/*", "data/a/b.parquet", True),  # a folder stands for its files
        ("data/*.parquet", "data/a/b.parquet", False),
        ("**/*.parquet", "b.parquet", True),
        ("**", "a/b/c", True),
        ("a/**/c", "a/c", True),
        ("en/c4-train.*.json.gz", "en/c4-train.00001-of-01024.json.gz", True),
        ("en/c4-train.*.json.gz", "en.noclean/c4-train.1.json.gz", False),
        ("t-[0-9][!a].csv", "t-1b.csv", True),
        ("t-[0-9][!a].csv", "t-1a.csv", False),
        ("a.b", "axb", False),
        ("a?c", "a/c", False),
    ],
)
def test_a_pattern_means_the_files_it_says(pattern, path, expected):
    assert matcher([pattern])(path) is expected


def test_a_job_settles_the_field_and_refuses_what_does_not_go_together():
    values = {"tokenizer": "t", "write": {"output": "o"}}
    job = make_job(values | {"read": {"dataset": "the-stack"}})
    assert job.read.text_field == "content"
    assert make_job(values | {"read": {"dataset": "the-stack", "text_field": "x"}}).read.text_field == "x"
    training = {"learn": {"output": "o", "vocab_size": 300}, "read": {"dataset": "c4"}}
    assert make_training(training).read.dataset == "c4"
    with pytest.raises(ConfigError, match=r"read\.split is of a dataset, and none is named; give --dataset"):
        make_job(values | {"read": {"inputs": ["a"], "split": "test"}})
    with pytest.raises(ConfigError, match=r"no input: .* or a --dataset"):
        make_job(values)


def test_slices_of_a_file_that_is_not_at_hand_are_shares_of_its_bytes():
    url = f"hf://datasets/o/n@{'a' * 40}/x.parquet"
    file = InputFile(path=url, num_bytes=1000, version="", format="parquet", compression="none")
    parts = slice_file(0, file, ReadConfig(dataset="o/n"), 300)
    assert [(part.start, part.stop, part.is_share) for part in parts] == [
        (0, 300, True),
        (300, 600, True),
        (600, 900, True),
        (900, 1000, True),
    ]


def test_a_cache_that_cannot_be_written_serves_what_is_in_it(tmp_path):
    content = b"some text"
    folder = tmp_path / "datasets--o--n" / "blobs"
    folder.mkdir(parents=True)
    (tmp_path / ".locks").write_bytes(b"no folder")
    (tmp_path / "datasets--o--n" / "gristmill").write_bytes(b"no folder")
    digest = digest_of(content, is_large=True)
    (folder / digest).write_bytes(content)
    url = f"hf://datasets/o/n@{'a' * 40}/x.jsonl"
    assert fetch(url, len(content), digest, str(tmp_path)) == str(folder / digest)
    (folder / digest).write_bytes(b"other txt")
    with pytest.raises(InputError, match=r"cannot hold x\.jsonl .*--cache-dir.*--streaming"):
        fetch(url, len(content), digest, str(tmp_path))


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match=r"allenai/c4 needs .* pip install 'gristmill\[hub\]'"):
        list_inputs(ReadConfig(dataset="c4"))


def test_the_readme_has_every_alias_and_where_it_is():
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for alias, dataset in ALIASES.items():
        assert f"| `{alias}` | {dataset.repo} |" in readme


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Row groups of very different sizes, some of a single short row."""
    path = tmp_path_factory.mktemp("uneven") / "a.parquet"
    texts = [f"{number} " * (1 + number % 7 * 40) for number in range(120)]
    with pq.ParquetWriter(path, pa.schema({"text": pa.string()})) as writer:
        for start, stop in ((0, 1), (1, 60), (60, 61), (61, 62), (62, 119), (119, 120)):
            writer.write_table(pa.table({"text": texts[start:stop]}))
    return path, texts


@settings(deadline=None)
@given(unit_bytes=st.integers(1, 5000))
def test_shares_of_a_parquet_file_give_every_row_once_and_in_order(uneven, unit_bytes):
    path, texts = uneven
    size = path.stat().st_size
    url = f"hf://datasets/o/n@{'a' * 40}/x.parquet"
    remote = InputFile(path=url, num_bytes=size, version="", format="parquet", compression="none")
    local = InputFile(path=str(path), num_bytes=size, version="", format="parquet", compression="none")
    parts = slice_file(0, remote, ReadConfig(dataset="o/n"), max(unit_bytes, size // 50))
    found = [text for part in parts for text in read_part(local, part, ReadConfig(), BLOCKS).texts]
    assert found == texts


LINE = b'{"text": "x"}\n'
LAYOUTS = {
    "m/card": {
        "README.md": b"---\nconfigs:\n- config_name: a\n  data_files: d/*\n- config_name: default\n"
        b"  data_files:\n  - {split: train, path: e/*.jsonl}\n  - {split: test, path: f.jsonl}\n---\n",
        "d/1.jsonl": LINE,
        "e/2.jsonl": LINE,
        "e/3.jsonl": LINE,
        "f.jsonl": LINE,
    },
    "m/shards": {f"data/{s}-0000{i}-of-00002.jsonl": LINE for s in ("train", "test") for i in range(2)},
    "m/names": {"my_train.jsonl": LINE, "my_test.jsonl": LINE, "README.md": b"#"},
    "m/folders": {"train/a.jsonl": LINE, "train/b.jsonl": LINE, "dev/c.jsonl": LINE},
    "m/plain": {"x.jsonl": LINE, "sub/y.jsonl": LINE, "README.md": b"#", ".hidden.jsonl": LINE},
}
TWIN = """
import sys, datasets
from gristmill.config import ReadConfig
from gristmill.read import list_inputs
for repo in sys.argv[1:]:
    builder = datasets.load_dataset_builder(repo)
    for split, files in sorted(builder.config.data_files.items()):
        split = str(split)
        ours = [file.path for file in list_inputs(ReadConfig(dataset=repo, split=split))]
        print(repo, split, sorted(ours) == sorted(files), len(ours), sorted(files) if len(ours) == 0 else "")
"""


def test_the_files_of_a_split_are_those_that_datasets_reads(tmp_path):
    hub = MadeHub()
    for repo, files in LAYOUTS.items():
        hub.commit(repo, files)
    with serving(hub) as address:
        env = environment(address, tmp_path / "home")
        command = [sys.executable, "-c", TWIN, *LAYOUTS]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = [line.split()[:4] for line in done.stdout.splitlines()]
    assert [words[2] for words in found] == ["True"] * len(found), json.dumps(found)
    assert len(found) == 9


def slow_matches(pattern, path):
    """As a regular expression."""
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.findall(r"\*\*/|\*\*|\*|\?|.", pattern)
    return re.fullmatch("".join(words.get(part) or re.escape(part) for part in parts) + "(?:/.*)?", path)


@settings(deadline=None)
@given(st.text("ab/*?", max_size=9), st.text("ab/", min_size=1, max_size=9))
def test_patterns_mean_what_a_regular_expression_does(pattern, path):
    assume(not pattern.endswith("/"))
    assert matcher([pattern])(path) is (slow_matches(pattern, path) is not None)


@pytest.mark.parametrize("part", ["*a", "**a", "**/", "?*", "[ab]*"])
def test_no_pattern_takes_for_ever(part):
    is_meant = matcher([part * 500 + "b"])
    assert not is_meant("a" * 3000)
    assert not is_meant("a/" * 1500)


def test_of_many_plain_names_each_is_looked_up():
    is_meant = matcher([f"data/{number}.parquet" for number in range(100_000)] + ["more"])
    assert is_meant("data/99999.parquet")
    assert is_meant("more/of/them.parquet")
    assert not is_meant("data/x")


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 60))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB + "configs:\n- config_name: *a59\n", "a list stands where a name"),
        (BOMB + "configs:\n- {config_name: x, data_files: *a59}\n", "a list stands where a name"),
        (BOMB + "configs:\n- {config_name: x, data_files: [{split: *a59, path: x}]}\n", "a list stands"),
        (BOMB + "configs:\n- {config_name: x, data_dir: *a59}\n", "a list stands where a name"),
        (MERGES, "merges mappings"),
        ("configs: " + "[" * 200_000, "nested more than 64 deep"),
        ("- " * 200_000, "nested more than 64 deep"),
        ("? " * 200_000, "nested more than 64 deep"),
    ],
)
def test_a_card_that_would_take_all_memory_or_stack_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        read_card(f"---\n{text}\n---\n", "someone/bomb")
