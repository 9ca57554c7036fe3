"""POST /tts-synthesize and GET /default-voices over the tone engine."""

import io
from base64 import b64decode
from typing import Any
from uuid import UUID

import av
import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.services import Services
from configs.load import load_yaml
from configs.schema.voices import VoicesConfig
from models.base import ModelInfo
from models.errors import EngineLost
from pipelines.tts.pipeline import SpeechPipeline
from tests.api.in_process import client_of
from tests.api.replaced import with_synthesis

Headers = dict[str, str]


def decode(answer: dict[str, Any]) -> tuple[int, int]:
    """Number of samples and sample rate of the decoded audio."""
    data = b64decode(answer["audio_base64"], validate=True)
    with av.open(io.BytesIO(data), "r") as container:
        stream = container.streams.audio[0]
        samples = sum(int(frame.samples) for frame in container.decode(stream))
        return samples, int(stream.codec_context.sample_rate)


def assert_fault(answer: httpx.Response, words: list[str]) -> None:
    """Checks that the error names the invalid field and its limit."""
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "validation_error"
    for word in words:
        assert word in answer.json()["message"]


async def speak(client: httpx.AsyncClient, auth: Headers, **body: Any) -> httpx.Response:
    return await client.post("/tts-synthesize", json={"text": "Hello there.", **body}, headers=auth)


@pytest.mark.parametrize(
    ("output_format", "encoding"),
    [("mp3", "MP3"), ("wav", "LINEAR16"), ("ogg", "OGG_OPUS"), ("flac", "FLAC")],
)
async def test_stated_duration_and_sample_rate_match_the_decoded_audio(
    client: httpx.AsyncClient, auth: Headers, output_format: str, encoding: str
) -> None:
    answer = await speak(client, auth, output_format=output_format)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert set(body) == {
        *("success", "message", "audio_base64", "sample_rate"),
        *("duration_seconds", "encoding", "output_format"),
    }
    assert body["success"] is True
    assert (body["encoding"], body["output_format"]) == (encoding, output_format)
    samples, sample_rate = decode(body)
    assert body["sample_rate"] == sample_rate
    assert body["duration_seconds"] == pytest.approx(samples / sample_rate, abs=1e-3)
    assert 0.3 < body["duration_seconds"] < 2


async def test_mp3_is_the_default_format(client: httpx.AsyncClient, auth: Headers) -> None:
    assert (await speak(client, auth)).json()["encoding"] == "MP3"


async def test_speed_changes_the_duration_and_pitch_does_not(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    async def duration(**body: Any) -> float:
        answer = await speak(client, auth, output_format="wav", **body)
        seconds: float = answer.json()["duration_seconds"]
        return seconds

    plain = await duration()
    assert await duration(speed=2) == pytest.approx(plain / 2, rel=0.03)
    assert await duration(speed=0.5) == pytest.approx(plain * 2, rel=0.03)
    assert await duration(pitch=1.5) == pytest.approx(plain, rel=0.03)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5000,
        "9" * 2500,  # more would be spoken too long
        "a\u0001b",
        "\u202eabc",
        "5 < 6 & 7",
        "a \u0645\u0631\u062d\u0628\u0627",
        "\u4f60\u597d\u3002 b",
    ],
)
async def test_hostile_text_is_spoken(client: httpx.AsyncClient, auth: Headers, text: str) -> None:
    answer = await speak(client, auth, text=text, enhance=False, output_format="wav")
    assert answer.status_code == 200, answer.text


async def test_voice_id_overrides_voice_and_names_are_case_insensitive(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    voice = (await client.get("/default-voices", headers=auth)).json()["data"][0]
    by_id = await speak(client, auth, voice_id=voice["voice_id"], voice="nobody")
    assert by_id.status_code == 200
    by_name = await speak(client, auth, voice=voice["name"].upper())
    assert by_name.json()["audio_base64"] == by_id.json()["audio_base64"]


async def test_the_voice_list_has_every_field(client: httpx.AsyncClient, auth: Headers) -> None:
    answer = await client.get("/default-voices", headers=auth)
    assert answer.status_code == 200
    body = answer.json()
    assert body["success"] is True
    assert body["data"]
    for voice in body["data"]:
        UUID(voice["voice_id"])
        assert voice["model"] in ("Antiphon Fast", "Antiphon Quality")
        assert voice["labels"].keys() == {"language", "language_name", "gender", "accent"}
        assert voice["voice_type"] == "professional"
        assert voice["is_native"] is True
        assert voice["available_tiers"] == []
        assert isinstance(voice["categories"], list)
        assert "description" in voice


class LostSpeaker:
    """A model that is down."""

    async def describe(self) -> ModelInfo:
        raise EngineLost("no replica is up")


def app_with(services: Services, **speakers: Any) -> FastAPI:
    voices = load_yaml(VoicesConfig, "voices")
    return create_app(with_synthesis(services, SpeechPipeline(speakers, voices)))


async def test_speech_is_unavailable_when_every_model_is_down(
    services: Services, auth: Headers
) -> None:
    async with client_of(app_with(services, dead=LostSpeaker())) as client:
        assert (await speak(client, auth)).status_code == 503
