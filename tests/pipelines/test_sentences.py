"""Where sentences end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sentences import sentence_spans, split_sentences
from tests.pipelines.sentence_corpus import HARD_CASES


@pytest.mark.parametrize(("language", "marked"), HARD_CASES)
def test_hard_cases_are_told_apart(language: str, marked: str) -> None:
    sentences = marked.split("|")
    joiner = "" if language in ("zh", "ja") else " "
    assert split_sentences(joiner.join(sentences), language) == sentences


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
def test_odd_texts_are_split_too(language: str, text: str, sentences: list[str]) -> None:
    assert split_sentences(text, language) == sentences


@settings(deadline=None)
@given(
    st.text(st.sampled_from('abcAB éж你好。！？“”「」 ठ।1.,;!?\u2019"()-[]@/ '), max_size=300),
    st.sampled_from(["en", "de", "fr", "hi", "ar", "zh", "ja", "xx"]),
)
def test_only_spaces_lie_between_sentences(text: str, language: str) -> None:
    position = 0
    for start, end in sentence_spans(text, language):
        assert position <= start < end
        assert not text[position:start].strip()
        position = end
    assert not text[position:].strip()
