"""docs/options.md has every option, with a meaning, as config.py has them."""

import importlib.util
from pathlib import Path

import pytest

from gristmill.config import CausalLMConfig
from gristmill.job import SECTIONS, TRAINING_SECTIONS

ROOT = Path(__file__).parents[1]
ALL = SECTIONS | TRAINING_SECTIONS
OPTIONS = [(name, key) for name, kind in ALL.items() for key in kind.__struct_fields__]


@pytest.fixture(scope="module")
def renderer():
    spec = importlib.util.spec_from_file_location("render_options", ROOT / "scripts" / "render_options.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_config_says(renderer):
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == renderer.render_page(), "run scripts/render_options.py"


def test_every_key_of_causal_lm_tokenizer_has_a_meaning(renderer):
    for key in CausalLMConfig.__struct_fields__:
        assert renderer.field_meanings()["CausalLMConfig", key]
        assert f"| `tokenizer.{key}` |" in renderer.render_page()


@pytest.mark.parametrize(("section", "key"), OPTIONS, ids=lambda name: name)
def test_every_option_has_a_meaning(renderer, section, key):
    assert renderer.field_meanings()[ALL[section].__name__, key]
    assert f"| `{section}.{key}` |" in renderer.render_page()
