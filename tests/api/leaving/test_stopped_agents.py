"""What voice agents and Wyoming are charged when a stop of the service cuts them."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from api.openai.realtime import agent as module
from deployments.gateway.wyoming import WyomingListener
from pipelines.agents.response import INSTRUCTIONS
from tests.api.leaving.stopped import RATE, Client, StoppedSite, audio_bytes
from tests.api.leaving.test_stop import SPOKEN, due, sentences, stopped, working
from tests.api.leaving.work import SOCKETS, messages, pcm
from tests.api.openai.realtime.client import RealtimeClient
from tests.api.wyoming.conftest import WyomingClient
from tests.engines.echo import _WORD
from tests.engines.tone import CHARACTER_S
from tests.patience import until

__all__ = ["stopped", "working"]  # fixtures
# Each word has four letters, so that a part of the text tells how many tokens it has.
ANSWER = "Said with this calm tone that goes into your end. " * 60
PROMPT = len(_WORD.findall(ANSWER)) + len(_WORD.findall(INSTRUCTIONS))
AHEAD_S = 2.0  # of speech whose text may come before its audio, and of pauses
SAMPLES = {"rate": 16_000, "width": 2, "channels": 1}
STREAMS, OLD = "1.10.2", "1.5.0"  # versions of Wyoming's package

TRANSCRIPT_DELTA = "response.output_audio_transcript.delta"
TEXT_DELTA = "response.output_text.delta"


def is_part_of_answer(message: dict[str, Any]) -> bool:
    return message.get("type") in (TRANSCRIPT_DELTA, TEXT_DELTA)


def sent(client: Client, kind: str) -> list[dict[str, Any]]:
    return [message for message in client.messages if message.get("type") == kind]


async def realtime(socket: ClientConnection, modality: str) -> None:
    agent = RealtimeClient(socket)
    await agent.write(ANSWER)
    await agent.send("response.create", response={"output_modalities": [modality]})


async def speak(socket: ClientConnection, voice: str) -> None:
    await realtime(socket, "audio")


async def write(socket: ClientConnection, voice: str) -> None:
    await realtime(socket, "text")


@pytest.mark.parametrize("made", [100, 400])
async def test_cut_answers_of_agents_cost_the_text_that_was_sent(
    stopped: StoppedSite, working: list[asyncio.Task[None]], made: int
) -> None:
    path = SOCKETS["/openai/v1/realtime"][0]
    for begin in (speak, write):
        working.append(asyncio.create_task(stopped.session(path, begin)))
        # One after the other: clients are listed in the order in which they got their keys.
        await until(lambda: len(stopped.clients) == len(working))
    await until(lambda: stopped.steps.made > made)
    await stopped.until_each(lambda client: any(map(is_part_of_answer, client.messages)))
    charged = await stopped.end()
    await asyncio.gather(*working)
    spoken, written = stopped.clients
    deltas = sent(spoken, TRANSCRIPT_DELTA)
    transcript = "".join(delta["delta"] for delta in deltas)
    assert 0 < len(transcript) < len(ANSWER)
    prompt, words = PROMPT, len(transcript.split())
    expected = {"chat": prompt + words, "tts": len(transcript)}
    assert charged[spoken.key_id] == expected
    audio = sent(spoken, "response.output_audio.delta")
    speech_s = sum(map(audio_bytes, audio)) / 2 / RATE
    assert abs(len(transcript) * CHARACTER_S - speech_s) < AHEAD_S
    text = "".join(delta["delta"] for delta in sent(written, TEXT_DELTA))
    prompt = len(_WORD.findall(ANSWER))
    assert charged[written.key_id] == {"chat": prompt + len(text.split())}
    assert all(sent(client, "error") for client in stopped.clients)


async def test_a_cut_call_costs_the_text_of_its_speech(
    stopped: StoppedSite, working: list[asyncio.Task[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPENING", ANSWER)
    parameters = {"speaks_first": "true", "instructions": "Greet.", "model": "svc/echo"}
    start = {"event": "start", "start": {"streamSid": "MZ0", "customParameters": parameters}}
    work = stopped.session("/telephony/twilio", messages(start))
    working.append(asyncio.create_task(work))
    await until(lambda: len(stopped.clients) == len(working))
    await until(lambda: stopped.steps.made > 100)
    await stopped.until_each(lambda client: "media" in [one["event"] for one in client.messages])
    charged = await stopped.end()
    await asyncio.gather(*working)
    (call,) = stopped.clients
    payloads = [one["media"]["payload"] for one in call.messages if one["event"] == "media"]
    speech_s = sum(len(b64decode(payload)) for payload in payloads) / 8000
    characters = charged[call.key_id]["tts"]
    assert 0 < characters < len(ANSWER)
    assert abs(characters * CHARACTER_S - speech_s) < AHEAD_S
    prompt = 1 + len(_WORD.findall(ANSWER))
    assert charged[call.key_id]["chat"] == prompt + len(ANSWER[:characters].split())
    assert call.messages[-1]["event"] == "error"


@asynccontextmanager
async def home(stopped: StoppedSite, name: str, version: str) -> AsyncIterator[WyomingClient]:
    """A connection by an API key of its own; `name` is that of what it does."""
    key, _ = await stopped.client(name)
    listener = WyomingListener(stopped.server.services, "127.0.0.1", 0, key)
    await listener.start()
    reader, writer = await asyncio.open_connection(*listener.address)
    try:
        yield WyomingClient(reader, writer, version)
    finally:
        writer.close()
        await listener.stop()


async def test_what_wyoming_was_sent_is_charged(stopped: StoppedSite) -> None:
    voice = stopped.server.voice_id
    stopped.steps.slowness = 100.0  # of the recogniser
    async with AsyncExitStack() as stack:

        async def open_home(name: str, version: str) -> WyomingClient:
            return await stack.enter_async_context(home(stopped, name, version))

        speaks = await open_home("speech", STREAMS)
        await speaks.send("synthesize", text=SPOKEN, voice={"name": voice})
        streams = await open_home("streamed answer", STREAMS)
        answers = await open_home("whole answer", OLD)
        for client in (streams, answers):
            await client.send("transcript", text=ANSWER)
        clients = (speaks, streams, answers)
        receiving = [asyncio.create_task(client.until_end()) for client in clients]
        await until(lambda: stopped.steps.made > 300)
        await until(lambda: "audio-chunk" in speaks.kinds)
        await until(lambda: "handled-chunk" in streams.kinds)
        listens = await open_home("command", OLD)
        await listens.send("transcribe")
        await listens.send("audio-start", **SAMPLES)
        await listens.send("audio-chunk", pcm(10.0), **SAMPLES)
        await listens.send("audio-stop")
        await listens.send("ping")  # answered when the server has the audio
        await listens.until("pong")
        receiving.append(asyncio.create_task(listens.until_end()))
        charged = await stopped.end()
        speech, streamed, *others = [await task for task in receiving]
    assert all(events[-1][0] == "error" for events in (speech, streamed, *others))
    keys = {client.path: client.key_id for client in stopped.clients}
    speech_s = sum(len(payload) for _, _, payload in speech) / 2 / RATE
    expected = due(await sentences(voice), speech_s)
    assert charged[keys["speech"]] == {"tts": expected} and 0 < expected < len(SPOKEN)
    words = " ".join(data["text"] for kind, data, _ in streamed if kind == "handled-chunk").split()
    assert 0 < len(words) < len(ANSWER.split())
    assert charged[keys["streamed answer"]] == {"chat": PROMPT + len(words)}
    assert charged[keys["command"]] == {"stt": 0} and keys["whole answer"] not in charged
