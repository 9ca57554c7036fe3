"""What is left of prompts for the recogniser."""

import pytest

from pipelines.stt.prompts import MOST_CHARACTERS, usable_prompt

ENGLISH = "The meeting begins at nine. Please bring the list of all participants with you."
GERMAN = "Die Sitzung beginnt um neun Uhr. Bitte bringen Sie die Liste der Teilnehmer mit."
CHINESE = "会议将于九点在大厅举行。请带上预算文件和与会者名单。"
NAMES = "Kaczmarek, Anneliese Huber, Straße der Republik, Kubernetes, deployment, rollout"


@pytest.mark.parametrize("language", ["en", "de", "ja", None])
def test_names_and_terms_are_expected_in_any_language(language: str | None) -> None:
    assert usable_prompt(NAMES, language) == NAMES


@pytest.mark.parametrize(
    ("prompt", "language"), [(ENGLISH, "en"), (GERMAN, "de"), (CHINESE, "zh"), (GERMAN, None)]
)
def test_a_text_before_the_speech_is_used(prompt: str, language: str | None) -> None:
    assert usable_prompt(prompt, language) == prompt


@pytest.mark.parametrize(
    ("prompt", "language"), [(GERMAN, "en"), (ENGLISH, "de"), (CHINESE, "en"), (ENGLISH, "ja")]
)
def test_sentences_in_another_language_are_not_used(prompt: str, language: str) -> None:
    assert usable_prompt(prompt, language) == ""


def test_addresses_and_the_times_of_subtitles_are_not_used() -> None:
    subtitles = "1\n00:00:00,000 --> 00:00:02,500\nSee https://a.example/b?c=d there,\n\nwww.x.com"
    assert usable_prompt(subtitles, "en") == "See there,"


def test_the_end_of_a_long_prompt_is_used() -> None:
    prompt = usable_prompt("word " * 100_000 + "Anna", "en")
    assert len(prompt) == MOST_CHARACTERS and prompt.endswith("word Anna")
