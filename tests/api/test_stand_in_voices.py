"""Voices that stand for those of vendors speak the language of the text, as the vendors' do."""

import re
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.services import Services
from configs.load import load_yaml
from configs.schema.models.tts import HibariConfig, KokoroConfig
from configs.schema.voices import VoicesConfig
from models.base import ModelInfo
from models.errors import EngineLost
from pipelines.tts.pipeline import SpeechPipeline
from tests.api.in_process import client_of
from tests.api.openai.test_speech import described, with_speakers
from tests.api.replaced import with_synthesis

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


async def test_a_voice_that_speaks_while_others_load_is_named(
    services: Services, auth: dict[str, str]
) -> None:
    fast = described(load_yaml(HibariConfig, "tts/hibari"))
    quality = described(load_yaml(KokoroConfig, "tts/kokoro"), crosses_languages=True)
    is_loading = True

    async def describe() -> ModelInfo:
        if is_loading:
            raise EngineLost("no replica of quality answers")
        return quality.info

    async def never() -> ModelInfo:
        raise EngineLost("the weights are gated, and there is no token")

    quality.describe = describe  # type: ignore[method-assign]
    clone = described(load_yaml(HibariConfig, "tts/hibari"))
    clone.describe = never  # type: ignore[method-assign]
    text = TEXTS["de"]
    book = {"document": ("a.txt", (text * 5).encode())}
    marked = "<speak>{}<p xml:lang='{}'>{}</p></speak>"
    german = marked.format(TEXTS["en"], "de", text)
    marked_book = {"document": ("a.txt", german.encode())}
    native: list[tuple[str, dict[str, Any]]] = [
        ("/tts-synthesize", {"text": text}),
        ("/tts-stream", {"text": text}),
    ]
    foreign = [openai(text, "alloy"), elevenlabs(text), inworld(text), cartesia(text)]
    speakers: dict[str, Any] = {"fast": fast, "quality": quality, "clone": clone}
    pipeline = SpeechPipeline(speakers, load_yaml(VoicesConfig, "voices"))
    async with client_of(create_app(with_synthesis(services, pipeline))) as client:

        async def said(path: str, body: dict[str, Any]) -> tuple[int, str]:
            """Return the status of an answer, and its warnings."""
            headers = {**auth, "X-API-Key": auth["Authorization"].split()[1]}
            answer = await client.post(path, json=body, headers=headers)
            warnings = answer.headers.get("Warning", "")
            return answer.status_code, warnings + re.sub(r".*(?=\"warnings\")", "", answer.text)

        for path, body in native + foreign:
            status, warnings = await said(path, body)
            assert (status, "Heart Fast speaks while" in warnings) == (200, True), (path, warnings)
        english = {"text": TEXTS["en"]}
        assert "while" not in (await said("/tts-synthesize", english))[1]
        for path in ("/jobs/speech", "/jobs/speech/estimate"):
            for document in (book, marked_book):
                refused = await client.post(path, headers=auth, files=document)
                assert refused.status_code == 503 and "Retry-After" in refused.headers
                assert "voices are not ready" in refused.json()["message"]
        for unspeakable in (german, TEXTS["ja"]):
            status, _ = await said("/tts-synthesize", {"text": unspeakable})
            assert status == 503, unspeakable
        is_loading = False  # "clone", which has no usual voice, never comes
        for path, body in native + foreign:
            status, warnings = await said(path, body)
            assert (status, "while" in warnings) == (200, False), (path, warnings)
        for speakable in (german, TEXTS["ja"]):
            assert (await said("/tts-synthesize", {"text": speakable}))[0] == 200, speakable
        swedish = {"text": marked.format("", "sv", text)}
        assert (await said("/tts-synthesize", swedish))[0] == 400
        made = await client.post("/jobs/speech", headers=auth, files=book)
        assert made.status_code == 201 and made.json()["voices"] == ["Jonas"]
        estimated = await client.post("/jobs/speech/estimate", headers=auth, files=marked_book)
        assert estimated.status_code == 200, estimated.text
        for language in ("sv", "la"):  # no voice speaks them
            stated = f"---\nlang: {language}\n---\n# I\n\n{text}".encode()
            estimated = await client.post(
                "/jobs/speech/estimate", headers=auth, files={"document": ("a.md", stated)}
            )
            assert estimated.status_code == 200, estimated.text
            assert [chapter["voice"] for chapter in estimated.json()["chapters"]] == ["Jonas"]
