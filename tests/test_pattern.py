"""Compiled split patterns against the real engines: Oniguruma in tokenizers, fancy-regex in tiktoken."""

import importlib.util
import itertools
import json
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import tiktoken
import tiktoken_ext.openai_public
from tokenizers import Regex, pre_tokenizers

from gristmill.errors import UnsupportedTokenizerError
from gristmill.pattern import PATTERNS, CompiledSplits, compile_splits, escape, split_online, split_plain
from gristmill.spec import Split

Splitter = Callable[[str], list[str]]


def onig(pattern: str, behavior: str = "isolated", *, invert: bool = False) -> Split:
    return Split(pattern=pattern, dialect="oniguruma", behavior=behavior, invert=invert)


def rust(pattern: str) -> Split:
    # tiktoken drops what the pattern does not match.
    return Split(pattern=pattern, dialect="rust", behavior="removed", invert=True)


def std(pattern: str, behavior: str = "isolated") -> Split:
    return Split(pattern=pattern, dialect="rust_std", behavior=behavior)


DIGITS, PUNCTUATION = PATTERNS["digits"], PATTERNS["punctuation"]
STANDARD = "a's \n1"
CASED = "aA中' \n"

# name -> (splits, alphabet of the exhaustive test, whether there is a transducer)
FAMILIES: dict[str, tuple[list[Split], str, bool]] = {
    "gpt2": ([onig(PATTERNS["gpt2"])], STANDARD, True),
    "cl100k": ([onig(PATTERNS["cl100k_base"])], "a's \n\r", True),
    "o200k": ([onig(PATTERNS["o200k_base"])], CASED, True),
    "o200k contractions": ([onig(PATTERNS["o200k_base"])], "aA'ls.", True),
    "llama3": ([onig(PATTERNS["llama3"])], STANDARD, True),
    "llama3 removed": ([onig(PATTERNS["llama3"], "removed", invert=True)], "a1.. \n", True),
    "qwen2": ([onig(PATTERNS["qwen2"])], STANDARD, True),
    "qwen3.5": ([onig(PATTERNS["qwen3.5"])], "a\u0301! \n1", True),
    "tekken": ([onig(PATTERNS["tekken"])], CASED, True),
    "kimi": ([onig(PATTERNS["kimi"])], CASED, True),
    "bloom": ([onig(PATTERNS["bloom"])], "a, (\n。", True),
    "deepseek": (
        [onig(r"\p{N}{1,3}"), onig(PATTERNS["deepseek_cjk"]), onig(PATTERNS["deepseek_words"])],
        "a1中 \x00.",
        True,
    ),
    "deepseek spaces": ([onig(r"\p{N}{1,3}"), onig(PATTERNS["deepseek_words"])], "a1. \n\r", True),
    "starcoder": ([std(DIGITS), onig(PATTERNS["gpt2"])], STANDARD, True),
    "digit groups": ([std(DIGITS, "contiguous"), onig(PATTERNS["gpt2"])], STANDARD, True),
    "falcon": (
        [std(PUNCTUATION, "contiguous"), onig(PATTERNS["gpt2"]), std(DIGITS, "contiguous"), onig("[0-9]{3}")],
        "a'.1 ²",
        False,
    ),
    "punctuation": ([std(PUNCTUATION)], "a$.¿", True),
    "merged with previous": ([onig(escape(" "), "merged_with_previous")], "a \n", True),
    "merged with next": ([onig(r"\s", "merged_with_next")], "a \n", True),
    "contiguous": ([onig(r"[\d.]", "contiguous", invert=True)], "a1.", True),
    "removed": ([onig(r"\s+", "removed")], "a \n", False),
    "literal": ([onig(escape("a.|"))], "ab.|", False),
}
RUST_FAMILIES = {
    "r50k_base": STANDARD,
    "cl100k_base": "a's \n\r",
    "o200k_base": CASED,
    "tekken": CASED,
    "kimi": CASED,
}
NASTY = (
    "aZlLsStTrReEvVmMdD'’ſ\u212a ıİß09²½٣Ⅷ中国あアー가àÉǅʰªⅷ\u0301\u0345\u0903.,!?-_/$€+<>。，、।۔،"
    "\t\n\r\v\f\x85\xa0\u2028\u3000\u200b\u200c\u00ad😀🏽\x00\x1f\x7f\ue000\u0378\U000e0001\U0010ffff"
)
TEXTS = [
    "",
    "Hello, world! It's what we'LL do; they'Ve DONE it.\r\n\r\n\tdef f(x):\n        return x**2  # 1234567\n",
    "  leading and trailing   ",
    "\n \n\n  \n x \t\n\n",
    "中文分词，日本語のテキスト。한국어 문장 ١٢٣ हिन्दी ไทย ελληνικά",
    "http://example.com/a_b?c=1&d='s'  CamelCaseHTTPServer don’t I'm''re",
    "e\u0301e\u0301 \u0301 ǅAb ⅣⅧ ½x² 👩‍👩‍👧 a\u200bb\x00\x00c \x07d",
    " " * 3000 + "x" + "\n" * 3000 + " " * 3000,
    "a" * 3000 + "1" * 3000 + "'" * 3000 + "中" * 3000 + "A" * 3000,
]


def tokenizers_splitter(splits: Iterable[Split]) -> Splitter:
    chain = []
    for split in splits:
        if split.dialect == "oniguruma":
            chain.append(pre_tokenizers.Split(Regex(split.pattern), split.behavior, split.invert))
        elif split.pattern == DIGITS:
            chain.append(pre_tokenizers.Digits(individual_digits=split.behavior == "isolated"))
        else:
            chain.append(pre_tokenizers.Punctuation(split.behavior))
    whole = pre_tokenizers.Sequence(chain)
    return lambda text: [piece for piece, _ in whole.pre_tokenize_str(text)]


def tiktoken_splitter(pattern: str, texts: Iterable[str]) -> Splitter:
    """Every substring of every text is a token, so each piece of them is one token."""
    ranks = {bytes([b]): b for b in range(256)}
    for text in texts:
        for start, end in itertools.combinations(range(len(text) + 1), 2):
            ranks.setdefault(text[start:end].encode(), len(ranks))
    encoding = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: [encoding.decode([token]) for token in encoding.encode_ordinary(text)]


def assert_equal_splits(compiled: CompiledSplits, reference: Splitter, texts: Iterable[str]) -> None:
    for text in texts:
        expected = reference(text)
        assert split_plain(compiled, text) == expected, repr(text)
        if compiled.transducer is not None:
            assert split_online(compiled.transducer, text) == expected, repr(text)


def every_string(alphabet: str, longest: int) -> list[str]:
    return ["".join(t) for n in range(longest + 1) for t in itertools.product(alphabet, repeat=n)]


def random_strings(seed: int, alphabet: str, num_strings: int, longest: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(alphabet, k=rng.randint(1, longest))) for _ in range(num_strings)]


def class_samples(compiled: CompiledSplits) -> str:
    """The first and the last code point of every class of every stage, and one between."""
    samples = []
    points = np.r_[0:0xD800, 0xE000:0x110000]
    for stage in compiled.stages:
        classes = stage.stage2[stage.stage1[points >> 8].astype(np.int64) * 256 + (points & 255)]
        for cls in range(stage.num_classes):
            members = points[classes == cls]
            samples += [members[0], members[len(members) // 2], members[-1]]
    return "".join(map(chr, samples))


@pytest.mark.parametrize("name", FAMILIES)
def test_families_split_like_tokenizers(name: str) -> None:
    splits, alphabet, has_transducer = FAMILIES[name]
    compiled = compile_splits(splits)
    assert (compiled.transducer is not None) == has_transducer
    reference = tokenizers_splitter(splits)
    assert_equal_splits(compiled, reference, TEXTS)
    mixed = random_strings(1, NASTY + class_samples(compiled) + alphabet * 8, 300, 40)
    assert_equal_splits(compiled, reference, mixed)
    assert_equal_splits(compiled, reference, every_string(alphabet, 5))


@pytest.mark.parametrize("name", RUST_FAMILIES)
def test_families_split_like_tiktoken(name: str) -> None:
    split = rust(PATTERNS[name])
    compiled = compile_splits([split])
    assert compiled.transducer is not None
    short = every_string(RUST_FAMILIES[name], 4)
    mixed = random_strings(2, NASTY + class_samples(compiled) + RUST_FAMILIES[name] * 8, 150, 30) + TEXTS[:7]
    for texts in (short, mixed):
        assert_equal_splits(compiled, tiktoken_splitter(split.pattern, texts), texts)


@pytest.mark.parametrize("name", ["o200k", "deepseek", "starcoder", "punctuation"])
def test_every_assigned_code_point_splits_like_tokenizers(name: str) -> None:
    splits, _, _ = FAMILIES[name]
    points = [*range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE0200), *range(0xEFF00, 0xF0100)]
    text = "".join(f"{chr(p)}a" for p in points)
    assert_equal_splits(compile_splits(splits), tokenizers_splitter(splits), [text])


ATOMS = [
    *("a", "b", "c", " ", r"\n", ".", "[ab]", "[^ab]", r"\s", r"\S"),
    *("[a[bc]]", "[^a[b]]", "[a-c&&[^b]]", "[^a-c&&b]", r"\P{L}", "(?i:a)"),
]
AHEADS = ["(?!a)", "(?=b)", r"(?!\S)", "$", r"\z", r"(?!\s|$)", "(?=a|$)"]
COUNTS = [
    *("?", "*", "+", "{2}", "{1,2}", "{2,}", "{,2}", "??", "*?", "+?", "{1,2}?"),
    *("?+", "*+", "++", "{1,2}+", "{2}+", "{2,}+"),
]


def random_pattern(rng: random.Random, depth: int = 0) -> str:
    options = []
    for _ in range(rng.randint(1, 3)):
        option = ""
        for _ in range(rng.randint(1, 3)):
            if rng.random() < 0.15:
                option += rng.choice(AHEADS)
                continue
            is_group = depth < 3 and rng.random() < 0.25
            option += f"(?:{random_pattern(rng, depth + 1)})" if is_group else rng.choice(ATOMS)
            option += rng.choice(COUNTS) if rng.random() < 0.5 else ""
        options.append(option)
    return "|".join(options)


@pytest.mark.parametrize("dialect", ["oniguruma", "rust"])
def test_random_patterns_split_like_the_engine_or_are_refused(dialect: str) -> None:
    rng = random.Random(3)
    texts = random_strings(4, "aaabbc  \nA", 40, 12)
    num_compiled = num_online = 0
    while num_compiled < (300 if dialect == "oniguruma" else 60):
        pattern = random_pattern(rng) + (r"|[\s\S]" if rng.random() < 0.5 else "")
        split = onig(pattern) if dialect == "oniguruma" else rust(pattern)
        try:
            compiled = compile_splits([split])
        except UnsupportedTokenizerError:
            continue
        is_onig = dialect == "oniguruma"
        reference = tokenizers_splitter([split]) if is_onig else tiktoken_splitter(pattern, texts)
        num_compiled += 1
        num_online += compiled.transducer is not None
        assert_equal_splits(compiled, reference, texts)
    assert num_online > num_compiled // 4


@pytest.mark.parametrize(
    "name", ["r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"]
)
def test_named_patterns_are_spelled_as_in_tiktoken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", lambda *args, **kwargs: {})
    assert PATTERNS[name] == tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS[name]()["pat_str"]


def test_unicode_tables_agree_with_the_installed_libraries() -> None:
    path = Path(__file__).parents[1] / "scripts" / "generate_unicode.py"
    spec = importlib.util.spec_from_file_location("generate_unicode", path)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.verify() == []


def test_escaped_text_matches_itself_only() -> None:
    text = "".join(map(chr, range(1, 127)))
    for chunk in (text[i : i + 40] for i in range(0, len(text), 40)):
        doubled = chunk + "é" + chunk
        assert tokenizers_splitter([onig(escape(chunk))])(doubled) == [chunk, "é", chunk]
        assert split_plain(compile_splits([onig(escape(chunk))]), doubled) == [chunk, "é", chunk]


def test_no_splits_make_one_piece() -> None:
    compiled = compile_splits([])
    assert compiled.transducer is None
    assert split_plain(compiled, "a b") == ["a b"]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(?<=a)b", "only the groups"),
        (r"(?>a)b", "only the groups"),
        (r"a\b", "escape"),
        (r"(a)\1", "escape"),
        (r"^a", "not supported here"),
        (r"a\Z", "escape"),
        (r"a(?!bc)", "more than one character"),
        (r"(?:ab)++c", "possessive"),
        (r"a*", "empty string"),
        (r"a|", "empty string"),
        (r"(?:a?)*b", "can be empty"),
        (r"(?:a?){2}b", "can be empty"),
        (r"a**", "quantifier after"),
        (r"a{2", "not a repetition"),
        (r"a{3,2}", "reversed"),
        (r"a{1001}", "more than 1000"),
        (r"[a", r"unmatched \["),
        (r"(a", r"unmatched \("),
        (r"a)", r"unmatched \)"),
        (r"[]a]", "begins with"),
        (r"[[:alpha:]]", "begins with"),
        (r"[b-a]", "reversed"),
        (r"[a--b]", "no range"),
        (r"[a&&]", "empty class"),
        (r"\p{Nonsense}", "not known"),
        (r"\p{L", "written"),
        (r"\x{110000}", "no character"),
        (r"\xE9", "no character"),
        (r"(?i:é)", "case is ignored"),
        (r"(?i:[^a])", "case is ignored"),
        (r"(?i:\p{Lu})", "case is ignored"),
        (r"(?i:ss)", "where case is ignored"),
        (r"(?i:a[fx]i)", "where case is ignored"),
        (r"(?i:s){2}", "where case is ignored"),
        (r"a(?i)b", "start of a pattern"),
        ("a\\", "escape"),
    ],
)
def test_patterns_that_might_differ_are_refused_with_position_and_reason(pattern: str, reason: str) -> None:
    with pytest.raises(UnsupportedTokenizerError, match=rf"position \d+: .*{reason}"):
        compile_splits([onig(pattern)])


@pytest.mark.parametrize(
    "split",
    [
        onig("ab", "contiguous"),
        onig("a+", "merged_with_previous"),
        onig("a", "merged_with_next", invert=True),
        Split(pattern="a", dialect="oniguruma", over="bytes"),
        Split(pattern=r"\p{Lu}", dialect="rust_std"),
    ],
)
def test_splits_that_might_differ_are_refused(split: Split) -> None:
    with pytest.raises(UnsupportedTokenizerError):
        compile_splits([split])


HOSTILE = {
    "open groups": "(" * 9_000,
    "open classes": "[" * 9_000,
    "long": "a" * 20_000,
    "many options": "a|" * 4_999,
    "many optional": "x?" * 4_900 + "y",
    "nested counts": "((((a{9}){9}){9}){9}){9}",
    "deeply nested counts": "(?:" * 39 + "a" + "{2})" * 39,
    "empty groups": "(?:()|b)" * 1_000,
    "exponential states": "(?:a|b)*a(?:a|b){30}",
    "wide counts": "[a-z]{1,200}(?:[a-c]{1,200}|[b-e]{1,200}){1,5}",
    "overlapping counts": ".{1,30}" * 30,
    "large sets": r"[\p{L}\p{N}&&\p{Lu}]" * 450,
    "many classes": "".join(map(chr, range(0x4E00, 0x5200))),
    "long chain": "".join(chr(0x4E00 + 2 * (i * i % 113)) for i in range(999)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_patterns_end_soon(name: str) -> None:
    start = time.process_time()
    try:
        compile_splits([onig(HOSTILE[name])])
    except UnsupportedTokenizerError as error:
        assert len(str(error)) < 400  # noqa: PT017
    assert time.process_time() - start < 2


def test_tables_have_the_documented_shapes_and_limits() -> None:
    compiled = compile_splits(FAMILIES["deepseek"][0])
    for stage in compiled.stages:
        assert stage.next_state.dtype == np.uint16
        assert stage.match.dtype == np.uint8
        assert stage.next_state.shape == stage.match.shape == (len(stage.match), stage.num_classes + 1)
        assert (stage.next_state[:, -1] == 0xFFFF).all()
        assert not stage.match[0].any()
    machine = compiled.transducer
    assert machine is not None
    assert machine.table.shape == (machine.num_configs, 256)
    assert machine.table.dtype == np.uint16
    assert (machine.table >> 8).max() < machine.num_configs
    assert machine.stage1.shape == (0x1100,)
    assert machine.stage2.max() == machine.num_classes - 1


def test_compiling_the_same_splits_twice_gives_the_same_bytes() -> None:
    def fingerprint() -> str:
        tables = compile_splits(FAMILIES["deepseek"][0]).transducer
        assert tables is not None
        return json.dumps([tables.table.tolist(), tables.stage1.tolist(), tables.stage2.tolist()])

    assert fingerprint() == fingerprint()
