"""What is left of prompts for the recogniser."""

import asyncio
import threading

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from models.stt.base import FINAL, STT_SAMPLE_RATE
from models.stt.options import RecognitionOptions
from pipelines.stt import prompts
from pipelines.stt.decoding import LiveUtterance, SessionOptions, UtteranceDecoder
from pipelines.stt.prompts import MOST_CHARACTERS, usable_prompt
from pipelines.tasks import TaskSet
from pipelines.text import language_detection
from pipelines.text.usual_language import UsualLanguages
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import FakeTranscriber

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


async def test_the_prompt_of_live_speech_is_judged_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one in a script loads the models of its languages, which takes seconds."""
    loaded, judge = threading.Event(), language_detection.paragraph_language

    def load_first(text: str, offered: frozenset[str], expected: str) -> str:
        assert loaded.wait(PATIENCE_S), "the event loop waits for it"
        return judge(text, offered, expected)

    monkeypatch.setattr(prompts, "paragraph_language", load_first)
    usable_prompt.cache_clear()
    model, limits = FakeTranscriber(), load_yaml(ListeningConfig, "listening").limits
    options = SessionOptions(RecognitionOptions(languages=("en",), prompt=f"{NAMES}."))
    decoder = UtteranceDecoder(model, limits, TaskSet(), options, UsualLanguages())
    decoding = decoder.decode(np.zeros(STT_SAMPLE_RATE, np.float32), FINAL, LiveUtterance(1, 0))
    for _ in range(3):
        await asyncio.sleep(0.01)
    assert not decoding.done() and model.requests == []
    loaded.set()
    await decoding
    assert model.requests[0].options.prompt == f"{NAMES}."
