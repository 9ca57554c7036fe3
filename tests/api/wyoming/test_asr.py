"""Speech recognition over Wyoming: commands of any format, and transcripts whole and streamed."""

from typing import Any

import numpy as np
import pytest

from models.audio import Pcm, float_to_pcm16, resample
from models.errors import EngineLost
from models.stt.base import Transcript, TranscriptionRequest
from tests.api.wyoming.conftest import Home, WyomingClient
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet, transcript

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIXTEEN: dict[str, Any] = {"rate": 16_000, "width": 2, "channels": 1}


async def say(client: WyomingClient, *pieces: Pcm, **asked: Any) -> None:
    """As Home Assistant does: the options, the format, chunks of 1024 samples, and the end."""
    await client.send("transcribe", **asked)
    await client.send("audio-start", **SIXTEEN)
    data = float_to_pcm16(np.concatenate(pieces))
    for start in range(0, len(data), 2048):
        await client.send("audio-chunk", data[start : start + 2048], **SIXTEEN)
    await client.send("audio-stop")


async def test_a_command_is_transcribed_and_charged_for_its_seconds(
    home: Home, heard: FakeTranscriber
) -> None:
    before = await home.units("stt")
    async with home.client(version=None) as client:
        await say(client, loud(1.0), quiet(0.6), language="de-DE")
        assert await client.receive() == ("transcript", {"text": "text 0", "language": "de"}, b"")
    assert heard.requests[0].language == "de"
    assert await home.units("stt") - before == 1600


async def test_a_command_may_be_in_any_language(home: Home, heard: FakeTranscriber) -> None:
    async with home.client(version=None) as client:
        await say(client, loud(1.0), quiet(0.6), language="auto")
        answer = await client.receive()
    assert answer is not None and answer[0] == "transcript"
    assert heard.requests[-1].language is None


async def test_all_utterances_of_a_command_are_one_transcript(
    home: Home, heard: FakeTranscriber
) -> None:
    async with home.client(version=None) as client:
        await say(client, loud(0.6), quiet(1.2), loud(0.6))
        ((_, data, _),) = await client.until("transcript")
    first, second = data["text"].split(" text ")
    assert first.startswith("text ") and second.isdecimal()


async def test_current_clients_get_words_as_soon_as_they_are_certain(
    home: Home, heard: FakeTranscriber
) -> None:
    said = "turn on the light in the kitchen and close the door please".split()

    def hear(number: int, request: TranscriptionRequest) -> Transcript:
        words = said[: max(1, round(len(request.pcm) / 16_000 * 3))]
        return transcript(number, request, " ".join(words))

    heard.answer = hear
    async with home.client() as client:
        await client.send("transcribe")
        data = float_to_pcm16(loud(4.0))
        for start in range(0, len(data), 16_000):
            await client.send("audio-chunk", data[start : start + 16_000], **SIXTEEN)
            await client.send("ping", text=str(start))
            events = await client.until("pong")
        await client.send("audio-stop")
        events += await client.until("transcript-stop")
    kinds = [kind for kind, _, _ in events if kind != "pong"]
    assert kinds[-2:] == ["transcript", "transcript-stop"]
    whole = events[-2][1]["text"]
    assert said == whole.split() or whole.split() == said[: len(whole.split())]
    chunks = [data["text"] for kind, data, _ in events if kind == "transcript-chunk"]
    assert whole.endswith("".join(chunks))


async def test_silence_is_an_empty_transcript(home: Home) -> None:
    async with home.client() as client:
        await say(client, quiet(1.0))
        events = await client.until("transcript-stop")
    empty = {"text": "", "language": None}
    assert [kind for kind, _, _ in events] == ["transcript-start", "transcript", "transcript-stop"]
    assert events[1][1] == empty


async def test_a_connection_transcribes_one_command_after_another(
    home: Home, heard: FakeTranscriber
) -> None:
    before = await home.units("stt")
    async with home.client(version=None) as client:
        await say(client, loud(0.5))
        await say(client, loud(0.5), language="en")
        texts = [(await client.until("transcript"))[0][1] for _ in range(2)]
    assert [one["text"] for one in texts] == ["text 0", "text 1"]
    assert await home.units("stt") - before == 1000


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2), (11_025, 1), (96_000, 8)])
async def test_audio_of_any_format_is_the_same_sound(
    home: Home, heard: FakeTranscriber, width: int, rate: int, channels: int
) -> None:
    sound = resample(np.concatenate([loud(1.0), quiet(0.4)]), 16_000, rate)
    samples = np.round(np.clip(sound, -1, 0.99) * 2 ** (8 * width - 1)).astype("<i8")
    mixed = np.repeat(samples[:, None], channels, axis=1).reshape(-1)
    data = mixed.view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    shape = {"rate": rate, "width": width, "channels": channels}
    before = await home.units("stt")
    async with home.client(version=None) as client:
        await client.send("audio-start", **shape)
        for start in range(0, len(data), 40_001):  # amid samples
            await client.send("audio-chunk", data[start : start + 40_001], **shape)
        await client.send("audio-stop")
        ((_, answer, _),) = await client.until("transcript")
    assert answer["text"].startswith("text")
    pcm = heard.requests[-1].pcm
    middle = pcm[len(pcm) // 3 : len(pcm) // 2]
    assert float(np.median(np.abs(middle))) == pytest.approx(0.5, abs=0.05)
    assert await home.units("stt") - before == pytest.approx(1400, abs=1)


async def test_a_partly_failed_command_is_untranscribed_and_free(
    home: Home, heard: FakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(number: int, request: TranscriptionRequest) -> Transcript:
        if len(request.pcm) < 1.8 * 16_000:
            raise EngineLost("the replica died")
        return transcript(number, request)

    before = await home.units("stt")
    monkeypatch.setattr(heard, "answer", answer)
    async with home.client(version=None) as client:
        await say(client, loud(2.0), quiet(1.0), loud(0.6))
        events = await client.until_end()
    assert [kind for kind, _, _ in events] == ["error"]
    assert events[0][1]["code"] == "unavailable"
    assert await home.units("stt") == before


async def test_the_format_may_not_change_within_a_command(home: Home) -> None:
    async with home.client() as client:
        await client.send("audio-chunk", bytes(320), **SIXTEEN)
        await client.send("audio-chunk", bytes(320), **{**SIXTEEN, "rate": 8000})
        ((kind, data, _),) = await client.until("error")
        assert "format" in data["text"]
        await client.send("audio-stop")
        await client.until("transcript")


@pytest.mark.parametrize(
    ("field", "value"),
    [("rate", 0), ("rate", -1), ("rate", 10**9), ("width", 5), ("width", 0), ("channels", 0)]
    + [("channels", 99), ("rate", "16000"), ("width", None), ("channels", 1.5)],
)
async def test_an_impossible_format_is_answered_with_the_field_at_fault(
    home: Home, field: str, value: Any
) -> None:
    async with home.client() as client:
        await client.send("audio-start", **{**SIXTEEN, field: value})
        ((_, data, _),) = await client.until("error")
        assert field in data["text"]
        await say(client, loud(0.5))  # the connection is not lost
        await client.until("transcript")


async def test_an_end_without_audio_is_an_error(home: Home) -> None:
    async with home.client() as client:
        await client.send("audio-stop")
        ((_, data, _),) = await client.until("error")
    assert data["text"] == "audio-stop: send audio first"


async def test_words_to_expect_reach_the_recogniser(home: Home, heard: FakeTranscriber) -> None:
    async with home.client() as client:
        await say(client, loud(0.5), transcript_names=["Nabu"], transcript_terms=["dimmer"])
        await client.until("transcript")
    assert heard.requests[-1].options.keyterms == ("Nabu", "dimmer")
