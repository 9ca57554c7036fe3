"""The protocol of `/ws/stt` on a real server, with a scripted recogniser."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest

from api.services import Services
from api.sockets.stt.conversation import SttConversation
from models.audio import Pcm
from models.errors import EngineLost
from models.stt.base import Transcript, TranscriptionRequest
from pipelines.audio.levels import QUIET_WARNING
from tests.api.replaced import with_listening
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer, serve
from tests.api.sockets.stt.client import SttClient, audio, finals, stt
from tests.patience import until
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet, transcript

LOUD_MULAW, QUIET_MULAW = b"\x9f", b"\xff"


@pytest.fixture
async def client(stt_server: SocketServer) -> AsyncIterator[SttClient]:
    async with stt(stt_server) as made:
        yield made


def faint(seconds: float) -> Pcm:
    """Pulses of 16-bit samples with a level of -74 dB, which are speech once they are levelled."""
    return np.where(np.arange(round(seconds * 16_000)) % 20, 0, 9e-4).astype(np.float32)


async def error_of(client: SttClient, message: object) -> str:
    """Sends a message and returns the text of its error."""
    await client.send(message)
    answer = await client.receive()
    assert answer["type"] == "error", answer
    assert answer["timestamp"] > 1_700_000_000
    error: str = answer["error"]
    return error


async def test_hello_names_the_service_and_plain_get_returns_ok(stt_server: SocketServer) -> None:
    async with connect(stt_server.url("/ws/stt")) as socket:
        connecting, established = json.loads(await socket.recv()), json.loads(await socket.recv())
    assert connecting["connecting"] is True and "type" not in connecting
    assert established["connection_established"]["service"] == "stt"
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"http://{stt_server.address}/ws/stt")
    assert (answer.status_code, answer.text) == (200, "ok")


async def test_single_mode_ends_with_the_first_non_empty_final(client: SttClient) -> None:
    connected = await client.start()
    assert connected["type"] == "connected"
    await client.send_pcm(quiet(0.5), loud(0.06), quiet(1), loud(1), quiet(0.7), loud(1), quiet(1))
    messages, code = await client.receive_rest()
    kinds = [message["type"] for message in messages]
    assert kinds[0] == "speech_started"
    empty, final = finals(messages)
    assert (empty["text"], empty["confidence"], empty["words"]) == ("", 0.0, [])
    assert (empty["processing_mode"], empty["is_final"]) == ("speech_end_no_result", True)
    assert final["text"] == "text 0"
    assert kinds[-1] == "session_stopped" and kinds.count("session_stopped") == 1
    assert code == 1000


async def test_single_mode_ends_with_a_long_utterance_whose_last_part_is_silent(
    client: SttClient,
) -> None:
    await client.start()
    await client.send_pcm(loud(27.9), quiet(1.5), step_s=0.5)  # it is cut after 28 s
    messages, code = await client.receive_rest()
    assert [final["text"] for final in finals(messages)] == ["text 0", ""]
    assert (messages[-1]["type"], code) == ("session_stopped", 1000)


async def test_single_mode_ends_with_a_long_utterance_whose_last_part_fails(
    client: SttClient, fake: FakeTranscriber
) -> None:
    def answer(number: int, request: TranscriptionRequest) -> Transcript:
        if number:
            raise EngineLost("the replica of STT was lost")
        return transcript(number, request)

    fake.answer = answer
    await client.start()
    await client.send_pcm(loud(29), quiet(1), step_s=0.5)  # it is cut after 28 s
    messages, code = await client.receive_rest()
    kinds = [message["type"] for message in messages]
    assert kinds == ["speech_started", "transcription", "error", "session_stopped"]
    assert code == 1000


async def test_finals_of_very_quiet_speech_have_a_warning(client: SttClient) -> None:
    await client.start(continuous_mode=True)
    await client.send_pcm(quiet(1), faint(1), quiet(1), loud(1), quiet(1))
    messages, _ = await client.stop()
    first, second = finals(messages)
    assert (first["text"], first["warnings"]) == ("text 0", [QUIET_WARNING])
    assert second["text"] and "warnings" not in second
    assert "warnings" not in messages[-1]


@pytest.mark.parametrize("sound", [quiet(2), faint(2) / 20, np.full(32_000, 1e-4, np.float32)])
async def test_a_session_of_only_silence_ends_with_a_warning(client: SttClient, sound: Pcm) -> None:
    await client.start(continuous_mode=True)
    await client.send_pcm(sound)
    messages, _ = await client.stop()
    assert [message["type"] for message in messages] == ["session_stopped"]
    assert messages[0]["warnings"] == [QUIET_WARNING]


async def test_sessions_without_audio_or_with_noise_have_no_warning(client: SttClient) -> None:
    await client.start(continuous_mode=True)
    await client.send_pcm(np.random.default_rng(1).normal(0, 3e-3, 32_000).astype(np.float32))
    messages, _ = await client.stop()
    assert "warnings" not in messages[-1]


async def test_server_info_describes_the_stt_model_and_its_features(client: SttClient) -> None:
    info = (await client.start())["server_info"]
    assert info["model"] == "svc/fake" and info["device"] == "cpu"
    assert info["supported_languages"] == {"de": "German", "en": "English", "jv": "Javanese"}
    assert info["total_languages"] == 3
    assert info["processing_mode"] == "browser"
    assert info["features"]["interim_results"] is True
    assert info["features"]["speaker_labels"] is True


async def test_a_final_has_every_field_of_the_protocol(client: SttClient) -> None:
    await client.start(["en-GB"], continuous_mode=True, utterance_end_ms=400)
    began = asyncio.get_running_loop().time()
    await client.send_pcm(quiet(1), loud(1), quiet(1))
    started, final = await client.receive_until("transcription")
    took_s = asyncio.get_running_loop().time() - began
    assert started == {"type": "speech_started", "timestamp": 0.992}
    latency, words = final.pop("latency"), final.pop("words")
    assert 0 <= latency <= round(took_s, 3)
    assert final == {
        "type": "transcription",
        "text": "text 0",
        "committed": "text 0",
        "tentative": "",
        "confidence": 0.9048,
        "language": "en",
        "language_name": "EN",
        "is_final": True,
        "speech_final": True,
        "is_partial": False,
        "sentence_id": 1,
        "processing_mode": "browser",
        "duration": 1.024,
        "timestamp": 0.992,
        "utterance_end_ms": 400,
    }
    (word,) = words
    assert set(word) == {"word", "start", "end", "probability"}
    assert word["start"] == pytest.approx(1, abs=0.02)


async def test_stop_returns_the_last_final_and_the_billing_summary(client: SttClient) -> None:
    await client.start(continuous_mode=True)
    await client.send_pcm(quiet(0.5), loud(0.755))
    messages, code = await client.stop()
    assert [message["type"] for message in messages] == [
        "speech_started",
        "transcription",
        "session_stopped",
    ]
    summary = messages[-1]["billing_summary"]
    assert summary == {
        "total_duration_seconds": 1.255,
        "total_cost": 0.000126,  # 125.5 micro-USD, rounded up
        "characters_transcribed": len("text 0"),
    }
    assert code == 1000


async def test_binary_frames_are_mulaw_telephony(client: SttClient) -> None:
    await client.start(continuous_mode=True)
    loud = LOUD_MULAW * 20 + bytes([LOUD_MULAW[0] ^ 0x80]) * 20  # a constant is no sound
    data = QUIET_MULAW * 4000 + loud * 200 + QUIET_MULAW * 8000
    for at in range(0, len(data), 480):
        await client.socket.send(data[at : at + 480])
    messages = await client.receive_until("transcription")
    assert finals(messages)[0]["processing_mode"] == "telephony"
    assert finals(messages)[0]["duration"] == pytest.approx(1, abs=0.1)
    await client.send({"type": "test", "message": "hi", "timestamp": 7})
    assert await client.receive() == {
        "type": "test_response",
        "message": "hi",
        "timestamp": 7,
        "processing_mode": "telephony",
    }
    messages, _ = await client.stop()
    assert messages[-1]["billing_summary"]["total_duration_seconds"] == 2.5


async def test_a_test_message_returns_its_timestamp_unchanged(client: SttClient) -> None:
    for timestamp in (1784937600123, 10**300, 0.5, "2026-11-21T09:00:00Z", None):
        await client.send({"type": "test", "message": "ü", "timestamp": timestamp})
        answer = await client.receive()
        assert (answer["message"], answer["timestamp"]) == ("ü", timestamp)


async def test_encoding_and_sample_rate_may_change_with_each_audio_message(
    client: SttClient,
) -> None:
    await client.start(continuous_mode=True)
    await client.send_pcm(quiet(0.5), loud(0.5))
    sine = np.sin(np.arange(48_000 // 2) / 10).astype(np.float32) * 0.5
    await client.send_pcm(sine, sample_rate=48_000)
    await client.send(audio(LOUD_MULAW * 4000, "mulaw", 8000))
    await client.send_pcm(quiet(1))
    (final,) = finals(await client.receive_until("transcription"))
    assert final["duration"] == pytest.approx(1.5, abs=0.1)


async def test_interims_precede_their_final_and_are_at_least_300_ms_apart(
    client: SttClient,
) -> None:
    await client.start(continuous_mode=True, interim_results_frequency=100)
    messages: list[dict[str, Any]] = []
    for piece in np.split(np.concatenate([loud(1.5), quiet(1)]), 25):
        await client.send_pcm(piece)
        await client.send({"type": "test"})
        messages += await client.receive_until("test_response")  # when it has the piece
        await asyncio.sleep(0.005)
    messages += (await client.stop())[0]
    texts = [message for message in messages if message["type"] == "transcription"]
    assert [text["is_partial"] for text in texts] == [True] * (len(texts) - 1) + [False]
    assert 3 <= len(texts) <= 6  # 100 ms was raised to 300
    assert {text["sentence_id"] for text in texts} == {1}
    assert not any(text["is_final"] or text["speech_final"] for text in texts[:-1])
    assert all(text["committed"] + text["tentative"] == text["text"] for text in texts)
    assert texts[-2]["committed"] == "text"  # the numbers of the fake's texts differ
    assert texts[-1]["text"].startswith("text")


async def test_key_terms_and_the_format_of_the_text_are_those_of_start(
    client: SttClient, fake: FakeTranscriber
) -> None:
    fake.answer = lambda number, asked: transcript(number, asked, "Shit, nine hundred.")
    for wrong in (["x" * 101], [""], ["x"] * 101, "x"):
        refused = await client.start(keyterms=wrong)
        assert refused["type"] == "error" and "keyterms" in refused["error"]
    await client.start(
        continuous_mode=True,
        keyterms=[" Kaczmarek "],
        numerals=True,
        profanity_filter=True,
        punctuate=False,
    )
    await client.send_pcm(quiet(0.5), loud(1), quiet(1))
    (final,) = finals(await client.receive_until("transcription"))
    assert final["text"] == "s*** 900"
    assert {asked.options.keyterms for asked in fake.requests} == {("Kaczmarek",)}


async def test_config_changes_languages_and_mode(client: SttClient, fake: FakeTranscriber) -> None:
    await client.start(["de"])
    await client.send({"type": "config", "languages": ["en", "jv"]})
    assert await client.receive() == {
        "type": "language_changed",
        "language": "en",
        "language_code": ["en", "jv"],
    }
    await client.send({"type": "config", "continuous_mode": True})
    assert await client.receive() == {
        "type": "mode_changed",
        "continuous_mode": True,
        "mode_name": "continuous",
        "silence_threshold": 0.5,
    }
    await client.send_pcm(loud(1), quiet(1))
    await client.receive_until("transcription")
    await client.send({"type": "config", "languages": None, "continuous_mode": False})
    assert (await client.receive())["language"] == "auto"
    assert (await client.receive())["mode_name"] == "single"
    await client.send_pcm(loud(1), quiet(1))
    _, code = await client.receive_rest()
    assert code == 1000
    assert [request.languages for request in fake.requests] == [("en", "jw"), ()]


WRONG_STARTS: list[tuple[dict[str, Any], str]] = [
    ({"config": {"encoding": "opus"}}, "config.encoding: Input should be 'mulaw' or 'linear'"),
    ({"config": {"sample_rate": 11025}}, "config.sample_rate: Input should be 8000, 16000"),
    ({"config": {"sample_rate": "8000"}}, "config.sample_rate: Input should be 8000, 16000"),
    ({"config": {"no_speech_threshold": 1.5}}, "less than or equal to 1"),
    ({"config": {"no_speech_threshold": "0.5"}}, "config.no_speech_threshold: "),
    ({"config": {"utterance_end_ms": 500.5}}, "config.utterance_end_ms: "),
    ({"config": {"utterance_end_ms": True}}, "config.utterance_end_ms: "),
    ({"config": {"continuous_mode": 1}}, "config.continuous_mode: "),
    ({"config": []}, "config: "),
    ({"languages": "en"}, "languages: "),
    ({"languages": [1]}, "languages.0: "),
    ({"languages": ["xx"]}, "languages: 'xx' is not supported"),
    ({"languages": ["x" * 5000]}, "languages.0: has 5000 characters, and at most 40 are"),
    ({"languages": ["en"] * 101}, "languages: List should have at most 100"),
]


async def test_an_invalid_start_gets_an_error_and_can_be_sent_again(client: SttClient) -> None:
    for start, message in WRONG_STARTS:
        error = await error_of(client, {"type": "start"} | start)
        assert message in error and len(error) < 300
    assert (await client.start())["type"] == "connected"


@pytest.mark.parametrize(("given", "clamped_s"), [(-5, 0.3), (10**300, 30.0)])
async def test_an_out_of_range_silence_threshold_is_clamped(
    client: SttClient, given: int, clamped_s: float
) -> None:
    await client.start(utterance_end_ms=given)
    await client.send({"type": "config", "continuous_mode": True})
    assert (await client.receive())["silence_threshold"] == clamped_s


async def test_an_interim_interval_above_the_maximum_is_accepted(client: SttClient) -> None:
    connected = await client.start(continuous_mode=True, interim_results_frequency=10**300)
    assert connected["type"] == "connected"
    await client.send_pcm(loud(2), quiet(1))
    messages = await client.receive_until("transcription")
    assert finals(messages) == messages[-1:]  # 30 s between interims: the utterance has none


async def test_invalid_messages_get_errors_and_the_session_continues(client: SttClient) -> None:
    assert "start first" in await error_of(client, audio(b"", "mulaw", 8000))
    assert "start first" in await error_of(client, {"type": "config", "languages": None})
    assert "must be one of start" in await error_of(client, {"type": "x" * 10_000})
    assert "must be one of start" in await error_of(client, {})
    assert "must be one of start" in await error_of(client, {"type": ["start"]})
    assert (await client.start())["type"] == "connected"
    assert "already" in await error_of(client, {"type": "start"})
    assert "base64" in await error_of(client, audio(b"", "mulaw", 8000) | {"audio": "YQ"})
    assert "audio: Field required" in await error_of(
        client, {"type": "audio", "encoding": "mulaw", "sample_rate": 8000}
    )
    assert "sample_rate" in await error_of(client, audio(b"", "mulaw", 8001))
    assert "encoding" in await error_of(client, audio(b"", "alaw", 8000))
    assert "give languages" in await error_of(client, {"type": "config"})
    assert "continuous_mode" in await error_of(client, {"type": "config", "continuous_mode": None})
    await client.socket.send('{"type": "start", "x": NaN}')
    assert "NaN" in (await client.receive())["error"]
    await client.socket.send("[]")
    assert "object" in (await client.receive())["error"]
    await client.send_pcm(loud(1), quiet(1))
    assert finals(await client.receive_until("transcription"))


async def test_audio_in_frames_of_one_byte_is_transcribed(client: SttClient) -> None:
    await client.start(continuous_mode=True)
    data = QUIET_MULAW * 800 + LOUD_MULAW * 2000
    for at in range(len(data)):
        await client.socket.send(data[at : at + 1])
    messages, _ = await client.stop()
    assert [message["type"] for message in messages][-1] == "session_stopped"
    assert finals(messages)[0]["duration"] == pytest.approx(0.25, abs=0.1)


async def test_a_lost_recogniser_is_reported_and_the_next_utterance_is_transcribed(
    client: SttClient, fake: FakeTranscriber
) -> None:
    await client.start(continuous_mode=True)
    fake.errors = [EngineLost("the replica of STT was lost")] * 2
    await client.send_pcm(loud(1), quiet(1))
    *_, error = await client.receive_until("error")
    assert "sentence 1" in error["error"] and "lost" in error["error"]
    await client.send_pcm(loud(1), quiet(1))
    (final,) = finals(await client.receive_until("transcription"))
    assert final["sentence_id"] == 2


async def test_an_internal_error_ends_the_session_with_1011_and_leaks_no_details(
    client: SttClient, fake: FakeTranscriber
) -> None:
    def fail(number: int, request: TranscriptionRequest) -> Transcript:
        raise ZeroDivisionError("secret")

    fake.answer = fail
    await client.start()
    await client.send_pcm(loud(1), quiet(1))
    messages, code = await client.receive_rest()
    assert code == 1011
    assert messages[-1]["type"] == "error" and "secret" not in str(messages)


async def test_a_session_without_start_or_without_audio_times_out(
    plain: Services, fake: FakeTranscriber
) -> None:
    quick = with_listening(plain, fake, start_timeout_s=2.0, audio_timeout_s=3.0)
    async with serve(quick) as stt_server:
        async with stt(stt_server) as client:
            messages, code = await client.receive_rest()
            assert "no start" in messages[0]["error"] and code == 1008
        await stt_server.until_empty()
        async with stt(stt_server) as client:
            await client.start()
            (session,) = stt_server.services.infrastructure.sockets.live
            due = [session.timeouts._due["audio"]]
            for is_audio in (True, False):
                if is_audio:
                    await client.send_pcm(quiet(0.1))
                await client.send({"type": "test", "message": "", "timestamp": 1})
                assert (await client.receive())["type"] == "test_response"
                due.append(session.timeouts._due["audio"])
            assert due[0] < due[1] == due[2]  # audio alone restarts the timeout
            (error,), code = await client.receive_rest()
            assert "no audio" in error["error"] and code == 1008


async def test_audio_faster_than_5_times_real_time_ends_the_session(
    plain: Services, fake: FakeTranscriber
) -> None:
    async with serve(with_listening(plain, fake, speed_window_s=20)) as stt_server:
        async with stt(stt_server) as client:
            await client.start(continuous_mode=True)
            await client.send_pcm(quiet(98), step_s=2)
            await client.send({"type": "test"})
            assert (await client.receive())["type"] == "test_response"
            await client.send_pcm(quiet(4), step_s=2)
            messages, code = await client.receive_rest()
            assert "5 times faster" in messages[-1]["error"] and code == 1008


async def test_a_recogniser_slower_than_the_audio_ends_the_session_with_1013(
    plain: Services, fake: FakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.sockets.kernel.audio_input.PUSH_BACK_S", 0.2)
    fake.gate.clear()
    async with serve(with_listening(plain, fake, backlog_s=3)) as stt_server:
        async with stt(stt_server) as client:
            await client.start(continuous_mode=True)
            await client.send_pcm(*[loud(2), quiet(1)] * 8)
            messages, code = await client.receive_rest()
            assert "keep up" in messages[-1]["error"] and code == 1013
        assert len(fake.requests) <= 4


async def test_lost_clients_leak_no_tasks_or_conversations(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.gate.clear()
    earlier = conversations()  # of other tests in this process
    before = len(asyncio.all_tasks()) + 1  # the one that renews holds, which lasts longer
    clients = [await connect(stt_server.url("/ws/stt")) for _ in range(20)]
    for socket in clients:
        client = SttClient(socket)
        await client.receive(), await client.receive()
        await client.start(interim_results_frequency=300)
        await client.send_pcm(loud(1), quiet(0.3))
        await client.receive()
    await until(lambda: len(fake.requests) >= 20)
    for socket in clients:
        socket.transport.abort()
    await stt_server.until_empty()
    await until(lambda: len(asyncio.all_tasks()) <= before)
    assert len(fake.cancelled) >= 20
    clients.clear()
    gc.collect()
    assert not [one for one in conversations() if one not in earlier]


def conversations() -> list[SttConversation]:
    # `isinstance` would ask what the weak references of others lead to, which may be gone.
    return [one for one in gc.get_objects() if type(one) is SttConversation]


async def test_empty_finals_do_not_count_as_characters_transcribed(
    client: SttClient, fake: FakeTranscriber
) -> None:
    fake.answer = lambda number, request: (
        Transcript("en", 0.9) if number else transcript(number, request, "Über uns")
    )
    await client.start(continuous_mode=True)
    await client.send_pcm(loud(1), quiet(1), loud(1), quiet(1))
    messages, _ = await client.stop()
    assert [final["text"] for final in finals(messages)] == ["Über uns", ""]
    assert messages[-1]["billing_summary"]["characters_transcribed"] == 8
