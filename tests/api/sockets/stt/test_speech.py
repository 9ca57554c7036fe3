"""Real speech over `/ws/stt` to the real recogniser."""

import re
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from configs.settings import weights_dir
from models.audio import Pcm, decode_g711, resample
from models.registry import STT, VAD
from models.weights.store import WeightStore
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.replaced import with_listening
from tests.api.sockets.conftest import SocketServer, serve
from tests.api.sockets.stt.client import SttClient, finals, stt
from tests.local_ports import LocalSTTModel
from tests.models.configured import configured, described
from tests.models.sounds import speak, wordless

pytestmark = pytest.mark.weights

FOX = "The quick brown fox jumps over the lazy dog."
WEATHER = "Nobody knows what the weather will bring tomorrow."


def recogniser() -> LocalSTTModel:
    """Skips without weights."""
    return LocalSTTModel(*described(STT, "whisper_base"))


@lru_cache
def spoken(text: str) -> Pcm:
    return speak(text, WeightStore(weights_dir()))


def room(seconds: float) -> Pcm:
    """The noise of a quiet room."""
    noise = np.random.default_rng(0).standard_normal(int(16_000 * seconds))
    return np.asarray(0.0005 * noise, np.float32)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def mulaw(pcm: Pcm) -> bytes:
    """Each sample as the nearest of the 256 mu-law values."""
    table = decode_g711(bytes(range(256)), "mulaw")
    order = np.argsort(table, kind="stable")
    return np.uint8(order[np.searchsorted(table[order], pcm).clip(0, 255)]).tobytes()


@pytest.fixture(params=["silero"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SocketServer]:
    vad = configured(VAD, request.param)
    services = local_services(local_settings(tmp_path))
    async with serve(with_listening(services, recogniser(), vad)) as running:
        yield running
    services.infrastructure.database.close()


async def send_speech(client: SttClient, pcm: Pcm, sample_rate: int) -> None:
    """Telephone frames at 8 kHz, JSON chunks at every other rate."""
    signal = resample(pcm, 16_000, sample_rate)
    if sample_rate != 8000:
        return await client.send_pcm(signal, sample_rate=sample_rate)
    data = mulaw(signal)
    for at in range(0, len(data), 480):
        await client.socket.send(data[at : at + 480])


@pytest.mark.parametrize(
    "sample_rate",
    [8000, 16_000, *(pytest.param(one, marks=pytest.mark.slow) for one in (44_100, 48_000))],
)
async def test_speech_is_transcribed_at_every_sample_rate(
    server: SocketServer, sample_rate: int
) -> None:
    pcm = np.concatenate([room(0.7), spoken(FOX), room(0.9), spoken(WEATHER), room(0.9)])
    async with stt(server) as client:
        await client.start(["en"], continuous_mode=True)
        await send_speech(client, pcm, sample_rate)
        messages, code = await client.stop()
    assert code == 1000
    first, second = finals(messages)
    assert words(first["text"]) == words(FOX)
    assert words(second["text"]) == words(WEATHER)
    assert first["processing_mode"] == ("telephony" if sample_rate == 8000 else "browser")
    assert (first["sentence_id"], second["sentence_id"]) == (1, 2)
    begin_s = (0.7, 0.7 + 0.9 + len(spoken(FOX)) / 16_000)
    for final, start_s in zip((first, second), begin_s, strict=True):
        assert final["timestamp"] == pytest.approx(start_s, abs=0.2)
        assert final["words"][0]["start"] == pytest.approx(start_s, abs=0.4)
        times = [time for word in final["words"] for time in (word["start"], word["end"])]
        assert times == sorted(times)
        assert 0.5 < final["confidence"] <= 1
    assert messages[-1]["billing_summary"]["total_duration_seconds"] == pytest.approx(
        len(pcm) / 16_000, abs=0.01
    )


@pytest.mark.slow
@pytest.mark.parametrize("server", ["webrtc"], indirect=True)
async def test_webrtc_vad_detects_both_utterances(server: SocketServer) -> None:
    pcm = np.concatenate([room(0.7), spoken(FOX), room(0.9), spoken(WEATHER), room(0.9)])
    async with stt(server) as client:
        await client.start(["en"], continuous_mode=True)
        await client.send_pcm(pcm)
        messages, _ = await client.stop()
    # WebRTC takes the first noise for speech, in which the recogniser finds no words.
    texts = [words(one["text"]) for one in finals(messages) if one["text"]]
    assert texts == [words(FOX), words(WEATHER)]


async def test_single_words_are_transcribed_and_noises_are_not(server: SocketServer) -> None:
    async with stt(server) as client:
        await client.start(["en"], continuous_mode=True)
        for word in ("Yes.", "No.", "Hello."):
            await client.send_pcm(room(0.8), spoken(word), room(0.8))
        messages, _ = await client.stop()
    assert [words(one["text"]) for one in finals(messages)] == [["yes"], ["no"], ["hello"]]
    async with stt(server) as client:
        await client.start(continuous_mode=True)
        for sound in wordless(2).values():
            await client.send_pcm(room(0.6), sound * 0.5)
        messages, _ = await client.stop()
    assert [one["text"] for one in finals(messages) if one["text"]] == []


async def test_the_language_is_detected_among_the_given_ones(server: SocketServer) -> None:
    async with stt(server) as client:
        await client.start(["fr", "en"])
        await client.send_pcm(room(0.6), spoken(WEATHER), room(0.8))
        messages, code = await client.receive_rest()
    (final,) = finals(messages)
    assert (final["language"], final["language_name"]) == ("en", "EN")
    assert code == 1000
    async with stt(server) as client:
        await client.start(["ja", "fi"])
        await client.send_pcm(room(0.6), spoken(WEATHER), room(0.8))
        messages, _ = await client.stop()
    (final,) = finals(messages)
    assert final["text"] == "" and final["language"] in ("ja", "fi")
    assert final["processing_mode"] == "speech_end_no_result"
