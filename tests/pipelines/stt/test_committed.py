"""Committed text is never taken back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.stt.base import Word
from pipelines.stt.committed import CommittedText
from pipelines.stt.events import LiveTranscript
from pipelines.stt.formatting import separator_of


def interim(text: str, language: str = "en") -> LiveTranscript:
    separator = separator_of(language)
    said = text.split(separator) if separator else list(text)
    words = tuple(Word(word, n, n + 1, 1.0) for n, word in enumerate(said) if word)
    return LiveTranscript(1, False, text, language, 0.9, words, 0.0, 1.0, 0.1)


def final(text: str, language: str = "en") -> LiveTranscript:
    return replace(interim(text, language), final=True)


# Few different words, so that transcripts often agree; any text at all, too.
texts = st.one_of(
    st.lists(st.sampled_from(["a", "A,", "b", "cat", "Cat.", "the"]), max_size=8).map(" ".join),
    st.text(max_size=20),
)
languages = st.sampled_from(["en", "zh"])


@given(st.lists(st.tuples(texts, languages), max_size=8), st.tuples(texts, languages))
def test_every_text_begins_with_what_was_committed_before(
    heard: list[tuple[str, str]], last: tuple[str, str]
) -> None:
    utterance, committed = CommittedText(), ""
    for text, language in heard:
        revised = utterance.revise(interim(text, language))
        assert revised.committed.startswith(committed)
        assert revised.text.startswith(revised.committed)
        committed = revised.committed
    ended = utterance.revise(final(*last))
    assert ended.text.startswith(committed)
    assert ended.committed == ended.text


@given(texts)
def test_a_final_without_interims_is_as_it_was_heard(text: str) -> None:
    heard = final(" ".join(text.split()))
    revised = CommittedText().revise(heard)
    assert replace(revised, committed="") == heard


def commits(*heard: str) -> list[str]:
    utterance = CommittedText()
    return [utterance.revise(interim(text)).committed for text in heard]


def test_words_are_committed_when_two_interims_agree_on_them() -> None:
    said = ("the cat", "the cat sat", "the cat sat on", "the cat sat in the hat")
    assert commits(*said) == ["", "the cat", "the cat sat", "the cat sat"]


def test_the_last_word_of_an_interim_is_not_committed() -> None:
    assert commits("the ca", "the ca", "the cat sat") == ["", "the", "the"]


@pytest.mark.parametrize(
    ("last", "text"),
    [
        ("the cat sat on the mat", "the cat sat on the mat"),
        ("The cat, sat on the mat", "the cat sat on the mat"),  # other marks
        ("a cat sat on the mat", "the cat sat on the mat"),  # another word
        ("the old cat sat on the mat", "the cat sat on the mat"),  # one more
        ("cat sat on the mat", "the cat sat on the mat"),  # one less
        ("the the cat", "the cat sat"),
        ("", "the cat sat"),  # rejected
    ],
)
def test_a_final_goes_on_after_what_is_committed(last: str, text: str) -> None:
    utterance = CommittedText()
    for heard in ("the cat sat on", "the cat sat on"):
        committed = utterance.revise(interim(heard)).committed
    assert committed == "the cat sat"
    revised = utterance.revise(final(last))
    assert revised.text == text
    assert [word.word for word in revised.words] in ([], text.split())
    assert [word.start for word in revised.words] == sorted(word.start for word in revised.words)
