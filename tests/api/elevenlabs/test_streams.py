"""ElevenLabs' sockets of growing texts, over the tone engine."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.api.elevenlabs.test_speech import ADAM, RACHEL
from tests.api.sockets.client import JsonClient, connect
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.audio.encode.test_files import decode

CHARACTER_S = 0.06  # of the tone engine
BYTES_PER_S = 32_000
LIVEKIT: dict[str, Any] = {  # what LiveKit's plugin sends at its defaults
    "model_id": "eleven_turbo_v2_5",
    "output_format": "mp3_22050_32",
    "inactivity_timeout": 180,
    "apply_text_normalization": "auto",
    "sync_alignment": "true",
    "auto_mode": "true",
}


class InputClient(JsonClient):
    """Sends messages, and reads events."""

    async def send(self, text: str | None = None, **fields: Any) -> None:
        text_field = {} if text is None else {"text": text}
        await self.socket.send(json.dumps({**text_field, **fields}))

    async def until_final(self, context_id: str | None = None) -> list[dict[str, Any]]:
        """The events of a context before its last."""
        events = [await self.receive()]
        while not (events[-1].get("isFinal") and events[-1].get("contextId") == context_id):
            events.append(await self.receive())
        return [one for one in events[:-1] if one.get("contextId") == context_id]


@asynccontextmanager
async def speaking(
    server: SocketServer,
    kind: str = "stream-input",
    voice: str = RACHEL,
    *,
    key: str | None = None,
    **query: Any,
) -> AsyncIterator[InputClient]:
    """A client that authenticates as ElevenLabs' do; without a header where the key is empty."""
    options = urlencode({"output_format": "pcm_16000", **query})
    url = f"ws://{server.address}/v1/text-to-speech/{voice}/{kind}?{options}"
    headers = {"xi-api-key": server.key} if key is None else {"xi-api-key": key} if key else {}
    async with connect(url, additional_headers=headers) as socket:
        yield InputClient(socket)


def seconds(events: list[dict[str, Any]]) -> float:
    return sum(len(base64.b64decode(one.get("audio") or "")) for one in events) / BYTES_PER_S


def spelt(events: list[dict[str, Any]]) -> str:
    return "".join("".join(one["alignment"]["chars"]) for one in events if one.get("alignment"))


async def test_a_text_is_spoken_with_timed_letters_until_its_end(
    server: SocketServer,
) -> None:
    async with speaking(server) as client:
        await client.send(" ", voice_settings={"stability": 0.5, "similarity_boost": 0.8})
        for word in ("Hello ", "there. ", "How ", "are ", "you? "):
            await client.send(word)
        await client.send("")
        events, code = await client.receive_rest()
    assert code == 1000 and events[-1] == {"audio": None, "isFinal": True}
    assert seconds(events) == pytest.approx(25 * CHARACTER_S, abs=0.7)
    assert spelt(events) == "Hello there. How are you? "
    clock_ms = 0  # as Pipecat counts
    for one in filter(None, (one.get("alignment") for one in events)):
        assert one["charStartTimesMs"][0] >= 0 and min(one["charDurationsMs"]) >= 0
        clock_ms += one["charStartTimesMs"][-1] + one["charDurationsMs"][-1]
    assert clock_ms / 1000 == pytest.approx(seconds(events), abs=0.3)
    whole = [one["normalizedAlignment"] for one in events[:-1] if one["normalizedAlignment"]]
    starts = [at for one in whole for at in one["charStartTimesMs"]]  # as LiveKit counts
    assert starts == sorted(starts) and starts[-1] + whole[-1]["charDurationsMs"][-1] == clock_ms
    assert [one["chars"] for one in whole] == [
        one["alignment"]["chars"] for one in events if one.get("alignment")
    ]


async def test_sentences_are_spoken_unflushed_and_a_flush_speaks_the_rest(
    server: SocketServer,
) -> None:
    async with speaking(server) as client:
        await client.send(" ")
        await client.send("A whole sentence. And part of ")
        first = await client.receive()
        assert first["audio"]
        await client.send("another", flush=True)
        spoken = [first]
        while "another" not in spelt(spoken):
            spoken.append(await client.receive())
        await client.send("", flush=True)
        events, code = await client.receive_rest()
    assert code == 1000 and events[-1]["isFinal"]


async def test_a_schedule_or_a_trigger_speaks_a_long_sentence_before_its_end(
    server: SocketServer,
) -> None:
    words = "one two three four five six seven eight nine ten eleven twelve "
    for first, later in (
        ({"generation_config": {"chunk_length_schedule": [50, 100]}}, {}),
        ({}, {"try_trigger_generation": True}),
    ):
        async with speaking(server) as client:
            await client.send(" ", **first)
            await client.send(words, **later)
            assert (await client.receive())["audio"]


async def test_in_auto_mode_each_message_is_a_phrase(server: SocketServer) -> None:
    async with speaking(server, auto_mode="true") as client:
        await client.send(" ")
        await client.send("A sentence.")  # without a space after it
        assert (await client.receive())["audio"]
        await client.send("Half a sentence")
        while "Half" not in spelt([await client.receive()]):
            pass


async def test_stored_settings_are_the_defaults_of_a_socket(server: SocketServer) -> None:
    path = f"http://{server.address}/v1/voices/{ADAM}/settings/edit"
    headers = {"xi-api-key": server.key}
    lengths = []
    async with httpx.AsyncClient(headers=headers, trust_env=False) as http:
        assert (await http.post(path, json={"speed": 0.8})).status_code == 200
    for settings in ({"stability": 0.4}, {"speed": 1.0}):
        async with speaking(server, voice=ADAM) as client:
            await client.send(" ", voice_settings=settings)
            await client.send("A sentence for the room. ")
            await client.send("")
            lengths.append(seconds((await client.receive_rest())[0]))
    assert lengths[0] == pytest.approx(lengths[1] / 0.8, rel=0.05)


@pytest.mark.parametrize("kind", ["stream-input", "multi-stream-input"])
async def test_the_mp3_of_two_flushed_sentences_is_one_file(
    server: SocketServer, kind: str
) -> None:
    """LiveKit gives all parts to one decoder."""
    is_multi = kind == "multi-stream-input"
    context = {"context_id": "a"} if is_multi else {}
    async with speaking(server, kind, **LIVEKIT) as client:
        await client.send(" ", voice_settings={}, **context)
        for sentence in ("A sentence for the room. ", "And one more. "):
            await client.send(sentence, flush=True, **context)
        await client.send("", flush=True, **context)
        if is_multi:
            await client.send(**context, close_context=True)
            events = await client.until_final("a")
        else:
            await client.send("")
            events = (await client.receive_rest())[0]
    file = b"".join(base64.b64decode(event.get("audio") or "") for event in events)
    pcm, rate = decode(file)
    assert rate == 22_050 and file.count(b"ID3") == 1
    assert len(pcm) / rate == pytest.approx(38 * CHARACTER_S, abs=0.7)


async def test_contexts_speak_side_by_side_and_end_when_they_are_closed(
    server: SocketServer,
) -> None:
    async with speaking(server, "multi-stream-input", auto_mode="true") as client:
        await client.send("")  # keeps the socket open
        for name in "ab":
            await client.send(" ", context_id=name, voice_settings={"speed": 1.0})
        await client.send("The first one speaks.", context_id="a", flush=True)
        await client.send("So does the second.", contextId="b")
        await client.send(context_id="b", flush=True)
        await client.send(context_id="b", text="")
        await client.send(context_id="a", close_context=True)
        one = await client.until_final("a")
        assert seconds(one) == pytest.approx(21 * CHARACTER_S, abs=0.4)
        assert spelt(one) == "The first one speaks. "
        await client.send("Once more. ", context_id="a", flush=True)  # another context
        await client.send(context_id="unknown", close_context=True)
        await client.send(close_socket=True)
        events, code = await client.receive_rest()
    assert code == 1000
    finals = [one["contextId"] for one in events if one.get("isFinal")]
    assert sorted(finals) == ["a", "b"]
    assert spelt([one for one in events if one["contextId"] == "a"]) == "Once more. "


async def test_a_close_without_a_flush_stops_the_speech_of_an_interrupted_turn(
    server: SocketServer,
) -> None:
    async with speaking(server, "multi-stream-input", auto_mode="true") as client:
        await client.send(" ", context_id="a")
        await client.send("A sentence that is interrupted. " * 100, context_id="a")
        await client.receive()
        await client.send(context_id="a", close_context=True)
        assert seconds(await client.until_final("a")) < 150


@pytest.mark.parametrize("flush", [False, True])
async def test_a_closed_context_makes_room_before_its_speech_ends(
    server: SocketServer, flush: bool
) -> None:
    async with speaking(server, "multi-stream-input") as client:
        for number in range(8):
            await client.send(" ", context_id=f"c{number}")
            await client.send("A long sentence that goes on. " * 20, context_id=f"c{number}")
            await client.send(context_id=f"c{number}", flush=flush)
            await client.send(context_id=f"c{number}", close_context=True)
        await client.send(close_socket=True)
        events, code = await client.receive_rest()
    assert code == 1000 and not any("error" in event for event in events)
    assert sorted(event["contextId"] for event in events if event.get("isFinal")) == [
        f"c{number}" for number in range(8)
    ]


async def test_a_context_without_input_ends_and_so_does_a_stream(server: SocketServer) -> None:
    async with speaking(server, "multi-stream-input", inactivity_timeout=1) as client:
        await client.send("Not flushed", context_id="a")
        assert spelt(await client.until_final("a")) == "Not flushed "
        await client.send(close_socket=True)
        assert (await client.receive_rest())[1] == 1000
    async with speaking(server, inactivity_timeout=1) as client:
        await client.send(" ")
        events, code = await client.receive_rest()
        assert code == 1008 and "no input came" in events[-1]["message"]


async def test_contexts_of_a_dialogue_speak_in_voices_of_their_own(server: SocketServer) -> None:
    url = f"ws://{server.address}/v1/text-to-dialogue/multi-stream-input?sync_alignment=true"
    text = "A sentence for the room. And one more. "
    async with connect(
        f"{url}&output_format=pcm_16000", additional_headers={"xi-api-key": server.key}
    ) as socket:
        client = InputClient(socket)
        await client.send(context_id="a", voices=[RACHEL])
        await client.send(context_id="b", voices=["unknown"])
        fault = await client.receive()
        assert (fault["context_id"], fault["error"]) == ("b", "voice_not_found")
        line = {"text": "A sen", "voice_id": RACHEL}
        for opening in ({"inputs": [line]}, {"voices": [RACHEL, ADAM]}):
            await client.send(context_id="b", **opening)
            assert "one voice" in (await client.receive())["message"]
        await client.send(context_id="b", voices=["x" * 201])
        assert "voices" in (await client.receive())["message"]
        await client.send(context_id="a", inputs=[{"text": text, "voice_id": ADAM}])
        assert "voice_id" in (await client.receive())["message"]
        for name in ("keep_alive", "new_turn", "flush"):  # open no context
            await client.socket.send(json.dumps({"context_id": "c", name: True}))
        await client.send(xi_api_key=server.key)
        await client.send(context_id="a", inputs=[line])
        await client.send(context_id="a", inputs=[line | {"text": ""}])
        await client.send(context_id="a", inputs=[line | {"text": text[5:]}], flush=True)
        await client.send(context_id="a", close_context=True)
        events = [await client.receive()]
        while not events[-1].get("is_final"):
            events.append(await client.receive())
        await client.send(context_id="d", voices=[RACHEL], inputs=[line])
        await client.send(close_socket=True)
        await client.send(context_id="b", voices=["unknown"])  # too late
        rest, code = await client.receive_rest()
        assert code == 1000 and rest and all("error" not in event for event in rest)
    assert {event["context_id"] for event in events} == {"a"}
    assert events[-2] == {"is_final_audio_for_turn": True, "context_id": "a"}
    sent_ms, letters, starts = 0.0, "", list[float]()
    for event in events[:-2]:
        alignment = event["alignment"] or {"chars": [], "char_start_times_ms": []}
        letters += "".join(alignment["chars"])
        starts += [sent_ms + start for start in alignment["char_start_times_ms"]]
        sent_ms += 1000 * len(base64.b64decode(event["audio"])) / BYTES_PER_S
    assert letters.split() == text.split()
    assert all(start - before >= -1 for before, start in pairwise(starts))  # rounded to ms
    assert sent_ms / 1000 - 2 < starts[-1] / 1000 < sent_ms / 1000


async def test_wrong_messages_get_an_error_and_the_stream_goes_on(server: SocketServer) -> None:
    async with speaking(server, "multi-stream-input") as client:
        await client.socket.send('{"voice_settings": {"speed": 9}, "text": "a"}')
        assert (await client.receive())["error"] == "invalid_request"
        await client.send("Hello. ", context_id="a", voice_settings={"speed": 1.0})
        await client.send("More. ", context_id="a", voice_settings={"speed": 1.1})
        events = [await client.receive()]
        while "error" not in events[-1]:
            events.append(await client.receive())
        assert events[-1]["contextId"] == "a" and "voice_settings" in events[-1]["message"]
        for number in range(5):
            await client.send(" ", context_id=f"c{number}")
        while "error" not in (event := await client.receive()):
            pass
        assert event["contextId"] == "c4" and "at most 5" in event["message"]


@pytest.mark.parametrize("name", ["xi_api_key", "xi-api-key", "authorization"])
async def test_the_key_may_come_in_the_first_message(server: SocketServer, name: str) -> None:
    value = f"Bearer {server.key}" if name == "authorization" else server.key
    async with speaking(server, key="") as client:
        await client.send(**{name: value})
        await client.send("Hello. ")
        await client.send("")
        events, code = await client.receive_rest()
    assert code == 1000 and spelt(events) == "Hello. "


@pytest.mark.parametrize("first", ['{"text": " "}', '{"xi_api_key": "sk_wrong"}', "{", b"audio"])
async def test_a_first_message_without_a_valid_key_ends_the_socket(
    server: SocketServer, first: str | bytes
) -> None:
    async with speaking(server, key="") as client:
        await client.socket.send(first)
        (error,), code = await client.receive_rest()
    assert error["detail"]["status"] == "invalid_api_key" and error["message"]
    assert code == 1008
    await server.until_empty()


async def test_a_client_that_leaves_before_its_first_message_leaves_nothing_behind(
    server: SocketServer,
) -> None:
    async with speaking(server, key=""):
        pass
    await server.until_empty()


async def test_dictionaries_of_the_first_message_are_heard(server: SocketServer) -> None:
    rules = {"name": "Names", "rules": [
        {"type": "alias", "string_to_replace": "IP", "alias": "internet protocol"}
    ]}  # fmt: skip
    headers = {"xi-api-key": server.key}
    async with httpx.AsyncClient(base_url=f"http://{server.address}", headers=headers) as http:
        made = await http.post("/v1/pronunciation-dictionaries/add-from-rules", json=rules)
    locator = {
        "pronunciation_dictionary_id": made.json()["id"],
        "version_id": made.json()["version_id"],
    }
    lengths = []
    for locators in ([], [locator]):
        async with speaking(server) as client:
            await client.send(" ", pronunciation_dictionary_locators=locators)
            await client.send("The IP of it. ")
            await client.send("")
            lengths.append(seconds((await client.receive_rest())[0]))
    assert lengths[1] - lengths[0] == pytest.approx(15 * CHARACTER_S, abs=0.2)


async def test_no_first_message_within_the_time_of_a_handshake_ends_the_socket(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = server.services.infrastructure.sockets
    monkeypatch.setattr(sockets, "limits", sockets.limits.model_copy(update={"handshake_s": 0.2}))
    async with speaking(server, key="") as client:
        (error,), code = await client.receive_rest()
    assert error["message"] == "no message with a key came in time" and code == 1008


async def test_an_invalid_text_ends_a_stream_with_a_client_error(server: SocketServer) -> None:
    async with speaking(server) as client:
        await client.send("<speak>&lol;</speak>", flush=True)
        events, code = await client.receive_rest()
    assert (events[-1]["error"], code) == ("validation_error", 1008)


async def test_speech_that_fails_ends_a_stream_and_only_a_context_of_several(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            "tests.engines.tone.ToneEngine.synthesize", lambda *_: (1 / 0 for _ in range(1))
        )
        async with speaking(server) as client:
            await client.send(" ")
            await client.send("This fails. ", flush=True)
            events, code = await client.receive_rest()
        assert code == 1011 and not any(one.get("isFinal") for one in events)
        assert events[-1]["error"] == "internal_error"
        async with speaking(server, "multi-stream-input") as client:
            await client.send("This fails. ", context_id="a", flush=True)
            assert (await client.receive())["contextId"] == "a"
            patched.undo()
            await client.send("This works. ", context_id="a", flush=True)
            await client.send(context_id="a", close_context=True)
            assert spelt(await client.until_final("a")) == "This works. "
