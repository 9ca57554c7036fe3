"""Speech of the user while the agent answers: what interrupts it, and what only holds it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from models.llm.base import GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from tests.api.openai.realtime.client import RealtimeClient
from tests.api.openai.realtime.test_conversation import LONG, says, session
from tests.api.sockets.conftest import SocketServer
from tests.engines.echo import EchoEngine
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet, transcript


def slowly(generate: Any) -> Any:
    """As `generate`, a word every 0.3 s: an answer's first words are known after a second."""

    async def slow(engine: EchoEngine, request: GenerationRequest) -> AsyncIterator[Any]:
        async with aclosing(generate(engine, request)) as deltas:
            async for delta in deltas:
                await asyncio.sleep(0.3)
                yield delta

    return slow


async def test_words_of_the_user_interrupt_and_a_back_channel_does_not(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    async with session(server) as client:
        await client.begin(LONG)
        await client.until("response.output_audio.delta")
        heard.answer = says("Mm-hmm.")
        await client.utter(0.4, 0.8)
        for _ in range(8):
            await client.until("response.output_audio.delta")
        assert "input_audio_buffer.speech_started" not in client.kinds()
        heard.answer = says("Wait, stop please.")
        await client.utter(0.8, 0.8)
        response = (await client.until("response.done"))["response"]
        assert response["status"] == "cancelled"
        assert response["status_details"]["reason"] == "turn_detected"
        answer = (await client.until("response.done"))["response"]
        assert answer["output"][0]["content"][0]["transcript"] == "Wait, stop please."


@pytest.mark.parametrize("modality", ["audio", "text"])
async def test_words_interrupt_an_unheard_response_and_back_channels_do_not(
    server: SocketServer,
    heard: FakeTranscriber,
    monkeypatch: pytest.MonkeyPatch,
    modality: str,
) -> None:
    """A user who goes on after a short pause, or speaks in a gap of the speech."""
    monkeypatch.setattr(EchoEngine, "generate", slowly(EchoEngine.generate))

    def answer_to(number: int, request: TranscriptionRequest) -> Transcript:
        is_short = len(request.pcm) < 16_000  # with 0.3 s before it, and a pause after it
        return transcript(number, request, "Mm-hmm." if is_short else "Wait, stop please.")

    heard.answer = answer_to
    async with session(server) as client:
        await client.update(output_modalities=[modality])
        await client.begin(LONG)
        await client.until("response.created")
        await client.utter(0.4, 0.8)
        await client.utter(0.8, 0.8)
        response = (await client.until("response.done"))["response"]
        assert response["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        assert client.kinds().count("input_audio_buffer.speech_started") == 1
        answer = (await client.until("response.done"))["response"]
        assert answer["status"] == "completed", [answer, client.kinds()]
        part = answer["output"][0]["content"][0]
        assert part.get("transcript", part.get("text")) == "Wait, stop please."


async def go_on_speaking(client: RealtimeClient, heard: FakeTranscriber) -> None:
    """A turn whose text comes late, so that its response begins while the user speaks again."""
    heard.answer = says("What is the capital of France?")
    heard.gate.clear()
    await client.utter(0.8, 0.6)
    await client.until("input_audio_buffer.committed")
    await client.speak(loud(0.4))
    await client.until("input_audio_buffer.speech_started")
    heard.gate.set()
    await client.until("response.created")


async def test_a_response_is_held_while_the_user_goes_on_speaking(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    async with session(server) as client:
        await go_on_speaking(client, heard)
        heard.answer = says("And what is the weather?")
        await client.utter(0.4, 0.8)
        response = (await client.until("response.done"))["response"]
        assert response["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        assert not client.audio()
        answer = (await client.until("response.done"))["response"]
        assert answer["output"][0]["content"][0]["transcript"] == "And what is the weather?"


async def test_the_response_to_a_turn_is_heard_when_no_words_followed_it(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    async with session(server) as client:
        await go_on_speaking(client, heard)
        heard.answer = lambda number, request: Transcript("en", 0.0)
        await client.speak(quiet(0.8))
        response = (await client.until("response.done"))["response"]
        assert response["status"] == "completed" and client.audio()


async def test_a_turn_does_not_interrupt_its_own_requested_response(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    def answer_to(number: int, request: TranscriptionRequest) -> Transcript:
        is_cough = len(request.pcm) < 16_000
        return Transcript("en", 0.0) if is_cough else transcript(number, request, "What is that?")

    heard.answer = answer_to
    async with session(server) as client:
        detection = {"type": "server_vad", "create_response": False}
        await client.update(audio={"input": {"turn_detection": detection}})
        heard.gate.clear()
        await client.utter(1.2, 0.6)
        await client.until("input_audio_buffer.committed")
        await client.send("response.create")
        await client.until("response.created")
        await client.utter(0.3, 0.1)
        heard.gate.set()
        await client.speak(quiet(0.8))
        response = (await client.until("response.done"))["response"]
        assert response["status"] == "completed" and client.audio()


@pytest.mark.parametrize("act", ["session.update", "input_audio_buffer.clear"])
async def test_a_turn_that_the_client_drops_does_not_hold_the_agent(
    server: SocketServer, heard: FakeTranscriber, act: str
) -> None:
    async with session(server) as client:
        await client.begin(LONG)
        await client.until("response.output_audio.delta")
        heard.gate.clear()  # no text decides about the turn
        await client.speak(loud(0.4), piece_s=0.4)
        if act == "session.update":
            await client.speak(quiet(0.8))
            await asyncio.sleep(0.2)  # the turn has ended
            await client.update(audio={"input": {"noise_reduction": {"type": "near_field"}}})
        else:
            await client.send(act)
            await client.until("input_audio_buffer.cleared")
        for _ in range(15):
            await client.until("response.output_audio.delta")


async def test_a_commit_survives_an_immediate_clear(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("One two.")
    async with session(server) as client:
        await client.update(audio={"input": {"turn_detection": None}})
        for _ in range(3):
            await client.speak(loud(0.5), piece_s=0.5)
            await client.send("input_audio_buffer.commit")
            await client.send("input_audio_buffer.clear")
            async with asyncio.timeout(PATIENCE_S):
                response = await client.respond()
            assert response["output"][0]["content"][0]["transcript"] == "One two."
