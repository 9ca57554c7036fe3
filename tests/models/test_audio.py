"""Word times from the symbols of a sentence, and cutting audio into chunks."""

import numpy as np
import pytest

from models.audio import CHUNK_S, AudioChunk, Span, cut, spread, symbols_of_words, timed, words_of


def test_words_are_split_at_white_space_and_have_letters_or_digits() -> None:
    assert words_of("Hi, — you 2!") == [(0, 3), (6, 9), (10, 12)]


def test_a_word_has_the_symbols_between_its_spaces() -> None:
    assert symbols_of_words("No, you.", "nO, ju.", len) == [Span(0, 3, 0, 2), Span(4, 8, 4, 6)]


def test_words_pronounced_together_share_their_symbols() -> None:
    spans = symbols_of_words("of the sea", "ʌvðə siː", {"of": 2, "the": 2, "sea": 3}.__getitem__)
    assert [(span.first, span.end) for span in spans] == [(0, 2), (2, 4), (5, 8)]


def test_a_word_pronounced_as_several_words_has_all_their_symbols() -> None:
    spans = symbols_of_words("in 21 days", "ɪn twɛnti wʌn deɪz", {"in": 2, "21": 9, "days": 4}.get)  # type: ignore[arg-type]
    assert [(span.first, span.end) for span in spans] == [(0, 2), (3, 13), (14, 18)]


def test_symbols_without_words_and_words_without_symbols_have_no_spans() -> None:
    assert symbols_of_words("…", "…", len) == symbols_of_words("a", "", len) == []


def test_a_word_lasts_from_the_start_to_the_end_of_its_symbols() -> None:
    words = timed([Span(0, 1, 0, 2), Span(2, 3, 3, 4)], [0.1, 0.2, 0.3, 0.4, 0.5])
    assert [(word.start_s, word.end_s) for word in words] == [(0.1, 0.3), (0.4, 0.5)]


def test_a_chunk_has_the_words_that_begin_in_it() -> None:
    words = spread("one two three four", 1.5)
    chunks = list(cut(AudioChunk(np.zeros(1500, np.float32), 1000, tuple(words))))
    assert [len(chunk.pcm) for chunk in chunks] == [400, 400, 400, 300]
    times = [
        (word.text_start, index * CHUNK_S + word.start_s)
        for index, chunk in enumerate(chunks)
        for word in chunk.words
    ]
    assert [place for place, _ in times] == [word.text_start for word in words]
    assert [at for _, at in times] == pytest.approx([word.start_s for word in words])
    assert all(0 <= word.start_s < CHUNK_S for chunk in chunks for word in chunk.words)
