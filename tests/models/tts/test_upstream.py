"""Voices of other services: what is sent, what is read, and services that fail. The contract tests
have one in front of this service."""

import asyncio
import io
import wave
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from configs.schema.models.tts import UpstreamTTSConfig
from models.audio import Pcm
from models.errors import (
    EngineError,
    EngineLost,
    EngineOverloaded,
    InvalidEngineRequest,
    UnknownVoice,
    UnsupportedLanguage,
)
from models.runtimes import upstream as service
from models.tts.base import SynthesisRequest
from models.tts.upstream import UpstreamVoices
from models.weights.store import WeightStore
from tests.models.llm.upstream.raw_upstream import KEY, Answer, refuses, upstream
from tests.models.tts.loaded import speech
from tests.patience import PATIENCE_S

RATE = 24_000
TONE = (8_000 * np.sin(np.arange(RATE) / 20)).astype("<i2")
ASKED = SynthesisRequest("Good morning, Anna.", "emily", "en", speed=1.5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PAUSES_S", (0.01, 0.01))
    monkeypatch.setenv("FAR_KEY", KEY)


def engine_of(url: str, weights: WeightStore, **options: Any) -> UpstreamVoices:
    voices = [
        {"key": "emily", "voice": "Emily.wav", "name": "Emily", "language": "en"},
        {"key": "paul", "name": "Paul", "language": "de"},
    ]
    about: dict[str, Any] = {
        "engine": "openai_speech",
        "id": "svc/far",
        "owned_by": "us",
        "created": 0,
    }
    config = about | {"tier": "quality", "url": url, "model": "far-1", "voices": voices, **options}
    config["voices"] = [{**voice, "gender": "female"} for voice in config["voices"]]
    return UpstreamVoices(UpstreamTTSConfig.model_validate(config), weights)


def sends(pieces: Sequence[bytes], kind: str | None = "audio/pcm", pause_s: float = 0.0) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
        head += f"Content-Type: {kind}\r\n" if kind else ""
        writer.write(f"{head}\r\n".encode())
        for piece in filter(None, pieces):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(pause_s)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return answer


def wav(rate: int = RATE, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(TONE.tobytes())
    return file.getvalue()


async def said(
    weights: WeightStore, *answers: Answer, asked: SynthesisRequest = ASKED, **options: Any
) -> tuple[Pcm, list[Any]]:
    """The speech of a request, and the bodies that were sent."""
    async with upstream(*answers) as served:
        engine = engine_of(served.url, weights, **options)
        return await asyncio.to_thread(speech, engine, asked), served.bodies


async def test_a_request_has_what_the_other_service_reads(weights: WeightStore) -> None:
    fields = {"exaggeration": 0.7}
    async with upstream(sends([TONE.tobytes()])) as served:
        engine = engine_of(served.url, weights, key_env="FAR_KEY", speed=True, fields=fields)
        await asyncio.to_thread(speech, engine, ASKED)
    assert served.heads[0].startswith("POST /v1/audio/speech ")
    assert f"authorization: bearer {KEY}" in served.heads[0].lower()
    assert served.bodies[0] == {
        "model": "far-1",
        "input": ASKED.text,
        "voice": "Emily.wav",
        "response_format": "pcm",
        "speed": 1.5,
        **fields,
    }
    _, bodies = await said(weights, sends([TONE.tobytes()]))
    assert "speed" not in bodies[0]  # the pipeline changes the tempo


@pytest.mark.parametrize("size", [1, 3, 1000, 10**6])
@pytest.mark.parametrize("data", [TONE.tobytes(), wav(), wav() + b"LIST\4\0\0\0none"], ids=len)
async def test_speech_is_read_in_pieces_of_any_size(
    data: bytes, size: int, weights: WeightStore
) -> None:
    if size < 100:
        data = data[:3000]
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    pcm, _ = await said(weights, sends(pieces))
    samples = (3000 - 44 * data.startswith(b"RIFF")) // 2 if size < 100 else len(TONE)
    assert np.allclose(pcm, TONE[: len(pcm)] / 32768, atol=1e-4)
    assert samples - 400 < len(pcm) <= samples


async def test_the_first_audio_is_spoken_before_the_last_is_sent(weights: WeightStore) -> None:
    pieces = [TONE.tobytes()[:24_000], TONE.tobytes()[24_000:]]
    async with upstream(sends(pieces, pause_s=PATIENCE_S)) as served:
        engine = engine_of(served.url, weights)
        chunks = engine.synthesize(ASKED)
        assert len((await asyncio.to_thread(next, chunks)).pcm)
        await asyncio.to_thread(chunks.close)
        await asyncio.wait_for(served.left.wait(), PATIENCE_S)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refuses(400, {"error": {"message": "no such voice"}}), InvalidEngineRequest),
        (refuses(401, {}), EngineLost),
        (refuses(429, {}), EngineOverloaded),
        (refuses(500, {}), EngineLost),
        (refuses(200, {"audio": "none"}, Content_Type="application/json"), EngineLost),
        (sends([b"ID3\4"], "audio/mpeg"), EngineLost),
        (sends([]), EngineLost),
        (sends([wav(16_000)], "audio/wav"), EngineLost),
        (sends([wav(channels=2)], "audio/wav"), EngineLost),
        (sends([b"RIFF" + b"\0" * 5000], "audio/x-wav"), EngineLost),
        (sends([b"RIFF"], None), EngineLost),
        (sends([b"\1\2" * 10**6] * 4), EngineLost),
        (sends([TONE.tobytes()], pause_s=3.0), EngineLost),
    ],
)
async def test_a_service_that_fails_gets_an_error_of_this_service(
    answer: Answer, error: type[EngineError], weights: WeightStore
) -> None:
    with pytest.raises(error):
        await said(weights, answer, idle_s=0.3)


async def test_a_request_is_sent_again_until_its_first_audio(weights: WeightStore) -> None:
    pcm, bodies = await said(weights, refuses(500, {}), sends([TONE.tobytes()]))
    assert len(pcm) and len(bodies) == 2


async def test_what_it_does_not_speak_is_not_sent(weights: WeightStore) -> None:
    async with upstream(sends([TONE.tobytes()])) as served:
        engine = engine_of(served.url, weights)
        crossing = engine_of(served.url, weights, crosses_languages=True)
        for made, request, error in (
            (engine, replace(ASKED, voice="nemo"), UnknownVoice),
            (engine, replace(ASKED, language="de"), UnsupportedLanguage),
            (crossing, replace(ASKED, language="fr"), UnsupportedLanguage),
            (crossing, replace(ASKED, voice="nemo"), UnknownVoice),
        ):
            with pytest.raises(error):
                next(made.synthesize(request))
        assert not len(await asyncio.to_thread(speech, engine, replace(ASKED, text="…?!")))
        assert served.bodies == []
        await asyncio.to_thread(speech, crossing, replace(ASKED, language="de"))
        assert served.bodies[0]["voice"] == "Emily.wav"
