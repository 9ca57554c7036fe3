"""The language of a session: what changes the belief in it, and what does not."""

from models.stt.base import Transcript
from models.stt.whisper.languages import chosen
from pipelines.stt.language import SessionLanguage
from pipelines.text.usual_language import AGREEING, UsualLanguages

KNOWN = ("de", "en", "es", "fr", "nl")


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
