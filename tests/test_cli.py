"""The command line: what it prints, and with which status it ends."""

import json
import os
import subprocess
import sys

import pytest
import tokenizers

from gristmill import cli
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


def test_no_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_demo_says_that_ids_are_equal():
    ended = run("demo")
    assert ended.returncode == 0, ended.stderr
    assert "equal to the reference" in ended.stdout


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


@pytest.mark.parametrize(
    "arguments",
    [
        ["tokenizer", "no/such/tokenizer.json"],
        ["encode", "-t", "no/such/tokenizer.json", "text"],
        ["encode", "-t", "tokenizer.json", "-f", "no/such/file"],
        ["bench", "--rounds", "0"],
        ["bench", "no/such/file.jsonl"],
        ["bench", "--plot", "chart.doc"],
    ],
)
def test_a_users_mistake_is_one_line_and_status_2(arguments, capsys):
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
