"""Conversations over the Realtime socket: what is sent, in which order, and what is charged."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from api.services import Services
from models.errors import EngineLost
from models.stt.base import FINAL, Transcript, TranscriptionRequest
from pipelines.agents.response import INSTRUCTIONS
from tests.api.openai.realtime.client import RATE, RealtimeClient
from tests.api.replaced import with_listening
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer, serve
from tests.api.sockets.test_handshake import refused
from tests.patience import PATIENCE_S, until
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet, tone, transcript
from tests.pipelines.tts.engine_texts import record_engine_texts

LONG = "This is a rather long sentence that the agent says. " * 12


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


async def test_the_reasoning_of_the_model_is_not_spoken(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = record_engine_texts(monkeypatch)
    async with session(server) as client:
        await client.say("<think>Let me see. They greet.</think>Good morning. <reasoning>Is that")
        assert client.transcript().strip() == "Good morning."
    assert "".join(texts).strip() == "Good morning."


async def test_a_text_is_answered_by_voice(server: SocketServer) -> None:
    async with session(server) as client:
        response = await client.say("One two three.", metadata={"client_event_id": "x"})
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


@pytest.mark.parametrize(
    ("options", "instructions"),
    [
        ({}, INSTRUCTIONS),
        ({"instructions": "Sing."}, "Sing."),
        ({"output_modalities": ["text"]}, ""),
    ],
)
async def test_a_spoken_answer_is_brief_unless_the_client_gives_instructions(
    server: SocketServer, options: dict[str, Any], instructions: str
) -> None:
    async with session(server) as client:
        response = await client.say("Hello.", **options)
        assert response["usage"]["input_tokens"] == len(instructions.split()) + 1


async def test_markup_and_emoji_are_neither_spoken_nor_in_the_transcript(
    server: SocketServer,
) -> None:
    async with session(server) as client:
        await client.say("**One** two `three` 😀.\n- Four *five*.\n---\nSix.")
        assert client.transcript().split() == ["One", "two", "three", ".", "Four", "five.", "Six."]


async def test_cues_of_vendors_are_not_spoken(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken = record_engine_texts(monkeypatch)
    async with session(server) as client:
        await client.say('One [laughs] two <emotion value="sad"/> <break time="0.1s"/> three.')
    assert re.findall(r"[a-z]+", " ".join(spoken).lower()) == ["one", "two", "three"]


@pytest.mark.parametrize(("options", "is_cut"), [({}, True), ({"max_output_tokens": 400}, False)])
async def test_without_a_limit_a_long_answer_ends_with_a_sentence(
    server: SocketServer, options: dict[str, Any], is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.agents.response.MAX_SPEECH_S", 2.0)
    text = "One two three four. Five six seven eight. " * 2
    async with session(server) as client:
        response = await client.say(text, **options)
        assert response["status"] == ("incomplete" if is_cut else "completed")
        said = client.transcript().strip()
        assert text.startswith(said) and said.endswith(".")
        assert (len(said) < len(text) / 2) is is_cut
        assert 0 < response["usage"]["output_token_details"]["text_tokens"]


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


async def test_long_speech_has_the_text_from_before_its_commit(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("It goes on.")
    async with session(server) as client:
        await client.update(
            audio={"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}}
        )
        await client.speak(loud(30.0), piece_s=0.5)  # more than one utterance
        await until(lambda: any(request.urgency == FINAL for request in heard.requests))
        await asyncio.sleep(0.2)
        await client.speak(loud(1.0))
        await client.send("input_audio_buffer.commit")
        done = await client.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == "It goes on. It goes on."


@pytest.mark.parametrize("is_failed", [False, True])
async def test_cleared_speech_that_is_recognised_late_is_in_no_turn(
    server: SocketServer, heard: FakeTranscriber, is_failed: bool
) -> None:
    def answer(number: int, request: TranscriptionRequest) -> Transcript:
        if len(request.pcm) < 10 * 16_000:
            return transcript(number, request, "It is kept.")
        if is_failed:
            raise EngineLost("the replica of STT was lost")
        return transcript(number, request, "It is cleared.")

    heard.answer = answer
    heard.gate.clear()
    async with session(server) as client:
        await client.update(
            audio={"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}}
        )
        await client.speak(loud(30.0), piece_s=0.5)  # more than one utterance
        await until(lambda: any(request.urgency == FINAL for request in heard.requests))
        await client.send("input_audio_buffer.clear")
        await client.speak(loud(1.0))
        await client.send("input_audio_buffer.commit")
        await client.until("input_audio_buffer.committed")
        heard.gate.set()
        done = await client.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == "It is kept."


async def test_speech_is_committed_where_turns_are_detected_without_silence_after_it(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    """As by clients that send a recording faster than it sounds, and then commit it."""
    heard.answer = says("Hello there.")
    async with session(server) as client:
        error = await client.error("input_audio_buffer.commit")
        assert error["code"] == "input_audio_buffer_commit_empty"
        await client.speak(loud(1.0), piece_s=1.0)
        await client.send("input_audio_buffer.commit")
        await client.until("input_audio_buffer.committed")
        await client.until("response.done")
        assert client.transcript() == "Hello there."


async def test_a_commit_ends_the_session_if_the_recogniser_cannot_keep_up(
    plain: Services, heard: FakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.sockets.kernel.audio_input.PUSH_BACK_S", 0.2)
    heard.gate.clear()
    slow = with_listening(plain, heard, backlog_s=3)
    async with serve(slow) as server, session(server) as client:
        await client.speak(np.concatenate([*[loud(2), quiet(1)] * 2, loud(2)]), piece_s=1.0)
        await client.send("input_audio_buffer.commit")
        assert "keep up" in (await client.until_error())["message"]
        await client.socket.wait_closed()
        assert client.socket.close_code == 1013


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


async def test_a_client_that_overestimates_what_was_heard_is_kept(server: SocketServer) -> None:
    async with session(server) as client:
        response = await client.say("One two three.")
        item_id = response["output"][0]["id"]
        user_id = client.events[1]["item"]["id"]
        faults = [
            {"item_id": item_id, "content_index": 0, "audio_end_ms": 10**6},
            {"item_id": item_id, "content_index": 1, "audio_end_ms": 0},
            {"item_id": user_id, "content_index": 0, "audio_end_ms": 0},
        ]
        for fault in 8 * faults:  # more than the wrong messages that end a session
            await client.error("conversation.item.truncate", **fault)
        voice = {"type": "realtime", "audio": {"output": {"voice": "ash"}}}
        for _ in range(8):
            error = await client.error("session.update", session=voice)
            assert error["code"] == "cannot_update_voice"
        await client.say("Four.")


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


async def test_wrong_events_are_named_and_the_session_goes_on(server: SocketServer) -> None:
    async with session(server) as client:
        error = await client.error("session.update", session={"audio": {"output": {"voice": "?"}}})
        assert error["code"] == "voice_not_found"
        assert error["param"] == "session.audio.output.voice"
        part = {"type": "input_text", "text": "x" * 600_000}
        item = {"type": "message", "role": "user", "content": [part]}
        error = await client.error("conversation.item.create", item=item)
        assert error["param"] == "item" and "600000 characters" in error["message"]
        item["content"] = [{"type": "input_image", "image_url": "data:"}]
        error = await client.error("conversation.item.create", item=item)
        assert "images are not supported" in error["message"]
        assert (await client.say("Hi."))["status"] == "completed"


async def test_the_model_of_an_update_is_ignored(server: SocketServer) -> None:
    """OpenAI's agents SDK for JavaScript names one in each update."""
    async with session(server, "") as client:
        model = (await client.update())["model"]
        updated = await client.update(model="gpt-realtime-mini", instructions="Be brief.")
    assert (updated["model"], updated["instructions"]) == (model, "Be brief.")
    assert model == "gpt-realtime"


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
        await client.utter(1.0, 0.8)
        done = await client.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == "Some words." and done["logprobs"]
        error = await client.error("response.create")
        assert error["type"] == "invalid_request_error"


async def test_transcripts_are_masked_and_so_is_what_the_model_reads(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("I'm Susan Walker, call 415 555 0123.")
    async with session(server) as client:
        transcription = {"model": "whisper-1", "redact": ["name", "phone"]}
        shown = await client.update(audio={"input": {"transcription": transcription}})
        assert shown["audio"]["input"]["transcription"] == transcription
        await client.utter(1.0, 0.8)
        done = await client.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == "I'm [NAME], call [PHONE]."
        await client.until("response.done")
        said = json.dumps(client.events)
        assert "Susan" not in said and "0123" not in said and "[PHONE]" in said


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
            await client.utter(1.0, 0.8)
            await client.until("conversation.item.input_audio_transcription.completed")

        keywords, terms = ["Quixbury"], [" Zorblatt "]
        languages = ["de", "", "en-GB"]
        await choose(
            language="auto",
            languages=languages,
            keywords=keywords,
            keyterms=terms,
            prompt=" A call. ",
        )
        await client.until("session.updated")
        await speak()
        asked = heard.requests[-1]
        assert (asked.languages, asked.language) == (("de", "en"), None)
        assert asked.options.prompt == "A call."
        assert asked.options.keyterms == ("Quixbury", "Zorblatt")
        assert not asked.options.words  # no logprobs are asked for
        await choose(languages=["de"], language="en", keywords=None, keyterms=None, prompt=None)
        await client.until("session.updated")
        await speak()
        asked = heard.requests[-1]
        assert (asked.language, asked.options.prompt) == ("en", "")
        assert asked.options.keyterms == ()
        await choose(keyterms=["x" * 101])
        error = await client.until_error()
        assert error["param"].startswith("session.audio.input.transcription.keyterms")
        await choose(languages=["auto", "tlh"], language="auto")
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


async def test_a_browser_sends_its_key_as_a_subprotocol(server: SocketServer) -> None:
    url = f"ws://{server.address}/openai/v1/realtime?model=gpt-realtime"
    offered = ["realtime", f"openai-insecure-api-key.{server.key}", "openai-agents-sdk.0.14"]
    async with connect(url, subprotocols=offered) as socket:
        assert socket.subprotocol == "realtime"
        assert json.loads(await socket.recv())["type"] == "session.created"


async def test_wrong_words_of_the_query_are_refused(server: SocketServer) -> None:
    url = server.url("/openai/v1/realtime")
    answer = await refused(f"{url}&intent=translation")
    assert answer.status_code == 400
    assert "'realtime', 'transcription'" in answer.json()["error"]["message"]
    async with connect(f"{url}&save_chat=maybe") as socket:
        error = json.loads(await socket.recv())["error"]
        assert (error["code"], error["param"]) == ("invalid_type", "session.save_chat")


async def test_a_transcription_session_tells_who_says_what(server: SocketServer) -> None:
    wanted = {"audio": {"input": {"transcription": {"speaker_labels": True}}}}
    async with session(server, "intent=transcription") as client:
        unknown = {"audio": {"input": {"transcription": {"known_speakers": ["me"]}}}}
        fault = await client.error("session.update", session={"type": "transcription", **unknown})
        assert fault["code"] == "not_found" and "known_speakers" in fault["message"]
        await client.speak(np.concatenate([tone(200, 2), quiet(1)]))
        await client.until("input_audio_buffer.committed")
        await client.send("session.update", session={"type": "transcription", **wanted})
        await client.until("session.updated")
        for hz, speaker, start in ((200, "A", 3), (3000, "B", 6)):
            await client.speak(np.concatenate([tone(hz, 2), quiet(1)]))
            segment = await client.until("conversation.item.input_audio_transcription.segment")
            done = await client.until("conversation.item.input_audio_transcription.completed")
            assert (segment["speaker"], segment["text"]) == (speaker, done["transcript"])
            assert segment["item_id"] == done["item_id"] and segment["id"].startswith("seg_")
            assert segment["start"] == pytest.approx(start + 0.3, abs=0.5)
            assert segment["end"] == pytest.approx(start + 2, abs=0.5)


async def pitch_of(client: RealtimeClient, text: str, **options: Any) -> float:
    """The pitch (Hz) of the answer, which tells the voice."""
    client.events.clear()
    await client.say(text, **options)
    pcm = np.frombuffer(client.audio(), "<i2")
    return float(np.abs(np.fft.rfft(pcm)).argmax() * RATE / len(pcm))


@pytest.mark.parametrize("code", ["de", "de-DE", "DE", "deu", "auto"])
async def test_any_code_of_the_transcripts_language_chooses_the_voice(
    server: SocketServer, code: str
) -> None:
    async with session(server) as client:
        await client.update(audio={"input": {"transcription": {"language": code}}})
        pitch = await pitch_of(client, "Eins zwei drei.")
    assert pitch == pytest.approx(150 + crc32(b"de") % 300, abs=3)  # of the German voice


async def test_without_a_voice_each_answer_is_spoken_in_its_own_language(
    server: SocketServer,
) -> None:
    async with session(server) as client:
        await client.update(audio={"input": {"transcription": {"language": "de"}}})
        german = await pitch_of(client, "Eins zwei drei.")
        english = await pitch_of(client, "Where is the station, please?")
    assert german == pytest.approx(150 + crc32(b"de") % 300, abs=3)  # of the German voice
    assert english != pytest.approx(german, abs=3)


async def test_a_name_in_instructions_keeps_the_voice_of_the_conversation(
    server: SocketServer,
) -> None:
    async with session(server) as client:
        await client.update(instructions="Du bist ein Helfer und antwortest immer auf Deutsch.")
        pitches: list[float] = []
        german, english = "Eins zwei drei.", "Where is the station, please?"
        for text, options in (
            (german, {}),
            (german, {"instructions": "Anna Ferrari!"}),
            (german, {"instructions": "Hello André."}),
            (english, {"instructions": "Answer in English, please."}),
        ):
            pitches.append(await pitch_of(client, text, **options))
    assert pitches[:3] == pytest.approx([pitches[0]] * 3, abs=3)
    assert pitches[3] != pytest.approx(pitches[0], abs=3)
