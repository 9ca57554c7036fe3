"""Deepgram's socket `/v1/listen`, with a scripted recogniser."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

from api.deepgram import streams
from api.sockets.kernel.session import SessionTimeouts
from models.errors import EngineLost
from models.stt.base import Segment, Transcript, TranscriptionRequest, Word
from tests.api.deepgram.socket_client import STREAM, best, deepgram
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import (
    FakeTranscriber,
    loud,
    quiet,
    requested,
    tone,
    transcript,
)

PATH = "/v1/listen"


def sentence(number: int, request: TranscriptionRequest) -> Transcript:
    """Two words of each utterance."""
    end = len(request.pcm) / 16_000
    words = (Word("Hello,", 0.3, 0.5, 0.9), Word("World.", 0.6, end, 0.8))
    return Transcript("en", 0.9, (Segment("Hello, World.", 0.0, end, -0.1, 0.0, words),))


async def test_an_utterance_gives_one_final_result_with_words_and_model(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = sentence
    query = {"smart_format": "true", "vad_events": "true", "model": "nova-3", "language": "en-US"}
    async with deepgram(stt_server, PATH, **STREAM, **query) as client:
        await client.send_pcm(quiet(0.5), loud(1), quiet(1))
        started, result = await client.until("Results")
        await client.send("CloseStream")
        events, code, _ = await client.rest()
    assert (started["type"], started["channel"]) == ("SpeechStarted", [0, 1])
    assert started["timestamp"] == pytest.approx(0.5, abs=0.05)
    assert (result["is_final"], result["speech_final"]) == (True, True)
    assert (result["from_finalize"], result["channel_index"]) == (False, [0, 1])
    assert result["start"] == pytest.approx(0.5, abs=0.05)
    assert result["duration"] == pytest.approx(1, abs=0.1)
    assert best(result)["transcript"] == "Hello, World."
    first = best(result)["words"][0]
    assert set(first) == {"word", "start", "end", "confidence", "punctuated_word"}
    assert (first["word"], first["punctuated_word"]) == ("hello", "Hello,")
    assert result["metadata"]["model_info"]["name"] == "svc/fake"
    (metadata,) = events
    assert metadata["type"] == "Metadata" and code == 1000
    assert metadata["duration"] == pytest.approx(2.5) and metadata["channels"] == 1
    assert metadata["request_id"] == result["metadata"]["request_id"] != ""
    assert len(metadata["sha256"]) == 64
    assert metadata["model_info"][metadata["models"][0]]["name"] == "svc/fake"
    assert fake.requests[0].language == "en"


async def test_without_punctuation_words_are_bare_and_in_lower_case(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = sentence
    async with deepgram(stt_server, PATH, **STREAM) as client:
        await client.send_pcm(loud(1), quiet(1))
        (result,) = await client.until("Results")
    assert best(result)["transcript"] == "hello world"
    assert "punctuated_word" not in best(result)["words"][0]


async def test_interim_results_precede_the_final_and_have_words_with_estimated_times(
    stt_server: SocketServer,
) -> None:
    async with deepgram(stt_server, PATH, **STREAM, interim_results="true") as client:
        await client.send_pcm(loud(1.5))
        (interim,) = await client.until("Results")
        await client.send_pcm(loud(0.5), quiet(1))
        final = (await client.until("Results", is_final=True))[-1]
    assert (interim["is_final"], interim["speech_final"]) == (False, False)
    words = best(interim)["words"]
    assert [one["word"] for one in words] == best(interim)["transcript"].split()
    assert 0 <= words[0]["start"] < words[-1]["end"] <= 1.6
    assert final["start"] == interim["start"]


async def test_finalize_ends_the_utterance_at_once_even_without_speech(
    stt_server: SocketServer,
) -> None:
    async with deepgram(stt_server, PATH, **STREAM) as client:
        await client.send_pcm(quiet(0.2), loud(1))
        await client.send("Finalize")
        (spoken,) = await client.until("Results")
        await client.send("Finalize")
        (empty,) = await client.until("Results")
    assert spoken["from_finalize"] and spoken["speech_final"] and best(spoken)["transcript"]
    assert empty["from_finalize"] and best(empty) == {
        "transcript": "",
        "confidence": 0.0,
        "words": [],
    }


async def test_without_endpointing_finals_come_and_none_ends_the_speech(
    stt_server: SocketServer,
) -> None:
    async with deepgram(stt_server, PATH, **STREAM, endpointing="false") as client:
        await client.send_pcm(loud(1), quiet(1))
        (result,) = await client.until("Results")
    assert (result["is_final"], result["speech_final"]) == (True, False)


async def test_the_end_of_an_utterance_is_told_once_after_its_silence(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = sentence
    query = {"interim_results": "true", "utterance_end_ms": "1000"}
    async with deepgram(stt_server, PATH, **STREAM, **query) as client:
        await client.send_pcm(loud(1), quiet(0.8))
        final = (await client.until("Results", is_final=True))[-1]
        await client.send_pcm(quiet(1.5))
        (ended,) = await client.until("UtteranceEnd")
        await client.send("CloseStream")
        events, _, _ = await client.rest()
    assert ended["last_word_end"] == best(final)["words"][-1]["end"]
    assert ended["channel"] == [0, 1]
    assert [one["type"] for one in events] == ["Metadata"]


def last_word_end(result: dict[str, Any]) -> float:
    end: float = best(result)["words"][-1]["end"]
    return end


async def test_speech_that_resumes_in_time_delays_the_utterance_end(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    """However late the result before it comes."""
    fake.answer = sentence
    query = {"vad_events": "true", "utterance_end_ms": "1000"}
    async with deepgram(stt_server, PATH, **STREAM, **query) as client:
        fake.gate.clear()
        await client.send_pcm(loud(1), quiet(0.8), loud(2))
        await client.until("SpeechStarted")
        await client.until("SpeechStarted")
        fake.gate.set()
        await client.until("Results")
        await client.send_pcm(loud(1), quiet(2.5))
        events = await client.until("UtteranceEnd")
    assert [one["type"] for one in events] == ["Results", "UtteranceEnd"]
    assert events[1]["last_word_end"] == last_word_end(events[0])


async def test_ends_are_told_of_audio_that_was_sent_before_its_results_came(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = sentence
    async with deepgram(stt_server, PATH, **STREAM, utterance_end_ms="1000") as client:
        fake.gate.clear()
        await client.send_pcm(loud(1), quiet(1.5), loud(1), quiet(2))
        await client.send("CloseStream")
        await requested(fake, 1.4)
        fake.gate.set()
        events, _, _ = await client.rest()
    assert [one["type"] for one in events] == ["Results", "UtteranceEnd"] * 2 + ["Metadata"]
    for result, ended in (events[:2], events[2:4]):
        assert ended["last_word_end"] == last_word_end(result)


async def test_a_wordless_sound_only_delays_the_utterance_end(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    def words_at_first(number: int, request: TranscriptionRequest) -> Transcript:
        return sentence(number, request) if number == 0 else Transcript("en", 0.9)

    fake.answer = words_at_first
    async with deepgram(stt_server, PATH, **STREAM, utterance_end_ms="1000") as client:
        await client.send_pcm(loud(1), quiet(0.8), loud(2), quiet(0.8))
        spoken, sound, ended = await client.until("UtteranceEnd")
    assert best(spoken)["words"] and not best(sound)["words"]
    assert ended["last_word_end"] == last_word_end(spoken)


async def test_an_utterance_that_fails_only_delays_the_utterance_end(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    def fail_later(number: int, request: TranscriptionRequest) -> Transcript:
        if number:
            raise EngineLost("the replica of STT was lost")
        return sentence(number, request)

    fake.answer = fail_later
    async with deepgram(stt_server, PATH, **STREAM, utterance_end_ms="1000") as client:
        await client.send_pcm(loud(1), quiet(0.8), loud(2), quiet(2.5))
        spoken, failed, ended = await client.until("UtteranceEnd")
    assert failed["type"] == "Error"
    assert ended["last_word_end"] == last_word_end(spoken)


async def test_no_end_is_told_within_speech_that_is_cut(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = sentence
    async with deepgram(stt_server, PATH, **STREAM, utterance_end_ms="1000") as client:
        await client.send_pcm(loud(29))
        (part,) = await client.until("Results")
        await client.send_pcm(loud(3), quiet(2.5))
        events = await client.until("UtteranceEnd")
    assert not part["speech_final"]
    assert [one["type"] for one in events] == ["Results", "UtteranceEnd"]


async def test_two_channels_are_transcribed_apart(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    query = {"channels": 2, "multichannel": "true"}
    left, right = np.concatenate([loud(1), quiet(2)]), np.concatenate([quiet(2), loud(1)])
    async with deepgram(stt_server, PATH, **STREAM, **query) as client:
        await client.send_pcm(np.stack([left, right], axis=1).ravel())
        await client.send("CloseStream")
        events, _, _ = await client.rest()
    results = [one for one in events if one["type"] == "Results"]
    starts = {tuple(one["channel_index"]): one["start"] for one in results}
    assert set(starts) == {(0, 2), (1, 2)}
    assert starts[0, 2] < 0.1 and starts[1, 2] == pytest.approx(2, abs=0.1)
    assert events[-1]["channels"] == 2 and events[-1]["duration"] == pytest.approx(3)


async def test_speakers_are_numbered_from_zero(stt_server: SocketServer) -> None:
    async with deepgram(stt_server, PATH, **STREAM, diarize_model="latest") as client:
        for hz in (300, 2500, 300):
            await client.send_pcm(tone(hz, 2), quiet(1))
        events = [(await client.until("Results"))[-1] for _ in range(3)]
    assert [best(one)["words"][0]["speaker"] for one in events] == [0, 1, 0]


@pytest.mark.parametrize("language", ["multi", "Auto"])
async def test_key_terms_languages_and_personal_data_reach_the_recogniser(
    stt_server: SocketServer, fake: FakeTranscriber, language: str
) -> None:
    fake.answer = lambda number, request: transcript(
        number, request, "My number is 555 123 4567. Call me."
    )
    query = {"keyterm": ["Antiphon", "Kokoro"], "keywords": "Ray:2", "redact": ["pci", "numbers"]}
    query |= {"language": language, "language_hint": ["en", "de"], "punctuate": "true"}
    async with deepgram(stt_server, PATH, **STREAM, **query) as client:
        await client.send_pcm(loud(1), quiet(1))
        (result,) = await client.until("Results")
        await client.send("Configure", keyterms=["Silero"], features={"punctuate": False})
        (changed,) = await client.until("ConfigureSuccess")
        await client.send_pcm(loud(1), quiet(1))
        (after,) = await client.until("Results")
    assert fake.requests[0].options.keyterms == ("Antiphon", "Kokoro", "Ray")
    assert fake.requests[0].languages == ("en", "de")
    assert "555" not in best(result)["transcript"] and "Call me." in best(result)["transcript"]
    assert best(result)["languages"] == ["en"]
    assert changed["keyterms"] == ["Silero"]
    assert fake.requests[-1].options.keyterms == ("Silero",)
    assert best(after)["transcript"] == best(after)["transcript"].lower().replace(
        "[phone]", "[PHONE]"
    )


@pytest.mark.parametrize(("encoding", "sound"), [("mulaw", b"\x9f"), ("alaw", b"\xb5")])
async def test_telephone_audio_is_taken_at_any_rate(
    stt_server: SocketServer, fake: FakeTranscriber, encoding: str, sound: bytes
) -> None:
    async with deepgram(stt_server, PATH, encoding=encoding, sample_rate=11_025) as client:
        opposite = bytes([sound[0] ^ 0x80])  # a square wave, since a constant is no sound
        await client.socket.send(((sound * 20 + opposite * 20) * 276)[:11_025])
        await client.socket.send(b"")  # an older way to end a stream
        events, code, _ = await client.rest()
    assert [one["type"] for one in events] == ["Results", "Metadata"] and code == 1000
    assert events[-1]["duration"] == pytest.approx(1)


async def test_a_stream_without_audio_and_messages_ends_as_the_original(
    stt_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, message, code = streams.SILENCE
    monkeypatch.setattr(streams.StreamConversation, "silence", (0.3, message, code))
    async with deepgram(stt_server, PATH, **STREAM) as client:
        (error,), closed, reason = await client.rest()
    assert (closed, reason) == (1011, message) and reason.startswith("NET-0001")
    assert (error["type"], error["code"], error["description"]) == ("Error", "NET-0001", message)


@pytest.mark.parametrize("is_slow", [True, False])
async def test_a_client_that_falls_silent_gets_the_text_of_its_audio_first(
    stt_server: SocketServer,
    fake: FakeTranscriber,
    monkeypatch: pytest.MonkeyPatch,
    is_slow: bool,
) -> None:
    _, message, code = streams.SILENCE
    monkeypatch.setattr(streams.StreamConversation, "silence", (0.5, message, code))
    if is_slow:
        fake.gate.clear()
        asyncio.get_running_loop().call_later(1.0, fake.gate.set)
    async with deepgram(stt_server, PATH, **STREAM) as client:
        await client.send_pcm(loud(1.0), *([quiet(1.0)] if is_slow else []))
        (*results, error), closed, _ = await client.rest()
    assert best([one for one in results if one["type"] == "Results"][-1])["transcript"]
    assert (error["code"], closed) == ("NET-0001", 1011)


async def test_a_recogniser_that_never_answers_does_not_keep_a_silent_client(
    stt_server: SocketServer, fake: FakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = SessionTimeouts.set

    def start_short(timeouts: SessionTimeouts, name: str, _: float, *error: Any) -> None:
        start(timeouts, name, {"audio": 0.3, "idle": 1.0}.get(name, 60), *error)

    monkeypatch.setattr(SessionTimeouts, "set", start_short)
    fake.gate.clear()
    async with deepgram(stt_server, PATH, **STREAM) as client:
        await client.send_pcm(loud(1.0))
        *_, closed, reason = await client.rest()
    fake.gate.set()
    assert closed == 1008 and reason.startswith("no message came")
    await stt_server.until_empty()


async def test_the_key_may_follow_token_in_the_subprotocols_of_a_browser(
    stt_server: SocketServer,
) -> None:
    url = f"ws://{stt_server.address}{PATH}?encoding=linear16&sample_rate=16000"
    async with connect(url, subprotocols=["token", stt_server.key]) as socket:
        assert socket.subprotocol == "token"
        await socket.send('{"type": "CloseStream"}')
        assert json.loads(await socket.recv())["type"] == "Metadata"
    for offered in (["token", "sk_wrong"], ["other", stt_server.key], [stt_server.key]):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url, subprotocols=offered):
                pass
        assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["err_code"] == "INVALID_AUTH"


async def test_a_stream_is_charged_by_its_channels(stt_server: SocketServer) -> None:
    query = {"channels": 2, "multichannel": "true"}
    async with deepgram(stt_server, PATH, **STREAM, **query) as client:
        await client.send_pcm(np.zeros(2 * 16_000, np.float32))
        await client.send("CloseStream")
        await client.rest()
    await stt_server.until_empty()
    _, micro_usd = await (await stt_server.books()).charged("stt")
    assert micro_usd == 2 * stt_server.services.platform.billing.cost("stt", 1000)
