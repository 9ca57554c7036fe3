"""The protocol of `/ws/tts` on a real server."""

import base64
import json
import uuid
from typing import Any

import pytest

from models.audio import pcm16_to_float
from pipelines.audio.effects import SENTENCE_PAUSE_S, LoudnessMeter
from pipelines.tts.session import MAX_CLOSING, MAX_CONTEXTS
from pipelines.tts.shaping import VoiceLevels
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.audio.encode.test_files import decode

LONG = 50_000

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_closing_the_only_context_finishes_its_speech_and_closes_the_socket(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        context_id = await client.create()
        assert uuid.UUID(context_id).version == 4
        audio = await client.speak("Hello there.", context_id=context_id)
        assert len(audio) > 16_000  # LINEAR16 at 16 kHz: over half a second
        await client.send("send_text", context_id=context_id, text="And goodbye.")
        await client.send("close_context", context_id=context_id)
        events, code = await client.receive_rest()
        *chunks, last = events
        assert chunks and all("audio_chunk" in event for event in chunks)
        assert last == {"context_closed": {"context_id": context_id}}
        assert code == 1000


async def test_hello_messages_with_user_and_credit_come_first(shared_server: SocketServer) -> None:
    async with connect(shared_server.url("/ws/tts")) as socket:
        connecting, established = json.loads(await socket.recv()), json.loads(await socket.recv())
    assert connecting["connecting"] is True and connecting["message"]
    assert connecting["timestamp"] > 1_700_000_000
    about = established["connection_established"]
    assert about["service"] == "tts" and about["workspace"]
    assert isinstance(about["user_id"], int) and about["user_id"] < 2**53
    assert 4 < about["credit_balance"] <= 5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"voice_id": None}, "voice_id required"),
        ({"voice_id": " "}, "voice_id required"),
        ({"audio_config": {"audio_encoding": "MP3"}}, "Unsupported audio_encoding: MP3"),
        ({"audio_config": {"audio_encoding": "linear16"}}, "Unsupported audio_encoding: linear16"),
        ({"audio_config": {"audio_encoding": 7}}, "Unsupported audio_encoding: 7"),
        ({"audio_config": {"sample_rate_hertz": 44100}}, "Unsupported sample_rate_hertz: 44100"),
        ({"audio_config": {"sample_rate_hertz": "16000"}}, "Unsupported sample_rate_hertz: 16000"),
        ({"audio_config": {"sample_rate_hertz": True}}, "Unsupported sample_rate_hertz: true"),
        ({"audio_config": []}, "create_context.audio_config: Input should be an object"),
        ({"pitch": "high"}, "create_context.pitch: Input should be a valid number"),
        ({"speaking_rate": "1"}, "create_context.speaking_rate: Input should be a valid number"),
        ({"stability": True}, "create_context.stability: Input should be a valid number"),
        ({"boost_volume": 1}, "create_context.boost_volume: Input should be a valid boolean"),
        ({"context_id": 5}, "create_context.context_id: Input should be a valid string"),
        ({"voice_id": "nobody"}, "no voice has that voice_id; GET /default-voices lists them"),
    ],
)
async def test_an_invalid_create_context_gets_an_error_and_creates_no_context(
    shared_server: SocketServer, body: dict[str, Any], message: str
) -> None:
    async with shared_server.tts() as client:
        error = await client.error("create_context", **({"voice_id": client.voice_id} | body))
        assert error == {"context_id": None, "message": message}
        assert (await client.error("send_text", text="x"))["message"] == (
            "create_context must come first"
        )
        assert await client.create(context_id="works") == "works"


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("{", "the message is not JSON"),
        ("", "the message is empty"),
        ("[]", "the message must be a JSON object"),
        ("{}", "exactly one key"),
        ('{"flush_context": {}, "close_context": {}}', "exactly one key"),
        ('{"flush_context": {}, "flush_context": {}}', "same key twice"),
        ('{"speak": {}}', "unknown message"),
        ('{"send_text": "hello"}', "send_text: Input should be an object"),
        ('{"send_text": {"context_id": "c"}}', "send_text.text: Field required"),
        ('{"send_text": {"text": NaN}}', "NaN is not a JSON number"),
        ('{"create_context": {"voice_id": "\\ud800"}}', "lone surrogate"),
        ('{"send_text": {"context_id": "c", "text": 5}}', "send_text.text: Input should be a val"),
        ("[" * 100, "the message is nested deeper than 64 levels"),
        (b"\x00\x01", "binary messages"),
    ],
)
async def test_an_invalid_message_gets_an_error_and_the_session_continues(
    shared_server: SocketServer, frame: str | bytes, message: str
) -> None:
    async with shared_server.tts() as client:
        await client.create(context_id="c")
        await client.socket.send(frame)
        error = (await client.receive())["error"]
        assert message in error["message"]
        assert error["context_id"] == ("c" if '"context_id"' in str(frame) else None)
        assert await client.speak("Still here.")


async def test_large_messages_are_ordered_and_too_many_values_refused(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        await client.create(context_id="c")
        await client.send("send_text", text="\U0001f600" * LONG)  # 600 kB as JSON escapes it
        await client.send("flush_context")
        assert await client.receive() == {"flush_completed": {"context_id": "c"}}
        await client.socket.send('{"send_text": {"text": [' + "[]," * 340_000 + "[]]}}")
        assert "the message has more than" in (await client.receive())["error"]["message"]
        assert await client.speak("And on.")


async def test_out_of_range_settings_are_clamped_without_error(shared_server: SocketServer) -> None:
    async with shared_server.tts() as client:
        await client.create(context_id="slowest", speaking_rate=-1e300, stability=99, pitch=1e300)
        await client.create(context_id="slow", speaking_rate=0.5, pitch=6.0)
        text = "The same sentence."
        lengths = [len(await client.speak(text, context_id=one)) for one in ("slowest", "slow")]
        assert lengths[0] == lengths[1]


@pytest.mark.parametrize(
    ("encoding", "rate", "bytes_a_second"),
    [
        ("LINEAR16", 8000, 16_000),
        ("LINEAR16", 48_000, 96_000),
        ("PCM", 24_000, 48_000),
        ("MULAW", 8000, 8000),
        ("ULAW", 8000, 8000),
        ("MULAW", 16_000, 32_000),  # not a pair: LINEAR16 at 16 kHz
        ("OGG_OPUS", 48_000, 32_000),
    ],
)
async def test_audio_has_the_requested_encoding_and_rate_or_falls_back_to_linear16(
    shared_server: SocketServer, encoding: str, rate: int, bytes_a_second: int
) -> None:
    async with shared_server.tts() as client:
        await client.create(context_id="usual")
        usual = await client.speak("Twenty-one characters", context_id="usual")
        config = {"audio_encoding": encoding, "sample_rate_hertz": rate}
        await client.create(context_id="other", audio_config=config)
        audio = await client.speak("Twenty-one characters", context_id="other")
        assert len(audio) / bytes_a_second == pytest.approx(len(usual) / 32_000, abs=0.002)


async def test_every_opus_chunk_is_an_ogg_file_that_decodes_alone(
    shared_server: SocketServer,
) -> None:
    text = "A sentence that lasts for more than one file."
    async with shared_server.tts() as client:
        await client.create(context_id="usual")
        usual = await client.speak(text, context_id="usual")
        config = {"audio_encoding": "OGG_OPUS", "sample_rate_hertz": 24_000}
        await client.create(context_id="opus", audio_config=config)
        await client.send("send_text", text=text, context_id="opus")
        await client.send("flush_context", context_id="opus")
        files = []
        while "audio_chunk" in (event := await client.receive()):
            files.append(base64.b64decode(event["audio_chunk"]["audioContent"]))
        assert len(files) > 1 and all(file.startswith(b"OggS") for file in files)
        decoded = [decode(file) for file in files]
        assert {sample_rate for _, sample_rate in decoded} == {48_000}
        seconds = sum(len(pcm) for pcm, _ in decoded) / 48_000
        assert seconds == pytest.approx(len(usual) / 32_000, abs=0.002)


async def test_the_text_buffer_holds_exactly_50000_characters(shared_server: SocketServer) -> None:
    async with shared_server.tts() as client:
        context_id = await client.create()
        await client.send("send_text", text=" " * (LONG - 1))
        error = await client.error("send_text", text="\U0001f600 ")
        assert error == {
            "context_id": context_id,
            "message": "text_buffer exceeded 50000 character limit",
        }
        await client.send("send_text", text="\U0001f600")  # one code point fits
        assert "exceeded" in (await client.error("send_text", text="x"))["message"]
        await client.send("send_text", text="")  # adds nothing, and has no answer
        await client.send("flush_context")
        assert "flush_completed" in await client.receive()
        await client.send("send_text", text="x")  # the flush has emptied it


async def test_an_empty_flush_is_completed_at_once_but_in_order(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        context_id = await client.create()
        await client.send("flush_context")
        assert await client.receive() == {"flush_completed": {"context_id": context_id}}
        await client.send("send_text", text="Some words.")
        await client.send("flush_context")
        await client.send("flush_context")
        assert await client.audio("flush_completed")
        assert "flush_completed" in await client.receive()


async def test_flushes_are_queued_and_refused_at_a_full_queue(shared_server: SocketServer) -> None:
    async with shared_server.tts() as client:
        context_id = await client.create()
        for number in range(6):  # one is spoken, four wait, the last is refused
            await client.send("send_text", text=f"{'Word ' * 20}{number}.")
            await client.send("flush_context")
        lengths: list[int] = []
        refused: list[dict[str, Any]] = []
        heard = 0
        while len(lengths) < 5:
            event = await client.receive()
            if "audio_chunk" in event:
                heard += len(event["audio_chunk"]["audioContent"])
            elif "flush_completed" in event:
                lengths.append(heard)
                heard = 0
            else:
                refused.append(event["error"])
        assert all(lengths)
        message = "4 flushes wait already; the text is kept"
        assert refused == [{"context_id": context_id, "message": message}]
        await client.send("flush_context")
        assert await client.audio("flush_completed")  # the text of the refused flush


async def test_closing_contexts_make_room_for_others_up_to_a_limit(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        await client.create(context_id="last")
        for number in range(MAX_CONTEXTS + MAX_CLOSING):
            name, voice = f"c{number}", client.voice_id
            await client.send("create_context", context_id=name, voice_id=voice)
            await client.send("send_text", context_id=name, text="Word. " * 2000)
            await client.send("close_context", context_id=name)
        while "error" not in (event := await client.receive()):
            pass
        assert event["error"] == {
            "context_id": None,
            "message": "a socket has at most 5 open contexts",
        }


async def test_five_contexts_speak_concurrently_and_the_last_close_closes_the_socket(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        names = ["a", "b", "c", "d", "e"]
        for name in names:
            await client.create(context_id=name)
        error = await client.error("create_context", voice_id=client.voice_id, context_id="f")
        assert error == {"context_id": None, "message": "a socket has at most 5 open contexts"}
        error = await client.error("create_context", voice_id=client.voice_id, context_id="a")
        assert error["context_id"] == "a" and "open already" in error["message"]
        assert "context_id required" in (await client.error("flush_context"))["message"]
        error = await client.error("flush_context", context_id="f")
        assert error == {"context_id": None, "message": "no context has the context_id f"}
        for name in names:
            await client.send("send_text", context_id=name, text="All of us speak at once.")
            await client.send("close_context", context_id=name)
        events, code = await client.receive_rest()
        assert code == 1000
        audio = dict.fromkeys(names, 0)
        closed = []
        for event in events:
            if "audio_chunk" in event:
                context_id = event["audio_chunk"]["context_id"]
                assert context_id not in closed
                audio[context_id] += 1
            else:
                closed.append(event["context_closed"]["context_id"])
        assert sorted(closed) == names and all(audio.values())


async def test_errors_name_a_closed_context_and_its_id_can_be_reused(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        await client.create(context_id="stays")
        await client.create(context_id="goes")
        await client.send("close_context", context_id="goes")
        assert "context_closed" in await client.receive()
        assert (await client.error("flush_context", context_id="goes"))["context_id"] == "goes"
        await client.create(context_id="goes")


async def test_text_for_a_closing_context_is_refused(shared_server: SocketServer) -> None:
    async with shared_server.tts() as client:
        await client.create(context_id="c")
        await client.send("send_text", text="A sentence to be spoken before the end.")
        await client.send("close_context")
        await client.send("send_text", text="Too late.")
        events, code = await client.receive_rest()
        errors = [event["error"] for event in events if "error" in event]
        assert errors == [{"context_id": "c", "message": "the context is closing"}]
        assert events[-1] == {"context_closed": {"context_id": "c"}} and code == 1000


async def test_word_timestamps_name_the_input_words_and_increase_across_flushes(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        await client.create(timestamps=True)
        words: list[dict[str, Any]] = []
        for text in ("It costs 5 euros. ", " \n", "Mr. Smith pays."):
            await client.send("send_text", text=text)
            await client.send("flush_context")
            while "audio_chunk" in (event := await client.receive()):
                words += event["audio_chunk"]["words"]
        whole = "It costs 5 euros.  \nMr. Smith pays."
        assert all(whole[word["text_start"] : word["text_end"]] == word["word"] for word in words)
        starts = [word["start"] for word in words]
        assert starts == sorted(starts)


async def test_consecutive_flushes_are_separated_by_a_pause_only_after_a_sentence(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        alone: list[int] = []
        for number, text in enumerate(("One sentence.", "Another one.", "and so")):
            context_id = await client.create(context_id=str(number))
            alone.append(len(await client.speak(text, context_id=context_id)))
        await client.create(context_id="all")
        for text in ("One sentence.", "and so", "Another one."):
            await client.send("send_text", context_id="all", text=text)
            await client.send("flush_context", context_id="all")
        together = sum([len(await client.audio("flush_completed")) for _ in range(3)])
        # One pause: the second flush ends in the middle of a sentence.
        assert together - sum(alone) == pytest.approx(SENTENCE_PAUSE_S * 32_000, abs=400)


async def test_an_engine_failure_is_reported_and_the_context_stays_usable(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared_server.tts() as client:
        await client.create(context_id="c")
        with monkeypatch.context() as patched:
            patched.setattr(
                "tests.engines.tone.ToneEngine.synthesize", lambda *_: (1 / 0 for _ in range(1))
            )
            await client.send("send_text", text="This fails.")
            await client.send("flush_context")
            error = (await client.receive())["error"]
        assert error["context_id"] == "c" and "division" not in error["message"]
        assert await client.speak("This works.")


async def test_boost_volume_normalises_the_context_to_minus_14_lufs(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        await client.create(context_id="plain")
        await client.create(context_id="boosted", boost_volume=True)
        text = "A sentence long enough for its loudness to be measured. " * 3
        plain = await client.speak(text, context_id="plain")
        boosted = await client.speak(text, context_id="boosted")
        boosted += await client.speak(text, context_id="boosted")
        meter = LoudnessMeter(16_000)
        meter.push(pcm16_to_float(boosted))
        assert meter.lufs == pytest.approx(-14, abs=1)
        assert len(boosted) == pytest.approx(2 * len(plain), abs=8_000)


async def test_boosted_speech_starts_at_the_loudness_measured_for_its_voice_before(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_server.services.speech.synthesis.pipeline, "levels", VoiceLevels())
    firsts: list[float] = []
    for _ in range(2):
        async with shared_server.tts() as client:
            await client.create(boost_volume=True)
            heard = await client.speak("A sentence long enough for its loudness to be measured.")
        meter = LoudnessMeter(16_000)
        meter.push(pcm16_to_float(heard[:24_000]))  # its first 0.75 s
        firsts.append(meter.lufs)
    new, known = (abs(lufs + 14) for lufs in firsts)
    assert known < 0.5 < new


async def test_a_wrong_document_in_a_flush_leaves_the_context_open(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        await client.create(timestamps=True)
        for piece in ("<speak>Hi <mark na", 'me="m"/>you.<break time="3s"/>Bye', ".</speak>"):
            await client.send("send_text", text=piece)
        await client.send("flush_context")
        events = []
        while "flush_completed" not in (event := await client.receive()):
            events.append(event["audio_chunk"])
        assert [one["word"] for event in events for one in event["words"]] == ["Hi", "you.", "Bye."]
        (mark,) = [one for event in events for one in event.get("marks", [])]
        assert mark["mark"] == "m" and mark["text_start"] == len("<speak>Hi ")
        heard = sum(len(base64.b64decode(event["audioContent"])) for event in events)
        assert heard > 3 * 2 * 16_000
        await client.send("send_text", text="<speak>Hi")
        error = await client.error("flush_context")
        assert error["message"] == "text: line 1, column 10: no element found"
        assert len(await client.speak('Still <break time="1s"/> here.')) > 2 * 16_000
