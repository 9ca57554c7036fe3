"""Sentence segmentation, also of a text that grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.text.segmentation import finished, sentence_spans
from tests.pipelines.text.sentence_corpus import GROWING_CASES, HARD_CASES, split_sentences


@pytest.mark.parametrize(("language", "marked"), HARD_CASES)
def test_hard_cases_are_split_at_their_sentence_boundaries(language: str, marked: str) -> None:
    sentences = marked.split("|")
    joiner = "" if language in ("zh", "ja") else " "
    assert split_sentences(joiner.join(sentences), language) == sentences


@pytest.mark.parametrize(("language", "marked"), GROWING_CASES)
def test_a_growing_text_has_the_sentences_of_the_whole(language: str, marked: str) -> None:
    grown: list[str] = []
    waiting = ""
    for character in marked.replace("|", " "):
        waiting += character
        count = finished(waiting, language)
        grown += split_sentences(waiting[:count], language)
        waiting = waiting[count:]
    assert grown + split_sentences(waiting, language) == marked.split("|")


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("xx", "One. two", ["One.", "two"]),
        ("en", "End of it.Next one starts.", ["End of it.", "Next one starts."]),
        ("en", 'Hello." ***', ['Hello." ***']),
        ("en", "", []),
        ("en", "  \u00a0 ", []),
    ],
)
def test_unusual_texts_are_split_correctly(language: str, text: str, sentences: list[str]) -> None:
    assert split_sentences(text, language) == sentences


@given(
    st.text(st.sampled_from('abcAB éж你好。！？“”「」 ठ।1.,;!?\u2019"()-[]@/ '), max_size=300),
    st.sampled_from(["en", "de", "fr", "hi", "ar", "zh", "ja", "xx"]),
)
def test_only_whitespace_is_outside_of_the_sentence_spans(text: str, language: str) -> None:
    position = 0
    for start, end in sentence_spans(text, language):
        assert position <= start < end
        assert not text[position:start].strip()
        position = end
    assert not text[position:].strip()


@pytest.mark.parametrize(
    ("language", "text", "sure", "likely"),
    [
        ("en", "Hello world", "", ""),
        ("en", "Hello world.", "", "Hello world."),
        ("en", "Hello world. ", "Hello world. ", "Hello world. "),
        ("en", "Hello. How are", "Hello. ", "Hello. "),
        ("en", "Hello. How are you?", "Hello. ", "Hello. How are you?"),
        ("en", "Dear Dr. ", "", ""),
        ("en", "It costs 3.", "", "It costs 3."),
        ("no", "Kom. Den 17. ", "Kom. ", "Kom. "),
        ("no", "Kom. Den 17. Da", "Kom. Den 17. ", "Kom. Den 17. "),
        ("en", "Title\nand more", "Title\n", "Title\n"),
        ("en", "Title\nDone. ", "Title\nDone. ", "Title\nDone. "),
        ("zh", "你好。", "你好。", "你好。"),
        ("ja", "こんにちは。今日は", "こんにちは。", "こんにちは。"),
        ("hi", "नमस्ते।", "नमस्ते।", "नमस्ते।"),
        ("en", "", "", ""),
    ],
)
def test_a_growing_text_is_finished_up_to_its_last_complete_sentence(
    language: str, text: str, sure: str, likely: str
) -> None:
    assert text[: finished(text, language)] == sure
    assert text[: finished(text, language, sure=False)] == likely


@given(
    st.text(st.sampled_from('abcAB éж你好。！？“” ठ।1.,;!?"()\n '), max_size=100),
    st.sampled_from(["en", "de", "hi", "zh", "xx"]),
    st.booleans(),
)
def test_the_finished_length_is_within_the_text(text: str, language: str, sure: bool) -> None:
    assert 0 <= finished(text, language, sure=sure) <= len(text)


def test_a_wrapped_line_is_finished_only_until_its_sentence_goes_on() -> None:
    line = "He walked each morning down the narrow street behind the\n"
    assert finished(line, "en") == len(line)  # speech does not wait for the next line
    assert finished(f"{line}church, as", "en") == 0
    assert finished("Milk\nbread", "en") == len("Milk\n")
