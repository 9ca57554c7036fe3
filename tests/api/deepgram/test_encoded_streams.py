"""Containers and Opus on Deepgram's sockets, with a scripted recogniser."""

import asyncio
from functools import partial

import numpy as np
import pytest

from models.audio import Pcm
from models.fairness.slots import FairSlots
from pipelines.audio.decode import live
from pipelines.errors import Overloaded
from tests.api.deepgram.socket_client import best, deepgram
from tests.api.sockets.conftest import SocketServer
from tests.hostile.audio_files import tone
from tests.hostile.live_audio import PACKETS, RATE, in_messages, live_container
from tests.patience import PATIENCE_S
from tests.pipelines.audio.decode.test_live import children
from tests.pipelines.stt.listening_doubles import FakeTranscriber

PATH = "/v1/listen"


def quiet(seconds: float) -> Pcm:
    return np.zeros(round(seconds * RATE), np.float32)


def loud(seconds: float) -> Pcm:
    return tone(seconds, RATE)


def said(*pieces: Pcm) -> Pcm:
    return np.concatenate(pieces)


async def until_no_process(server: SocketServer) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await children(server.services.speech.decoder):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("webm", {}),
        ("m4a", {"sample_rate": 16_000}),  # has no meaning then
        ("ogg", {"encoding": "ogg-opus", "sample_rate": 48_000}),
        ("flac", {"encoding": "flac"}),
        (PACKETS, {"encoding": "opus", "sample_rate": 48_000, "channels": 2}),
    ],
)
async def test_a_contained_stream_has_the_results_and_times_of_its_samples(
    stt_server: SocketServer, fake: FakeTranscriber, kind: str, query: dict[str, object]
) -> None:
    pcm = said(quiet(0.5), loud(1), quiet(1), loud(0.6), quiet(0.8))
    async with deepgram(stt_server, PATH, vad_events="true", **query) as client:
        for message in in_messages(kind, pcm):
            await client.socket.send(message)
        await client.send("CloseStream")
        events, code, _ = await client.rest()
    results = [one for one in events if one["type"] == "Results"]
    assert [one["start"] for one in results] == pytest.approx([0.5, 2.5], abs=0.1)
    assert [one["duration"] for one in results] == pytest.approx([1, 0.6], abs=0.12)
    assert [len(one.pcm) / 16_000 > 0.5 for one in fake.requests[:2]] == [True, True]
    assert events[-1]["type"] == "Metadata" and code == 1000
    assert events[-1]["duration"] == pytest.approx(3.9, abs=0.05)
    await until_no_process(stt_server)


async def test_finalize_transcribes_everything_sent_so_far(
    stt_server: SocketServer,
) -> None:
    messages = in_messages("webm", loud(4))
    async with deepgram(stt_server, PATH) as client:
        for message in messages[:6]:
            await client.socket.send(message)
        await client.send("Finalize")
        (result,) = await client.until("Results")
        assert await children(stt_server.services.speech.decoder)
    assert result["from_finalize"] and best(result)["transcript"]
    assert result["start"] + result["duration"] == pytest.approx(1.5, abs=0.06)
    await until_no_process(stt_server)  # the client left without a word


async def test_the_channels_of_a_container_are_transcribed_apart(
    stt_server: SocketServer,
) -> None:
    both = np.stack([said(loud(1), quiet(2)), said(quiet(2), loud(1))])
    async with deepgram(stt_server, PATH, multichannel="true") as client:
        for message in in_messages("webm", both):
            await client.socket.send(message)
        await client.send("CloseStream")
        events, _, _ = await client.rest()
    results = [one for one in events if one["type"] == "Results"]
    starts = {tuple(one["channel_index"]): one["start"] for one in results}
    assert starts[0, 2] < 0.1 and starts[1, 2] == pytest.approx(2, abs=0.1)
    assert events[-1]["channels"] == 2 and events[-1]["duration"] == pytest.approx(3, abs=0.01)
    async with deepgram(stt_server, PATH, multichannel="true") as client:
        await client.socket.send(live_container("webm", loud(1)))
        (error, *_), code, _ = await client.rest()
    assert "one channel" in error["description"] and code == 1008


@pytest.mark.parametrize("path", [PATH, "/v2/listen"])
async def test_bytes_that_are_no_audio_end_the_stream_with_deepgrams_error(
    stt_server: SocketServer, path: str
) -> None:
    async with deepgram(stt_server, path) as client:
        await client.socket.send(b"samples without a container, or just noise " * 9)
        events, code, _ = await client.rest()
    (error,) = [one for one in events if one["type"] == "Error"]
    assert "not MP3, WAV, FLAC, OGG, M4A, WebM or AAC" in error["description"] and code == 1008
    if path == PATH:
        assert error["code"] == "DATA-0000" and events[-1]["type"] == "Metadata"


async def test_what_was_said_before_a_stream_breaks_off_is_still_transcribed(
    stt_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_SILENT_BYTES", 2**17)
    async with deepgram(stt_server, PATH) as client:
        await client.socket.send(live_container("webm", said(loud(1), quiet(0.1))))
        await client.socket.send(np.random.default_rng(5).bytes(2**18))
        events, code, _ = await client.rest()
    assert [one["type"] for one in events] == ["Error", "Results", "Metadata"] and code == 1008
    assert best(events[1])["transcript"]


async def test_a_whole_recording_may_come_in_one_message(stt_server: SocketServer) -> None:
    async with deepgram(stt_server, PATH) as client:
        await client.socket.send(live_container("m4a", said(quiet(45), loud(1), quiet(1))))
        await client.send("CloseStream")
        events, code, _ = await client.rest()
    assert [one["type"] for one in events] == ["Results", "Metadata"] and code == 1000
    assert events[0]["start"] == pytest.approx(45, abs=0.1)


async def test_a_stream_that_is_too_fast_or_a_bomb_is_ended(stt_server: SocketServer) -> None:
    async with deepgram(stt_server, PATH) as client:
        await client.socket.send(live_container("flac", quiet(400)))
        events, code, reason = await client.rest()
    assert code == 1008 and "times faster" in reason
    await until_no_process(stt_server)


async def test_one_stream_too_many_is_refused_and_charged_nothing(
    stt_server: SocketServer,
) -> None:
    refusal = partial(Overloaded, "too many streams")
    stt_server.services.speech.decoder.live_places = FairSlots(1, 0, refusal)
    async with deepgram(stt_server, PATH) as first:
        await first.send("KeepAlive")
        async with deepgram(stt_server, PATH) as second:
            (error,), code, reason = await second.rest()
        assert (error["type"], code, reason) == ("Error", 1011, "too many streams")
        await first.send("CloseStream")
        ((metadata,), code, _) = await first.rest()
        assert metadata["duration"] == 0 and code == 1000
    await stt_server.until_empty()
    async with deepgram(stt_server, PATH) as third:
        await third.send("CloseStream")
        assert (await third.rest())[1] == 1000


async def test_a_stream_is_charged_by_its_decoded_audio(stt_server: SocketServer) -> None:
    async with deepgram(stt_server, PATH) as client:
        await client.socket.send(live_container("ogg", quiet(2)))
        await client.send("CloseStream")
        await client.rest()
    await stt_server.until_empty()
    _, micro_usd = await (await stt_server.books()).charged("stt")
    cost = stt_server.services.platform.billing.cost("stt", 2000)
    assert micro_usd == pytest.approx(cost, rel=0.01)


async def test_flux_hears_turns_in_webm(turn_server: SocketServer) -> None:
    async with deepgram(turn_server, "/v2/listen", model="flux-general-en") as client:
        for message in in_messages("webm", said(loud(1), quiet(2))):
            await client.socket.send(message)
        events = await client.until("TurnInfo", event="EndOfTurn")
    assert events[0]["type"] == "Connected" and events[-1]["transcript"]
    await until_no_process(turn_server)
