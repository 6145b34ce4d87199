"""Every kind of bad input in one folder: the run goes on, the ledger balances, each record can be found."""

import bz2
import gzip
import json
import lzma
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from gristmill.errors import BadDocumentError, BadFileError, RunError
from gristmill.ledger import check_balance
from gristmill.run.folder import read_plan, read_records
from made_runs import make_config, payload_documents, run

from gristmill.run.tokenize import tokenize  # isort: skip

GOOD = "A good document."
LINES = [
    (b"\xef\xbb\xbf" + json.dumps({"text": "after a byte order mark"}).encode(), None),
    (json.dumps({"text": ""}).encode(), "empty"),
    (json.dumps({"text": None}).encode(), "null"),
    (json.dumps({"body": GOOD}).encode(), "missing_field"),
    (json.dumps({"text": ["a", "list"]}).encode(), "wrong_type"),
    (json.dumps([GOOD]).encode(), "wrong_type"),
    (b'{"text": "cut', "bad_json"),
    (b'{"text": "raw \x00 NUL"}', "bad_json"),
    (json.dumps({"text": "an escaped \x00 NUL"}).encode(), None),
    (b'{"text": "\xff\xfe"}', "bad_utf8"),
    (b'{"text": "\xed\xa0\x80"}', "bad_utf8"),
    (rb'{"text": "lone \ud800 surrogate"}', "lone_surrogate"),
    (json.dumps({"text": "ends in CRLF"}).encode() + b"\r", None),
    (b"", "blank"),
    (b"   ", "blank"),
    (json.dumps({"text": "x" * 5000}).encode(), "too_large"),
    (json.dumps({"text": "pair \U0001f600"}).encode(), None),
    (json.dumps({"text": GOOD}).encode(), None),
]
FILE_REASONS = {
    "truncated.jsonl.gz": "truncated",
    "truncated.jsonl.zst": "truncated",
    "truncated.jsonl.bz2": "truncated",
    "truncated.jsonl.xz": "truncated",
    "garbage.jsonl.gz": "corrupt",
    "empty.jsonl": "empty_file",
    "empty.txt": "empty_file",
    "no_column.parquet": "missing_field",
    "not.parquet": "corrupt",
    "half.parquet": "corrupt",
    "utf16.txt": "corrupt",
}


def good_lines(count):
    return b"".join(json.dumps({"text": f"{GOOD} {i}"}).encode() + b"\n" for i in range(count))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "lines.jsonl").write_bytes(b"\n".join(line for line, _ in LINES) + b"\n")
    (folder / "good.jsonl").write_bytes(good_lines(50))
    packed = {
        "gz": gzip.compress,
        "zst": zstandard.ZstdCompressor().compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
    }
    for suffix, compress in packed.items():
        content = compress(good_lines(2000))
        (folder / f"whole.jsonl.{suffix}").write_bytes(compress(good_lines(20)))
        (folder / f"truncated.jsonl.{suffix}").write_bytes(content[: len(content) * 2 // 3])
    (folder / "garbage.jsonl.gz").write_bytes(gzip.compress(good_lines(5)) + b"garbage after the end")
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "empty.txt").write_bytes(b"")
    (folder / "bad.txt").write_bytes(b"bad \xff byte")
    (folder / "utf16.txt").write_bytes("text".encode("utf-16"))
    (folder / "crlf.txt").write_bytes(b"two\r\nlines\r\n")
    table = pa.table({"text": [GOOD, None, "", "another"], "n": [1, 2, 3, 4]})
    pq.write_table(table, folder / "nulls.parquet")
    pq.write_table(table.select(["n"]), folder / "no_column.parquet")
    (folder / "not.parquet").write_bytes(b"PAR1 not at all PAR1")
    (folder / "half.parquet").write_bytes((folder / "nulls.parquet").read_bytes()[:200])
    (folder / "rows.csv").write_bytes(b'text,n\n"a ""quoted""\nline",1\nonly one field\nplain,2\n')
    return folder


@pytest.fixture(scope="module", params=["inline", "local"])
def finished(request, tokenizer, corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("run") / "out"
    options = {"read__max_document_bytes": 4000, "read__unit_bytes": 700, "run__backend": request.param}
    result = run(tokenizer, corpus, output, **options, run__workers=2)
    entries = [json.loads(line) for line in (output / "quarantine.jsonl").read_text().splitlines()]
    return output, result.manifest, entries


def test_the_ledger_balances_for_each_unit_and_the_run(finished):
    output, manifest, _ = finished
    check_balance(manifest.ledger, what="the run")
    for record in read_records(output, read_plan(output)).values():
        check_balance(record.ledger, what="a unit")
    ledger = manifest.ledger
    assert ledger.documents_read == ledger.documents_encoded + sum(ledger.documents_dropped.values())
    assert len(payload_documents(output)) == ledger.documents_encoded


def test_every_bad_document_is_counted_by_reason_and_in_quarantine(finished):
    _, manifest, entries = finished
    expected = Counter(reason for _, reason in LINES if reason not in (None, "blank"))
    expected += Counter({"null": 1, "empty": 1, "bad_utf8": 1, "bad_csv": 1})
    assert manifest.ledger.documents_dropped == expected
    assert Counter(entry["reason"] for entry in entries if not entry["is_file"]) == expected


def test_every_bad_file_is_named_with_its_reason(finished):
    _, manifest, entries = finished
    found = {entry["file"].rsplit("/", 1)[1]: entry["reason"] for entry in entries if entry["is_file"]}
    assert found == FILE_REASONS
    assert manifest.ledger.bad_files == Counter(FILE_REASONS.values())


def test_every_quarantined_line_is_where_its_entry_says(finished, corpus):
    _, _, entries = finished
    content = (corpus / "lines.jsonl").read_bytes()
    here = [entry for entry in entries if entry["file"].endswith("lines.jsonl")]
    assert len(here) == sum(reason not in (None, "blank") for _, reason in LINES)
    for entry in here:
        line, reason = LINES[entry["record"]]
        assert reason == entry["reason"]
        assert content[entry["offset"] :].split(b"\n", 1)[0] == line
        assert line.startswith(entry["excerpt"][:6].encode())


def test_documents_before_a_truncation_are_kept(finished):
    _, manifest, entries = finished
    for entry in entries:
        if entry["reason"] == "truncated" and ".gz" in entry["file"]:
            assert entry["record"] > 100
    assert manifest.ledger.documents_encoded > 50 + 4 * 20 + 500


def test_fail_names_the_file_the_place_and_the_remedy(tokenizer, corpus, tmp_path):
    config = make_config(tokenizer, corpus / "lines.jsonl", tmp_path / "out", read__on_bad_document="fail")
    message = r"lines\.jsonl, record 1, byte 39: empty .*read\.on_bad_document"
    with pytest.raises(BadDocumentError, match=message):
        tokenize(config)
    config = make_config(tokenizer, corpus / "*.gz", tmp_path / "out2", read__on_bad_file="fail")
    with pytest.raises(RunError, match=r"garbage\.jsonl\.gz.*corrupt.*read\.on_bad_file"):
        tokenize(config)


def test_fail_in_a_later_part_of_a_file_says_which(tokenizer, tmp_path):
    lines = ['{"text": "one"}'] * 30 + ["{bad"]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    options = {"read__on_bad_document": "fail", "read__unit_bytes": 100}
    message = r"a\.jsonl, record \d of the part that begins at 400, byte 480: bad_json"
    with pytest.raises(BadDocumentError, match=message):
        run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", **options)


def test_the_quarantine_has_no_field_without_meaning(tokenizer, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{bad\n')
    run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out")
    entry = json.loads((tmp_path / "out" / "quarantine.jsonl").read_text())
    assert list(entry) == ["file", "record", "offset", "reason", "detail", "excerpt", "is_file"]


def test_skip_counts_and_writes_no_quarantine(tokenizer, corpus, tmp_path):
    result = run(tokenizer, corpus / "lines.jsonl", tmp_path / "out", read__on_bad_document="skip")
    assert result.manifest.ledger.documents_dropped["bad_json"] == 2
    assert not (tmp_path / "out" / "quarantine.jsonl").exists()


def test_after_fail_the_run_can_go_on_with_another_policy(tokenizer, corpus, tmp_path):
    with pytest.raises(BadDocumentError):
        run(tokenizer, corpus / "lines.jsonl", tmp_path / "out", read__on_bad_document="fail")
    result = run(tokenizer, corpus / "lines.jsonl", tmp_path / "out")
    assert result.manifest.ledger.documents_encoded == 5 + 1


def test_text_of_a_special_token_is_bad_where_the_job_says_error(tokenizer, tmp_path):
    lines = [{"text": "plain"}, {"text": "forged <|endoftext|> here"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = run(tokenizer, tmp_path / "a.jsonl", tmp_path / "out", encode__special_tokens="error")
    assert result.manifest.ledger.documents_dropped == {"special_text": 1}
    entry = json.loads((tmp_path / "out" / "quarantine.jsonl").read_text())
    assert entry["record"] == 1
    assert "<|endoftext|>" in entry["detail"]


def test_documents_round_those_that_a_tokenizer_refuses_are_encoded_as_without_them(tokenizer, tmp_path):
    texts = [f"document number {n} of some" for n in range(70)]
    forged = {0, 31, 32, 69}
    for name, chosen in (("all", range(70)), ("clean", sorted(set(range(70)) - forged))):
        lines = [{"text": texts[n] + " <|endoftext|>" * (n in forged)} for n in chosen]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for name in ("all", "clean"):
        run(tokenizer, tmp_path / f"{name}.jsonl", tmp_path / name, encode__special_tokens="error")
    written = [payload_documents(tmp_path / name) for name in ("all", "clean")]
    assert len(written[0]) == 66
    assert written[0] == written[1]
    entries = map(json.loads, (tmp_path / "all" / "quarantine.jsonl").read_text().splitlines())
    assert {entry["record"] for entry in entries} == forged


def test_a_store_that_fails_ends_the_run_and_it_can_be_resumed(tokenizer, tmp_path, monkeypatch):
    import fsspec

    from gristmill import unit_input

    with fsspec.open("memory://corpus/a.jsonl", "wb") as file:
        file.write(good_lines(30))
    read_slice = unit_input.read_slice

    def fail(file, *arguments):
        yield from read_slice(file, *arguments)
        raise BadFileError("unreadable", "connection reset")

    monkeypatch.setattr(unit_input, "read_slice", fail)
    with pytest.raises(RunError, match="connection reset; run the same command again"):
        run(tokenizer, "memory://corpus/a.jsonl", tmp_path / "out")
    monkeypatch.undo()
    result = run(tokenizer, "memory://corpus/a.jsonl", tmp_path / "out")
    assert result.manifest.ledger.documents_encoded == 30
