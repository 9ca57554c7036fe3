"""Key terms: which may be in a text, and that Whisper writes those that are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import WeightsMissing
from models.registry import STT, load_model
from models.stt.base import TranscriptionRequest, Word
from models.stt.options import RecognitionOptions
from models.stt.whisper.engine import WhisperEngine
from models.stt.whisper.hallucination import Decoding
from models.stt.whisper.key_terms import MAX_TERMS, count, doubtful_part, likely_terms, replaced
from models.weights.store import WeightStore
from tests.cpu_time import check_cpu_units
from tests.models.sounds import speak

NAMES = ("Kaczmarek", "Ouagadougou", "Tchaikovsky", "Lake Okeechobee", "Semaglutide", "Kubernetes")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Please ask Caxmerk to call me back.", ["Kaczmarek"]),
        ("Please ask Waga Dugu to call me back.", ["Ouagadougou"]),
        ("We talked about T. Chekhovsky and cubernies.", ["Tchaikovsky", "Kubernetes"]),
        ("We swam in Lake Oak Showbie.", ["Lake Okeechobee"]),
        ("The train leaves at nine.", []),
        ("", []),
        ("… — !", []),
    ],
)
def test_terms_that_are_spelled_like_the_text_are_likely(text: str, terms: list[str]) -> None:
    assert sorted(likely_terms(text, NAMES)) == sorted(terms)


def test_terms_of_scripts_without_spaces_are_found() -> None:
    assert likely_terms("私は東京大学の田中です", ["東京大学", "大阪府庁"]) == ["東京大学"]


def test_few_terms_are_likely_at_once() -> None:
    terms = [f"Name {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    assert len(likely_terms("name a b c d e f g", terms)) == MAX_TERMS


@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=30), max_size=5))
def test_any_text_and_terms_can_be_compared(text: str, terms: list[str]) -> None:
    found = likely_terms(text, terms)
    assert set(found) <= set(terms)
    assert 0 <= count(text, found) <= len(found)


def test_a_hundred_long_terms_take_little_time() -> None:
    rng = np.random.default_rng(0)
    terms = ["".join(rng.choice(list("abcdefgh "), 100)) for _ in range(100)]
    text = " ".join("".join(rng.choice(list("abcdefgh"), 5)) for _ in range(120))
    check_cpu_units(lambda: likely_terms(text, terms), below=60)


def test_a_term_replaces_the_words_spelled_most_like_it() -> None:
    words = "We swam in Lake Oak Showbie with Caxmerk.".split()
    pieces = replaced(words, ["Lake Okeechobee", "Kaczmarek", "Lake Oak"])
    expected = ["We", "swam", "in", "Lake Okeechobee", "with", "Kaczmarek"]
    assert [text for text, _ in pieces] == expected
    assert [term for _, term in pieces if term] == ["Lake Okeechobee", "Kaczmarek"]


@pytest.mark.weights
@pytest.mark.parametrize(
    ("text", "terms", "times"),
    [
        ("The quick brown fox jumps over the lazy dog.", ("Brawn", "Foggs", "Dogan", "Lezi"), 1),
        ("Please ask Kaczmarek to call me back before noon.", ("Kaczmarek", "Beckett"), 2),
    ],
)
def test_only_likely_terms_cause_another_decoding(
    engine: WhisperEngine,
    weights: WeightStore,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    terms: tuple[str, ...],
    times: int,
) -> None:
    assert likely_terms(text, terms)
    calls, generate = list[object](), engine._generate

    def count_calls(*asked: Any) -> list[Decoding]:
        calls.append(asked)
        return generate(*asked)

    monkeypatch.setattr(engine, "_generate", count_calls)
    options = RecognitionOptions(keyterms=terms)
    engine.transcribe([TranscriptionRequest(speak(text, weights), "en", options=options)])
    assert len(calls) == times


@pytest.mark.slow
@pytest.mark.weights
def test_whisper_writes_the_terms_that_were_said(weights: WeightStore) -> None:
    try:
        engine, _ = load_model(STT, "stt/whisper_base", weights)
    except WeightsMissing as error:
        pytest.skip(str(error))

    def heard(text: str, *terms: str) -> str:
        options = RecognitionOptions(keyterms=terms, words=True)
        (transcript,) = engine.transcribe(
            [TranscriptionRequest(speak(text, weights), "en", options=options)]
        )
        (segment,) = transcript.segments
        assert " ".join(word.word for word in segment.words) == segment.text
        return segment.text

    said = "Please ask Okeechobee and Kaczmarek about semaglutide."
    assert count(heard(said), NAMES) < 2
    assert count(heard(said, *NAMES, "Okeechobee"), ["Kaczmarek", "Okeechobee", "Semaglutide"]) == 3
    other = "The morning train leaves the station before sunrise."
    assert heard(other, *NAMES) == heard(other)


def test_words_that_are_certain_are_no_other_terms() -> None:
    words = [
        Word(text, 0.0, 0.5, probability)
        for text, probability in [("ask", 0.95), ("Caxmerk", 0.6), ("in", 0.9), ("Valparaiso", 0.9)]
    ]
    assert doubtful_part(words) == "ask Caxmerk in"
    assert doubtful_part(words[-1:]) == ""
