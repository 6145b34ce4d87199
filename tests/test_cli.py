"""The command line: what it prints, and with which status it ends."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from typing import get_args

import pyarrow.parquet as pq
import pytest
import tiktoken
import tokenizers

import made_tokenizers as made
from gristmill import cli, cli_run
from gristmill.config import OutputFormat
from gristmill.job import OF_TOKENIZE, SECTIONS, TRAINING_SECTIONS
from gristmill.sample import train_sample_tokenizer


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory):
    return train_sample_tokenizer(tmp_path_factory.mktemp("tokenizer"), vocab_size=400)


@pytest.fixture(scope="module")
def reference(tokenizer_path):
    return tokenizers.Tokenizer.from_file(str(tokenizer_path))


def run(*arguments, text=None):
    command = [sys.executable, "-m", "gristmill", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=False)


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("gristmill 0.")


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    assert "gristmill encode -t" in capsys.readouterr().out


def test_no_command_shows_the_help_and_is_a_usage_error(capsys):
    assert cli.main([]) == 2
    assert "gristmill encode -t" in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_says_what_it_does_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    printed = capsys.readouterr().out
    line, example, _ = cli.COMMANDS[command]
    assert ended.value.code == 0
    assert line[1:] in printed
    assert example in printed
    assert "%(" not in printed


def test_the_example_of_every_command_is_one_it_understands():
    for _, example, _ in cli.COMMANDS.values():
        cli.build_parser().parse_args(example.split()[1:])


def test_a_command_described_alone_is_described_alike():
    def helps(parser):
        (commands,) = (action for action in parser._actions if hasattr(action.choices, "items"))
        return {name: command.format_help() for name, command in commands.choices.items()}

    whole = cli.build_parser()
    for name in cli.COMMANDS:
        alone = cli.build_parser(only=name)
        assert helps(alone) == {name: helps(whole)[name]}


def test_encode_prints_the_reference_ids_of_each_text(tokenizer_path, reference, capsys):
    assert cli.main(["encode", "-t", str(tokenizer_path), "The mill", "über 12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [list(map(int, line.split())) for line in lines] == [
        reference.encode("The mill").ids,
        reference.encode("über 12").ids,
    ]


def test_encode_reads_standard_input_as_one_document(tokenizer_path, reference):
    ended = run("encode", "-t", tokenizer_path, "--json", text="two\nlines, ünïcode\n")
    ids = reference.encode("two\nlines, ünïcode\n").ids
    assert json.loads(ended.stdout) == {"num_tokens": len(ids), "ids": ids}


def test_encode_reads_files(tokenizer_path, reference, tmp_path, capsys):
    path = tmp_path / "page.txt"
    path.write_text("a page", encoding="utf-8")
    assert cli.main(["encode", "-t", str(tokenizer_path), "-f", str(path)]) == 0
    assert capsys.readouterr().out.split() == [str(i) for i in reference.encode("a page").ids]


def test_encode_replaces_invalid_bytes_where_asked(tokenizer_path, reference, tmp_path, capsys):
    path = tmp_path / "broken"
    path.write_bytes(b"abc\xff")
    assert cli.main(["encode", "-t", str(tokenizer_path), "--errors", "replace", "-f", str(path)]) == 0
    assert capsys.readouterr().out.split() == [str(i) for i in reference.encode("abc\ufffd").ids]


def test_encode_names_bytes_of_an_argument_that_are_not_utf8(tokenizer_path, capsys):
    assert cli.main(["encode", "-t", str(tokenizer_path), "caf\udce9"]) == 2  # as b"caf\xe9" comes
    assert "document 0: invalid UTF-8 at byte 3" in capsys.readouterr().err


def test_encode_writes_a_document_at_once(tokenizer_path, monkeypatch):
    class Counted(io.StringIO):
        writes = 0

        def write(self, text):
            self.writes += 1
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", out := Counted())
    assert cli.main(["encode", "-t", str(tokenizer_path), "one two three", "four five"]) == 0
    assert (out.writes, out.getvalue().count("\n")) == (2, 2)


@pytest.fixture
def rank_path(tmp_path):
    path = tmp_path / "own.tiktoken"
    path.write_bytes(made.rank_file(made.ranks()))
    return path


def test_a_rank_file_takes_its_pattern(rank_path, capsys):
    assert cli.main(["encode", "-t", str(rank_path), "--pattern", r"\w+|\W+", "the fox"]) == 0
    encoding = tiktoken.Encoding("own", pat_str=r"\w+|\W+", mergeable_ranks=made.ranks(), special_tokens={})
    assert capsys.readouterr().out.split() == [str(i) for i in encoding.encode("the fox")]
    assert cli.main(["tokenizer", str(rank_path), "--pattern", r"\w+|\W+"]) == 0
    assert r"\w+|\W+" in capsys.readouterr().out


def test_a_rank_file_takes_its_encoding(rank_path, capsys):
    assert cli.main(["tokenizer", str(rank_path), "--encoding", "cl100k_base"]) == 2
    assert "cl100k_base has 100,256" in capsys.readouterr().err


def test_encode_treats_special_tokens_as_text(tokenizer_path, capsys):
    cli.main(["encode", "-t", str(tokenizer_path), "<|endoftext|>"])
    assert len(capsys.readouterr().out.split()) > 1


def test_encode_parses_special_tokens_where_asked(tokenizer_path, reference, capsys):
    cli.main(["encode", "-t", str(tokenizer_path), "--special-tokens", "parse", "<|endoftext|>"])
    assert capsys.readouterr().out.split() == [str(reference.token_to_id("<|endoftext|>"))]


def test_encode_refuses_special_tokens_where_asked(tokenizer_path, capsys):
    assert cli.main(["encode", "-t", str(tokenizer_path), "--special-tokens", "error", "<|endoftext|>"]) == 2
    assert "<|endoftext|>" in capsys.readouterr().err


def test_tokenizer_shows_what_was_understood(tokenizer_path, capsys):
    assert cli.main(["tokenizer", str(tokenizer_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["vocab_size"] == 400
    assert facts["token_dtype"] == "uint16"
    assert set(facts) > {"engine", "why_not_native", "bos_id", "eos_id", "pad_id", "fingerprint", "load_s"}


def test_tokenizer_shows_the_file_and_what_happens_to_text(tokenizer_path, capsys):
    assert cli.main(["tokenizer", str(tokenizer_path)]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["file"] == str(tokenizer_path)
    assert shown["format"] == "tokenizer.json"
    assert shown["model"] == "byte-level BPE"
    assert r"\p{L}" in shown["splits"]
    assert shown["normalizer"] == "none"
    assert shown["num_special_tokens"] == "1"
    assert shown["special_tokens"].startswith("<|endoftext|> ")
    assert shown["bos_id"] == shown["eos_id"] == "not named: no tokenizer_config.json"


def test_tokenizer_shows_the_ids_a_config_names(tokenizer_path, tmp_path, capsys):
    shutil.copy(tokenizer_path, tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    assert cli.main(["tokenizer", str(tmp_path)]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["file"] == str(tmp_path / "tokenizer.json")
    assert shown["eos_id"].isdigit()
    assert shown["bos_id"] == "not named in tokenizer_config.json"


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path, capsys):
    value = made.byte_level_json(specials=("\x1b[2J<s>",))
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))
    assert cli.main(["tokenizer", str(tmp_path)]) == 0
    assert r"\x1b[2J<s>" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["tokenizer", "no/such/tokenizer.json"],
        ["encode", "-t", "no/such/tokenizer.json", "text"],
        ["encode", "-t", "tokenizer.json", "-f", "no/such/file"],
        ["bench", "--rounds", "0"],
        ["bench", "no/such/file.jsonl"],
        ["bench", "--plot", "chart.doc"],
        ["bench", "--json", "no/such/file.jsonl"],
        ["bench", "--plot", "no/such/folder/chart.svg"],
        ["bench", "--threads", "99999"],
    ],
)
def test_a_users_mistake_is_one_line_and_status_2(arguments, capsys, monkeypatch):
    monkeypatch.setattr("gristmill.bench.measure", lambda *_, **__: pytest.fail("measured first"))
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("gristmill: ")
    assert printed.err.count("\n") == 1


def test_text_that_is_not_utf8_is_status_2(tokenizer_path, tmp_path, capsys):
    path = tmp_path / "broken"
    path.write_bytes(b"abc\xff")
    assert cli.main(["encode", "-t", str(tokenizer_path), "-f", str(path)]) == 2
    assert "3" in capsys.readouterr().err


def test_interrupting_is_status_130(monkeypatch):
    def interrupt(_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_demo_command", interrupt)
    assert cli.main(["demo"]) == 130


def test_a_closed_pipe_is_quiet(tokenizer_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gristmill", "encode", "-t", str(tokenizer_path), "word " * 20_000]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert ended.stderr == ""
    assert ended.returncode == 141


@pytest.mark.parametrize("command", ["tokenize", "train"])
def test_help_shows_every_option_with_its_default_and_values(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    shown = capsys.readouterr().out
    assert re.search(r"^  read\.on_bad_file=continue +continue, fail$", shown, flags=re.MULTILINE)
    sections = SECTIONS if command == "tokenize" else TRAINING_SECTIONS
    for name, kind in sections.items():
        for key in kind.__struct_fields__:
            is_of_both = command == "tokenize" or f"{name}.{key}" not in OF_TOKENIZE
            assert (f"\n  {name}.{key}=" in shown) == is_of_both


def test_columns_are_named_on_the_command_line(tokenizer_path, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": "The mill stands by the river."}\n' * 20)
    job = [str(tmp_path / "a.jsonl"), "-t", str(tokenizer_path), "-o", str(tmp_path / "out")]
    job += ["--backend", "inline", "encode.eos_id=0"]
    columns = ["--columns", "input_ids,labels,attention_mask", "--sequence-length", "16"]
    assert cli.main(["tokenize", *job, "--format", "parquet", *columns]) == 0
    table = pq.read_table(min((tmp_path / "out" / "parquet").iterdir()))
    assert table.column_names == ["input_ids", "labels", "attention_mask"]
    assert len(table["labels"][0].as_py()) == 16


STACK_PROBE = """
import resource, sys
import gristmill.cli
from gristmill.__main__ import run

def leaf():
    a = b = c = d = e = f = g = h = 1  # more than the frame of its caller has
    return max(a, b, c, d, e, f, g, h)

def faults_at(depth):
    if depth:
        return faults_at(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(500):
        leaf()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def probe():
    print(max(map(faults_at, range(300))))
    return 0

gristmill.cli.main = probe
run() if sys.argv[1] == "as a command" else probe()
"""


def test_calls_of_the_command_never_take_memory_from_the_system_for_pythons_stack_again_and_again() -> None:
    faults = {
        how: int(subprocess.check_output([sys.executable, "-c", STACK_PROBE, how]))
        for how in ("as a command", "without it")
    }
    assert faults["as a command"] < 100 < faults["without it"], faults


def test_a_command_that_is_told_to_end_among_imports_says_so_and_no_more(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gristmill.report.summary", None)  # as one that was cut off
    cli_run.show_interrupted("out")
    assert capsys.readouterr().err == "gristmill: interrupted before it began\n"


MSGSPEC_PROBE = """
import sys
from gristmill.__main__ import _import_msgspec

_import_msgspec()
print("typing_extensions" in sys.modules, "msgspec" in sys.modules)
import typing_extensions
print(hasattr(typing_extensions, "NotRequired"))
"""


COMMAND_PROBE = """
import atexit, runpy, sys

atexit.register(lambda: print("typing_extensions" in sys.modules, "msgspec" in sys.modules))
sys.argv = ["gristmill", "--help"]
runpy.run_module("gristmill", run_name="__main__")
"""


def test_the_command_does_without_an_import_that_msgspec_can_do_without():
    can_do_without = sys.version_info >= (3, 11)
    shown = subprocess.check_output([sys.executable, "-c", MSGSPEC_PROBE], text=True)
    assert shown == f"False {can_do_without}\nTrue\n"
    shown = subprocess.check_output([sys.executable, "-c", COMMAND_PROBE], text=True)
    assert shown.splitlines()[-1] == f"{not can_do_without} True"


RUN_PROBE = """
import sys
from gristmill.cli import main

assert main(sys.argv[1:]) == 0
print(*sorted(sys.modules))
"""


def test_a_run_imports_neither_other_formats_nor_other_backends_nor_codecs(tokenizer_path, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "some text"}\n')
    for output in ("compiles", "recalls"):
        command = ["tokenize", tmp_path / "a.jsonl", "-t", tokenizer_path, "-o", tmp_path / output]
        options = ["--format", "parquet", "--quiet", "--eos-id", "0"]
        probe = [sys.executable, "-c", RUN_PROBE, *map(str, command), *options]
        imported = subprocess.check_output(probe, text=True).split()
    assert "gristmill.formats.parquet" in imported
    others = {f"gristmill.formats.{name}" for name in get_args(OutputFormat)} - {"gristmill.formats.parquet"}
    others |= {"gristmill.run.local", "zstandard", "concurrent.futures", "logging"}
    assert not others.intersection(imported)
