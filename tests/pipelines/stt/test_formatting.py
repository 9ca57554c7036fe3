"""Numbers in digits, masked profanity, and texts without punctuation."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.stt.base import FINAL, Segment, Transcript, Word
from models.stt.options import TranscriptStyle
from pipelines.stt.formatting import formatted

NUMERALS = TranscriptStyle(numerals=True)
MASKED = TranscriptStyle(profanity_filter=True)
PLAIN = TranscriptStyle(punctuate=False)
# Kind ("changed" if a number from 10,000 on becomes one number, else "left"), language, words, text
LONG_NUMBERS = Path(__file__).with_name("long_numbers.tsv").read_text(encoding="utf-8").splitlines()


def transcript(text: str, language: str = "en", *, timed: bool = True) -> Transcript:
    said = text.split() if timed else []
    words = tuple(Word(word, n, n + 1, 0.5) for n, word in enumerate(said))
    return Transcript(language, 1.0, (Segment(text, 0.0, len(said), -0.1, 0.0, words),))


def written(text: str, form: TranscriptStyle, language: str = "en") -> str:
    """The text with and without times, which must be the same."""
    (timed,) = formatted(transcript(text, language), form, None, FINAL).segments
    assert " ".join(word.word for word in timed.words) == timed.text
    (untimed,) = formatted(transcript(text, language, timed=False), form, None, FINAL).segments
    assert (untimed.text, untimed.words) == (timed.text, ())
    return timed.text


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("Nine hundred people came.", "900 people came."),
        ("It was nineteen eighty-four.", "It was 1984."),
        ("in two thousand and five,", "in 2005,"),
        ("Three thousand, two hundred", "3000, 200"),
        ("Twenty-three of them", "23 of them"),
        ("One of them had two cats", "One of them had two cats"),
        ("call five five five one two", "call 5 5 5 1 2"),
        ("someone often ate", "someone often ate"),
        ("June thirty first, the eleventh and Forty-third", "June 31st, the 11th and 43rd"),
        ("one twentieth, a tenth, two hundredths", "one twentieth, a tenth, two hundredths"),
        ("a thirty second wait", "a 30 second wait"),
        ("seven point two nine percent", "7.29 percent"),
        ("zero point oh four, two point five, oh no", "0.04, 2.5, oh no"),
        ("at one point three people left", "at one point three people left"),
        ("one point. Three more", "one point. Three more"),
        ("at ten point one man left", "at 10 point one man left"),
        ("I got one point one of my friends", "I got one point one of my friends"),
        ("at ten point two hundred people", "at 10 point 200 people"),
        ("version one point two point three", "version one point two point three"),
        ("four point eight five meters", "4.85 meters"),
        ("fifty first graders, twenty first dates", "fifty first graders, twenty first dates"),
        ("and", "and"),
        ("", ""),
    ],
)
def test_numbers_are_written_in_digits(said: str, text: str) -> None:
    assert written(said, NUMERALS) == text


@pytest.mark.parametrize(
    ("language", "said", "text"),
    [
        ("de", "Ein Haus mit dreiundzwanzig Fenstern", "Ein Haus mit 23 Fenstern"),
        ("fr", "un livre de quatre-vingt-dix pages", "un livre de 90 pages"),
        ("es", "una casa con treinta y dos ventanas", "una casa con 32 ventanas"),
        ("es", "tenía veintiún años", "tenía 21 años"),
        ("de", "zwölf Komma null sieben Meter", "12,07 Meter"),
        ("fr", "le vingt et unième, huit virgule neuf", "le vingt et unième, 8,9"),
        ("fr", "deux virgule soixante-cinq euros", "2,65 euros"),
        ("hi", "पचास लोग, पचासी घर।", "50 लोग, 85 घर।"),  # a vowel sign tells them apart
        ("bn", "এগারো বই।", "11 বই।"),
        ("xx", "zwölf", "zwölf"),
        ("vi", "hai mươi ba", "23"),
    ],
)
def test_numbers_of_other_languages_are_known(language: str, said: str, text: str) -> None:
    assert written(said, NUMERALS, language) == text


def test_long_numbers_are_one_number_only_if_nothing_else_is_meant() -> None:
    rows = [row.split("\t") for row in LONG_NUMBERS]
    texts = [(said, written(said, NUMERALS, language), text) for _, language, said, text in rows]
    assert not [text for text in texts if text[1] != text[2]]


def test_a_number_has_the_time_of_all_its_words() -> None:
    spoken = transcript("about nine hundred five people")
    (segment,) = formatted(spoken, NUMERALS, None, FINAL).segments
    assert [(word.word, word.start, word.end) for word in segment.words] == [
        ("about", 0, 1),
        ("905", 1, 4),
        ("people", 4, 5),
    ]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("Shit, it broke.", "S***, it broke."),
        ("What the fucking hell!", "What the f****** hell!"),
        ("Scunthorpe and cocktails", "Scunthorpe and cocktails"),
    ],
)
def test_profanity_is_masked(said: str, text: str) -> None:
    assert written(said, MASKED) == text
    assert written(said, TranscriptStyle()) == said


def test_profanity_is_that_of_the_language() -> None:
    assert written("Scheiße, merde.", MASKED, "de") == "S******, merde."
    assert written("Scheiße, merde.", MASKED, "fr") == "Scheiße, m****."


def test_a_plain_text_has_neither_marks_nor_capitals() -> None:
    said = "Hello — it's Mr. O'Neil's well-known 3.5 per cent, isn't it?"
    assert written(said, PLAIN) == "hello it's mr o'neil's well-known 3.5 per cent isn't it"
    masked = TranscriptStyle(punctuate=False, profanity_filter=True)
    assert written("Oh, shit!", masked) == "oh s***"


def test_vowel_signs_at_the_end_of_a_word_are_no_marks() -> None:
    assert written("पानी। चाहिए?", PLAIN, "hi") == "पानी चाहिए"


@given(st.text(max_size=40), st.sampled_from([NUMERALS, MASKED, PLAIN]))
def test_any_text_can_be_formatted(text: str, form: TranscriptStyle) -> None:
    written(text, form)
