"""Handles to replicas: engine errors keep their type, and work stops when callers disconnect."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from deployments.gateway.handles import ModelDirectory, TTSModelHandle
from models.errors import EngineLost, EngineOverloaded, PackMissing, UnknownVoice
from models.llm.base import ChatMessage, GenerationRequest
from models.stt.base import TranscriptionRequest
from models.tts.base import PackRef, SynthesisRequest
from models.tts.voice_pack import STYLE_SHAPE, VoicePack, pack_digest, write_pack
from tests.deployments.conftest import TestCluster
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]

LONG_TEXT = "word " * 20_000


async def first_voice(speaker: TTSModelHandle) -> str:
    """Of a replica that may not answer within the time of a list yet, just after its start."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(EngineLost):
                return (await speaker.describe()).voices[0].key
            await asyncio.sleep(0.1)


async def speak(directory: ModelDirectory, text: str, voice: str | None = None) -> float:
    speaker = directory.speakers["TTSFast"]
    key = voice or await first_voice(speaker)
    seconds = 0.0
    async for chunk in speaker.synthesize(SynthesisRequest(text, key, "en")):
        seconds += chunk.duration_s
    return seconds


async def test_speech_is_streamed_from_another_process(directory: ModelDirectory) -> None:
    assert await speak(directory, "hello there") > 0.1


async def test_an_engine_error_keeps_its_type_and_has_no_remote_traceback(
    directory: ModelDirectory,
) -> None:
    with pytest.raises(UnknownVoice) as caught:
        await speak(directory, "hello", voice="nobody")
    assert type(caught.value) is UnknownVoice
    assert "Traceback" not in str(caught.value)


async def test_forget_voice_removes_the_voice_pack_from_each_replica(
    directory: ModelDirectory,
) -> None:
    speaker = directory.speakers["TTSFast"]
    data = write_pack(VoicePack(np.full(STYLE_SHAPE, 0.5, np.float32)))
    known = SynthesisRequest("hello", "custom", "en", pack=PackRef(pack_digest(data)))

    async def spoken(request: SynthesisRequest) -> int:
        return len([chunk async for chunk in speaker.synthesize(request)])

    assert await spoken(replace(known, pack=PackRef(pack_digest(data), data)))
    assert await spoken(known)
    await speaker.forget_voice(pack_digest(data))
    with pytest.raises(PackMissing):
        await spoken(known)


async def test_requests_to_a_full_queue_raise_engine_overloaded(directory: ModelDirectory) -> None:
    async def one() -> str:
        try:
            await asyncio.wait_for(speak(directory, LONG_TEXT), 2)
        except EngineOverloaded:
            return "overloaded"
        except TimeoutError:
            pass
        return "ran"

    async with asyncio.timeout(PATIENCE_S):
        results = await asyncio.gather(*(one() for _ in range(12)))
    assert "overloaded" in results


async def test_closing_a_stream_frees_the_replica(directory: ModelDirectory) -> None:
    speaker = directory.speakers["TTSFast"]
    key = (await speaker.describe()).voices[0].key
    for _ in range(8):  # four times what may run and wait at once
        stream = speaker.synthesize(SynthesisRequest(LONG_TEXT, key, "en"))
        await anext(stream)
        await stream.aclose()
    assert await asyncio.wait_for(speak(directory, "still here"), PATIENCE_S) > 0.1


async def test_calls_that_are_left_at_once_leave_no_work_behind(
    directory: ModelDirectory, ray_cluster: TestCluster
) -> None:
    """Ray once finished one in a hundred of them."""
    chat = directory.chat_models["Chat"]
    request = GenerationRequest((ChatMessage("user", "word " * 1500),))

    async def leave(number: int) -> None:
        answer = asyncio.ensure_future(anext(chat.generate(request)))
        await asyncio.sleep(0.002 * (number % 10))
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)

    for _ in range(3):
        await asyncio.gather(*map(leave, range(100)))
    async with asyncio.timeout(PATIENCE_S):
        while (await chat.handle.load.remote()) > 0:
            await asyncio.sleep(0.1)


async def test_chat_deltas_end_with_usage_and_finish_reason(directory: ModelDirectory) -> None:
    request = GenerationRequest((ChatMessage("user", "one two three"),))
    deltas = [delta async for delta in directory.chat_models["Chat"].generate(request)]
    assert "".join(delta.text for delta in deltas) == "one two three"
    assert deltas[-1].usage is not None and deltas[-1].finish_reason == "stop"


async def test_concurrent_utterances_are_transcribed(directory: ModelDirectory) -> None:
    import numpy as np

    pcm = np.zeros(16_000, dtype=np.float32)
    transcriber = directory.transcribers["STT"]
    results = await asyncio.gather(
        *(transcriber.transcribe(TranscriptionRequest(pcm, "en")) for _ in range(6))
    )
    assert {transcript.language for transcript in results} == {"en"}


async def test_a_killed_replica_is_replaced(
    directory: ModelDirectory, ray_cluster: TestCluster
) -> None:
    import ray

    actors = [
        actor
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if "#models#TTSFast#" in actor["name"]
    ]
    for actor in actors:
        ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]), no_restart=True)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            assert await asyncio.wait_for(speak(directory, "back again"), 10) > 0.1
            return
        except (EngineLost, TimeoutError):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
