"""The native JSON Lines parser does what Python's json and a few rules do, on good lines and on bad ones."""

import json
import os
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import _native
from gristmill.sample import sample_documents
from slow_json_lines import MAX_DEPTH, parse_slowly

SHAPES = (
    (["text"], None),
    (["text"], "id"),
    (["doc.text"], "doc.id"),
    (["list.1.text"], "list.0"),
    (["title", "text"], "id"),
    (["text", "text", "doc"], "text"),
)
FUZZ = settings(
    max_examples=int(os.environ.get("GRISTMILL_FUZZ_EXAMPLES", "150")),
    deadline=None,
    derandomize="GRISTMILL_FUZZ_EXAMPLES" not in os.environ,
)


def cut(flat, offsets):
    assert offsets.dtype == np.int64
    assert flat.dtype == np.uint8
    assert (offsets[0], offsets[-1]) == (0, len(flat))
    return [flat[a:b].tobytes() for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


def split_path(path):
    return path.split(".")


def parse_fast(data, text_paths, join, id_path, *, keep_details=False):
    text, offsets, lines, positions, names, bad, num_lines = _native.parse_json_lines(
        np.frombuffer(data, np.uint8),
        [[name.encode() for name in path] for path in text_paths],
        join,
        None if id_path is None else [name.encode() for name in id_path],
    )
    texts = cut(text, offsets)
    named = [None] * len(texts) if names is None else cut(*names)
    documents = list(zip(lines.tolist(), positions.tolist(), texts, named, strict=True))
    return documents, bad if keep_details else [fault[:3] for fault in bad], num_lines


def check(data, text_fields=("text",), id_field=None, join=b"\n"):
    paths = [split_path(field) for field in text_fields]
    id_path = None if id_field is None else split_path(id_field)
    fast = parse_fast(data, paths, join, id_path)
    assert fast == parse_slowly(data, paths, join, id_path)
    return fast


def reason_of(line, text_fields=("text",), id_field=None):
    documents, bad, num_lines = check(line, text_fields, id_field)
    assert (len(documents), len(bad), num_lines) == (0, 1, 1)
    return bad[0][2]


def detail_of(line, text_fields=("text",), id_field=None):
    paths = [split_path(field) for field in text_fields]
    id_path = None if id_field is None else split_path(id_field)
    _, [(_, _, _, detail)], _ = parse_fast(line, paths, b"", id_path, keep_details=True)
    return detail


def text_of(line, text_fields=("text",), join=b"\n"):
    [(_, _, text, _)], _, _ = check(line, text_fields, join=join)
    return text


def name_of(line, id_field="id"):
    [(_, _, _, name)], _, _ = check(line, id_field=id_field)
    return name


def test_lines_are_counted_blank_ones_too_and_positions_are_bytes():
    data = b'{"text":"a"}\n\n \t\r\n{"text":"\xc3\xa9"}\r\n[]\n{"text":"c"}'
    documents, bad, num_lines = check(data)
    assert documents == [(0, 0, b"a", None), (3, 18, b"\xc3\xa9", None), (5, 36, b"c", None)]
    assert bad == [(4, 33, "wrong_type")]
    assert num_lines == 6


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n", b" ", b"\r\n"])
def test_blank_input_gives_nothing(data):
    documents, bad, _ = check(data, id_field="id")
    assert not documents
    assert not bad


BAD_JSON = [
    *rb"""{ } [ ] {] [} " - +1 01 1. .5 1e 1e+ --1 0x1 1_0 -a 1e5.5 00 -01""".split(),
    *rb"""-NaN +Infinity Infinit -I -infinity""".split(),
    *rb"""nan tru truee True nul null, {}x {,} {"a"} {"a":} {"a":1,} {a:1} {'a':1} {1:2} [1,] [,1]""".split(),
    *rb"""[1 {"a":1 {"a":[} // {"a":1}// "\x" "\ "\" "\u12" "\u12g4" "\u" "\U0041" "\u00""".split(),
    *(rb'"\ud800\u', b'"\\ud800\\', rb'"\ud83d\u12"'),
    *(b"{} {}", b'{"a" 1}', b'{"a":1 "b":2}', b"[1 2]", b"- 1", b"1 .5"),
    *(b'"a\tb"', b'"a\x00b"', b'"\x1f"', b"\x00", b"\x0b{}", b"\x0c", b'{"a":1}\x00'),
    *(b"\xc2\xa0{}", b"\xef\xbb\xbf{}", b"\xe2\x80\xa8"),
]


@pytest.mark.parametrize("value", BAD_JSON)
def test_what_is_no_json_is_bad_json_wherever_it_stands(value):
    assert reason_of(value) == "bad_json"
    assert reason_of(b'{"text":"a","b":' + value) == "bad_json"
    assert reason_of(b'{"text":' + value) == "bad_json"
    assert reason_of(b'{"b":[1,' + value + b'],"text":"a"}x') == "bad_json"


GOOD_JSON = [
    *rb"""0 -0 1 -1.5 0.0 1e5 1E+05 1e-999 true false null [] {} "\/\b\f\n\r\t\"\\" "\ud800" """.split(),
    *rb"""NaN Infinity -Infinity {"\ud800":1} [[],{},"",0] {"":{"":[]}}""".split(),
    *(b"1" * 5000, b"[ ]", b"{ }", b"[1,2 , 3]", b'"\x7f"', b'"' + b"x" * 100 + b'"'),
]


@pytest.mark.parametrize("value", GOOD_JSON)
def test_any_json_beside_the_text_is_passed_over(value):
    assert text_of(b'{"x":' + value + b',"text":"a"}') == b"a"
    assert text_of(b' { "x" : ' + value + b' , "text" : "a" , "y" : ' + value + b" } \r") == b"a"


BAD_UTF8 = [
    *(b"\x80", b"\xff", b"\xfe", b"\xc0\xaf", b"\xc1\x81", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80"),
    *(b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"),
    *(b"\xc3", b"\xe6\xb0", b"\xf0\x9f\x91", b"\xc3\xc3", b"\xe6\xe6\xb0", b"\xf8\x88\x80\x80"),
]


@pytest.mark.parametrize("invalid", BAD_UTF8)
def test_invalid_utf8_anywhere_is_bad_utf8_before_all_else(invalid):
    for pad in (0, 1, 13, 29, 31, 32, 33, 62, 63, 64, 65, 100):
        assert reason_of(b'{"text":"' + b"x" * pad + invalid + b'"}') == "bad_utf8"
        assert reason_of(b'{"text":"a","' + "水é👩".encode() * pad + invalid + b'":1}') == "bad_utf8"
        assert reason_of(b"[" * pad + invalid) == "bad_utf8"


def test_a_text_is_unescaped():
    assert text_of(rb'{"text":"\"\\\/\b\f\n\r\t"}') == b'"\\/\b\f\n\r\t'
    assert text_of(rb'{"text":"\u0041\u00e9\u6c34\uFFFF\uffFD"}') == "Aé水\uffff\ufffd".encode()
    assert text_of(rb'{"text":"\ud83d\udc69x\uDBFF\uDFFF"}') == "👩x\U0010ffff".encode()
    assert text_of(rb'{"text":"\u0000a\u001f"}') == b"\0a\x1f"


@pytest.mark.parametrize("size", [*range(70), 126, 127, 128, 129, 1000])
def test_an_escape_is_undone_wherever_it_stands(size):
    for escape in (rb"\n", rb"\u00e9", rb"\ud83d\udc69", rb"\"", rb"\\", rb"\\\"", rb"\\\\", rb"\"\n"):
        assert text_of(b'{"text":"' + b"x" * size + escape + b'"}').startswith(b"x" * size)
        check(b'{"text":"' + (b"x" * size + escape) * 5 + b'"}', ["text", "other"], "text")


@pytest.mark.parametrize(
    "text", [rb"\ud800", rb"\udc00", rb"a\ud83dx", rb"\ud83d\ud83d\udc69", rb"\ud83d\n", rb"\udc69\ud83d"]
)
def test_a_lone_surrogate_is_bad_only_where_it_is_used(text):
    assert reason_of(b'{"text":"' + text + b'"}') == "lone_surrogate"
    assert reason_of(b'{"text":"a","id":"' + text + b'"}', id_field="id") == "lone_surrogate"
    assert reason_of(b'{"text":"a","b":"' + text + b'"}', ["text", "b"]) == "lone_surrogate"
    assert text_of(b'{"text":"a","b":"' + text + b'","' + text + b'":1}') == b"a"
    assert text_of(b'{"text":"' + text + b'","text":"a"}') == b"a"
    assert reason_of(b'{"text":"' + text + b'"') == "bad_json"


def test_of_equal_names_the_last_one_counts():
    assert text_of(b'{"text":"first, longer","text":"second"}') == b"second"
    assert text_of(b'{"text":1,"text":"a"}') == b"a"
    assert reason_of(b'{"text":"a","text":null}') == "null"
    assert reason_of(b'{"text":"a","text":""}') == "empty"
    assert reason_of(b'{"doc":{"text":"a"},"doc":{}}', ["doc.text"]) == "missing_field"
    assert reason_of(b'{"doc":{"text":"a"},"doc":1}', ["doc.text"]) == "wrong_type"
    assert text_of(b'{"doc":1,"doc":{"text":"a"}}', ["doc.text"]) == b"a"
    assert reason_of(b'{"list":["a"],"list":[]}', ["list.0"]) == "missing_field"


def test_a_name_with_escapes_is_the_same_name():
    assert text_of(rb'{"te\u0078t":"a"}') == b"a"
    assert text_of(rb'{"text":"a","te\u0078t":"b"}') == b"b"
    assert text_of(rb'{"\ud83d\udc69":"a"}', ["👩"]) == b"a"
    assert text_of(rb'{"a\nb":"a"}', ["a\nb"]) == b"a"
    assert reason_of(rb'{"te\ud83dxt":"a"}') == "missing_field"


def test_a_path_leads_through_objects_and_arrays():
    line = b'{"doc":{"body":{"text":"a","other":[{"text":"b"},"c",["d"]]},"0":"e"},"text":"f"}'
    assert text_of(line, ["doc.body.text"]) == b"a"
    assert text_of(line, ["doc.body.other.0.text"]) == b"b"
    assert text_of(line, ["doc.body.other.1"]) == b"c"
    assert text_of(line, ["doc.body.other.2.0"]) == b"d"
    assert text_of(line, ["doc.0"]) == b"e"
    assert reason_of(line, ["doc.body.other.3"]) == "missing_field"
    for path in (
        "doc.body.other.01",
        "doc.body.other.-1",
        "doc.body.other.x",
        "text.x",
        "doc.body.text.0",
        "doc.body",
    ):
        assert reason_of(line, [path]) == "wrong_type"


def test_reasons():
    assert reason_of(b"{}") == "missing_field"
    assert reason_of(b'{"Text":"a"}') == "missing_field"
    assert reason_of(b'{"text":null}') == "null"
    assert reason_of(b'{"text":""}') == "empty"
    for value in (b"1", b"true", b"[]", b"{}", b'["a"]', b'{"text":"a"}'):
        assert reason_of(b'{"text":' + value + b"}") == "wrong_type"
    for line in (b"1", b"null", b'"text"', b"[]", b'[{"text":"a"}]', b"true"):
        assert reason_of(line) == "wrong_type"
    for value in (b"null", b"1", b'"a"', b"[]"):
        assert reason_of(b'{"doc":' + value + b"}", ["doc.text"]) == "wrong_type"


def test_several_texts_are_joined_in_the_order_asked_for():
    both = ["title", "text"]
    assert text_of(b'{"text":"b","title":"a"}', both) == b"a\nb"
    assert text_of(b'{"text":"b","title":null}', both) == b"b"
    assert text_of(b'{"title":"a"}', both) == b"a"
    assert text_of(b'{"title":"","text":"b"}', both) == b"\nb"
    assert text_of(b'{"title":"","text":""}', both) == b"\n"
    assert text_of(b'{"text":"a"}', ["text"] * 40, b"-" * 100).count(b"a") == 40
    assert reason_of(b'{"title":""}', both) == "empty"
    assert reason_of(b'{"title":null}', both) == "null"
    assert reason_of(b'{"text":null}', both) == "missing_field"
    assert reason_of(b'{"title":1,"text":"b"}', both) == "wrong_type"
    assert reason_of(b'{"title":"\\ud800","text":1}', both) == "wrong_type"


def test_a_name_is_a_string_or_the_json_of_a_number_or_boolean():
    for value, name in (
        (b'"\\u00e9/1"', "é/1".encode()),
        (b"12", b"12"),
        (b"-0.50E+1", b"-0.50E+1"),
        (b"true", b"true"),
    ):
        assert name_of(b'{"text":"a","id":' + value + b"}") == name
    assert name_of(b'{"text":"a","id":null}') == b""
    assert name_of(b'{"text":"a"}') == b""
    assert name_of(b'{"text":"a","id":""}') == b""
    assert name_of(b'{"text":"a","meta":{"id":7}}', "meta.id") == b"7"
    for value in (b"[]", b"{}", b'["a"]'):
        assert reason_of(b'{"text":"a","id":' + value + b"}", id_field="id") == "wrong_type"
    assert reason_of(b'{"text":"a","meta":1}', id_field="meta.id") == "wrong_type"


def test_nesting_is_allowed_to_a_depth_and_refused_past_it():
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        inner = b"1" if closing == b"}" else b""
        deep = opening * (MAX_DEPTH - 1) + inner + closing * (MAX_DEPTH - 1)
        assert text_of(b'{"x":' + deep + b',"text":"a"}') == b"a"
        assert reason_of(b'{"text":"a","x":' + opening + deep + closing + b"}") == "bad_json"
        assert reason_of(opening * 100_000) == "bad_json"


def test_a_detail_says_where_and_what():
    assert detail_of(b'{"text" "a"}') == "byte 8: expected ':' after a name"
    assert detail_of(b'{"text":"a\xff"}') == "byte 10: not UTF-8"
    assert detail_of(b'{"text":12}') == "byte 8: text is a number, expected a string"
    assert detail_of(b'{"doc":[]}', ["doc.text"]) == "byte 7: doc is an array, expected an object"
    assert (
        detail_of(b'{"text":"a","id":{}}', id_field="id")
        == "byte 17: id is an object, expected a string or a number"
    )
    assert detail_of(b'{"text":null}') == "byte 8: text is null"
    assert detail_of(b'{"text":"a\\ud800"}') == "byte 10: half a surrogate pair in text"
    assert detail_of(b"[]") == "byte 0: expected an object"
    assert detail_of(b"{}") == "no field text; the record is empty"
    assert detail_of(b'{"id":1,"body":2}') == "no field text; the record has id, body"


def test_a_detail_is_short_and_printable():
    names = {"\u202e\x7f": 1, "é" * 1000: 2} | {f"name{i}": i for i in range(1000)}
    for ensure_ascii in (False, True):
        detail = detail_of(json.dumps(names, ensure_ascii=ensure_ascii).encode())
        assert detail.isprintable()
        assert len(detail) < 400
        assert detail.endswith("name5, ...")


def test_parsing_stops_after_as_many_bad_lines_as_are_asked_for():
    data = np.frombuffer(b'{"text":"a"}\n1\n\n2\n{"text":"b"}\n3\n', np.uint8)
    for max_bad, num_lines, num_texts in ((1, 2, 1), (2, 4, 1), (3, 6, 2), (4, 6, 2)):
        _, offsets, _, _, _, bad, seen = _native.parse_json_lines(
            data, [[b"text"]], b"", None, max_bad=max_bad
        )
        assert (len(bad), seen, len(offsets) - 1) == (min(max_bad, 3), num_lines, num_texts)


def test_output_does_not_depend_on_what_stands_around_a_line():
    data = b"\n".join(made_line(random.Random(seed), seed) for seed in range(200))
    whole = parse_fast(data, [["text"]], b"", ["id"])
    documents, bad, position = [], [], 0
    for number, line in enumerate(data.split(b"\n")):
        one, fault, _ = parse_fast(line, [["text"]], b"", ["id"])
        documents += [(number, position, text, name) for _, _, text, name in one]
        bad += [(number, position, reason) for _, _, reason in fault]
        position += len(line) + 1
    assert whole == (documents, bad, 200)
    assert documents
    assert bad


def made_line(random_source, seed):
    """A record of real text; one in three with something wrong."""
    text = random_source.choice(sample_documents())
    line = json.dumps({"id": seed, "text": text}, ensure_ascii=bool(seed % 2)).encode()
    return line[: random_source.randrange(len(line))] if seed % 3 == 0 else line


@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_real_text_comes_back(ensure_ascii):
    texts = sample_documents()
    data = b"".join(
        json.dumps({"id": i, "text": text, "n": [i]}, ensure_ascii=ensure_ascii).encode() + b"\n"
        for i, text in enumerate(texts)
    )
    documents, bad, _ = check(data, id_field="id")
    assert [text.decode() for _, _, text, _ in documents] == texts
    assert not bad
    check(data, ["id", "text"])
    check(data, ["text", "text"], "n.0")


def test_broken_real_text_is_judged_alike():
    random_source = random.Random(7)
    lines = [
        json.dumps({"id": 1, "text": text, "doc": {"text": text}}, ensure_ascii=False)
        for text in sample_documents()
    ]
    for _ in range(300):
        data = bytearray("\n".join(random_source.sample(lines, 2)).encode())
        for _ in range(random_source.randint(1, 3)):
            data[random_source.randrange(len(data))] = random_source.choice(
                b'"\\{}[],:\n\t\x00ue0\x80\xc3\xed\xff'
            )
        check(bytes(data), *random_source.choice(SHAPES))


KEYS = st.sampled_from(["text", "title", "doc", "list", "id", "0", "1", ""]) | st.text(max_size=3)
ANY_TEXT = st.text(st.characters(codec=None), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(KEYS, inside, max_size=5),
    max_leaves=12,
)
RECORDS = st.dictionaries(KEYS, VALUES, max_size=6)
LAYOUTS = st.sampled_from([{}, {"separators": (",", ":")}, {"separators": (" ,\t", "\r: ")}])


def dump(record, layout, ensure_ascii):
    return json.dumps(record, ensure_ascii=ensure_ascii, **layout).encode("utf-8", "surrogatepass")


@FUZZ
@given(st.lists(RECORDS | VALUES, max_size=5), LAYOUTS, st.booleans(), st.sampled_from(SHAPES))
def test_made_records_equal_the_twin(records, layout, ensure_ascii, shape):
    check(b"\n".join(dump(record, layout, ensure_ascii) for record in records), *shape)


CHANGES = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=4)), min_size=1, max_size=4
)


@FUZZ
@given(RECORDS, LAYOUTS, st.booleans(), CHANGES, st.sampled_from(SHAPES))
def test_changed_bytes_equal_the_twin(record, layout, ensure_ascii, changes, shape):
    line = dump({**record, "text": record.get("text", "a")}, layout, ensure_ascii)
    for place, removed, added in changes:
        place %= len(line) + 1
        line = line[:place] + added + line[place + removed :]
    check(line, *shape)


TOKENS = rb"""{ } [ ] , : " "text" "id" \ \u d83d \udc69 1 - . e true null "text":"a" """.split()
TOKENS += [b" ", b"\n", b"\r", b"\xc3\xa9", b"\xc3", b"\x00"]


@FUZZ
@given(st.lists(st.sampled_from(TOKENS), max_size=30).map(b"".join), st.sampled_from(SHAPES))
def test_scraps_of_json_equal_the_twin(data, shape):
    check(data, *shape)
    check(b'{"text":"a",' + data + b"}", *shape)


@pytest.mark.parametrize("text_paths", [[], [[]], [[b"text"]] * 65])
def test_paths_that_make_no_sense_are_refused(text_paths):
    with pytest.raises(ValueError, match="path"):
        _native.parse_json_lines(np.zeros(1, np.uint8), text_paths, b"", None)


def test_a_read_only_buffer_will_do_and_stays_as_it_was():
    data = rb'{"text":"a\nb"}'
    buffer = np.frombuffer(data, np.uint8)
    assert not buffer.flags.writeable
    assert _native.parse_json_lines(buffer, [[b"text"]], b"", None)[0].tobytes() == b"a\nb"
    assert data == rb'{"text":"a\nb"}'
