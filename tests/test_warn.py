"""What may not be what was meant is said, in the result, by `plan` and on the command line."""

import gzip
import json

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import RunError, cli
from gristmill.convert import convert
from gristmill.report.estimate import estimate_run
from gristmill.report.summary import render_result
from gristmill.run.folder import read_manifest, read_plan
from gristmill.run.tokenize import tokenize
from gristmill.run.warn import option_warnings
from made_runs import make_config, run, write_jsonl


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", ["one text", "another text"])
    return folder


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"pack__sequence_length": 512}, "pack.sequence_length does nothing here: whole documents"),
        ({"write__format": "parquet", "pack__lookahead": 5}, "pack.lookahead does nothing here"),
        ({"write__columns": ["input_ids", "labels"]}, "write.columns does nothing here"),
        ({"write__compression": "zstd"}, "write.compression does nothing here: it is of parquet"),
        ({"write__format": ["megatron", "parquet"]}, "parquet holds whole documents, because megatron"),
        ({"encode__add_eos": False}, "encode.eos_id does nothing here: encode.add_eos is false"),
        ({"encode__bos_id": 1}, "encode.bos_id does nothing here: encode.add_bos is false"),
        ({"run__preset": "streaming", "run__backend": None, "run__workers": 2}, "one process"),
        ({"run__ray_address": "auto"}, "run.ray_address does nothing here: it is of --backend ray"),
        (
            {"write__format": "parquet", "pack__mode": "pad", "pack__tail": "drop"},
            "pack.tail does nothing here: every document has rows of its own",
        ),
        ({"read__join": " "}, "read.join does nothing here: there is one text field"),
        ({"read__document": "line"}, "read.document does nothing here: no input is plain text"),
    ],
)
def test_an_option_that_does_nothing_is_named_with_the_reason(tokenizer, corpus, tmp_path, options, warning):
    config = make_config(tokenizer, corpus, tmp_path / "out", **options)
    [found] = tokenize(config).warnings
    assert warning in found
    assert found in estimate_run(config, force=True).warnings


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "a.csv"])
def test_one_of_several_text_fields_that_no_record_has_is_named(tokenizer, tmp_path, name):
    path, rows = tmp_path / name, [{"title": f"title {n}", "text": "some text"} for n in range(9)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif name == "a.csv":
        path.write_text("title,text\n" + "a title,some text\n" * 9)
    else:
        path.write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    [found] = run(tokenizer, path, tmp_path / "out", read__text_field=["titel", "text"]).warnings
    assert found == f"read.text_field titel is in none of the first records of {path}"
    assert run(tokenizer, path, tmp_path / "right", read__text_field=["title", "text"]).warnings == ()


def test_folders_that_a_pattern_matches_are_named_as_not_read(tokenizer, corpus, tmp_path):
    (corpus / "deep").mkdir()
    write_jsonl(corpus / "deep" / "b.jsonl", ["text"])
    run(tokenizer, corpus / "a.jsonl", corpus / "a run")
    found = run(tokenizer, corpus / "*", tmp_path / "out").warnings
    assert f"folders that a pattern matches, and ** would look into: {corpus / 'deep'}" in found
    found = run(tokenizer, corpus / "**", tmp_path / "all").warnings
    assert not any("would look into" in text for text in found)


def test_the_summary_tells_of_units_whose_workers_were_lost(tokenizer, corpus, tmp_path):
    result = run(tokenizer, corpus, tmp_path / "out")
    assert "retried" not in render_result(result)
    last = msgspec.structs.replace(result.last, num_retries=2)
    assert "retried     2 units; events.jsonl says why\n" in render_result(
        msgspec.structs.replace(result, last=last)
    )


@pytest.mark.parametrize(("num_bad", "warned"), [(5, 0), (6, 1)])
def test_many_bad_documents_are_said_however_quiet_the_run(tokenizer, tmp_path, capsys, num_bad, warned):
    lines = ['{"text": "good"}'] * (100 - num_bad) + ["{bad"] * num_bad
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    command = ["tokenize", str(tmp_path / "a.jsonl"), "-t", str(tokenizer), "-o", str(tmp_path / "out")]
    assert cli.main([*command, "--eos-id", "0", "--quiet"]) == 0
    assert capsys.readouterr().err.count("6 of 100 documents are bad: bad_json 6") == warned


@pytest.mark.parametrize(("overlap", "warned"), [(32, 0), (33, 1), (63, 1)])
def test_an_overlap_that_writes_tokens_many_times_is_named(tokenizer, corpus, tmp_path, overlap, warned):
    options = {"write__format": "parquet", "pack__sequence_length": 64, "pack__overlap": overlap}
    found = run(tokenizer, corpus, tmp_path / "out", **options).warnings
    assert len(found) == warned
    assert all(f"pack.overlap {overlap} of 64 tokens writes most tokens" in text for text in found)


@pytest.mark.parametrize("options", [{}, {"write__format": "parquet", "pack__sequence_length": 64}])
def test_a_plain_job_has_no_warnings(tokenizer, corpus, tmp_path, options):
    assert run(tokenizer, corpus, tmp_path / "out", **options).warnings == ()


def test_fields_of_plain_text_are_warned_of(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("some text")
    [found] = run(tokenizer, tmp_path / "a.txt", tmp_path / "out", read__id_field="id").warnings
    assert found == "read.id_field does nothing here: plain text has no fields"


def test_files_of_a_folder_that_are_not_read_are_counted_by_suffix(tokenizer, corpus, tmp_path):
    for name in ("a.py", "b.py", "LICENSE", ".hidden"):
        (corpus / name).write_text("text")
    [found] = run(tokenizer, corpus, tmp_path / "out").warnings
    assert found.startswith("3 files not read: 2 .py, 1 without a suffix; name them, or set read.format")
    read = run(tokenizer, corpus, tmp_path / "text", read__format="text")
    assert (read.manifest.ledger.documents_encoded, read.warnings) == (4, ())


def test_a_file_named_twice_is_said_to_be_read_once(tokenizer, corpus, tmp_path):
    inputs = [str(corpus), str(corpus / "a.jsonl")]
    result = run(tokenizer, corpus, tmp_path / "out", read__inputs=inputs)
    assert result.manifest.ledger.documents_read == 2
    assert result.warnings == (f"named more than once, and read once: {corpus / 'a.jsonl'}",)


def test_a_run_folder_inside_the_inputs_is_no_input(tokenizer, corpus):
    options = {"write__format": "parquet", "pack__sequence_length": 16}
    run(tokenizer, corpus, corpus / "out", **options)
    again = run(tokenizer, corpus, corpus / "out", **options)
    assert again.last is None
    assert again.warnings == (f"left out, because they hold runs: {corpus / 'out'}",)
    other = run(tokenizer, corpus / "**", corpus / "out2", **options)
    assert other.manifest.ledger.documents_read == 2
    convert(corpus / "out", "arrow", output=corpus / "converted")
    third = run(tokenizer, corpus, corpus / "out3", **options)
    assert third.manifest.ledger.documents_read == 2
    assert f"{corpus / 'converted'}" in third.warnings[0]
    pattern = corpus / "out" / "parquet" / "*.parquet"
    plan = estimate_run(make_config(tokenizer, pattern, corpus / "out4"))
    assert plan.inputs[0].num_files > 0


def test_a_file_that_is_bad_as_a_whole_is_warned_of_with_the_cause(tokenizer, corpus, tmp_path, capsys):
    pq.write_table(pa.table({"body": ["text"]}), corpus / "b.parquet")
    cause = f"1 file was not read to the end; first {corpus / 'b.parquet'}: missing_field (no column text"
    arguments = ["tokenize", str(corpus), "-t", str(tokenizer), "-o", str(tmp_path / "out"), "--eos-id", "0"]
    assert cli.main([*arguments, "--backend", "inline"]) == 0
    shown = capsys.readouterr()
    assert f"warnings    {cause}" in shown.out
    assert cli.main([*arguments, "--backend", "inline", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert cause in shown.err


def test_empty_files_are_counted_and_not_warned_of(tokenizer, corpus, tmp_path):
    (corpus / "b.jsonl").write_text("")
    result = run(tokenizer, corpus, tmp_path / "out")
    assert result.manifest.ledger.bad_files == {"empty_file": 1}
    assert result.warnings == ()


def test_an_id_field_that_no_record_has_is_warned_of(tokenizer, corpus, tmp_path):
    result = run(tokenizer, corpus, tmp_path / "out", read__id_field="name")
    assert result.warnings == ("read.id_field is name, which is in no record",)
    assert run(tokenizer, corpus, tmp_path / "with", read__id_field="id").warnings == ()


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_a_column_of_ids_that_is_missing_blames_the_id_field(tokenizer, tmp_path, name):
    if name == "a.csv":
        (tmp_path / name).write_text("text\nsome text\n")
    else:
        pq.write_table(pa.table({"text": ["some text"]}), tmp_path / name)
    with pytest.raises(RunError, match=r"no column key \(has text\); set read\.id_field\)"):
        run(tokenizer, tmp_path / name, tmp_path / "out", read__id_field="key")


@pytest.mark.parametrize("limit", [{"run__max_tokens": 1}, {"run__max_rows": 1, "run__max_tokens": 1}])
def test_a_limit_that_leaves_nothing_is_warned_of(tokenizer, corpus, tmp_path, limit):
    [found] = run(tokenizer, corpus, tmp_path / "out", **limit).warnings
    assert "nothing was written" in found
    assert "run.max_tokens" in found


def test_a_job_without_a_usable_document_says_the_first_cause_and_the_fields(tokenizer, corpus, tmp_path):
    with pytest.raises(RunError) as error:
        run(tokenizer, corpus, tmp_path / "out", read__text_field="body")
    assert f"first {corpus / 'a.jsonl'}, record 0: missing_field" in str(error.value)
    assert "the record has text, id; set read.text_field" in str(error.value)


def test_a_run_that_got_nowhere_is_replaced_by_the_corrected_job(tokenizer, corpus, tmp_path):
    with pytest.raises(RunError):
        run(tokenizer, corpus, tmp_path / "out", read__text_field="body")
    assert not estimate_run(make_config(tokenizer, corpus, tmp_path / "out")).problems
    run(tokenizer, corpus, tmp_path / "out")
    assert read_plan(tmp_path / "out").config.read.text_field == "text"
    assert read_manifest(tmp_path / "out").ledger.documents_encoded == 2


def test_warnings_of_options_are_shown_once_and_are_in_the_json(tokenizer, corpus, tmp_path, capsys):
    arguments = ["tokenize", str(corpus), "-t", str(tokenizer), "-o", str(tmp_path / "out"), "--eos-id", "0"]
    assert cli.main([*arguments, "--backend", "inline", "--sequence-length", "512", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("gristmill: warning: pack.sequence_length does nothing here") == 1
    assert "pack.sequence_length" in json.loads(shown.out)["warnings"][0]


def test_control_characters_of_names_do_not_reach_the_terminal(tokenizer, corpus, tmp_path):
    (corpus / "a.\x1b[2J").write_text("x")
    result = run(tokenizer, corpus, tmp_path / "out")
    assert "\x1b" in result.warnings[0]
    assert "\x1b" not in render_result(result)


def test_several_text_fields_make_join_useful(tokenizer, corpus):
    config = make_config(tokenizer, corpus, "out", read__text_field=["a", "b"], read__join=" ")
    assert option_warnings(config) == []
