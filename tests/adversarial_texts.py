"""Text on which encoders differ: seeded, small, the same for every tokenizer."""

import random
from collections.abc import Iterable, Iterator

# fmt: off
NASTY = [
    *"abcdefgzABCDEFGZ0123456789",
    *" \t\n\r\v\f\x00\x1c\x85\xa0\u1680\u2003\u2028\u2029\u200b\u200d\u3000\ufeff",
    *".,;:!?'\"`()[]{}<>|/\\@#$%^&*-+=_~",
    *"éßıİſÅﬁ①²½\u0301\u0308\u0327\u0345\u0f71\u0f72\uff41\uff21\uff11",
    *"дЖשלאבم١ने०ไทยกำ",
    *"水車小屋あいアが\u3099ー。、「」한글\u1100\u1161\u11a8",
    *"🙂👩\u200d🌾🏽🇩🇪\ufe0f\u20e3",
    *"\u2581\u0120\u010a\u00ad\ufffd\ufffe\uffff\U0001ffff\U000e0041\U0010ffff",
    *("'s", "'S", "'ll", "'LL", "\u2019s", "'\u017f", "\r\n", "\n\n", "  ", "    ", "\t\t", "the", " the"),
    "ing",
]
TEXTS = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", "é", "水", "🙂", "\x00", "\u2581",
    " \u2581 ", "\u2581a", "a\u2581b",
    "Hello, world! It's what we'LL do; they'Ve DONE it.\r\n\r\n\tdef f(x):\n        return x**2  # 1234567\n",
    "  leading and trailing   ", "\n \n\n  \n x \t\n\n", " a  b   c    d     e",
    "a\u00a0b\u3000c\u2028d\u200be",
    "中文分词，日本語のテキスト。한국어 문장 ١٢٣ हिन्दी ไทย ελληνικά Ёлка ﷺ",
    "http://example.com/a_b?c=1&d='s'  CamelCaseHTTPServer don\u2019t I'm''re 'S'T'RE",
    "e\u0301e\u0301 \u0301 ǅAb ⅣⅧ ½x² 👩\u200d👩\u200d👧 a\u200bb\x00\x00c \x07d",
    "1 12 123 1234 12345 1234567890 3.14159 1,000,000 ١٢٣٤ ²³ ⅷ①",
    "<0x0A><0xFF><0x41> <s></s> <unk> <pad> [INST] [UNK] <|endoftext|><|im_start|> <|endoftext|>x",
    "\u1100\u1161\u11a8 가\u11a8 \u0344 \u2126\u212b \uff76\uff9e \ufb01 \u1e9b\u0323 q\u0307\u0323",
    "the then there their them themselves other another the the", "ÅÅÅ A\u030aA\u030a",
    "!!!???...---___===***///\\\\\\", "''''''''", "\"\"\"'''```", "a'b'c's't're", "' s 's  's",
    " " * 300, "\n" * 300, "\t" * 300, "a" * 300, "1" * 300, "!" * 300, "水" * 300, "🙂" * 100,
    " \n" * 100, "\r\n" * 100, "a " * 100, "ab" * 150, "  a" * 100, "x" + " " * 300 + "y", "Aa" * 100,
    "\u2581" * 100, "\u0301" * 300,
    "aA1 .\n" * 60, "\U0010ffff\ue000\ufffe\u0378", "\ud7ff\ue000", "\x7f\x80\u07ff\u0800\uffff\U00010000",
]
DENSE = [
    *"的一是不了在人有我他这个上们来到时大地为子中你说生国年着就那和要她出也得里后自以会家可下而过天去能对小多然于心学么之都好看起发当没成只如事把还用第样道想作种开",
    *"のにはをたがでてとしれさいるあこなりもらまそよかっんくアイウエオカキクンース日本語国会社年月新今大時間事",
    *"。、，．！？：；「」（）《》…—・～　１２Ａ〇々",
]
# fmt: on


def random_texts(count: int, *, seed: int, parts: Iterable[str] = ()) -> list[str]:
    """Short strings of nasty parts and the given ones; some parts come in runs, which chance never gives."""
    choose = random.Random(seed)
    own = list(parts)
    alphabet = NASTY + own * (1 + len(NASTY) // (3 * len(own))) if own else NASTY
    texts = []
    for _ in range(count):
        chosen = choose.choices(alphabet, k=choose.randint(1, 24))
        if choose.random() < 0.2:
            chosen[choose.randrange(len(chosen))] *= choose.randint(2, 40)
        if choose.random() < 0.1:
            chosen.append(chr(choose.choice([choose.randrange(0xD800), choose.randrange(0xE000, 0x110000)])))
        texts.append("".join(chosen))
    return texts


def dense_texts(count: int, *, seed: int, parts: Iterable[str] = ()) -> list[str]:
    """Chinese and Japanese of chance, with the given parts and a little of everything between."""
    choose = random.Random(seed)
    own = list(parts) or DENSE
    texts = []
    for _ in range(count):
        kinds = choose.choices((DENSE, own, NASTY), (10, 10, 1), k=choose.randint(1, 40))
        texts.append("".join(choose.choice(kind) for kind in kinds))
    return texts


def sampled_code_points() -> list[str]:
    """Every one below U+3000, and some of all above."""
    above = [*range(0x3000, 0xD800, 37), *range(0xE000, 0x20000, 41), *range(0x20000, 0x110000, 3989)]
    return [chr(code) for code in [*range(0x3000), *above]]


def code_point_texts(*, together: int) -> Iterator[str]:
    """Each between letters, digits, spaces and newlines; so many to a text."""
    points = sampled_code_points()
    for start in range(0, len(points), together):
        yield "".join(f"a{c}b 1{c}2 {c} \n{c}\n{c}{c}" for c in points[start : start + together])
