"""Everyday texts of twenty languages are read as a speaker reads them.

Each line of `everyday.tsv` has a language, a kind, a text, its spoken form as in `cases/`, and the
source of that form. Half of the lines, by a hash, were held out while the rules were written; those
of the kind "report" are public reports and examples of what programs read wrongly.
"""

from pathlib import Path

import pytest

from tests.pipelines.text.normalisation.score import Case, is_right, speak

TABLE = Path(__file__).with_name("everyday.tsv").read_text(encoding="utf-8").splitlines()
# A language, a text with a form that is easily taken for another, and what is to be heard of it
LOOKALIKES = Path(__file__).with_name("lookalikes.tsv").read_text(encoding="utf-8").splitlines()
PLAIN = [
    # Words and sentences that look like the forms of the table
    ("de", "Die EG wurde gegründet.", "Die EG wurde gegründet."),
    ("en", "Show your ID Card.", "Show your ID Card."),
    ("en", "12 Elm Dr Springfield", "twelve Elm Dr Springfield"),
    ("fr", "Me voilà.", "Me voilà."),
    ("it", "un angolo di 90° a destra", "un angolo di novanta gradi a destra"),
    ("nl", "Zo is dat, di", "Zo is dat, di"),
    ("pl", "I w domu, i w pracy", "I w domu, i w pracy"),
    ("pl", "12 345 zł", "dwanaście tysięcy trzysta czterdzieści pięć złotych"),
    ("pt", "a 2ª casa", "a segunda casa"),
    ("ar", "100 م", "مائة متر"),
]


@pytest.mark.parametrize("row", TABLE)
def test_an_everyday_text_is_read_as_a_speaker_reads_it(row: str) -> None:
    language, kind, written, spoken, source = row.split("\t")
    case = Case(language, kind, written, spoken, held_out=False)
    assert is_right(case), speak(written, language)
    assert source


@pytest.mark.parametrize(("language", "written", "spoken"), PLAIN)
def test_a_text_that_looks_like_a_form_is_left(language: str, written: str, spoken: str) -> None:
    assert speak(written, language) == spoken


@pytest.mark.parametrize("row", LOOKALIKES)
def test_a_word_that_looks_like_an_abbreviation_is_told_from_it(row: str) -> None:
    language, written, spoken = row.split("\t")
    assert speak(written, language) == spoken
