"""What the job leaves open is settled from the tokenizer, and what does not fit it is refused."""

import re

import pytest

from gristmill import ConfigError
from gristmill.formats import check_formats
from gristmill.run.settle import TokenizerFacts, facts_of, settle_layout
from gristmill.tokenizer import load_tokenizer
from made_runs import make_config


def facts(vocab_size, **known):
    values = {"bos_id": None, "eos_id": None, "pad_id": None, "special_tokens": {}} | known
    return TokenizerFacts(
        name="made", fingerprint="f", vocab_size=vocab_size, engine="native", why_not_native=None, **values
    )


def config(**options):
    return make_config("made", "corpus", "out", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"encode__eos_id": 60_000},
        {"encode__add_bos": True, "encode__bos_id": 60_000},
        {"write__format": "parquet", "pack__pad_id": 60_000},
    ],
    ids=["eos", "bos", "pad"],
)
def test_an_id_outside_the_vocabulary_is_refused(options):
    with pytest.raises(ConfigError, match=r"_id is 60000; the tokenizer has ids 0\.\.50256"):
        settle_layout(config(**options), facts(50_257))


def test_the_last_id_of_the_vocabulary_is_allowed():
    assert settle_layout(config(encode__eos_id=50_256), facts(50_257)).eos_id == 50_256


def test_ids_that_do_not_fit_the_dtype_are_refused():
    with pytest.raises(ConfigError, match="ids go up to 65536"):
        settle_layout(config(write__dtype="uint16"), facts(65_537))
    assert settle_layout(config(write__dtype="uint16"), facts(65_536)).dtype == "uint16"


def test_nanogpt_is_refused_where_ids_need_more_than_uint16():
    job = config(write__format="nanogpt")
    with pytest.raises(ConfigError, match="nanogpt"):
        check_formats(job.write, settle_layout(job, facts(65_537)))


def test_a_missing_eos_is_answered_with_what_to_add():
    with pytest.raises(ConfigError, match=r"add encode\.eos_id=7 \(<\|end.*, or encode\.add_eos=false"):
        settle_layout(config(encode__eos_id=None), facts(100, special_tokens={"<|endoftext|>": 7}))


def test_tokens_that_are_likely_to_end_a_document_are_shown_first_and_few(tokenizer):
    class Named:
        special_tokens = {"<pad>": 0, "<mask>": 1, "<sep>": 2, "</s>": 3, "<|endoftext|>": 4}  # noqa: RUF012

        def __getattr__(self, name):
            return getattr(load_tokenizer(tokenizer), name)

    assert list(facts_of(Named(), "made").special_tokens) == ["<|endoftext|>", "</s>", "<sep>"]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["<|end_of_text|>", "<|reserved_0|>", "<|end_header_id|>", "<|eot_id|>"], [0, 3]),
        (["<|endoftext|>", "<|im_end|>", "<|object_ref_end|>", "<|box_end|>"], [0, 1]),
    ],
)
def test_tokens_whose_names_say_what_else_they_end_are_not_shown(names, shown):
    ids = {name: id_ for id_, name in enumerate(names)}
    with pytest.raises(ConfigError) as refused:
        settle_layout(config(encode__eos_id=None), facts(100, special_tokens=ids))
    assert [int(id_) for id_ in re.findall(r"eos_id=(\d+)", str(refused.value))] == shown


@pytest.mark.parametrize(
    ("specials", "options", "advice"),
    [
        (
            {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103},
            {"encode__eos_id": None},
            r"add encode.eos_id=102 \(\[SEP\]\), or encode.add_eos=false",
        ),
        (
            {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102},
            {"encode__add_bos": True},
            r"add encode.bos_id=101 \(\[CLS\]\), or encode.add_bos=false",
        ),
        (
            {"<|begin_of_text|>": 0, "<|end_of_text|>": 1, "<|eot_id|>": 2},
            {"encode__eos_id": None},
            r"add encode.eos_id=1 .* or encode.eos_id=2 \(<\|eot_id\|>\), or",
        ),
        ({"<pad>": 0}, {"encode__eos_id": None}, "encode.eos_id=ID .no special token of it looks like one"),
    ],
)
def test_advice_on_eos_and_bos_names_tokens_that_look_like_it(specials, options, advice):
    with pytest.raises(ConfigError, match=advice):
        settle_layout(config(**options), facts(200, special_tokens=specials))
