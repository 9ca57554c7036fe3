"""The language of a session, which evidence changes, and of a transcript, from its text."""

import pytest

from models.stt.base import Segment, Transcript
from models.stt.whisper.languages import chosen
from pipelines.stt.heard_language import SessionLanguage, with_language
from pipelines.text.usual_language import AGREEING, UsualLanguages

OFFERED = ("en", "de", "fr", "pl")
KNOWN = ("de", "en", "es", "fr", "nl")


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


def hear(session: SessionLanguage, seconds: float, **scores: float) -> str:
    """The language that an utterance with these probabilities gets."""
    language, probability = chosen(scores, session.prior(seconds), KNOWN)
    session.note(Transcript(language, probability, scores=scores), seconds)
    return language


def test_short_turns_stay_in_the_language_of_a_certain_utterance() -> None:
    session = SessionLanguage()
    assert session.certain is None
    assert hear(session, 3, es=0.98, fr=0.01) == "es"
    assert session.certain == "es"
    for wrong in ("en", "de", "fr", "nl") * 5:
        assert hear(session, 0.9, **{wrong: 0.95, "es": 0.004}) == "es"


def test_short_turns_that_are_always_misheard_alike_change_nothing() -> None:
    session = SessionLanguage()
    hear(session, 3, es=0.95, fr=0.02)
    for _ in range(40):
        assert hear(session, 1.1, ar=0.65, es=0.001) == "es"
        assert hear(session, 1.6, ar=0.63, es=0.01) == "es"


def test_a_sentence_in_another_language_changes_it_at_once_and_back() -> None:
    session = SessionLanguage()
    for _ in range(20):
        hear(session, 3, es=0.98, fr=0.01)
    assert hear(session, 2.5, fr=0.97, es=0.001) == "fr"
    assert hear(session, 2.5, es=0.97, fr=0.001) == "es"


def test_short_turns_that_agree_change_it_after_several() -> None:
    session = SessionLanguage()
    hear(session, 3, es=0.98, fr=0.01)
    heard = [hear(session, 1.2, de=0.99, es=0.0001) for _ in range(4)]
    assert heard[0] == "es" and heard[-1] == "de"


def test_the_usual_language_decides_a_first_short_turn_and_no_sentence() -> None:
    assert hear(SessionLanguage(), 0.9, nl=0.6, de=0.02) == "nl"
    assert hear(SessionLanguage("de"), 0.9, nl=0.6, de=0.02) == "de"
    assert hear(SessionLanguage("de"), 2.5, nl=0.9, de=0.02) == "nl"


def test_a_language_that_was_given_is_no_evidence() -> None:
    session = SessionLanguage()
    session.note(Transcript("de", 1.0), 10)
    assert session.certain is None and session.prior(1) == {}


def test_the_usual_language_is_that_of_the_last_that_agree() -> None:
    usual = UsualLanguages()
    for _ in range(AGREEING - 1):
        usual.note(1, "de")
    assert usual.of(1) is None
    usual.note("1", "de")
    assert (usual.of(1), usual.of(2), usual.of("1", ("en", "de"))) == ("de", None, "de")
    assert usual.of(1, ("en", "fr")) == "en", "not among those that were asked for"
    usual.note(1, "en")
    assert usual.of(1) is None
