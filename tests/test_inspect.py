"""`gristmill inspect` shows what is in the shards: text, borders, padding, and the record it came from."""

import json
import shutil

import pytest

import gristmill
from gristmill import cli
from gristmill.errors import ConfigError, InputError, RunError
from gristmill.report.inspect import inspect_run, render_inspection
from gristmill.sample import train_sample_tokenizer
from made_runs import make_corpus, run, write_jsonl

ROW_FORMATS = ["parquet", "arrow", "mds", "litdata", "pt", "npy", "webdataset"]
ROWS = {"write__format": ROW_FORMATS, "pack__mode": "best_fit", "pack__sequence_length": 100}
PAYLOAD = ["megatron", "nanogpt", "llmc", "olmo", "datatrove"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return folder, make_corpus(folder)


@pytest.fixture(scope="module")
def rows(tokenizer, corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "rows"
    run(tokenizer, corpus[0], output, read__id_field="id", **ROWS)
    return output


@pytest.fixture(scope="module")
def documents(tokenizer, corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "documents"
    run(tokenizer, corpus[0], output, write__format=PAYLOAD)
    return output


@pytest.mark.parametrize("name", PAYLOAD)
@pytest.mark.parametrize("index", [0, 17, 200, 359])
def test_a_document_of_any_format_is_its_text_and_record(documents, corpus, name, index):
    (item,) = inspect_run(documents, row=index, format=name).items
    (part,) = item.parts
    assert part.text == corpus[1][index]
    assert part.file.endswith(f"part-{index // 120}.jsonl")
    assert part.record == index % 120
    assert part.has_eos
    assert part.ids[-1] == 0


@pytest.mark.parametrize("name", ROW_FORMATS)
def test_the_parts_of_all_rows_are_the_documents(tokenizer, tmp_path, name):
    documents = make_corpus(tmp_path / "corpus", num_files=2, num_docs=20)
    run(tokenizer, tmp_path / "corpus", tmp_path / "out", **ROWS)
    found = {}
    for index in range(inspect_run(tmp_path / "out").ledger.rows):
        (item,) = inspect_run(tmp_path / "out", row=index, format=name).items
        assert item.num_tokens + item.num_padding == 100
        for part in item.parts:
            found.setdefault((part.file, part.record), {})[part.first] = part
    ids = [[id_ for first in sorted(parts) for id_ in parts[first].ids] for _, parts in sorted(found.items())]
    loaded = gristmill.load_tokenizer(tokenizer)
    assert ids == [[*loaded.encode(text).tolist(), 0] for text in documents]


@pytest.mark.parametrize("record", [0, 16, 119])
def test_a_document_is_found_by_file_and_record_in_every_row_it_is_in(rows, corpus, record):
    items = inspect_run(rows, document=f"part-2.jsonl:{record}").items
    shown = [part for item in items for part in item.parts if part.ids]
    assert {part.record for part in shown} == {record}
    assert sum(part.num_tokens for part in shown) == shown[0].document_tokens
    assert shown[0].text[:20] == corpus[1][240 + record][:20]


def test_a_document_is_found_by_its_id_and_its_namesakes_are_named(rows):
    found = inspect_run(rows, document="doc-7")
    assert {part.name for item in found.items for part in item.parts if part.ids} == {"doc-7"}
    assert "part-1.jsonl:7" in found.notes[0]
    assert "part-2.jsonl:7" in found.notes[0]


def test_records_count_blank_lines_and_bad_ones(tokenizer, tmp_path):
    lines = ['{"text": "one"}', "", "{bad", '{"text": "four"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", read__unit_bytes=10)
    (item,) = inspect_run(tmp_path / "out", document="a.jsonl:3").items
    assert item.parts[0].text == "four"
    with pytest.raises(InputError, match=r"record 2 of a\.jsonl was bad .*bad_json"):
        inspect_run(tmp_path / "out", document="a.jsonl:2")


def test_padding_masked_first_tokens_and_ends_are_visible(tokenizer, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["The mill stands by the river.", "x"])
    options = {"pack__mode": "pad", "pack__sequence_length": 64, "pack__mask_first_token": True}
    ends = {"encode__add_bos": True, "encode__bos_id": 1}
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", write__format="parquet", **options, **ends)
    found = inspect_run(tmp_path / "out", row=1)
    text = render_inspection(found)
    assert "⟦BOS⟧\n│ x\n⟦EOS⟧" in text
    assert "⟦mask: labels -100 on its first token⟧" in text
    assert f"⟦padding {found.items[0].num_padding}: id 0, attention mask 0, labels -100⟧" in text


def test_tokens_that_no_row_holds_are_noted(tokenizer, corpus, tmp_path):
    options = {"write__format": "parquet", "pack__sequence_length": 300, "pack__tail": "drop"}
    run(tokenizer, corpus[0], tmp_path / "out", **options)
    assert "are in no row" in inspect_run(tmp_path / "out", document="part-2.jsonl:119").notes[0]


def test_no_control_character_reaches_the_terminal(tokenizer, tmp_path, capsys):
    hostile = "red \x1b[31m bell \x07 back \x08 c1 \x9b line\r\nnext ⟦padding 3⟧ bidi \u202e"
    line = json.dumps({"text": hostile, "id": "a\x1b]0;owned\x07"})
    (tmp_path / "a.jsonl").write_text(line + "\n")
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", read__id_field="id")
    assert cli.main(["inspect", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in printed)
    assert "│ next ⟦padding 3⟧" in printed
    assert "\\x1b[31m" in printed


def test_without_a_choice_the_summary_and_the_first_row_are_shown(rows, capsys):
    assert cli.main(["inspect", str(rows)]) == 0
    printed = capsys.readouterr().out
    assert "360 encoded of 360 read" in printed
    assert "row 0: parquet" in printed
    assert "finished before" not in printed


def test_json_has_every_id(documents, capsys):
    assert cli.main(["inspect", str(documents), "--row", "3", "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert len(item["parts"][0]["ids"]) == item["num_tokens"]


def test_ids_are_shown_where_the_tokenizer_is_gone_or_changed(tokenizer, corpus, tmp_path):
    (tmp_path / "t").mkdir()
    own = tmp_path / "t" / "tokenizer.json"
    shutil.copy(tokenizer, own)
    run(own, corpus[0], tmp_path / "out")
    own.unlink()
    found = inspect_run(tmp_path / "out", row=0)
    assert found.items[0].parts[0].text is None
    assert "ids are shown" in found.notes[0]
    train_sample_tokenizer(tmp_path / "t", vocab_size=700)
    found = inspect_run(tmp_path / "out", row=0)
    assert "has changed" in found.notes[0]
    assert "⟦ids " in render_inspection(found)


def test_an_id_outside_the_vocabulary_stands_as_its_number(tokenizer, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["abc"])
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out")
    [shard] = (tmp_path / "out" / "megatron").glob("*.bin")
    shard.write_bytes(shard.read_bytes()[:-2] + (60_000).to_bytes(2, "little"))
    assert inspect_run(tmp_path / "out").items[0].parts[0].ids[-1] == 60_000


def test_a_long_text_is_cut_unless_all_of_it_is_asked_for(tokenizer, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["word " * 10_000])
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out")
    found = inspect_run(tmp_path / "out")
    assert "--full shows them" in render_inspection(found)
    assert len(render_inspection(found)) < 3_000
    assert len(render_inspection(found, is_full=True)) > 50_000


def test_many_lines_and_many_parts_are_cut_likewise(tokenizer, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["line\n" * 50] + ["short"] * 40)
    options = {"write__format": "parquet", "pack__sequence_length": 256}
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", **options)
    found = inspect_run(tmp_path / "out", row=0)
    shown = render_inspection(found)
    assert len(shown.splitlines()) < 80
    assert f"⟦{len(found.items[0].parts) - 12} more parts; --full shows them⟧" in shown
    assert "more" not in render_inspection(found, is_full=True)


def test_a_record_that_was_bad_is_told_with_its_reason(tokenizer, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": 3}\n{"text": "two"}\n')
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out")
    with pytest.raises(InputError, match=r"record 1 of a\.jsonl was bad .*wrong_type.*quarantine\.jsonl"):
        inspect_run(tmp_path / "out", document="a.jsonl:1")
    with pytest.raises(InputError, match=r"record 9 of a\.jsonl is no document"):
        inspect_run(tmp_path / "out", document="a.jsonl:9")


def test_what_is_not_there_is_a_clear_error(rows, tmp_path):
    with pytest.raises(InputError, match=r"has no row 1000000; it has rows 0\.\.\d+$"):
        inspect_run(rows, row=10**6)
    with pytest.raises(InputError, match="no document 'doc-9999'"):
        inspect_run(rows, document="doc-9999")
    with pytest.raises(InputError, match="is no input file of this run"):
        inspect_run(rows, document="other.jsonl:3")
    with pytest.raises(ConfigError, match="holds no format 'olmo'"):
        inspect_run(rows, format="olmo")
    with pytest.raises(RunError, match=r"is no run folder \(it has no plan"):
        inspect_run(tmp_path)
    with pytest.raises(RunError, match=r"is no run folder \(there is no such folder"):
        inspect_run(tmp_path / "nowhere")


def test_an_unfinished_run_is_a_clear_error(tokenizer, corpus, tmp_path):
    run(tokenizer, corpus[0], tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(RunError, match="not finished"):
        inspect_run(tmp_path / "out")
