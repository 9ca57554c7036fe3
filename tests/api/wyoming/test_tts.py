"""Speech over Wyoming: whole texts, and texts that are streamed sentence by sentence."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.voices import VoicesConfig
from models.errors import EngineLost
from pipelines.tts.pipeline import SpeechPipeline
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.replaced import with_synthesis
from tests.api.wyoming.conftest import Event, Home, WyomingClient, listening, without_credit
from tests.pipelines.stt.listening_doubles import FakeTranscriber
from tests.pipelines.stt.voiced import INFO, VoicedSpeaker

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHARACTER_S = 0.06  # of the tone engine
RATE = 24_000
TEXT = "One two three four. "


def seconds(events: list[Event]) -> float:
    return sum(len(payload) for kind, _, payload in events if kind == "audio-chunk") / 2 / RATE


def kinds(events: list[Event]) -> list[str]:
    """Without repetitions."""
    found = [kind for kind, _, _ in events]
    return [one for index, one in enumerate(found) if index == 0 or found[index - 1] != one]


async def test_a_text_is_audio_between_its_start_and_its_stop(home: Home) -> None:
    before = await home.units("tts")
    async with home.client(version=None) as client:
        await client.send("synthesize", text=TEXT)
        events = await client.until("audio-stop")
    assert kinds(events) == ["audio-start", "audio-chunk", "audio-stop"]
    shape = {"rate": RATE, "width": 2, "channels": 1}
    assert all(data == shape for kind, data, _ in events if kind != "audio-stop")
    assert seconds(events) == pytest.approx(len(TEXT) * CHARACTER_S, rel=0.4)
    assert await home.units("tts") - before == len(TEXT)


@pytest.mark.parametrize("text", [" ", "<think>Only thoughts.</think>", "<think>Cut off"])
async def test_a_text_without_speech_is_answered_without_audio(home: Home, text: str) -> None:
    async with home.client() as client:
        await client.send("synthesize", text=text)
        assert kinds(await client.until("audio-stop"))[-1] == "audio-stop"
        # A tag that never became one does not reach the next text.
        await client.send("synthesize", text="One is <")
        await client.until("audio-stop")
        await client.send("synthesize", text=TEXT)
        assert seconds(await client.until("audio-stop")) > 0.5


@pytest.mark.parametrize(
    "voice", [{"name": "Bass"}, {"name": "bass", "speaker": "x"}, {"language": "de-AT"}, {}, None]
)
async def test_a_voice_is_chosen_by_name_by_language_or_by_the_text(
    home: Home, voice: dict[str, str] | None
) -> None:
    async with home.client() as client:
        await client.send("synthesize", text=TEXT, voice=voice)
        assert kinds(await client.until("audio-stop"))[-2:] == ["audio-chunk", "audio-stop"]


async def test_a_language_whose_voice_loads_is_unavailable_not_unknown(tmp_path: Path) -> None:
    heard = FakeTranscriber()
    services = local_services(local_settings(tmp_path))
    late = VoicedSpeaker(info=replace(INFO, engine="kokoro"))
    late.describe = AsyncMock(side_effect=EngineLost("it loads"))  # type: ignore[method-assign]
    speakers: dict[str, Any] = {"one": VoicedSpeaker(), "late": late}
    pipeline = SpeechPipeline(speakers, load_yaml(VoicesConfig, "voices"))
    try:
        async with listening(with_synthesis(services, pipeline), heard) as home:
            for language, code in (("de-AT", "unavailable"), ("sv-SE", "voice_not_found")):
                async with home.client() as client:
                    await client.send("synthesize", text=TEXT, voice={"language": language})
                    assert (await client.until("error"))[-1][1]["code"] == code
    finally:
        services.infrastructure.database.close()


async def test_a_voice_is_found_by_the_name_that_the_description_has(home: Home) -> None:
    async with home.client() as client:
        await client.send("describe")
        ((_, info, _),) = await client.until("info")
        names = [one["name"] for one in info["tts"][0]["voices"]]
        await client.send("synthesize", text=TEXT, voice={"name": names[1]})
        assert seconds(await client.until("audio-stop")) > 0.5


@pytest.mark.parametrize(
    "body", [{"text": "<speak>a<", "text_format": "ssml"}, {"text": "a " * 50_000}]
)
async def test_an_unspeakable_text_is_an_error_and_ends_its_audio(
    home: Home, body: dict[str, str]
) -> None:
    """Some versions of Home Assistant ignore errors, and wait for the end."""
    before = await home.units("tts")
    async with home.client() as client:
        await client.send("synthesize", **body)
        events = await client.until("audio-stop")
        assert kinds(events) == ["error", "audio-stop"]
        assert events[0][1]["text"]
        await client.send("synthesize", text=TEXT)
        assert seconds(await client.until("audio-stop")) > 0.5
    assert await home.units("tts") - before == len(TEXT)


async def test_a_text_of_nothing_to_speak_is_silence(home: Home) -> None:
    async with home.client() as client:
        await client.send("synthesize", text=" … ")
        assert kinds(await client.until("audio-stop")) == ["audio-start", "audio-stop"]


async def test_markup_is_read_aloud_where_the_text_is_said_to_be_plain(home: Home) -> None:
    text = "<speak>One</speak>"
    lengths = []
    async with home.client() as client:
        for text_format in ("ssml", None, "text"):
            await client.send("synthesize", text=text, text_format=text_format)
            lengths.append(seconds(await client.until("audio-stop")))
    assert lengths[0] == lengths[1] < lengths[2]


async def test_texts_are_spoken_one_after_another(home: Home) -> None:
    async with home.client() as client:
        for text in (TEXT, TEXT * 3, TEXT):
            await client.send("synthesize", text=text)
        lengths = [seconds(await client.until("audio-stop")) for _ in range(3)]
    assert lengths[1] > 2 * lengths[0] and lengths[2] == pytest.approx(lengths[0], rel=0.3)


async def stream(client: WyomingClient, text: str, **options: Any) -> None:
    """As Home Assistant does: it repeats the whole text before the end."""
    await client.send("synthesize-start", **options)
    for start in range(0, len(text), 5):
        await client.send("synthesize-chunk", text=text[start : start + 5])
    await client.send("synthesize", text=text, **options)
    await client.send("synthesize-stop")


async def test_a_streamed_text_is_spoken_once_and_ends_with_its_end(home: Home) -> None:
    before = await home.units("tts")
    async with home.client() as client:
        await stream(client, TEXT * 4, voice={"name": "Alto"})
        events = await client.until("synthesize-stopped")
        await client.send("ping")
        assert kinds(await client.until("pong")) == ["pong"]
    assert kinds(events)[-2:] == ["audio-stop", "synthesize-stopped"]
    assert seconds(events) == pytest.approx(len(TEXT) * 4 * CHARACTER_S, rel=0.4)
    assert await home.units("tts") - before == pytest.approx(len(TEXT) * 4, abs=2)


async def test_speech_begins_while_the_text_is_still_written(home: Home) -> None:
    async with home.client() as client:
        await client.send("synthesize-start")
        await client.send("synthesize-chunk", text="This is the first sentence. And")
        assert kinds(await client.until("audio-stop"))[-1] == "audio-stop"
        await client.send("synthesize-chunk", text=" this is the rest")
        await client.send("synthesize-stop")
        rest = await client.until("synthesize-stopped")
    assert seconds(rest) == pytest.approx(len("And this is the rest") * CHARACTER_S, rel=0.5)


@pytest.mark.parametrize("text", ["", " \n ", "…"])
async def test_a_streamed_text_of_nothing_ends_too(home: Home, text: str) -> None:
    async with home.client() as client:
        await stream(client, text)
        events = await client.until("synthesize-stopped")
    assert "audio-chunk" not in kinds(events) and "error" not in kinds(events)


@pytest.mark.parametrize("text", ["a " * 50_000, "a" * 2_000])
async def test_a_streamed_text_without_sentences_is_spoken_in_parts_or_refused(
    home: Home, text: str
) -> None:
    async with home.client() as client:
        await client.send("synthesize-start", voice={"name": "Alto"})
        await client.send("synthesize-chunk", text=text)
        if len(text) > 50_000:
            ((_, data, _),) = await client.until("error")
            assert "50000 characters" in data["text"]
        await client.send("synthesize-stop")
        if len(text) > 50_000:
            ends = ["audio-stop", "synthesize-stopped"]
            assert kinds(await client.until("synthesize-stopped")) == ends


async def test_a_streamed_text_in_an_unknown_voice_fails_once_and_ends(home: Home) -> None:
    async with home.client() as client:
        await stream(client, TEXT * 3, voice={"name": "No One"})
        events = await client.until("synthesize-stopped")
    assert kinds(events) == ["error", "audio-stop", "synthesize-stopped"]


@pytest.mark.parametrize("voice", [{"name": "Ton"}, {"language": "de-AT"}, {}, None])
async def test_sentences_end_by_the_rules_of_the_voice_that_speaks(
    home: Home, voice: dict[str, str] | None
) -> None:
    async with home.client() as client:
        await client.send("synthesize-start", voice=voice)
        for piece in ("Wir kommen am 1. ", "Mai mit Anna."):
            await client.send("synthesize-chunk", text=piece)
            await asyncio.sleep(0.3)  # as long as a model may write the next word
        await client.send("synthesize-stop")
        events = await client.until("synthesize-stopped")
    assert [kind for kind, _, _ in events].count("audio-start") == 1


async def test_a_document_of_ssml_is_streamed_as_a_whole(home: Home) -> None:
    async with home.client() as client:
        await stream(client, "<speak>One. Two. <break time='1s'/> Three.</speak>")
        events = await client.until("synthesize-stopped")
    assert kinds(events) == ["audio-start", "audio-chunk", "audio-stop", "synthesize-stopped"]


@pytest.mark.parametrize("kind", ["synthesize-chunk", "synthesize-stop"])
async def test_a_part_of_a_text_without_its_start_is_an_error(home: Home, kind: str) -> None:
    async with home.client() as client:
        await client.send(kind, **({"text": "a"} if kind.endswith("chunk") else {}))
        ((_, data, _),) = await client.until("error")
    assert data["text"] == "send synthesize-start first"


async def test_speech_without_credit_is_an_error_in_each_manner(home: Home) -> None:
    async with without_credit(home), home.client() as client:
        await client.send("synthesize", text=TEXT)
        assert kinds(await client.until("audio-stop")) == ["error", "audio-stop"]
        await stream(client, TEXT * 2)
        events = await client.until("synthesize-stopped")
    assert events[0][1]["code"] == "insufficient_credit"


async def test_a_client_that_does_not_read_pauses_the_work_and_is_left(home: Home) -> None:
    sockets, before = home.services.infrastructure.sockets, await home.units("tts")
    limits = sockets.limits
    sockets.limits = limits.model_copy(update={"send_timeout_s": 0.5})
    async with home.client() as client:
        for _ in range(4):
            await client.send("synthesize", text=TEXT * 2000)
        await asyncio.sleep(0.1)
        await home.until_empty()
    sockets.limits = limits
    assert await home.units("tts") - before < len(TEXT) * 8000


async def test_a_name_is_spoken_by_the_voice_of_the_text_before(home: Home) -> None:
    async def pitch(client: WyomingClient, text: str) -> float:
        """Of the tone engine's voice, in Hz."""
        await client.send("synthesize", text=text)
        events = await client.until("audio-stop")
        pcm = np.frombuffer(b"".join(p for kind, _, p in events if kind == "audio-chunk"), "<i2")
        return float(np.abs(np.fft.rfft(pcm)).argmax() * RATE / len(pcm))

    async with home.client() as client:
        english = await pitch(client, "Anna Ferrari!")
    async with home.client() as client:
        german = await pitch(client, "Wo ist denn hier der Bahnhof?")
        assert german != pytest.approx(english, abs=3)
        for text in ("Anna Ferrari!", "Hello Zoë!", "OK."):
            assert await pitch(client, text) == pytest.approx(german, abs=3)
        assert await pitch(client, "Where is the station?") == pytest.approx(english, abs=3)
