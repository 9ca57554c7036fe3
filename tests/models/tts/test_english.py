"""Capitals and letters of English text, by the phonemes of its voices."""

import re

import pytest

from models.tts.espeak_ng import espeak_installed, espeak_library
from models.tts.kokoro.phonemes import phonemizer_for

READ = phonemizer_for("en")


def _sounds(text: str) -> str:
    """The phonemes without stress, which differs between a word and one in capitals."""
    return re.sub("[ˈˌ]", "", READ(text))


@pytest.mark.parametrize(
    "text",
    [
        "The flight has been delayed.",
        "She had a good time.",
        "All of them went home, but not me.",
        "It is us against the world, and he or she who wins is in.",
        "Don't worry, it's fine; we'll see what they've done.",
        "Pay one thousand two hundred dollars now or else.",
        "Kubernetes was explained to the students again.",
        "Smith met Jones in Hong Kong.",
    ],
)
def test_words_in_capitals_are_read_as_words(text: str) -> None:
    assert _sounds(text.upper()) == _sounds(text)


@pytest.mark.parametrize("british", [False, True])
@pytest.mark.parametrize("initials", ["FBI", "USA", "HTML", "CEO", "GPS", "ATM", "NYPD", "LGBT"])
def test_initials_stay_spelled_among_words_in_capitals(initials: str, british: bool) -> None:
    read = phonemizer_for("en", british=british)
    spelled = re.sub("[ˈˌ]", "", read(", ".join(initials).replace("A", "A-"))).replace(", ", "")
    for text in (f"THE {initials} HAS BEEN CALLED", f"the {initials} has been called"):
        assert spelled in re.sub("[ˈˌ ]", "", read(text)), text


@pytest.mark.parametrize("word", ["WILL", "THIS", "HAS", "WITH", "WHEN", "DELAYED", "NEVER"])
def test_an_emphasised_word_in_lower_case_text_is_a_word(word: str) -> None:
    text = f"You know {word} well enough."
    assert _sounds(text) == _sounds(text.lower().replace("you", "You", 1))


def test_words_that_are_also_initials_are_told_apart() -> None:
    assert _sounds("WHO TOLD US THAT IT IS THE WHO?") == _sounds("who told us that it is the WHO?")
    assert _sounds("The US and the WHO.") != _sounds("The us and the who.")
    assert _sounds("US TROOPS LEAVE THE CITY.") == _sounds("US troops leave the city.")


LETTERS = [
    "It closes at eleven A M.",
    "Gate A twelve is open.",
    "Team A plays team B.",
    "Plan A failed.",
    "PLAN A HAS FAILED, AND GATE A IS OPEN",
    "Q and A",
    "from A to B",
    "Vitamin A helps.",
    "I got an A in maths.",
    "in A minor",
    "A and B are sides.",
    "A-one and A-two motorways",
    "an A-level",
]
ARTICLES = [
    "A man came.",
    "SHE HAD A GOOD TIME.",
    "Once Upon A Time In A Far Land",
    "Plan A Trip",
    "A T-shirt",
    "Such A Long Journey",
    "A new plan and a team",
]


@pytest.mark.parametrize("text", LETTERS)
def test_the_letter_a_is_read_as_a_letter(text: str) -> None:
    assert "ˈA" in READ(text) and not re.search(r"ɐ( |t|ˌ)", READ(text))
    if espeak_installed():
        assert "ˈeɪ" in espeak_library().phonemes(text, "en-us")
        assert "ɐ " not in espeak_library().phonemes(text, "en-us")


@pytest.mark.parametrize("text", ARTICLES)
def test_the_article_stays_an_article(text: str) -> None:
    assert "ɐ " in READ(text)
    if espeak_installed():
        assert "ɐ " in espeak_library().phonemes(text, "en-us")
