"""Markdown as language models write it, and what is read aloud of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.text.markdown import without_markdown
from tests.cpu_time import check_cpu_units


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        (
            "**Bold**, ***very important*** and _slanted_ words.",
            "Bold, very important and slanted words.",
        ),
        ("___Totally___ critical.", "Totally critical."),
        ("**Note:", "Note:"),  # a clause of a longer emphasis
        ("it is** good", "it is good"),
        ('He said "**yes**" (*really*)!', 'He said "yes" (really)!'),
        ("# Heading\n## Second", "Heading\nSecond"),
        ("- bread\n* milk\n  + salt\n• tea", "bread\nmilk\nsalt\ntea"),
        ("> a quote", "a quote"),
        ("Use `max_tokens` and ~~not~~ this.", "Use max_tokens and not this."),
        ("```python\nprint(1)\n```", "\nprint(1)\n"),
        ("See [the page](https://example.com/a_b) ![logo](x.png).", "See the page logo."),
        ("| city | rain |\n|------|:----:|\n| Bonn | 5 mm |", "city, rain\n\nBonn, 5 mm"),
        ("one\n---\ntwo", "one\n\ntwo"),
        ("Great \U0001f600\ufe0f!", "Great !"),
        ("你好！**很好**。", "你好！很好。"),
        # Emphasis within words, whole and cut
        ("**Haupt**bahnhof, *halb*herzig, un**kind**ly", "Hauptbahnhof, halbherzig, unkindly"),
        ("**서울**은 크다. **東京**は大きい。", "서울은 크다. 東京は大きい。"),
        ("北京**是首都", "北京是首都"),
        # Blocks of code with more than a language, and code in a line
        ('```python title="a.py"\nx\n```\n~~~ ruby\ny\n~~~', "\nx\n\n\ny\n"),
        ("Type ```ls -la``` here", "Type ls -la here"),
        # References, and the lines that define them
        ("Read [the page][1], [this][] and ![a cat][c].", "Read the page, this and a cat."),
        ('Yes.\n[1]: https://example.com/a "Title"\n[c]: <cat.png>', "Yes.\n\n"),
        ("[Mars](https://example.com/Mars_(planet)) is red", "Mars is red"),
        ("[![built](b.svg)](https://example.com) well", "built well"),
        # HTML
        ("A<!-- not\nthis --> word", "A word"),
        ('<div align="center">\n\nHello\n\n</div>', "\n\nHello\n\n"),
    ],
)
def test_markup_is_left_out_and_words_stay(written: str, spoken: str) -> None:
    assert without_markdown(written) == spoken


@pytest.mark.parametrize(
    "text",
    [
        "2 * 3 = 6, 10 - 4 = 6, x**2, a_b and #1 in C#.",
        "3. Mai 2024",
        "It is 30 °C, No. 5 costs 4.50 €.",
        'Wait <break time="1s"/> a moment.',
        "a < b > c, well-known",
        "grid[row][1] = a[i][j], 2**3**2, a*b*c",
        "[Anna]: Good morning.\n[Note]: important",
        "<https://example.com/a>\nthe <div> element",
        '<break time="1s"/>',
        "a --> b <!-- open",
    ],
)
def test_other_signs_stay(text: str) -> None:
    assert without_markdown(text) == text


@given(st.text(alphabet="ab *_#`-\n[](). |~😀", max_size=60))
def test_letters_are_never_lost_but_in_addresses(text: str) -> None:
    if not any(mark in text for mark in ("](", "][", "```", "~~~")):
        letters = [letter for letter in text if letter.isalpha()]
        assert [letter for letter in without_markdown(text) if letter.isalpha()] == letters


@pytest.mark.parametrize("end", ["", "x", "\n"])
@pytest.mark.parametrize(
    "text",
    [
        "-",
        "---|",
        "- ",
        "|",
        " ",
        "a ",
        " | ",
        "[",
        "[a](",
        "*",
        "_",
        "`",
        "#",
        "\n",
        ":-",
        "<!--",
        "<a ",
        "[a]: ",
    ],
)
def test_no_answer_of_a_model_takes_long(text: str, end: str) -> None:
    """A caller has a model say what the caller wants."""
    long = text * (20_000 // len(text)) + end
    check_cpu_units(lambda: without_markdown(f"{'-' * 50}{end}"), below=1)
    # At most 0.4 are measured; a rule that reads a place again and again takes 20 and more.
    check_cpu_units(lambda: without_markdown(f"a{long}"), below=4)
