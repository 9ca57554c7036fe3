"""Signs, codes and markup in plain text are spoken as a person would, or left out."""

import pytest

from pipelines.text.chunking import read_chunks
from tests.cpu_time import check_cpu_units

ENGLISH = {
    "I write C# and F#.": "I write C sharp and F sharp.",
    "C++ is not C.": "C plus plus is not C.",
    "ASP.NET and .NET are old.": "A S P dot net and dot net are old.",
    "A4 paper": "A-four paper",
    "Gate A12 is open.": "Gate A-twelve is open.",
    "Mail anna+news@example.org now.": "Mail anna plus news at example dot org now.",
    "Items 1,2,3 and 4,5.": "Items one, two, three and four, five.",
    "It costs €4,50.": "It costs four euros and fifty cents.",
    "Tom &amp; Jerry&#39;s &quot;show&quot;": 'Tom and Jerry\'s "show"',
    "AT&amp;amp;T": "AT and T",
    "This is a fact [1], and this too [2][3].": "This is a fact, and this too.",
    "as shown in [4]": "as shown in four",
    "See [the docs](https://example.com/docs?id=3) for more.": "See the docs for more.",
    "See ![a map](map.png) and [mail](mailto:a@b.c).": "See a map and mail.",
    "```python\nprint\n```": "print",
    "Your code is 482913.": "Your code is four eight two nine one three.",
    "482913 is your login code.": "four eight two nine one three is your login code.",
    "Your PIN is 0420.": "Your PIN is zero four two zero.",
    "I want to order 500 units.": "I want to order five hundred units.",
    "Flight BA2490": "Flight B A two four nine zero",
    "flight UA 857": "flight U A eight five seven",
    "Washington, D.C. 20500": "Washington, D C two zero five zero zero",
    "Press → then ↓ to continue.": "Press right arrow then down arrow to continue.",
    "Settings → Privacy": "Settings to Privacy",
    "x^2 + y^3 = z^10": "x squared plus y cubed equals z to the power of ten",
    "mac 00:1A:2B:3C:4D:5E": "mac zero zero: one A: two B: three C: four D: five E",
    "fe80::1": "F E eight zero:: one",
    "Dial 112 now.": "Dial one one two now.",
    "Call 300 people.": "Call three hundred people.",
    "5. Nov 2020": "the fifth of November twenty twenty",
    "jul 25 2012": "July twenty-fifth twenty twelve",
    "2x8 m2": "two by eight square meters",
    "12KG": "twelve kilograms",
    "W2s and F16s": "W twos and F sixteens",
    "the 1980 s": "the nineteen eighties",
    "401(k)": "four oh one K",
    "1-2=5": "one minus two equals five",
    "1-800-GO-U-HAUL": "one eight hundred GO-U-HAUL",
    "test.abc and main.py": "test dot abc and main dot py",
    "1 mbps": "one megabit per second",
    "1/4th": "one quarter",
    "PART XL": "PART forty",
    "Austin, TX.": "Austin, Texas.",
    "Well, OK.": "Well, OK.",
    "Take hwy 101.": "Take highway one hundred and one.",
}
OTHERS = {
    ("de", "Siehe [Doku](https://x.de/a?b=1) [1]."): "Siehe Doku.",
    ("de", "Werte 1,2,3 und 4,5"): "Werte eins, zwei, drei und vier Komma fünf",
    ("de", "C# &amp; .NET"): "C sharp und dot net",
    ("fr", "12 KG"): "douze kilogrammes",
    ("nl", "Om 15.30 uur."): "Om vijftien uur dertig.",
    ("es", "5 m2"): "cinco metros cuadrados",
    ("zh", "请看[文档](https://x.com) [1]。"): "请看 文档 。",
}


def _said(text: str, language: str) -> str:
    chunks = read_chunks(text, languages=frozenset({language}), language=language)
    return " ".join(chunk.text for chunk in chunks)


@pytest.mark.parametrize("text", ENGLISH)
def test_english_signs_and_codes_are_spoken(text: str) -> None:
    assert _said(text, "en") == ENGLISH[text]


@pytest.mark.parametrize(("language", "text"), OTHERS)
def test_signs_and_markup_of_other_languages_are_spoken(language: str, text: str) -> None:
    assert _said(text, language) == OTHERS[language, text]


@pytest.mark.parametrize(
    "unit", ["&amp;", "&", "[1]", "](a", "![", "AB1", "a:", "0:", "f-", "1,", "Code ", "x^", "a.b."]
)
def test_signs_take_linear_time(unit: str) -> None:
    text = (unit * 50_000)[:50_000]
    check_cpu_units(lambda: _said(text, "en"), below=600)
