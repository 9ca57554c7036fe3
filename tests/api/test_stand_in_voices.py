"""Voices that stand for those of vendors speak the language of the text, as the vendors' do."""

from typing import Any

import httpx
import pytest

from api.app import create_app
from api.services import Services
from configs.load import load_yaml
from configs.schema.models.tts import HibariConfig, KokoroConfig
from tests.api.in_process import client_of
from tests.api.openai.test_speech import described, with_speakers

TEXTS = {
    "en": "Good morning, how are you today?",
    "de": "Guten Morgan, wie geht es Ihnen?",
    "fr": "Bonjour, comment allez-vous aujourd'hui ?",
    "es": "Buenos días, ¿cómo está usted hoy?",
    "nl": "Goedemorgen, hoe gaat het vandaag met u?",
    "ja": "おはようございます。今日はお元気ですか。",
}
KATIE = "f786b574-daa5-4673-aa0c-cbe3e8534c02"
RACHEL = "21m00Tcm4TlvDq8ikWAM"
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}


def openai(text: str, voice: str, model: str = "tts-1") -> tuple[str, dict[str, Any]]:
    return "/openai/v1/audio/speech", {"model": model, "input": text, "voice": voice}


def cartesia(text: str, **language: str) -> tuple[str, dict[str, Any]]:
    body = {"model_id": "sonic-3", "transcript": text, "voice": {"mode": "id", "id": KATIE}}
    return "/cartesia/tts/bytes", {**body, "output_format": RAW, **language}


def elevenlabs(text: str) -> tuple[str, dict[str, Any]]:
    return f"/v1/text-to-speech/{RACHEL}", {"text": text}


def inworld(text: str) -> tuple[str, dict[str, Any]]:
    return "/tts/v1/voice", {"text": text, "voiceId": "Ashley", "modelId": "inworld-tts-1"}


@pytest.mark.parametrize("language", TEXTS)
async def test_the_language_of_the_text_is_spoken_in_the_same_gender(
    services: Services, auth: dict[str, str], language: str
) -> None:
    fast = described(load_yaml(HibariConfig, "tts/hibari"))
    quality = described(load_yaml(KokoroConfig, "tts/kokoro"), crosses_languages=True)
    text = TEXTS[language]
    async with client_of(create_app(with_speakers(services, fast=fast, quality=quality))) as client:

        async def spoken(request: tuple[str, dict[str, Any]]) -> set[tuple[str, str]]:
            """Return the languages in which the request was spoken, with the genders."""
            for model in (fast, quality):
                model.calls.clear()
            path, body = request
            headers = {**auth, "X-API-Key": auth["Authorization"].split()[1]}
            answer: httpx.Response = await client.post(path, json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            genders = {
                voice.key: voice.gender for model in (fast, quality) for voice in model.info.voices
            }
            calls = [*fast.calls, *quality.calls]
            return {(call.language, genders[call.voice]) for call in calls}

        for voice in ("alloy", "nova"):
            assert await spoken(openai(text, voice)) == {(language, "female")}
        for name in ("tts-1-hd", "kokoro"):
            assert await spoken(openai(text, "onyx", name)) == {(language, "male")}
        for request in (cartesia(text), elevenlabs(text), inworld(text)):
            assert await spoken(request) == {(language, "female")}
        assert await spoken(cartesia("Hallo Welt.", language="en")) == {("en", "female")}
        # A name or a loan word changes nothing.
        name = "Please call Jürgen Müller at the Kindergarten about the déjà vu."
        assert await spoken(openai(name, "alloy")) == {("en", "female")}
