"""The text on which native and reference must agree before native is used: short, and chosen to hurt.

Runs stay short of what makes a backtracking regex explode, so a hostile pattern cannot stall the check."""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Iterable

_SENTENCES = """\
The quick brown fox jumps over the lazy dog. Don't, I'LL, we've, you'Re, 'tis, it's, THEY'D, rock'n'roll, O'Neill's!
  indented\ttabs\t\tand  double   spaces, trailing spaces   
\r\nCRLF line\r\n\r\n\rCR\x0bVT\x0cFF\x85NEL\u2028LS\u2029PS\xa0NBSP\u3000wide\u200bzero\ufeffBOM\u1680ogham
def f(x: int) -> str:\n    if x >= 10_000 and not (x & 0xFF):\n        return f"{x!r:>8}" + '\\n'  # ok?\n\n\n
{"key": [1, 2.5, -3e10, null, true], "path": "C:\\\\dir\\file.txt", "url": "https://a.b/c?d=e&f=%20#g"} <br/> </s>
0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x1F 2024-01-31T23:59:59Z ١٢٣٤ १२३४ ２０２４ ⅷ ½ ² ৪ 一二三 Ⅻ ① 𝟘𝟙
ÀÉÎÕÜ àéîõü ñ ç ß ẞ Ĳ œ ﬁ ﬂ ǅ ŉ Å Å é e\u0301 o\u0302\u0323 a\u0308\u0304 ḍ̇ q̣̇ 한 한글 \u1112\u1161\u11ab ﬀ ① ㎏ ℃ ﷺ ½ ｆｕｌｌ ｶﾞ
Ελληνικά ΑΒΓ άέή Привет, мир! ёЁ їґ Հայերեն ქართული עִבְרִית שלום العربية مَرْحَبًا فارسی اردو हिन्दी नमस्ते বাংলা தமிழ் తెలుగు
ไทย ภาษาไทย ລາວ မြန်မာ ភាសាខ្មែរ አማርኛ ᏣᎳᎩ ᠮᠣᠩᠭᠣᠯ བོད་ 中文，标点。「引号」 漢字カタカナひらがな 日本語のテスト、テスト。 한국어 문장입니다.
𠀀𠮷 𝔘𝔫𝔦 𐍈 🙂 👍🏽 👨‍👩‍👧‍👦 🇩🇪🇯🇵 ☕️ ✈︎ ™ © € £ ¥ ∑∫√≤≠ → ⇒ █▒░ ☃ ♥️ … – — “quotes” ‘single’ «guillemets» ‚low‘
x\u0300\u0301\u0302\u0303y \u0301start \u200dzwj a\u200cb \u202eRTL\u202c \ufffd \U000e0041 \U0010ffff \ue000 \u0378 \U00040000 \x00\x01\x7f
!!! ??? ... --- === *** ### $$$ %%% &&& @@@ ~~~ ^^^ ``` ||| ((())) [[]] {{}} <<>> //\\\\ __init__ :-) ;) <|x|> <s> <0x0A> [INST] ▁ ▁▁ Ġ Ċ
camelCase PascalCase snake_case kebab-case SCREAMING_CASE iPhone15Pro MacBook α1β2 v2.0.1-rc3 ABCdef ABCDef aBCD'sX Xyz'LLy 'S' ''s
aaaaaaaa AAAAAAAA abababab 00000000          \n\n\n\n\n \n \n\t\n   \n  x \t \t y\u3000\u3000z
Internationalisation antidisestablishmentarianism Donaudampfschifffahrt pneumonoultramicroscopic zzyzx qwrtpsdfg 
"""

# One or two of every class that a split pattern in use tells apart, beside each other in every order.
_CLASSES = "aZéßǅʰ中の각ا\u0301\u0903\u20dd1٣½Ⅷ \t\n\r\xa0\u3000'sS’-_.!/$+▁🙂\u200d\x00"
_FEW = "aB1 \n'.中"
_PAIRS = "".join(a + b for a in _CLASSES for b in _CLASSES)
_TRIPLES = "".join(a + b + c for a in _FEW for b in _FEW for c in _FEW)

PROBE = _SENTENCES + _PAIRS + _TRIPLES + "The end"
"""Without a newline at the end, so that trailing rules see letters; its lines also stand alone, as documents."""


def probe_documents(added_tokens: Iterable[str]) -> list[str]:
    """The probe text whole, line by line, and round the tokenizer's own added tokens."""
    documents = [
        PROBE,
        "",
        " ",
        "  ",
        "\n",
        " a",
        "a ",
        "\u0301",
        "▁",
        " ▁",
        *_SENTENCES.splitlines(keepends=True),
    ]
    contents = list(added_tokens)
    # All of the first few hundred, then a sample: some tokenizers have thousands that differ in a number.
    chosen = contents[:300] + contents[300::37]
    documents.append("".join(f"{content} x{content}{content}\n{content}9 " for content in chosen))
    documents += [f" {content} a{content}b  {content}" for content in chosen[:50]]
    return documents
