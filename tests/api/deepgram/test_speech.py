"""Deepgram's `/v1/speak`, over HTTP and as a socket, over the tone engine."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.deepgram.options import foreign_voice
from api.dialects.outputs import stand_in
from models.base import ModelInfo, VoiceGender, VoiceInfo
from pipelines.tts.voices import AvailableVoice
from tests.api.deepgram.socket_client import DeepgramClient, deepgram
from tests.api.local_server import patient_client, serve_local
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.audio.encode.test_files import decode

PATH = "/v1/speak"
TEXT = "It costs 5 euros. Shall we go?"
SPOKEN_S = 2.3  # by the tone engine, with its pause
RAW = {"encoding": "linear16", "sample_rate": 16_000}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serve_local(tmp_path_factory.mktemp("deepgram")) as running:
        headers = {"Authorization": f"Token {running.key}"}
        with patient_client(running.url, headers) as opened:
            yield opened


def speak(http: httpx.Client, text: str = TEXT, **query: Any) -> httpx.Response:
    return http.post(PATH, json={"text": text}, params=query)


@pytest.mark.parametrize(
    ("query", "media_type", "rate"),
    [
        ({}, "audio/mpeg", 22_050),
        ({"encoding": "mp3", "bit_rate": 32_000}, "audio/mpeg", 22_050),
        ({"encoding": "mp3", "bit_rate": 64_000}, "audio/mpeg", 22_050),  # the default
        ({"encoding": "linear16"}, "audio/wav", 24_000),
        ({"encoding": "linear16", "container": "wav", "sample_rate": 8000}, "audio/wav", 8000),
        ({"encoding": "mulaw"}, "audio/wav", 8000),
        ({"encoding": "alaw", "container": "wav", "sample_rate": 16_000}, "audio/wav", 16_000),
        ({"encoding": "opus", "bit_rate": 24_000}, "audio/ogg", 48_000),
        ({"encoding": "flac", "sample_rate": 16_000}, "audio/flac", 16_000),
        ({"encoding": "aac", "bit_rate": 32_000}, "audio/aac", 22_050),
    ],
)
def test_each_encoding_is_a_file_at_its_rate(
    http: httpx.Client, query: dict[str, Any], media_type: str, rate: int
) -> None:
    answer = speak(http, **query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == media_type
    pcm, decoded_rate = decode(answer.content)
    assert decoded_rate == rate
    assert len(pcm) / rate == pytest.approx(SPOKEN_S, abs=0.4)


@pytest.mark.parametrize(("encoding", "size"), [("linear16", 2), ("mulaw", 1), ("alaw", 1)])
def test_without_a_container_there_are_bare_samples(
    http: httpx.Client, encoding: str, size: int
) -> None:
    query: dict[str, Any] = {"encoding": encoding, "container": "none", "sample_rate": 8000}
    data = speak(http, **query).content
    assert len(data) / size / 8000 == pytest.approx(SPOKEN_S, abs=0.4)
    faster = speak(http, **query, speed=1.5).content
    assert len(faster) / len(data) == pytest.approx(1 / 1.5, rel=0.2)


def test_the_answer_names_the_voice_that_speaks_and_the_characters_charged(
    http: httpx.Client,
) -> None:
    answer = speak(http, model="aura-2-thalia-en")
    voices = {one["uuid"]: one for one in http.get("/v1/models").json()["tts"]}
    voice = voices[answer.headers["dg-model-uuid"]]
    assert voice["name"] == answer.headers["dg-model-name"] and voice["languages"] == ["en"]
    assert answer.headers["dg-char-count"] == str(len(TEXT))
    assert answer.headers["dg-request-id"] == answer.headers["X-Request-Id"]
    by_id = speak(http, model=voice["uuid"])
    assert by_id.headers["dg-model-uuid"] == voice["uuid"]


def voice(key: str, language: str, gender: VoiceGender, *categories: str) -> AvailableVoice:
    info = VoiceInfo("tone", key, key, language, gender, "Neutral", categories=categories)
    return AvailableVoice(info, ModelInfo("m", "tts", "tone", "us", 0), "m")


def test_a_stand_in_has_the_language_and_the_gender_of_deepgrams_voice() -> None:
    genders: tuple[VoiceGender, ...] = ("male", "female", "male", "female")
    offered = [
        voice(f"{language}{number}", language, gender)
        for language in ("en", "de")
        for number, gender in enumerate(genders)
    ]
    names = ("apollo", "thalia", "zeus", "luna", "helena", "orion", "arcas", "hera")
    chosen = {}
    for name in names:
        foreign = foreign_voice(f"aura-2-{name}-en")
        assert foreign is not None
        one = stand_in(foreign, offered).info
        assert one == stand_in(foreign, offered[::-1]).info
        assert (one.language, one.gender) == ("en", foreign.gender)
        chosen[name] = one.key
    assert foreign_voice("aura-2-apollo-en").gender == "male"  # type: ignore[union-attr]
    assert foreign_voice("aura-asteria-en").gender == "female"  # type: ignore[union-attr]
    assert foreign_voice("flux-alexis-en") is not None and foreign_voice("Heart") is None
    assert len(set(chosen.values())) >= 3
    french = foreign_voice("aura-2-hector-fr")
    assert french is not None
    only = voice("fr", "fr", "female")
    assert stand_in(french, [*offered, only]) == only  # there is no man


def test_a_stand_in_is_a_voice_for_conversations_where_there_is_one() -> None:
    whispering = [voice(f"w{number}", "en", "female", "Audiobook") for number in range(9)]
    plain = [voice(f"c{number}", "en", "female", "Podcast", "Conversational") for number in (1, 2)]
    man = voice("m", "en", "male", "Gaming")
    other = voice("de", "de", "female", "Conversational")
    offered, chosen = [*whispering, *plain, man, other], set()
    for name in ("thalia", "luna", "helena", "hera", "asteria", "athena", "stella", "vesta"):
        foreign = foreign_voice(f"aura-2-{name}-en")
        assert foreign is not None
        chosen.add(stand_in(foreign, offered).info.key)
        assert stand_in(foreign, whispering) in whispering
    assert chosen == {"c1", "c2"}
    apollo = foreign_voice("aura-2-apollo-en")
    assert apollo is not None and stand_in(apollo, offered) == man  # the gender comes first


async def spoken(client: DeepgramClient, until: str) -> tuple[float, list[str]]:
    """Seconds of audio at 16 kHz until an event, and the types of all events."""
    events = await client.until(until)
    size = sum(len(one["audio"]) for one in events if one["type"] == "audio")
    return size / 32_000, [one["type"] for one in events if one["type"] != "audio"]


async def test_texts_are_spoken_after_their_flush_and_close_speaks_the_rest(
    server: SocketServer,
) -> None:
    async with deepgram(server, PATH, **RAW, model="aura-2-thalia-en") as client:
        metadata = await client.receive()
        for word in ("Shall ", "we ", "go ", "home "):
            await client.send("Speak", text=word)
        await client.send("Flush")
        seconds, kinds = await spoken(client, "Flushed")
        await client.send("Flush")  # nothing
        assert await spoken(client, "Flushed") == (0.0, ["Flushed"])
        await client.send("Speak", text="And the rest")
        await client.send("Close")
        events, code, _ = await client.rest()
    assert metadata["type"] == "Metadata" and metadata["model_name"] and metadata["request_id"]
    assert seconds == pytest.approx(16 * 0.06, abs=0.3) and kinds == ["Flushed"]
    assert {one["type"] for one in events} == {"audio"} and code == 1000


async def test_sentences_are_spoken_unflushed_and_only_flushes_are_confirmed(
    server: SocketServer,
) -> None:
    async with deepgram(server, PATH, **RAW) as client:
        await client.receive()
        await client.send("Speak", text="A whole sentence. ")
        first = await client.receive()
        assert first["type"] == "audio"
        await client.send("Speak", text="And part of")
        await client.send("Flush")
        events = await client.until("Flushed")
    assert [one["type"] for one in events if one["type"] != "audio"] == ["Flushed"]
    assert events[-1]["sequence_id"] == 0


async def test_clear_stops_the_speech_and_the_next_text_is_spoken(server: SocketServer) -> None:
    async with deepgram(server, PATH, **RAW) as client:
        await client.receive()
        await client.send("Speak", text="A sentence that is interrupted. " * 100)
        await client.send("Flush")
        assert (await client.receive())["type"] == "audio"
        await client.send("Clear")
        seconds, kinds = await spoken(client, "Cleared")
        await client.send("Speak", text="Next one.")
        await client.send("Flush")
        after, _ = await spoken(client, "Flushed")
    assert seconds < 150 and kinds == ["Cleared"]
    assert after == pytest.approx(9 * 0.06, abs=0.3)


@pytest.mark.parametrize("encoding", ["mulaw", "alaw"])
async def test_telephone_audio_has_a_byte_a_sample(server: SocketServer, encoding: str) -> None:
    async with deepgram(server, PATH, encoding=encoding, sample_rate=8000) as client:
        await client.receive()
        await client.send("Speak", text="Hello there")
        await client.send("Flush")
        events = await client.until("Flushed")
    data = b"".join(one["audio"] for one in events if one["type"] == "audio")
    assert len(data) / 8000 == pytest.approx(11 * 0.06, abs=0.3)
