"""Conversations over the Realtime socket: what is sent, in which order, and what is charged."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from math import ceil
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from api.services import Services
from models.llm.base import GenerationRequest
from models.llm.echo import EchoEngine
from models.stt.base import Transcript, TranscriptionRequest
from tests.api.openai.realtime.client import RATE, RealtimeClient
from tests.api.replaced import with_listening
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer, plain, serve
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet, transcript

__all__ = ["plain"]  # a fixture
LONG = "This is a rather long sentence that the agent says. " * 12


@pytest.fixture
def heard() -> FakeTranscriber:
    """Hears nothing but what a test sets."""
    return FakeTranscriber()


@pytest.fixture
async def server(plain: Services, heard: FakeTranscriber) -> AsyncIterator[SocketServer]:
    async with serve(with_listening(plain, heard)) as running:
        yield running


@asynccontextmanager
async def session(server: SocketServer, query: str = "model=gpt-realtime") -> AsyncIterator[Any]:
    url = f"ws://{server.address}/openai/v1/realtime?{query}"
    headers = {"Authorization": f"Bearer {server.key}"}
    async with asyncio.timeout(PATIENCE_S), connect(url, additional_headers=headers) as socket:
        client = RealtimeClient(socket)
        assert (await client.receive())["type"] == "session.created"
        yield client


def says(text: str) -> Any:
    def answer(number: int, request: TranscriptionRequest) -> Transcript:
        return transcript(number, request, text)

    return answer


def slowly(generate: Any) -> Any:
    """As `generate`, a word every 0.3 s: an answer's first words are known after a second."""

    async def slow(engine: EchoEngine, request: GenerationRequest) -> AsyncIterator[Any]:
        async with aclosing(generate(engine, request)) as deltas:
            async for delta in deltas:
                await asyncio.sleep(0.3)
                yield delta

    return slow


async def test_a_text_is_answered_by_voice_with_its_events_in_order(server: SocketServer) -> None:
    async with session(server) as client:
        response = await client.say("One two three.", metadata={"client_event_id": "x"})
        assert client.kinds() == [
            "session.created",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "rate_limits.updated",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_audio_transcript.delta",
            "response.output_audio.delta",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        assert response["status"] == "completed"
        assert response["metadata"] == {"client_event_id": "x"}
        assert client.transcript() == "One two three."
        assert len(client.audio()) > RATE / 2
        usage = response["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert usage["output_token_details"]["audio_tokens"] > 0
        (item,) = response["output"]
        await client.send("conversation.item.retrieve", item_id=item["id"])
        shown = (await client.until("conversation.item.retrieved"))["item"]
        assert shown["content"][0]["transcript"] == "One two three."


async def test_a_text_session_sends_text_alone(server: SocketServer) -> None:
    async with session(server) as client:
        await client.update(output_modalities=["text"])
        response = await client.say("One two three.")
        assert client.audio() == b""
        (part,) = response["output"][0]["content"]
        assert part == {"type": "output_text", "text": "One two three."}


async def test_speech_is_a_turn_that_is_transcribed_and_answered(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("What time is it?")
    async with session(server) as client:
        await client.update(audio={"input": {"transcription": {"model": "whisper-1"}}})
        await client.speak(quiet(0.5))
        await client.speak(loud(1.0))
        await client.speak(quiet(0.8))
        await client.until("response.done")
        kinds = client.kinds()
        order = [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.completed",
            "response.created",
        ]
        positions = [kinds.index(kind) for kind in order]
        assert positions == sorted(positions)
        started = next(e for e in client.events if e["type"] == order[0])
        assert 0 <= started["audio_start_ms"] < 500
        assert client.transcript() == "What time is it?"


async def test_push_to_talk_waits_for_the_text_of_what_was_committed(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("Hello there.")
    async with session(server) as client:
        await client.update(audio={"input": {"turn_detection": None}})
        error = await client.error("input_audio_buffer.commit")
        assert error["code"] == "input_audio_buffer_commit_empty"
        await client.speak(loud(0.5))
        await client.send("input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
        await client.speak(loud(1.0))
        await client.send("input_audio_buffer.commit")
        response = await client.respond()
        assert response["output"][0]["content"][0]["transcript"] == "Hello there."
        assert "input_audio_buffer.speech_started" not in client.kinds()


async def test_words_of_the_user_interrupt_and_a_back_channel_does_not(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    async with session(server) as client:
        await client.write(LONG)
        await client.send("response.create")
        await client.until("response.output_audio.delta")
        heard.answer = says("Mm-hmm.")
        await client.speak(loud(0.4))
        await client.speak(quiet(0.8))
        for _ in range(8):
            await client.until("response.output_audio.delta")
        assert "input_audio_buffer.speech_started" not in client.kinds()
        heard.answer = says("Wait, stop please.")
        await client.speak(loud(0.8))
        await client.speak(quiet(0.8))
        response = (await client.until("response.done"))["response"]
        assert response["status"] == "cancelled"
        assert response["status_details"]["reason"] == "turn_detected"
        answer = (await client.until("response.done"))["response"]
        assert answer["output"][0]["content"][0]["transcript"] == "Wait, stop please."


@pytest.mark.parametrize("modality", ["audio", "text"])
async def test_words_interrupt_a_response_that_is_not_heard_yet_and_a_back_channel_does_not(
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
        await client.write(LONG)
        await client.send("response.create")
        await client.until("response.created")
        await client.speak(loud(0.4))
        await client.speak(quiet(0.8))
        await client.speak(loud(0.8))
        await client.speak(quiet(0.8))
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
    await client.speak(loud(0.8))
    await client.speak(quiet(0.6))
    await client.until("input_audio_buffer.committed")
    await client.speak(loud(0.4))
    await client.until("input_audio_buffer.speech_started")
    heard.gate.set()
    await client.until("response.created")


async def test_a_response_to_a_turn_is_held_when_the_user_goes_on_before_its_text_is_known(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    async with session(server) as client:
        await go_on_speaking(client, heard)
        heard.answer = says("And what is the weather?")
        await client.speak(loud(0.4))
        await client.speak(quiet(0.8))
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


async def test_a_turn_does_not_interrupt_the_response_that_the_client_asked_for_to_it(
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
        await client.speak(loud(1.2))
        await client.speak(quiet(0.6))
        await client.until("input_audio_buffer.committed")
        await client.send("response.create")
        await client.until("response.created")
        await client.speak(loud(0.3))
        await client.speak(quiet(0.1))
        heard.gate.set()
        await client.speak(quiet(0.8))
        response = (await client.until("response.done"))["response"]
        assert response["status"] == "completed" and client.audio()


@pytest.mark.parametrize("act", ["session.update", "input_audio_buffer.clear"])
async def test_a_turn_that_the_client_drops_does_not_hold_the_agent(
    server: SocketServer, heard: FakeTranscriber, act: str
) -> None:
    async with session(server) as client:
        await client.write(LONG)
        await client.send("response.create")
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


async def test_a_commit_is_not_lost_when_the_client_clears_its_audio_at_once(
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


async def test_a_truncated_answer_is_read_only_as_far_as_it_was_heard(
    server: SocketServer,
) -> None:
    async with session(server) as client:
        response = await client.say("One two three four five six seven eight nine ten.")
        item_id = response["output"][0]["id"]
        error = await client.error(
            "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=10**6
        )
        assert error["type"] == "invalid_request_error"
        received_ms = ceil(len(client.audio()) * 1000 / (RATE * 2))
        for end_ms in (received_ms, 900):
            await client.send(
                "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=end_ms
            )
            await client.until("conversation.item.truncated")
        await client.send("conversation.item.retrieve", item_id=item_id)
        shown = (await client.until("conversation.item.retrieved"))["item"]
        text = shown["content"][0]["transcript"]
        assert text and "One two three four".startswith(text)


async def test_responses_out_of_band_run_beside_one_another(server: SocketServer) -> None:
    def user(text: str) -> dict[str, Any]:
        part = {"type": "input_text", "text": text}
        return {"type": "message", "role": "user", "content": [part]}

    async with session(server) as client:
        for name in ("a", "b"):
            options = {
                "conversation": "none",
                "output_modalities": ["text"],
                "metadata": {"name": name},
                "input": [user(f"This is {name}.")],
            }
            await client.send("response.create", response=options)
        done = [(await client.until("response.done"))["response"] for _ in "ab"]
        texts = {one["metadata"]["name"]: one["output"][0]["content"][0]["text"] for one in done}
        assert texts == {"a": "This is a.", "b": "This is b."}
        assert "conversation.item.added" not in client.kinds()


async def test_a_function_is_called_and_its_output_is_read(server: SocketServer) -> None:
    tool = {
        "type": "function",
        "name": "clock",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    }
    call = '<tool_call>{"name": "clock", "arguments": {"zone": "UTC"}}</tool_call>'
    async with session(server) as client:
        await client.update(tools=[tool], output_modalities=["text"])
        response = await client.say(call)
        (item,) = [one for one in response["output"] if one["type"] == "function_call"]
        assert item["name"] == "clock" and json.loads(item["arguments"]) == {"zone": "UTC"}
        kinds = client.kinds()
        announced = kinds.index("conversation.item.added", kinds.index("response.created"))
        assert announced < kinds.index("response.function_call_arguments.done")
        result = {"type": "function_call_output", "call_id": item["call_id"], "output": "Noon."}
        await client.send("conversation.item.create", item=result)
        again = await client.respond()
        assert again["output"][0]["content"][0]["text"] == "Noon."


async def test_wrong_events_are_named_and_the_session_goes_on(server: SocketServer) -> None:
    async with session(server) as client:
        error = await client.error("response.cancel", event_id="mine")
        assert error["code"] == "response_cancel_not_active" and error["event_id"] == "mine"
        error = await client.error("conversation.item.retrieve", item_id="none", event_id="b")
        assert error["code"] == "item_retrieve_invalid_item_id" and error["event_id"] == "b"
        error = await client.error("session.update", session={"audio": {"output": {"voice": "?"}}})
        assert error["code"] == "voice_not_found"
        part = {"type": "input_text", "text": "x" * 600_000}
        item = {"type": "message", "role": "user", "content": [part]}
        error = await client.error("conversation.item.create", item=item)
        assert error["param"] == "item" and "600000 characters" in error["message"]
        item["content"] = [{"type": "input_text", "text": "x"}]
        error = await client.error("conversation.item.create", item=item, previous_item_id="none")
        assert error["param"] == "previous_item_id"
        item["content"] = [{"type": "input_image", "image_url": "data:"}]
        error = await client.error("conversation.item.create", item=item)
        assert "images are not supported" in error["message"]
        assert (await client.say("Hi."))["status"] == "completed"


async def test_a_client_cancels_its_response(server: SocketServer) -> None:
    async with session(server) as client:
        await client.write(LONG)
        await client.send("response.create")
        await client.until("response.output_audio.delta")
        error = await client.error("response.create")
        assert error["code"] == "conversation_already_has_active_response"
        await client.send("response.cancel")
        response = (await client.until("response.done"))["response"]
        assert response["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        assert response["usage"]["output_tokens"] > 0


async def test_a_transcription_session_transcribes_and_does_not_answer(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("Some words.")
    async with session(server, "intent=transcription") as client:
        await client.send(
            "session.update",
            session={
                "type": "transcription",
                "audio": {"input": {"transcription": {"model": "gpt-4o-transcribe"}}},
                "include": ["item.input_audio_transcription.logprobs"],
            },
        )
        await client.until("session.updated")
        await client.speak(loud(1.0))
        await client.speak(quiet(0.8))
        done = await client.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == "Some words." and done["logprobs"]
        error = await client.error("response.create")
        assert error["type"] == "invalid_request_error"


async def test_the_recogniser_gets_the_languages_and_the_words_that_are_expected(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("Herr Quixbury.")
    async with session(server, "intent=transcription") as client:

        async def choose(**options: Any) -> None:
            audio = {"input": {"transcription": {"model": "whisper-1", **options}}}
            update = {"type": "transcription", "audio": audio}
            await client.send("session.update", session=update)

        async def speak() -> None:
            await client.speak(loud(1.0))
            await client.speak(quiet(0.8))
            await client.until("conversation.item.input_audio_transcription.completed")

        keywords = ["Quixbury", "Zorblatt"]
        await choose(languages=["de", "en-GB"], keywords=keywords, prompt=" A call. ")
        await client.until("session.updated")
        await speak()
        asked = heard.requests[-1]
        assert (asked.languages, asked.language) == (("de", "en"), None)
        assert asked.options.initial_prompt == "Quixbury, Zorblatt A call."
        assert not asked.options.words  # no logprobs are asked for
        await choose(languages=["de"], language="en", keywords=None, prompt=None)
        await client.until("session.updated")
        await speak()
        asked = heard.requests[-1]
        assert (asked.language, asked.options.initial_prompt) == ("en", None)
        await choose(languages=["de", "tlh"], language=None)
        error = await client.until_error()
        assert error["param"] == "session.audio.input.transcription.languages"
        await speak()  # with the settings before
        assert heard.requests[-1].language == "en"


async def test_a_silent_user_is_spoken_to_after_the_idle_timeout(server: SocketServer) -> None:
    async with session(server) as client:
        detection = {"type": "server_vad", "idle_timeout_ms": 5000}
        await client.update(
            output_modalities=["text"], audio={"input": {"turn_detection": detection}}
        )
        await client.say("One two three.")
        await client.speak(quiet(6.0))
        answered = len(client.events)
        timeout = await client.until("input_audio_buffer.timeout_triggered")
        assert timeout["audio_end_ms"] - timeout["audio_start_ms"] == 5000
        response = (await client.until("response.done"))["response"]
        assert response["status"] == "completed"
        events = [e for e in client.events[answered:] if e["type"] != "rate_limits.updated"]
        assert [event["type"] for event in events[:5]] == [
            "input_audio_buffer.timeout_triggered",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
        ]
        assert events[1]["item_id"] == timeout["item_id"] == events[2]["item"]["id"]
        (part,) = events[3]["item"]["content"]
        assert part["type"] == "input_audio" and not part.get("transcript")


@pytest.mark.parametrize("key", ["", "sk_wrong"])
async def test_a_wrong_key_is_refused_before_the_upgrade(server: SocketServer, key: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        url = f"ws://{server.address}/openai/v1/realtime?model=gpt-realtime"
        async with connect(url, additional_headers={"Authorization": f"Bearer {key}"}):
            pass
    assert refused.value.response.status_code == 401


async def test_a_browser_sends_its_key_as_a_subprotocol(server: SocketServer) -> None:
    url = f"ws://{server.address}/openai/v1/realtime?model=gpt-realtime"
    offered = ["realtime", f"openai-insecure-api-key.{server.key}", "openai-agents-sdk.0.14"]
    async with connect(url, subprotocols=offered) as socket:
        assert socket.subprotocol == "realtime"
        assert json.loads(await socket.recv())["type"] == "session.created"


async def test_an_unknown_model_ends_the_session_with_an_error(server: SocketServer) -> None:
    url = f"ws://{server.address}/openai/v1/realtime?model=no-such-model"
    headers = {"Authorization": f"Bearer {server.key}"}
    async with connect(url, additional_headers=headers) as socket:
        event = json.loads(await socket.recv())
        assert event["type"] == "error" and event["error"]["code"] == "model_not_found"
        await socket.wait_closed()
        assert socket.close_code == 1008
