"""Texts in several scripts: what voices read, in which order, and what is named as unread."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from api.app import create_app
from api.services import Services
from configs.load import load_yaml
from configs.schema.models.tts import HibariConfig, KokoroConfig
from configs.schema.voices import VoicesConfig
from models.base import ModelInfo, VoiceInfo
from models.tts.base import SynthesisRequest
from models.tts.espeak_ng import espeak_installed
from models.tts.kokoro.phonemes import known, phonemizer_for
from pipelines.tts.pipeline import SpeechPipeline
from tests.api.in_process import client_of
from tests.api.native.speech.test_speech import Headers
from tests.api.replaced import with_synthesis
from tests.pipelines.stt.voiced import SAMPLE_RATE, VoicedSpeaker
from tests.plans import raise_plans

FRAMES = (
    "We saw {} there.",
    "Wir haben {} gesehen.",
    "Hoy vimos {} en la ciudad.",
    "我们看到{}了。",
    "私は{}が好きです。",
    "मैं {} देखता हूँ।",
    "نحن نرى {} هنا.",
    "আমি {} দেখি।",
    "நான் {} பார்த்தேன்.",
    "నేను {} చూశాను.",
    "હું {} જોઉં છું.",
    "Мы видим {} здесь.",
)
WORDS = (
    *("Settings", "Müller", "北京", "さくら", "नमस्ते", "مرحبا", "নমস্কার", "வணக்கம்", "నమస్తే"),
    *("નમસ્તે", "ನಮಸ್ಕಾರ", "നമസ്കാരം", "ਪੰਜਾਬ", "Привет", "καλημέρα", "שלום", "สวัสดี", "서울"),
)
SENTENCES = [frame.format(word) for frame in FRAMES for word in WORDS]
TEXT = "Hello Привет, мир! my friend."
UNREAD = frozenset("".join(WORDS[-5:]) + "Мывидимздесь")


class ReadingSpeaker(VoicedSpeaker):
    """Has the phonemes of Kokoro."""

    async def phonemes(self, request: SynthesisRequest) -> str:
        return known(phonemizer_for(request.language)(request.text))


def speaker_of(config: KokoroConfig | HibariConfig, *, crosses: bool) -> ReadingSpeaker:
    voices = tuple(
        VoiceInfo(config.engine, one.key, one.name, one.language, one.gender, one.accent)
        for one in config.voices
    )
    languages = tuple({one.language for one in voices})
    info = ModelInfo(config.id, "tts", config.engine, "x", 0, languages, voices=voices)
    return ReadingSpeaker(info=replace(info, sample_rate=SAMPLE_RATE, crosses_languages=crosses))


@pytest.fixture
async def voiced(services: Services, auth: Headers) -> AsyncIterator[httpx.AsyncClient]:
    """The voices of the CPU profile."""
    raise_plans(services.infrastructure.settings.database_url)
    speakers: dict[str, Any] = {
        "fast": speaker_of(load_yaml(HibariConfig, "tts/hibari"), crosses=False),
        "quality": speaker_of(load_yaml(KokoroConfig, "tts/kokoro"), crosses=True),
    }
    pipeline = SpeechPipeline(speakers, load_yaml(VoicesConfig, "voices"))
    async with client_of(create_app(with_synthesis(services, pipeline))) as client:
        yield client


def letters(text: str) -> str:
    return "".join(filter(str.isalpha, text)).lower()


@pytest.mark.skipif(not espeak_installed(), reason="needs the extra `espeak`")
async def test_no_letter_is_silent_without_being_named(
    voiced: httpx.AsyncClient, auth: Headers
) -> None:
    assert len(SENTENCES) >= 200
    wrong: list[tuple[Any, ...]] = []
    for text in SENTENCES:
        answer = await voiced.post("/tts/explain", json={"text": text}, headers=auth)
        if answer.status_code == 400:
            assert answer.json()["error"] == "unsupported_language"
            if set(letters(text)) - set(letters("".join(UNREAD))):
                wrong.append((text, answer.text))
            continue
        assert answer.status_code == 200, (text, answer.text)
        shown, left = answer.json(), text
        for part in shown["unread"]:
            left = left.replace(part, " ", 1)
        spoken = "".join(one["text"] for one in shown["sentences"])
        words = [
            (one["language"], word) for one in shown["sentences"] for word in one["text"].split()
        ]
        silent = [
            word for code, word in words if letters(word) and not known(phonemizer_for(code)(word))
        ]
        named = set(letters("".join(shown["unread"])))
        if letters(spoken) != letters(left) or silent or not named <= set(letters("".join(UNREAD))):
            wrong.append((text, shown["sentences"], silent, shown["unread"]))
    assert wrong == []


async def test_one_voice_reads_latin_words_within_another_script(
    voiced: httpx.AsyncClient, auth: Headers
) -> None:
    for text, language in {"请打开 Settings 页面。": "zh", "iPhone を買いました。": "ja"}.items():
        body = {"text": text, "voice": "Heart Fast"}
        for asked in (body, {"text": text}):
            answer = await voiced.post("/tts/explain", json=asked, headers=auth)
            assert [one["language"] for one in answer.json()["sentences"]] == [language]


async def test_unread_parts_are_named_and_cost_nothing(
    voiced: httpx.AsyncClient, auth: Headers
) -> None:
    text = "Hello Привет, мир! my friend."
    shown = (await voiced.post("/tts/explain", json={"text": text}, headers=auth)).json()
    assert shown["unread"] == ["Привет, мир"]
    assert shown["characters"] == pytest.approx(len("Hello my friend."), abs=2)
    whole = await voiced.post("/tts-synthesize", json={"text": text}, headers=auth)
    assert whole.json()["unread"] == ["Привет, мир"]
    script = {"script": [{"text": "Hello."}, {"text": "Привет. 안녕"}]}
    lines = (await voiced.post("/tts-stream", json=script, headers=auth)).text.splitlines()
    assert json.loads(lines[-1]) == {"type": "complete", "unread": ["Привет. 안녕"]}
    body = {"model": "tts-1", "input": text, "voice": "alloy"}
    audio = await voiced.post("/openai/v1/audio/speech", json=body, headers=auth)
    assert unquote(audio.headers["X-Unread"]) == "Привет, мир"


async def test_a_text_that_no_voice_reads_is_refused(
    voiced: httpx.AsyncClient, auth: Headers
) -> None:
    for text in ("Привет, мир!", "안녕하세요 2024", "<speak>Здравствуйте.</speak>"):
        for path in ("/tts-synthesize", "/tts-stream", "/tts/explain"):
            answer = await voiced.post(path, json={"text": text}, headers=auth)
            assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_language")
        body = {"model": "tts-1", "input": text, "voice": "alloy"}
        answer = await voiced.post("/openai/v1/audio/speech", json=body, headers=auth)
        assert answer.json()["error"]["code"] == "unsupported_language"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/speak", {"text": TEXT}),
        ("/v1/text-to-speech/{voice}", {"text": TEXT}),
        ("/v1/text-to-speech/{voice}/stream", {"text": TEXT}),
        (
            "/cartesia/tts/bytes",
            {
                "model_id": "sonic-3",
                "transcript": TEXT,
                "voice": {"mode": "id", "id": "{voice}"},
                "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 8000},
            },
        ),
        ("/tts/v1/voice", {"text": TEXT, "voiceId": "{voice}", "modelId": "inworld-tts-1"}),
    ],
)
async def test_dialects_name_unread_parts_in_the_header(
    voiced: httpx.AsyncClient, auth: Headers, path: str, body: dict[str, Any]
) -> None:
    shown = await voiced.post("/tts/explain", json={"text": "Hello my friend."}, headers=auth)
    filled = json.loads(json.dumps(body).replace("{voice}", shown.json()["voice_id"]))
    path = path.replace("{voice}", shown.json()["voice_id"])
    key = {"xi-api-key": auth["Authorization"].removeprefix("Bearer ")}
    answer = await voiced.post(path, json=filled, headers={**auth, **key})
    assert answer.status_code == 200, answer.text
    assert unquote(answer.headers["X-Unread"]) == "Привет, мир"


async def test_unread_parts_are_named_by_the_tool_of_mcp(
    voiced: httpx.AsyncClient, auth: Headers
) -> None:
    headers = {**auth, "Accept": "application/json, text/event-stream"}
    params = {"name": "speak", "arguments": {"text": TEXT}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await voiced.post("/mcp", json=message, headers=headers)
    *_, about = answer.json()["result"]["content"]
    assert "no voice reads Привет, мир" in about["text"]
