"""Transcripts whose engine says no language get that of their text."""

import pytest

from models.stt.base import Segment, Transcript
from pipelines.stt.language import with_language

OFFERED = ("en", "de", "fr", "pl")


def said(text: str, candidates: tuple[str, ...] = OFFERED) -> Transcript:
    return Transcript("en", 0.5, (Segment(text, 0, 1, -0.1, 0),), candidates=candidates)


async def language_of(heard: Transcript, expected: str | None = None) -> str:
    async def transcribe() -> Transcript:
        return heard

    named = await with_language(transcribe(), expected)
    assert named.candidates == () and named.segments == heard.segments
    return named.language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Der Zug nach Hamburg fährt heute leider erst um neun Uhr ab.", "de"),
        ("Je voudrais réserver une table pour deux personnes, s'il vous plaît.", "fr"),
        ("Dzisiaj jest bardzo ładna pogoda i idziemy do parku.", "pl"),
        ("The train to Boston leaves at nine.", "en"),
    ],
)
async def test_the_text_names_its_language(text: str, language: str) -> None:
    assert await language_of(said(text)) == language


async def test_a_short_text_is_in_the_language_of_the_utterance_before() -> None:
    assert await language_of(said("Okay."), expected="de") == "de"
    clear = "Je voudrais réserver une table pour deux personnes demain soir, s'il vous plaît."
    assert await language_of(said(clear), expected="de") == "fr"


async def test_an_engine_that_names_the_language_is_believed() -> None:
    assert await language_of(said("Der Zug nach Hamburg fährt.", ())) == "en"


async def test_only_the_languages_that_were_asked_for_are_offered() -> None:
    text = "Der Zug nach Hamburg fährt heute leider erst um neun Uhr ab."
    assert await language_of(said(text, ("fr", "pl"))) in ("fr", "pl")
