"""POST /openai/v1/audio/speech: speech for OpenAI's clients, in process."""

import asyncio
import io
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import av
import httpx
import numpy as np
import pytest

from api.app import create_app
from api.services import Services
from configs.load import load_yaml
from configs.schema.models.tts import HibariConfig, KokoroConfig
from configs.schema.voices import VoiceRef, VoicesConfig
from configs.settings import Settings
from models.audio import pcm16_to_float
from models.base import ModelInfo, VoiceInfo
from models.errors import EngineLost
from models.tts.base import SynthesisRequest
from pipelines.errors import VoiceNotReady
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.voices import AvailableVoice, ReadyCustomVoice
from tests.api.in_process import client_of
from tests.api.local_server import serve_app
from tests.api.local_services import local_services
from tests.api.money import Books
from tests.api.native.speech.test_stream import BlocksTheSecondSentence, FailsAt, call
from tests.api.replaced import with_synthesis
from tests.patience import PATIENCE_S
from tests.pipelines.stt.voiced import INFO, VoicedSpeaker

Headers = dict[str, str]
PATH = "/openai/v1/audio/speech"
TEXT = "The harbour lay still. Nobody expected the ship at all! It carried letters and tea."


def with_speakers(services: Services, **speakers: Any) -> Services:
    voices = VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")})
    return with_synthesis(services, SpeechPipeline(speakers, voices))


@pytest.fixture
def speaker() -> VoicedSpeaker:
    return VoicedSpeaker()


@pytest.fixture
async def voiced(services: Services, speaker: VoicedSpeaker) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(create_app(with_speakers(services, one=speaker))) as client:
        yield client


async def say(client: httpx.AsyncClient, auth: Headers, **body: Any) -> httpx.Response:
    return await client.post(PATH, json={"model": "tts-1", "input": TEXT, **body}, headers=auth)


def duration_s(data: bytes, response_format: str) -> float:
    if response_format == "pcm":
        return len(pcm16_to_float(data)) / 24_000
    with av.open(io.BytesIO(data), "r") as container:
        stream = container.streams.audio[0]
        samples = sum(frame.samples for frame in container.decode(stream))
        return samples / int(stream.codec_context.sample_rate)


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.text.split("\n\n")
    assert lines.pop() == ""
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def test_each_format_is_one_playable_file(voiced: httpx.AsyncClient, auth: Headers) -> None:
    expected = duration_s((await say(voiced, auth, response_format="wav")).content, "wav")
    for response_format, media_type, magic in (
        ("mp3", "audio/mpeg", b"ID3"),
        ("opus", "audio/ogg", b"OggS"),
        ("aac", "audio/aac", b"ID3"),
        ("flac", "audio/flac", b"fLaC"),
        ("wav", "audio/wav", b"RIFF"),
        ("pcm", "audio/pcm", b""),
    ):
        answer = await say(voiced, auth, response_format=response_format)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == media_type
        assert "content-length" not in answer.headers
        assert answer.headers["openai-model"] == INFO.id
        assert answer.content.startswith(magic)
        # AAC delays by 1024 samples, and pads its last frame of as many.
        assert duration_s(answer.content, response_format) == pytest.approx(expected, abs=0.09)


async def test_mp3_is_the_default_and_only_input_is_required(
    voiced: httpx.AsyncClient, auth: Headers
) -> None:
    answer = await voiced.post(PATH, json={"input": "Hello there."}, headers=auth)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/mpeg")


async def test_pcm_is_24_khz_at_any_rate_of_the_engine(services: Services, auth: Headers) -> None:
    class Slower(VoicedSpeaker):
        async def synthesize(self, request: SynthesisRequest):  # type: ignore[no-untyped-def]
            async for chunk in super().synthesize(request):
                yield replace(chunk, sample_rate=16_000)

    app = create_app(with_speakers(services, one=Slower()))
    async with client_of(app) as client:
        pcm = (await say(client, auth, response_format="pcm")).content
        wav = (await say(client, auth, response_format="wav")).content
    with av.open(io.BytesIO(wav), "r") as container:
        assert container.streams.audio[0].codec_context.sample_rate == 16_000
    assert duration_s(pcm, "pcm") == pytest.approx(duration_s(wav, "wav"), abs=0.002)


async def test_sse_events_carry_the_same_audio_and_end_with_usage(
    voiced: httpx.AsyncClient, auth: Headers
) -> None:
    events = events_of(await say(voiced, auth, stream_format="sse", response_format="pcm"))
    kinds = [event["type"] for event in events]
    assert kinds == ["speech.audio.delta"] * (len(events) - 1) + ["speech.audio.done"]
    audio = b"".join(b64decode(event["audio"]) for event in events[:-1])
    # The loudness gain is learnt from earlier speech: samples differ, their number does not.
    assert len(audio) == len((await say(voiced, auth, response_format="pcm")).content)
    assert events[-1]["voice"] == INFO.voices[0].name
    assert events[-1]["duration_seconds"] == pytest.approx(len(audio) / 48_000, abs=0.001)
    usage = events[-1]["usage"]
    assert usage == {"input_tokens": len(TEXT), "output_tokens": 0, "total_tokens": len(TEXT)}


@pytest.mark.parametrize("native", [True, False])
async def test_speech_duration_follows_speed_from_0_25_to_4(
    services: Services, auth: Headers, native: bool
) -> None:
    class Native(VoicedSpeaker):
        """Changes its speed itself, within the range of engines."""

        async def synthesize(self, request: SynthesisRequest):  # type: ignore[no-untyped-def]
            assert 0.5 <= request.speed <= 2.0
            async for chunk in super().synthesize(request):
                step = round(16 * request.speed) if native else 16
                indices = np.arange(0, len(chunk.pcm) - 1, step / 16).astype(int)
                yield replace(chunk, pcm=chunk.pcm[indices])

    model = Native(info=replace(INFO, native_speed=native))
    body = {"response_format": "pcm", "input": "One plain sentence."}
    async with client_of(create_app(with_speakers(services, one=model))) as client:
        plain = await say(client, auth, **body)
        for speed in (0.25, 0.8, 4.0):
            changed = await say(client, auth, **body, speed=speed)
            assert len(changed.content) == pytest.approx(len(plain.content) / speed, rel=0.12)


async def test_the_first_bytes_are_sent_before_the_second_sentence_is_synthesised(
    services: Services, auth: Headers
) -> None:
    model = BlocksTheSecondSentence()
    app = create_app(with_speakers(services, one=model))
    bodies: asyncio.Queue[bytes] = asyncio.Queue()
    left = asyncio.Event()
    sent = httpx.Request("POST", f"http://test{PATH}", json={"input": TEXT}, headers=auth)
    task = asyncio.create_task(call(app, sent, bodies, left))
    async with asyncio.timeout(PATIENCE_S):
        assert (await bodies.get()).startswith(b"ID3")
        assert len(model.calls) == 1
        model.may_continue.set()
        while not task.done() and len(model.calls) < 3:
            await bodies.get()
        left.set()
        await task


async def test_an_error_during_an_sse_stream_is_a_free_event(
    services: Services, auth: Headers, books: Books
) -> None:
    app = create_app(with_speakers(services, one=FailsAt(1, EngineLost("the replica died"))))
    async with client_of(app) as client:
        events = events_of(await say(client, auth, stream_format="sse"))
    assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * (len(events) - 1)
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("error", "unavailable")
    assert await books.kinds() == ["hold", "release"]


def test_an_error_during_an_audio_stream_aborts_the_connection(settings: Settings) -> None:
    services = local_services(settings)
    failing = FailsAt(1, EngineLost("the replica died"))
    try:
        with serve_app(create_app(with_speakers(services, one=failing))) as url:
            key = asyncio.run(services.platform.accounts.ensure_first_workspace())
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.stream("POST", url + PATH, json={"input": TEXT}, headers=headers) as answer:
                pieces = answer.iter_bytes()
                assert answer.status_code == 200 and next(pieces)
                with pytest.raises(httpx.RemoteProtocolError):
                    list(pieces)
    finally:
        services.infrastructure.database.close()


async def test_an_unknown_voice_or_model_is_404(client: httpx.AsyncClient, auth: Headers) -> None:
    unknown: list[tuple[dict[str, Any], str, str]] = [
        ({"voice": {"id": "00000000-0000-0000-0000-000000000000"}}, "voice_not_found", "voice"),
        ({"model": "tts-9"}, "model_not_found", "model"),
        ({"model": "svc/stt-scripted"}, "model_not_found", "model"),
    ]
    for body, code, param in unknown:
        answer = await say(client, auth, **body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (404, code, param)


async def test_a_wrong_method_gets_an_openai_error(client: httpx.AsyncClient) -> None:
    answer = await client.get(PATH)
    assert (answer.status_code, answer.headers["allow"]) == (405, "OPTIONS, POST")
    assert answer.json()["error"]["code"] == "method_not_allowed"


def described(config: KokoroConfig | HibariConfig, **more: Any) -> VoicedSpeaker:
    """A speaker with the voices of a shipped configuration."""
    voices = tuple(
        VoiceInfo(config.engine, one.key, one.name, one.language, one.gender, one.accent)
        for one in config.voices
    )
    languages = tuple({one.language for one in voices})
    info = ModelInfo(config.id, "tts", config.engine, "x", 0, languages, voices=voices)
    return VoicedSpeaker(info=replace(info, tier=config.tier, **more))


@pytest.fixture
def stock(services: Services) -> Services:
    """Services with the voices of the CPU profile."""
    return with_speakers(
        services,
        fast=described(load_yaml(HibariConfig, "tts/hibari")),
        quality=described(load_yaml(KokoroConfig, "tts/kokoro"), crosses_languages=True),
    )


async def chosen(services: Services, name: str | None, tier: Any, text: str = TEXT) -> str:
    voice = await services.speech.openai.choose_voice(name, tier, 1, text=text)
    assert voice is not None
    return f"{voice.info.engine}/{voice.info.key}"


async def test_each_openai_voice_maps_to_a_distinct_voice_of_its_gender(stock: Services) -> None:
    seen = {
        name: await chosen(stock, name, "quality") for name in stock.speech.openai.config.voices
    }
    assert len(set(seen.values())) == len(seen) == 13
    for name, voice in seen.items():
        engine, _, key = voice.partition("/")
        female = stock.speech.openai.config.voices[name].gender == "female"
        assert (engine, key[1] == "f") == ("kokoro", female)


async def test_the_tier_chooses_between_engines_that_have_the_voice(stock: Services) -> None:
    assert await chosen(stock, "alloy", "fast") == "hibari/heart"
    assert await chosen(stock, "Alloy", "quality") == "kokoro/af_alloy"
    assert await chosen(stock, "onyx", "fast") == "kokoro/am_onyx"
    assert await chosen(stock, "Bella", "fast") == "kokoro/af_bella"


async def test_a_voice_without_the_language_is_replaced_by_another_tier(stock: Services) -> None:
    german = "Der Hafen lag still da, und niemand erwartete noch ein Schiff an diesem Abend."
    assert await chosen(stock, "alloy", "fast", german) == "kokoro/af_alloy"
    only_fast = with_speakers(stock, fast=described(load_yaml(HibariConfig, "tts/hibari")))
    assert await chosen(only_fast, "shimmer", "quality") == "hibari/heart"
    assert (
        await only_fast.speech.openai.choose_voice("onyx", "quality", 1, text=TEXT) is None
    )  # the default


async def test_choose_voice_returns_none_without_a_name(stock: Services) -> None:
    assert await stock.speech.openai.choose_voice(None, "fast", 1, text=TEXT) is None


async def test_a_ready_custom_voice_overrides_the_openai_voice_of_its_name(
    stock: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = (await stock.voices.custom.directory.voices())[3]
    own = replace(voice, custom=ReadyCustomVoice(voice.info, 1, "file", "digest"))
    made = False

    async def find_custom(workspace_id: int, name: str) -> AvailableVoice | None:
        if name == "alloy" and not made:
            raise VoiceNotReady("not yet")
        return own if name == "alloy" else None

    monkeypatch.setattr(stock.voices.custom.directory, "find_custom", find_custom)
    assert await chosen(stock, "alloy", "quality") == "kokoro/af_alloy"
    made = True
    assert await stock.speech.openai.choose_voice("alloy", None, 1, text=TEXT) == own
    assert await chosen(stock, "echo", None) == "kokoro/am_echo"
