"""A job as people write it: values as they are typed on the command line, and what is said of mistakes."""

from pathlib import Path

import pytest
import yaml

from gristmill import ConfigError, cli
from gristmill.cli_run import job_of
from gristmill.config import TokenizeConfig
from gristmill.job import TRAINING_SECTIONS, make_job, make_training, parse_override, read_job_file
from made_runs import make_corpus, run, write_jsonl


def job_from(*arguments):
    parsed = cli.parse_arguments(cli.build_parser(), ["tokenize", "a", "-t", "t", "-o", "o", *arguments])
    return job_of(parsed)


def test_two_flags_for_one_option_are_refused_unless_they_agree():
    with pytest.raises(ConfigError, match="--sequence-length 512 and --chunk-size 64 set the same option"):
        job_from("--sequence-length", "512", "--chunk-size", "64")
    assert job_from("--sequence-length", "64", "--chunk-size", "64").pack.sequence_length == 64


def test_a_key_that_stands_twice_in_a_file_is_refused_with_both_lines(tmp_path):
    (tmp_path / "job.yaml").write_text("read:\n  inputs: a\n  format: jsonl\n  inputs: b\n")
    with pytest.raises(ConfigError, match=r"job.yaml: inputs stands in line 2 and again in line 4; keep one"):
        read_job_file(tmp_path / "job.yaml")
    (tmp_path / "job.yaml").write_text("read: &a\n  inputs: a\nwrite:\n  <<: *a\n  inputs: b\n")
    assert read_job_file(tmp_path / "job.yaml")["write"] == {"inputs": "b"}


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["--text-field", "title", "--text-field", "body"], ("title", "body")),
        (["--text-field", "title, body"], ("title", "body")),
        (["--text-field", "body"], "body"),
        (["read.text_field=title,body"], ("title", "body")),
        (["read.text_field=body"], "body"),
        (['read.text_field=["a,b"]'], ("a,b",)),
    ],
)
def test_several_text_fields_can_be_given_in_any_way(arguments, fields):
    assert job_from(*arguments).read.text_field == fields


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("input_ids,labels", ("input_ids", "labels")),
        ("input_ids, labels", ("input_ids", "labels")),
        ("[input_ids, labels]", ("input_ids", "labels")),
        ("labels", ("labels",)),
    ],
)
def test_a_list_option_takes_commas_and_one_value(text, columns):
    assert job_from(f"write.columns={text}").write.columns == columns


def test_formats_may_have_spaces_after_commas():
    assert job_from("--format", "megatron, olmo").write.format == ("megatron", "olmo")
    assert job_from("write.format=megatron, olmo").write.format == ("megatron", "olmo")


def test_a_flag_of_several_values_may_be_given_several_times():
    job = job_from("--format", "megatron", "--format", "olmo,nanogpt")
    assert job.write.format == ("megatron", "olmo", "nanogpt")
    assert job_from("--columns", "input_ids", "--columns", "labels").write.columns == ("input_ids", "labels")


def test_a_comma_in_the_name_of_an_input_stays():
    assert job_from("read.inputs=a,b.jsonl").read.inputs == ("a,b.jsonl",)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (r"\n---\n", "\n---\n"),
        (r"\t", "\t"),
        (r"\\n", r"\n"),
        ("---", "---"),
        (" ", " "),
        (r'"\n"', "\n"),
        (r"'\n'", r"\n"),
    ],
)
def test_what_stands_between_texts_is_taken_as_typed_but_for_escapes(typed, meant):
    assert parse_override(f"read.separator={typed}") == ("read", "separator", meant)
    assert parse_override(f"read.join={typed}") == ("read", "join", meant)


@pytest.mark.parametrize(
    "typed", ["0", "7", "50256", "007", "1_000", "0x10", "-3", "1e3", "9" * 19, "٣", "1:30", ""]
)
def test_a_number_is_the_one_that_yaml_reads(typed):
    assert parse_override(f"encode.eos_id={typed}") == ("encode", "eos_id", yaml.safe_load(typed))


WORDS = "megatron uint16 best_fit y N x0 e5 nan inf Yes NO true False TRUE on Off null NULL Null ~"


@pytest.mark.parametrize("typed", ["2024-13-45", "0b_", "[" * 2000], ids=["date", "number", "depth"])
def test_what_yaml_cannot_make_is_refused(typed, tmp_path):
    with pytest.raises(ConfigError, match="the value is no YAML; quote it"):
        parse_override(f"write.output={typed}")
    (tmp_path / "job.yaml").write_text(f"write:\n  output: {typed}\n")
    with pytest.raises(ConfigError, match=r"job\.yaml: is no YAML"):
        read_job_file(tmp_path / "job.yaml")


@pytest.mark.parametrize("typed", WORDS.split())
def test_a_word_is_what_yaml_reads(typed):
    assert parse_override(f"write.format={typed}") == ("write", "format", yaml.safe_load(typed))


def test_commas_part_the_lists_of_a_training_too():
    parsed = parse_override("learn.special_tokens=<a>,<b>", TRAINING_SECTIONS)
    assert parsed == ("learn", "special_tokens", ["<a>", "<b>"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("write.columns=5", "write.columns: needs a list, got a whole number"),
        ("pack.sequence_length=long", "pack.sequence_length: needs a whole number, got text"),
        ("encode.add_eos=maybe", "encode.add_eos: needs true or false, got text"),
        ("write.columns=ids,labels", "it can be input_ids, labels, attention_mask"),
        ("pack.sequence_length=1", "pack.sequence_length: needs a whole number >= 2"),
    ],
)
def test_a_wrong_value_is_refused_in_plain_words(argument, message):
    with pytest.raises(ConfigError) as error:
        job_from(argument)
    assert message in str(error.value)
    assert "Expected" not in str(error.value)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("text_field=a", "did you mean read.text_field=a?"),
        ("sequence_length=5", "did you mean pack.sequence_length=5?"),
        ("raed.text_field=a", "did you mean read?"),
        ("tokenizer=path/to/gpt2", "did you mean tokenizer.source=path/to/gpt2?"),
    ],
)
def test_an_option_without_its_section_is_no_file(argument, message):
    with pytest.raises(ConfigError) as error:
        job_from(argument)
    assert message in str(error.value)


def test_a_file_that_looks_like_an_option_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("format=x.jsonl").write_text("{}")
    assert job_from("format=x.jsonl").read.inputs == ("a", "format=x.jsonl")


def test_an_unknown_flag_is_named_alone_with_the_usage_of_its_command(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["tokenize", "a.jsonl", "-t", "t", "--sequence-lenght", "5", "-o", "out"])
    shown = capsys.readouterr().err
    assert ended.value.code == 2
    assert "unknown argument --sequence-lenght (did you mean --sequence-length?)" in shown
    assert shown.startswith("usage: gristmill tokenize")
    assert "a.jsonl" not in shown


def test_paths_of_pathlib_may_stand_where_text_can():
    values = {"tokenizer": Path("t"), "read": {"inputs": [Path("a"), "b"]}, "write": {"output": Path("o")}}
    job = make_job(values)
    assert isinstance(job, TokenizeConfig)
    assert (job.tokenizer.source, job.read.inputs, job.write.output) == ("t", ("a", "b"), "o")
    values |= {"read": {"inputs": Path("a")}, "tokenizer": {"source": Path("t")}}
    assert make_job(values).read.inputs == ("a",)


def test_a_memory_of_a_few_bytes_is_shown_as_bytes(tokenizer, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["text"])
    with pytest.raises(ConfigError, match=r"run\.memory is 10 bytes; this job needs at least \d+ MB"):
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", run__memory="10")


@pytest.mark.parametrize("text", ['[{"text": "one"}, {"text": "two"}]', '[\n {"text": "one"}\n]\n'])
def test_a_file_of_one_json_array_is_called_that(tokenizer, tmp_path, text):
    make_corpus(tmp_path / "good", num_files=1, num_docs=5)
    (tmp_path / "good" / "a.json").write_text(text)
    run(tokenizer, tmp_path / "good", tmp_path / "out")
    first = (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()[0]
    assert "looks like a JSON array; JSON Lines, one object a line, is needed" in first


def test_a_key_outside_its_section_is_told_that_there_is_no_such_section():
    with pytest.raises(ConfigError, match="no section 'inputs'; there are read, count, learn, run"):
        make_training({"inputs": ["a.jsonl"]})


@pytest.mark.parametrize("option", ["max_rows", "max_tokens"])
def test_a_training_refuses_limits_that_only_tokenize_has(option):
    values = {"read": {"inputs": ["a.jsonl"]}, "learn": {"output": "t.json", "vocab_size": 300}}
    make_training(values)
    with pytest.raises(ConfigError, match=rf"run\.{option} is of tokenize; .* --limit-documents"):
        make_training(values, [("run", option, 5)])
