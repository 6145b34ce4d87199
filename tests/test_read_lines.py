"""Lines and separated text: the same documents at the same places, wherever slices and blocks are cut."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill.config import ReadConfig
from gristmill.errors import BadFileError
from gristmill.read import Blocks, list_inputs, read_slice, slice_file
from gristmill.read.sources import MappedSource
from reading import BLOCKS, peak_bytes, read_all, write

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
LIMIT = 12


def slow_lines(content, *, limit):
    """Texts with their records and positions, and those of what is too large or no UTF-8."""
    start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
    texts, records, positions, bad = [], [], [], []
    lines = content[start:].split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines):
        text = line.removesuffix(b"\r")
        if len(line) > limit:
            bad.append((number, start, "too_large"))
        elif text.strip(b" \t\r\n"):
            try:
                texts.append(text.decode())
                records.append(number)
                positions.append(start)
            except UnicodeDecodeError:
                bad.append((number, start, "bad_utf8"))
        start += len(line) + 1
    return texts, records, positions, bad, len(lines)


line_files = st.lists(
    st.one_of(
        st.sampled_from([b"", b"\n", b"\r\n", b"\n\n", b" ", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\0"]),
        st.text(max_size=20).map(str.encode),
        st.text("ab ", min_size=1, max_size=6).map(lambda text: text.encode() + b"\r\n"),
        st.binary(max_size=4),
    ),
    min_size=1,
    max_size=12,
).map(b"".join)
cuts = st.integers(1, 40)


def test_a_mapped_file_that_shrinks_is_a_bad_file(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"line\n" * 4000)
    with path.open("rb") as file:
        source = MappedSource(file, 0)
        path.write_bytes(b"")
        with pytest.raises(BadFileError, match="cannot be mapped") as raised:
            source.grow(np.empty(0, np.uint8), 1000)
    assert raised.value.reason == "unreadable"


@SAME_FOLDER
@given(content=line_files, unit_bytes=cuts, block_bytes=cuts, memory_map=st.booleans())
def test_slices_and_blocks_of_any_size_give_every_line_once(
    tmp_path, content, unit_bytes, block_bytes, memory_map
):
    if not content or content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return
    blocks = Blocks(
        block_bytes=block_bytes, max_document_bytes=LIMIT, memory_map=memory_map, read_ahead=False
    )
    path = write(tmp_path, "a.txt", content)
    found = read_all(path, blocks=blocks, unit_bytes=unit_bytes, document="line")
    texts, records, positions, bad, num_lines = slow_lines(content, limit=LIMIT)
    assert found.texts == texts
    assert found.records == records
    assert found.positions == positions
    assert [(one.record, one.position, one.reason) for one in found.bad] == bad
    assert found.num_records == num_lines
    assert found.fault is None
    assert found.bad == read_all(path, blocks=BLOCKS._replace(max_document_bytes=LIMIT), document="line").bad


@SAME_FOLDER
@given(
    parts=st.lists(st.text("ab\n\r ", max_size=8), min_size=1, max_size=10),
    separator=st.sampled_from(["aa", "\n\n\n", "a", "aba", "\r\n"]),
    block_bytes=cuts,
    limit=st.integers(1, 30),
)
def test_separators_are_found_from_left_to_right_across_blocks(
    tmp_path, parts, separator, block_bytes, limit
):
    content = separator.join(parts)
    if not content:
        return
    path = write(tmp_path, "a.txt", content.encode())
    blocks = Blocks(block_bytes=block_bytes, max_document_bytes=limit, memory_map=False, read_ahead=False)
    found = read_all(path, blocks=blocks, document="separator", separator=separator)
    pieces = content.split(separator)
    if not pieces[-1]:
        pieces.pop()
    small = [piece for piece in pieces if len(piece) <= limit]
    assert found.texts == [piece for piece in small if piece.strip(" \n\r")]
    assert len(found.bad) == len(pieces) - len(small)
    assert found.num_records == len(pieces)
    starts = np.cumsum([0] + [len(piece) + len(separator) for piece in pieces])
    assert found.positions == [starts[record] for record in found.records]


@SAME_FOLDER
@given(
    values=st.lists(st.one_of(st.text(max_size=20), st.integers(), st.none()), max_size=10),
    end=st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]),
    unit_bytes=cuts,
    block_bytes=cuts,
)
def test_json_lines_are_the_same_for_slices_and_blocks_of_any_size(
    tmp_path, values, end, unit_bytes, block_bytes
):
    lines = [json.dumps({"text": value, "id": number}) for number, value in enumerate(values)]
    path = write(tmp_path, "a.jsonl", ("\ufeff" + end.join(lines)).encode())
    config = ReadConfig(inputs=(str(path),), id_field="id")
    cut = read_all(path, config, blocks=BLOCKS._replace(block_bytes=block_bytes), unit_bytes=unit_bytes)
    assert cut == read_all(path, config)
    good = [(value, str(number)) for number, value in enumerate(values) if isinstance(value, str) and value]
    assert list(zip(cut.texts, cut.names, strict=True)) == good
    raw = path.read_bytes()
    for text, position in zip(cut.texts, cut.positions, strict=True):
        assert json.loads(raw[position:].split(b"\n")[0])["text"] == text


def test_a_slice_that_begins_inside_a_line_longer_than_itself_has_no_documents(tmp_path):
    path = write(tmp_path, "a.txt", b"x" * 100 + b"\nend\n")
    config = ReadConfig(inputs=(str(path),), document="line")
    [file] = list_inputs(config)
    counts = [
        sum(len(batch) for batch in read_slice(file, part, config, BLOCKS))
        for part in slice_file(0, file, config, 10)
    ]
    assert counts == [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_a_line_far_larger_than_the_limit_is_stepped_over_in_little_memory(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text":"first"}\n{"text":"')
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n{"text":"last"}\n')
    blocks = BLOCKS._replace(block_bytes=1 << 16, max_document_bytes=1 << 18)
    with peak_bytes() as peak:
        found = read_all(path, blocks=blocks)
        assert peak() < 4 << 20
    assert found.texts == ["first", "last"]
    assert found.reasons == ["too_large"]
    assert found.bad[0].position == 17


@pytest.mark.parametrize("document", ["file", "line", "separator"])
def test_an_utf16_file_is_bad_in_every_slice(tmp_path, document):
    path = write(tmp_path, "a.txt", "one\ntwo\nthree\n".encode("utf-16"))
    found = read_all(path, unit_bytes=8, document=document)
    assert found.fault == ("corrupt", "the text is UTF-16; convert it to UTF-8")
    assert found.texts == []


def test_line_ends_of_two_bytes_are_no_part_of_a_line(tmp_path):
    path = write(tmp_path, "a.txt", b"one\r\n\r\n two\r\r\n\rthree \r\nfour\r")
    found = read_all(path, unit_bytes=5, document="line")
    assert found.texts == ["one", " two\r", "\rthree ", "four"]
    assert found.positions == [0, 7, 14, 23]


def test_text_of_a_file_is_kept_as_it_is_but_for_the_mark(tmp_path):
    path = write(tmp_path, "a.txt", b"\xef\xbb\xbfone\r\n\r\ntwo\0 ")
    found = read_all(path)
    assert found.texts == ["one\r\n\r\ntwo\0 "]
    assert found.positions == [3]


def test_a_file_that_is_one_document_can_be_too_large_or_no_text(tmp_path):
    limit = BLOCKS._replace(max_document_bytes=5, block_bytes=2)
    assert read_all(write(tmp_path, "a.txt", b"12345"), blocks=limit).texts == ["12345"]
    assert read_all(write(tmp_path, "b.txt", b"123456"), blocks=limit).reasons == ["too_large"]
    assert read_all(write(tmp_path, "d.txt", b"\xef\xbb\xbf"), blocks=limit).reasons == ["empty"]
    bad = read_all(write(tmp_path, "c.txt", b"ab\xff"), blocks=limit).bad
    assert bad == [(0, 0, "bad_utf8", "byte 2 of the text is not UTF-8", "ab\\xff")]


def test_an_excerpt_is_short_and_printable(tmp_path):
    path = write(tmp_path, "a.txt", b"\x1b[31m\xe2\x80\xae\xff" + "é".encode() * 500 + b"\n")
    [bad] = read_all(path, document="line").bad
    assert bad.excerpt.startswith("\\x1b[31m\\u202e\\xffé")
    assert len(bad.excerpt) < 120
    assert bad.excerpt.isprintable()


@pytest.mark.parametrize(("name", "options"), [("a.jsonl", {}), ("a.txt", {"document": "line"})])
def test_a_file_of_nothing_but_bad_lines_is_gone_through_in_parts(tmp_path, name, options):
    path = write(tmp_path, name, b"\xff\n" * 150_000 + b'{"text": "good"}\n')
    config = ReadConfig(inputs=(str(path),), **options)
    [file] = list_inputs(config)
    [part] = slice_file(0, file, config, 1 << 40)
    batches = list(read_slice(file, part, config, BLOCKS))
    assert max(len(batch.bad) for batch in batches) <= 1 << 16
    assert [bad.record for batch in batches for bad in batch.bad] == list(range(150_000))
    assert [bad.position for batch in batches for bad in batch.bad] == list(range(0, 300_000, 2))
    assert batches[-1].records.tolist() == [150_000]
    assert batches[-1].positions.tolist() == [300_000]
    assert sum(batch.num_bytes for batch in batches) == path.stat().st_size
