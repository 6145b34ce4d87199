"""Settings written as YAML are read back by PyYAML as they were, whatever they hold."""

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.yaml_text import render_yaml

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.from_regex(r"[-+.~0-9a-fxynotruels_:/ ]{0,8}")
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
options = scalars | st.lists(scalars)
values = st.dictionaries(texts, options | st.dictionaries(texts, options))


@settings(max_examples=500, deadline=None)
@given(values)
def test_what_is_written_is_what_pyyaml_reads(written):
    assert yaml.safe_load(render_yaml(written)) == (written or None)


def test_plain_words_stand_as_people_write_them():
    text = render_yaml({"read": {"inputs": ["a/b.jsonl"], "join": "\n", "format": "auto", "id_field": None}})
    assert text == 'read:\n  inputs:\n  - a/b.jsonl\n  join: "\\n"\n  format: auto\n  id_field: null\n'


def test_words_that_yaml_takes_for_something_else_are_quoted():
    for word in ("yes", "No", "null", "~", "1e3", "0x1F", "2026-11-15", ".5", ".inf", "12:30:00", ""):
        assert yaml.safe_load(render_yaml({"a": word})) == {"a": word}
