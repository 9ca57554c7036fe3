"""Cleaning and splitting text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.text import (
    PIECE_CHARACTERS,
    Piece,
    clean,
    is_speakable,
    split_first_clause,
    split_long,
    split_paragraphs,
    split_sentences,
    to_pieces,
)

PROSE = st.text(st.sampled_from('abcéж你 ठ1.,;!?\u2019"()-\n'), max_size=800)


def letters(text: str) -> str:
    """Every letter and digit, in order."""
    return "".join(filter(str.isalnum, text))


@given(PROSE)
def test_splitting_keeps_every_letter_in_order(text: str) -> None:
    pieces = [
        piece.text
        for paragraph in split_paragraphs(text)
        for sentence in split_sentences(paragraph, "en")
        for piece in to_pieces(sentence)
    ]
    assert letters("".join(pieces)) == letters(text)
    assert all(0 < len(piece) <= PIECE_CHARACTERS for piece in pieces)


@given(st.lists(st.text("abc,.", min_size=1, max_size=30), min_size=1, max_size=100))
def test_long_text_is_cut_only_between_words(words: list[str]) -> None:
    parts = split_long(" ".join(words), 60)
    assert all(len(part) <= 60 for part in parts)
    assert letters("".join(parts)) == letters("".join(words))


@given(st.text(max_size=200))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    once = clean(text)
    assert clean(once) == once


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", "Dr. Smith paid $3.50. Did he?", ["Dr. Smith paid $3.50.", "Did he?"]),
        ("en", "See https://a.com/b.c now. Yes.", ["See https://a.com/b.c now.", "Yes."]),
        ("de", "Das ist z.B. gut. Ja.", ["Das ist z.B. gut.", "Ja."]),
        ("hi", "नमस्ते दुनिया। आप कैसे हैं?", ["नमस्ते दुनिया।", "आप कैसे हैं?"]),
        ("ar", "كيف حالك؟ أنا بخير.", ["كيف حالك؟", "أنا بخير."]),
        ("zh", "你好。你好吗？我很好！", ["你好。", "你好吗？", "我很好！"]),
        ("xx", "One. two", ["One.", "two"]),
    ],
)
def test_sentences_end_where_their_language_ends_them(
    language: str, text: str, sentences: list[str]
) -> None:
    assert split_sentences(text, language) == sentences


def test_a_newline_is_a_hard_boundary() -> None:
    text = clean("one\r\ntwo\n\n ... \nthree")
    assert split_paragraphs(text) == ["one", "two", "three"]


def test_only_the_first_piece_is_cut_at_a_clause() -> None:
    text = "This is a rather long beginning of a sentence, which goes on for a while after it."
    pieces = split_first_clause([Piece(text), Piece(text)])
    assert [piece.text for piece in pieces] == [
        "This is a rather long beginning of a sentence,",
        "which goes on for a while after it.",
        text,
    ]
    assert not pieces[0].ends_sentence


def test_a_short_first_piece_stays_whole() -> None:
    assert split_first_clause([Piece("Yes, of course.")]) == [Piece("Yes, of course.")]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\u0000b\tc", "a b c"),
        ("\u202eabc\u202c\u200b", "abc"),
        ("ＡＢＣ１２", "ABC12"),
        ("\U0001d5db\U0001d5f6", "Hi"),
        ("a\u00a0b", "a\u00a0b"),
        ("क्\u200dष", "क्\u200dष"),
        ("20°C", "20°C"),
    ],
)
def test_what_no_voice_can_say_is_removed(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.mark.parametrize("text", ["", "...", "\U0001f600", "\u200b\u202e", "!?", "$ %"])
def test_text_without_letters_is_not_speakable(text: str) -> None:
    assert not is_speakable(clean(text))


@pytest.mark.parametrize("unit", ["9", "a ", "a. ", "\u200d", "\U0001f600", "(", ", "])
def test_splitting_takes_linear_time(unit: str) -> None:
    text = (unit * 50_000)[:50_000]
    started = time.perf_counter()
    for paragraph in split_paragraphs(clean(text)):
        for sentence in split_sentences(paragraph, "en"):
            to_pieces(sentence)
    assert time.perf_counter() - started < 3
