"""JSON Lines, CSV, Parquet and Arrow: the same documents from each, and a name for all that is wrong."""

import gzip
import json
import threading

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill.config import ReadConfig
from gristmill.errors import ConfigError
from gristmill.read import list_inputs, read_slice, slice_file, text_paths
from reading import BLOCKS, read_all, read_part, write

TEXTS = ["Hello", "two\nlines", "wörld 日本", "🙂", 'a "quoted", one', "\0", " spaced ", "\r\n"]
TABLE = pa.table({"id": pa.array(range(len(TEXTS))), "text": TEXTS})
SMALL = BLOCKS._replace(block_bytes=16)
EVERY_WAY = [
    BLOCKS,
    SMALL,
    SMALL._replace(memory_map=True),
    SMALL._replace(read_ahead=True),
    BLOCKS._replace(memory_map=True, read_ahead=True),
]


def write_jsonl(folder, table):
    lines = [json.dumps(row) + "\n" for row in table.to_pylist()]
    return write(folder, "a.jsonl", "".join(lines).encode())


def write_parquet(folder, table):
    pq.write_table(table, folder / "a.parquet", row_group_size=3)
    return folder / "a.parquet"


def write_arrow(folder, table):
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return folder / "a.arrow"


def write_stream(folder, table):
    with pa.ipc.new_stream(folder / "b.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return folder / "b.arrow"


def write_feather(folder, table):
    pyarrow.feather.write_feather(table, folder / "a.feather", compression="zstd")
    return folder / "a.feather"


def write_csv(folder, table):
    pyarrow.csv.write_csv(table, folder / "a.csv")
    return folder / "a.csv"


def write_tsv(folder, table):
    pyarrow.csv.write_csv(table, folder / "a.tsv", pyarrow.csv.WriteOptions(delimiter="\t"))
    return folder / "a.tsv"


WRITERS = [write_jsonl, write_parquet, write_arrow, write_stream, write_feather, write_csv, write_tsv]
COLUMN_WRITERS = [write_parquet, write_arrow, write_stream, write_feather]


@pytest.mark.parametrize("blocks", EVERY_WAY)
@pytest.mark.parametrize("unit_bytes", [1, 40, 1 << 40])
@pytest.mark.parametrize("write_table", WRITERS)
def test_every_format_gives_the_same_documents(tmp_path, write_table, unit_bytes, blocks):
    path = write_table(tmp_path, TABLE)
    found = read_all(path, blocks=blocks, unit_bytes=unit_bytes, id_field="id")
    assert found.texts == TEXTS
    assert found.names == [str(number) for number in range(len(TEXTS))]
    assert found.records == list(range(len(TEXTS)))
    assert found.num_records == len(TEXTS)
    assert found.bad == []
    assert found.fault is None


def test_row_groups_and_record_batches_are_slices_of_their_own(tmp_path):
    for path in (write_parquet(tmp_path, TABLE), write_arrow(tmp_path, TABLE)):
        config = ReadConfig(inputs=(str(path),))
        [file] = list_inputs(config)
        assert [(part.start, part.stop) for part in slice_file(0, file, config, 1)] == [
            (0, 1),
            (1, 2),
            (2, 3),
        ]
        assert [(part.start, part.stop) for part in slice_file(0, file, config, 1 << 40)] == [(0, 3)]


NESTED = pa.table({"doc": [{"body": {"text": "a"}, "n": 1}, {"body": None, "n": 2}, None]})


@pytest.mark.parametrize("write_table", [write_jsonl, *COLUMN_WRITERS])
def test_a_path_leads_through_nested_records(tmp_path, write_table):
    found = read_all(write_table(tmp_path, NESTED), text_field="doc.body.text", id_field="doc.n")
    assert found.texts == ["a"]
    assert found.names == ["1"]
    assert [bad.record for bad in found.bad] == [1, 2]


def test_a_path_is_split_at_dots_without_a_backslash():
    config = ReadConfig(text_field=("doc.body.text", r"a\.b.c", "ü"))
    assert text_paths(config) == [[b"doc", b"body", b"text"], [b"a.b", b"c"], ["ü".encode()]]
    with pytest.raises(ConfigError, match="names no field"):
        text_paths(ReadConfig(text_field=()))


@pytest.mark.parametrize("write_table", WRITERS)
def test_a_name_with_a_dot_is_a_column(tmp_path, write_table):
    path = write_table(tmp_path, pa.table({"a.b": ["one", "two"], "c": ["x", "y"]}))
    assert read_all(path, text_field=r"a\.b").texts == ["one", "two"]


PARTS = pa.table({"title": ["t", None, "u", None], "text": ["x", "y", None, None]})


@pytest.mark.parametrize("write_table", [write_jsonl, *COLUMN_WRITERS])
def test_several_fields_are_joined_and_nulls_left_out(tmp_path, write_table):
    found = read_all(write_table(tmp_path, PARTS), text_field=("title", "text", "absent"), join=" | ")
    assert found.texts == ["t | x", "y", "u"]
    assert found.reasons == ["null"]
    assert found.bad[0].record == 3


def test_several_fields_of_csv_are_joined_and_empty_ones_left_out(tmp_path):
    path = write(tmp_path, "a.csv", b"title,text\nt,x\n,y\nu,\n,\n")
    found = read_all(path, text_field=("title", "text"), join=" | ")
    assert found.texts == ["t | x", "y", "u"]
    assert found.reasons == ["empty"]


@pytest.mark.parametrize("write_table", COLUMN_WRITERS)
@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_every_kind_of_text_column_is_read(tmp_path, write_table, kind):
    values = ["one", None, "", "two", "one"]
    column = pa.array(values, pa.string()).cast(kind)
    found = read_all(write_table(tmp_path, pa.table({"text": column})), blocks=SMALL)
    assert found.texts == ["one", "two", "one"]
    assert [(bad.record, bad.position, bad.reason) for bad in found.bad] == [
        (1, -1, "null"),
        (2, -1, "empty"),
    ]
    assert found.positions == [-1, -1, -1]


@pytest.mark.parametrize("write_table", COLUMN_WRITERS)
@pytest.mark.parametrize("kind", [pa.binary(), pa.string()], ids=str)
def test_bytes_that_are_no_text_are_a_bad_document_of_their_own(tmp_path, write_table, kind):
    values = pa.array([b"good", b"ab\xff", b"fine"], pa.binary()).view(kind)
    found = read_all(write_table(tmp_path, pa.table({"text": values})))
    assert found.texts == ["good", "fine"]
    assert found.bad == [(1, -1, "bad_utf8", "byte 2 of the text is not UTF-8", "ab\\xff")]


@pytest.mark.parametrize("write_table", [*COLUMN_WRITERS, write_csv, write_jsonl])
def test_a_text_above_the_limit_is_too_large(tmp_path, write_table):
    path = write_table(tmp_path, pa.table({"text": ["x" * 50, "y" * 101, "z"]}))
    found = read_all(path, blocks=BLOCKS._replace(max_document_bytes=100))
    assert found.texts == ["x" * 50, "z"]
    assert found.reasons == ["too_large"]


@pytest.mark.parametrize("write_table", [*COLUMN_WRITERS, write_csv, write_tsv])
def test_a_file_without_the_column_is_bad_and_says_what_it_has(tmp_path, write_table):
    path = write_table(tmp_path, TABLE)
    reason, detail = read_all(path, text_field="body").fault
    assert reason == "missing_field"
    assert "no column body (has id, text)" in detail
    assert read_all(path, id_field="name").fault[0] == "missing_field"


@pytest.mark.parametrize("write_table", COLUMN_WRITERS)
def test_a_column_of_another_type_is_a_bad_file(tmp_path, write_table):
    path = write_table(tmp_path, TABLE)
    assert read_all(path, text_field="id").fault == ("wrong_type", "column id is int64, not text")
    assert read_all(path, text_field="text.inner").fault[0] == "wrong_type"


@pytest.mark.parametrize("suffix", [".jsonl", ".txt", ".csv", ".parquet", ".arrow", ".feather"])
def test_a_file_of_zero_bytes_is_empty(tmp_path, suffix):
    for blocks in EVERY_WAY:
        assert read_all(write(tmp_path, f"a{suffix}", b""), blocks=blocks).fault[0] == "empty_file"


@pytest.mark.parametrize("suffix", [".jsonl", ".txt", ".csv", ".parquet", ".arrow", ".jsonl.gz"])
def test_a_file_that_vanished_is_unreadable(tmp_path, suffix):
    path = write(tmp_path, f"a{suffix}", b"content")
    config = ReadConfig(inputs=(str(path),))
    [file] = list_inputs(config)
    path.unlink()
    [part] = slice_file(0, file, config, 1 << 40)
    assert read_part(file, part, config, BLOCKS).fault == ("unreadable", "No such file or directory")


@pytest.mark.parametrize(("suffix", "reason"), [(".parquet", "not_parquet"), (".arrow", "not_arrow")])
def test_a_file_of_another_format_is_named_so(tmp_path, suffix, reason):
    assert read_all(write(tmp_path, f"a{suffix}", b"something else entirely")).fault[0] == reason


@pytest.mark.parametrize("write_table", COLUMN_WRITERS)
def test_a_file_of_columns_that_ends_early_is_corrupt(tmp_path, write_table):
    path = write_table(tmp_path, TABLE)
    path.write_bytes(path.read_bytes()[:-40])
    assert read_all(path).fault[0] == "corrupt"


def test_an_arrow_stream_that_ends_early_gives_the_batches_before(tmp_path):
    path = write_stream(tmp_path, TABLE)
    path.write_bytes(path.read_bytes()[:-40])
    assert read_all(path).texts == TEXTS[:6]


def test_a_damaged_page_of_parquet_costs_the_same_rows_whatever_the_block_size(tmp_path):
    texts = [f"text number {number} " * 20 for number in range(2000)]
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"text": texts}),
        path,
        compression="snappy",
        use_dictionary=False,
        data_page_size=4096,
        write_page_checksum=True,
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    found = [read_all(path, blocks=BLOCKS._replace(block_bytes=size)) for size in (1, 5000, 1 << 30)]
    assert found[0].fault[0] == "corrupt"
    assert 100 < len(found[0].texts) < 1900
    assert found[0].texts == texts[: len(found[0].texts)]
    assert found[0][:-1] == found[1][:-1] == found[2][:-1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.data())
def test_a_damaged_file_of_columns_never_does_worse_than_be_bad(tmp_path, data):
    path = data.draw(st.sampled_from(COLUMN_WRITERS))(tmp_path, TABLE)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    found = read_all(path)
    assert len(found.texts) + len(found.bad) == found.num_records


CSV_CASES = {
    "quoted line ends": (b'text\n"a\nb"\nc\n', ["a\nb", "c"], []),
    "carriage returns": (b'text,n\r\n"a\r\nb",1\r\nc,2\r\n', ["a\r\nb", "c"], []),
    "doubled quotes": (b'n,text\n1,"say ""hi"""\n', ['say "hi"'], []),
    "a stray quote": (b'text,n\n5" disk,1\nb,2\n', ['5" disk', "b"], []),
    "no last line end": (b"text\na", ["a"], []),
    "a mark": (b"\xef\xbb\xbftext\na\n", ["a"], []),
    "blank lines": (b"\ntext\n\na\n\n", ["a"], []),
    "too many fields": (b"text,n\na,1,2\nb,2\n", ["b"], [(0, 7, "bad_csv")]),
    "too few fields": (b"text,n\na\nb,2\n", ["b"], [(0, 7, "bad_csv")]),
    "text after a quote": (b'text,n\n"a"b,1\nc,2\n', ["c"], [(0, 7, "bad_csv")]),
    "a quote that stays open": (b'text\na\n"b\nc\n', ["a"], [(1, 7, "bad_csv")]),
    "no text": (b"text,n\n,1\nb,2\n", ["b"], [(0, 7, "empty")]),
    "not UTF-8": (b"text\n\xff\nb\n", ["b"], [(0, 5, "bad_utf8")]),
    "an older encoding": (b"text\na\xa0b\x85c\n\xe2\x80\xa8\n", ["\u2028"], [(0, 5, "bad_utf8")]),
    "a long row": (b"text\n" + b"x" * 41 + b"\nb\n", ["b"], [(0, 5, "too_large")]),
    "a long quoted row": (b'text\n"' + b"x\n" * 50 + b'"\nb\n', ["b"], [(0, 5, "too_large")]),
    "a long line in quotes": (b'text\n"a\n' + b"x" * 99 + b'\n""c\n"\nb\n', ["b"], [(0, 5, "too_large")]),
}


@pytest.mark.parametrize("block_bytes", [1, 10, 1 << 20])
@pytest.mark.parametrize("case", CSV_CASES)
def test_csv_rows(tmp_path, case, block_bytes):
    content, texts, bad = CSV_CASES[case]
    path = write(tmp_path, "a.csv", content)
    blocks = BLOCKS._replace(block_bytes=block_bytes, max_document_bytes=40)
    found = read_all(path, blocks=blocks)
    assert found.texts == texts
    assert [(one.record, one.position, one.reason) for one in found.bad] == bad
    assert found.bad == read_all(path, blocks=BLOCKS._replace(max_document_bytes=40)).bad


def test_csv_gives_the_byte_at_which_each_row_begins(tmp_path):
    content = 'text,n\n"é\n",1\nb,2\n\nc,3\n'.encode()
    found = read_all(write(tmp_path, "a.csv", content), blocks=SMALL)
    assert found.positions == [7, 15, 20]
    assert found.records == [0, 1, 3]


def test_bad_lines_of_json_are_named_with_their_place(tmp_path):
    lines = [
        b'{"text": "good"}',
        b"",
        b"{broken",
        b'{"text": null}',
        b'{"text": 5}',
        b'{"text": ""}',
        b'{"body": "x"}',
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
        b'["text"]',
        b'{"text": "nul \\u0000"}\r',
    ]
    found = read_all(write(tmp_path, "a.jsonl", b"\n".join(lines)), blocks=SMALL)
    assert found.texts == ["good", "nul \0"]
    assert [(bad.record, bad.reason) for bad in found.bad] == [
        (2, "bad_json"),
        (3, "null"),
        (4, "wrong_type"),
        (5, "empty"),
        (6, "missing_field"),
        (7, "lone_surrogate"),
        (8, "bad_utf8"),
        (9, "wrong_type"),
    ]
    assert [bad.position for bad in found.bad] == [
        len(b"\n".join(lines[: bad.record])) + 1 for bad in found.bad
    ]
    assert found.bad[0].excerpt == "{broken"
    assert found.bad[6].excerpt == '{"text": "\\xff"}'
    assert found.num_records == len(lines)


def test_the_thread_that_reads_ahead_ends_with_its_reader(tmp_path):
    path = write_jsonl(tmp_path, pa.table({"text": ["x" * 100] * 200}))
    config = ReadConfig(inputs=(str(path),))
    [file] = list_inputs(config)
    [part] = slice_file(0, file, config, 1 << 40)
    before = threading.active_count()
    for num_taken in (0, 1, 2, 1000):
        batches = read_slice(file, part, config, BLOCKS._replace(block_bytes=300, read_ahead=True))
        taken = [batch for batch, _ in zip(batches, range(num_taken), strict=False)]
        assert len(taken) <= num_taken
        batches.close()
        assert threading.active_count() == before


def test_a_fault_passes_from_the_thread_that_reads_ahead(tmp_path):
    content = gzip.compress(b'{"text": "a"}\n' * 1000)[:-3]
    path = write(tmp_path, "a.jsonl.gz", content)
    plain = read_all(path, blocks=SMALL)
    assert plain.fault[0] == "truncated"
    assert len(plain.texts) == 1000
    assert read_all(path, blocks=SMALL._replace(read_ahead=True)) == plain
