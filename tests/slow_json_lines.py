"""What the native JSON Lines parser must do, said with Python's json."""

import json

MAX_DEPTH = 256
LEFT_OUT = ("missing_field", "null")


class Number(str):
    """A number as it stands in the JSON."""


class BadLineError(Exception):
    def __init__(self, reason):
        super().__init__(reason)
        self.reason = reason


def depth_of(value):
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def load_slowly(line):
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise BadLineError("bad_utf8") from None
    try:
        record = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)
    except (ValueError, RecursionError):
        raise BadLineError("bad_json") from None
    if depth_of(record) > MAX_DEPTH:
        raise BadLineError("bad_json")
    if not isinstance(record, dict):
        raise BadLineError("wrong_type")
    return record


def look_up(value, path):
    """The value at a path, or the BadLineError that stands for it."""
    for name in path:
        if isinstance(value, dict):
            if name not in value:
                return BadLineError("missing_field")
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdigit() and str(int(name)) == name:
            if int(name) >= len(value):
                return BadLineError("missing_field")
            value = value[int(name)]
        else:
            return BadLineError("wrong_type")
    return BadLineError("null") if value is None else value


def encode_slowly(text):
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadLineError("lone_surrogate") from None


def text_slowly(record, paths, join):
    found = [look_up(record, path) for path in paths]
    for value in found:
        is_left_out = isinstance(value, BadLineError) and value.reason in LEFT_OUT
        if not is_left_out and type(value) is not str:
            raise BadLineError("wrong_type")
    texts = [encode_slowly(value) for value in found if type(value) is str]
    if not texts:
        raise found[0]
    if not join.join(texts):
        raise BadLineError("empty")
    return join.join(texts)


def name_slowly(record, path):
    value = look_up(record, path)
    if isinstance(value, BadLineError):
        if value.reason == "wrong_type":
            raise value
        return b""
    if isinstance(value, dict | list):
        raise BadLineError("wrong_type")
    return encode_slowly(json.dumps(value) if isinstance(value, bool) else value)


def parse_slowly(data, text_paths, join, id_path):
    """Documents as (line, position, text, name), bad lines as (line, position, reason), number of lines."""
    documents, bad, position = [], [], 0
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines):
        if line.strip(b" \t\r"):
            try:
                record = load_slowly(line)
                text = text_slowly(record, text_paths, join)
                name = None if id_path is None else name_slowly(record, id_path)
                documents.append((number, position, text, name))
            except BadLineError as error:
                bad.append((number, position, error.reason))
        position += len(line) + 1
    return documents, bad, len(lines)
