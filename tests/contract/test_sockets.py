"""Behaviours that the sockets of all dialects share."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

from api.sockets.kernel.session import SessionTimeouts
from models.audio import AudioChunk, float_to_pcm16
from models.errors import EngineLost, EngineOverloaded
from tests.contract.conftest import Caller, Connection
from tests.contract.dialect import Dialect, Event, Frame, Socket
from tests.contract.dialects import DIALECTS
from tests.local_ports import LocalTTSModel
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import loud, quiet
from tests.pipelines.tts.engine_texts import record_engine_texts

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENT = "The harbour lay still. Nobody expected the ship at all!"
TEXT = f"{SENT} It carried letters and tea."
TALK = float_to_pcm16(np.concatenate([loud(0.5), quiet(1.5)]))


def sockets(is_tested: Callable[[Socket], Any]) -> pytest.MarkDecorator:
    """A test of each socket of which that is true."""
    rows = [
        pytest.param(dialect, socket, id=socket.path or f"{dialect.name}-{socket.service}")
        for dialect in DIALECTS
        for socket in dialect.sockets
        if is_tested(socket)
    ]
    return pytest.mark.parametrize(("dialect", "socket"), rows)


async def refusal(
    caller: Caller, dialect: Dialect, socket: Socket, key: str | None = None, **query: str
) -> httpx.Response:
    """The answer in place of the upgrade."""
    with pytest.raises(InvalidStatus) as refused:
        async with caller.open(dialect, socket, query, key):
            pass
    answer = refused.value.response
    headers = list(answer.headers.raw_items())
    return httpx.Response(answer.status_code, headers=headers, content=bytes(answer.body or b""))


@sockets(lambda socket: socket.path)
async def test_a_socket_without_a_valid_key_is_refused(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    wrong = await refusal(caller, dialect, socket, "sk_wrong")
    in_query = await refusal(caller, dialect, socket, "", apiKey="sk_wrong")
    for answer in (wrong, in_query):
        dialect.check_refusal(answer, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    if not socket.takes_first_key:
        missing = await refusal(caller, dialect, socket, "")
        dialect.check_refusal(missing, "unauthorized")
        assert f"send the header `{dialect.hint}" in missing.text


@sockets(lambda socket: socket.path)
async def test_a_key_may_be_in_another_header_or_in_the_query(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    for header in dialect.other_keys:
        async with caller.open(replace(dialect, key=header), socket):
            pass
    for name in socket.key_queries:
        async with caller.open(dialect, socket, {name: caller.key}, key=""):
            pass


@sockets(lambda socket: socket.path)
async def test_a_key_without_the_scope_opens_no_socket(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    key = await caller.new_key("voices")
    answer = await refusal(caller, dialect, socket, key)
    dialect.check_refusal(answer, "insufficient_scope")
    assert "the API key or token lacks the scope" in answer.text


@sockets(lambda socket: socket.wrong)
async def test_wrong_options_get_no_socket(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    for query in socket.wrong:
        answer = await refusal(caller, dialect, socket, **query)
        dialect.check_refusal(answer, "validation_error")
        assert next(iter(query)) in answer.text


@sockets(lambda socket: socket.usual)
async def test_defaults_that_are_stated_are_accepted(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    async with caller.open(dialect, socket, socket.usual) as client:
        await use(client, caller)


@sockets(lambda socket: socket.unknown)
async def test_an_unknown_voice_model_or_language_is_an_error(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    for opening in socket.unknown:
        async with caller.open(dialect, socket, opening.query, voice=opening.voice) as client:
            await client.send(*opening.frames)
            fault = await client.until_fault()
            assert opening.fault in fault
            if opening.ends:
                assert await client.until_closed() == 1008
                assert (client.socket.close_reason or "")[:60] in fault


@sockets(lambda socket: any("tlh" in opening.query.values() for opening in socket.unknown))
async def test_a_stream_may_be_in_any_language(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    queries = [opening.query for opening in socket.unknown if "tlh" in opening.query.values()]
    for query in queries:
        asked = {name: "auto" if value == "tlh" else value for name, value in query.items()}
        async with caller.open(dialect, socket, asked) as client:
            await use(client, caller)


@sockets(lambda socket: socket.broken)
async def test_a_broken_message_is_an_error_and_the_session_goes_on(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    async with caller.open(dialect, socket) as client:
        for frame, fault in socket.broken.items():
            await client.send(frame)
            assert fault in await client.until_fault(), frame
        await use(client, caller)


@sockets(lambda socket: socket.broken)
async def test_twenty_broken_messages_end_the_session(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    async with caller.open(dialect, socket) as client:
        await client.send(*["{"] * 20)
        while (fault := await client.until_fault()) and "too many" not in fault:
            assert "JSON" in fault
        assert await client.until_closed() == 1008


def frames_of(socket: Socket, caller: Caller) -> Sequence[Frame]:
    """Frames that speak the text, or send the audio."""
    if socket.say is not None:
        return socket.say(TEXT, caller.voice)
    return socket.hear(TALK) if socket.hear is not None else ()


async def use(client: Connection, caller: Caller) -> None:
    """Speaks or listens to the end."""
    if client.kind.say or client.kind.hear:
        await client.send(*frames_of(client.kind, caller), *client.kind.end)
        await client.until_end()


@sockets(lambda socket: socket.say)
async def test_speech_costs_its_characters(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    await caller.books.add_webhook("tts.completed")
    async with caller.open(dialect, socket) as client:
        await use(client, caller)
    assert await caller.units("tts") == len(TEXT)
    texts = [event["data"]["text"] for event in await caller.books.events()]
    assert "".join(texts) == TEXT


@sockets(lambda socket: socket.say)
async def test_reasoning_is_not_spoken(
    dialect: Dialect, socket: Socket, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert socket.say is not None
    texts = record_engine_texts(monkeypatch)
    text = f"<think>They want a story. Let me think.</think>{SENT} "
    async with caller.open(dialect, socket) as client:
        await client.send(*socket.say(text, caller.voice), *socket.end)
        await client.until_end()
    assert " ".join(texts).split() == SENT.split()


@sockets(lambda socket: socket.hear)
async def test_audio_costs_its_length(dialect: Dialect, socket: Socket, caller: Caller) -> None:
    async with caller.open(dialect, socket) as client:
        await use(client, caller)
    assert caller.recogniser.requests
    assert await caller.units("stt") == 2000


@sockets(lambda socket: socket.say or socket.hear)
async def test_without_credit_there_is_an_error(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    await caller.books.set_credit(0)
    async with caller.open(dialect, socket) as client:
        await client.send(*frames_of(socket, caller))
        assert "credit" in await client.until_fault()
    assert await caller.units(socket.service) == 0
    assert caller.recogniser.requests == []


@sockets(lambda socket: socket.say)
async def test_speech_that_fails_is_free(
    dialect: Dialect, socket: Socket, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> AsyncGenerator[AudioChunk, None]:
        raise EngineOverloaded("all replicas are busy")
        yield

    monkeypatch.setattr(LocalTTSModel, "synthesize", fail)
    async with caller.open(dialect, socket) as client:
        await client.send(*frames_of(socket, caller))
        assert await client.until_fault()
    assert await caller.units("tts") == 0


@sockets(lambda socket: socket.hear)
async def test_speech_that_the_recogniser_fails_on_is_free(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    caller.recogniser.errors = [EngineLost("gone")] * 9
    async with caller.open(dialect, socket) as client:
        await client.send(*frames_of(socket, caller), *socket.end)
        assert await client.until_fault()
    assert await caller.units("stt") < 1600


@sockets(lambda socket: socket.say)
async def test_a_client_that_hangs_up_pays_for_the_sentences_that_it_got(
    dialect: Dialect, socket: Socket, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await caller.books.add_webhook("tts.completed", "tts.failed")
    reached = caller.stop_engine_at("letters", monkeypatch)
    async with caller.open(dialect, socket) as client:
        await client.send(*frames_of(socket, caller))
        reading = asyncio.create_task(client.until_closed())
        async with asyncio.timeout(PATIENCE_S):
            await reached.wait()
            await asyncio.sleep(0.3)  # all that was made is sent
            client.abort()
            await asyncio.wait([reading])
    assert await caller.units("tts") == len(SENT) + socket.flushes_sentences
    texts = [event["data"]["text"] for event in await caller.books.events()]
    assert texts == ([f"{SENT} "] if socket.flushes_sentences else [])


FINALS: dict[str, dict[str, object]] = {
    "/ws/stt": {"is_final": True},
    "/v1/listen": {"is_final": True},
    "/v2/listen": {"event": "EndOfTurn"},
    "/v1/speech-to-text/realtime": {"message_type": "committed_transcript"},
    "/v3/ws": {"end_of_turn": True},
    "/cartesia/stt/websocket": {"is_final": True},
    "/cartesia/stt/turns/websocket": {"type": "turn.end"},
}


@sockets(lambda socket: socket.path in FINALS)
async def test_a_client_that_falls_silent_gets_its_text_and_pays(
    dialect: Dialect, socket: Socket, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = SessionTimeouts.set

    def start_short(timeouts: SessionTimeouts, name: str, seconds: float, *error: Any) -> None:
        start(timeouts, name, 0.5 if name == "audio" else seconds, *error)

    monkeypatch.setattr(SessionTimeouts, "set", start_short)
    assert socket.hear is not None
    events: list[Event] = []
    async with caller.open(dialect, socket) as client:
        await client.send(*socket.hear(float_to_pcm16(loud(1.0))))
        while not events or not socket.fault(events[-1]):
            events.append(await client.receive())
        await client.until_closed()
    finals = [event for event in events if FINALS[socket.path].items() <= event.items()]
    assert finals and "hall we go" in str(finals[-1]), events
    assert await caller.units("stt") == 1000


@sockets(lambda socket: socket.hear)
async def test_a_client_that_hangs_up_pays_for_the_audio_that_it_sent(
    dialect: Dialect, socket: Socket, caller: Caller
) -> None:
    async with caller.open(dialect, socket) as client:
        await client.send(*frames_of(socket, caller))
        await client.until_read()
        client.abort()
    assert await caller.units("stt") == 2000
