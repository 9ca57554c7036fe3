"""LiveKit's plugin for Inworld, as it is published, pointed at this service."""

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelines.audio.encode.encoder import wav_header
from tests.api.local_server import Server
from tests.clients.conftest import english_voice, speak_through
from tests.clients.inworld_texts import LETTER, SENTENCE
from tests.clients.registry_clients import RegistryClients

SCRIPT = Path(__file__).with_name("inworld_livekit.py")
CHARACTER_S = 0.06  # of the tone engine


@pytest.fixture(scope="module")
def seen(registry_clients: RegistryClients, tone_server: Server) -> dict[str, Any]:
    """The results of all turns; one run, since it takes seconds to start."""
    return speak_through(registry_clients, SCRIPT, tone_server)


def is_whole(speech: dict[str, Any], text: str) -> bool:
    """Whether the speech is as long as the text, with all words in order and timed within it."""
    words = [word.strip() for word, _, _ in speech["words"]]
    times = [time for _, start, end in speech["words"] for time in (start, end)]
    return (
        words == text.split()
        and times == sorted(times)
        and times[-1] == pytest.approx(speech["seconds"], abs=0.1)
        and speech["seconds"] == pytest.approx(len(text) * CHARACTER_S, rel=0.4)
    )


def test_turns_have_all_words_and_share_one_connection(seen: dict[str, Any]) -> None:
    assert is_whole(seen["first"], SENTENCE) and seen["first"]["rate"] == 24_000
    assert is_whole(seen["second"], LETTER)
    assert seen["same_connection"]


def test_three_concurrent_turns_do_not_mix(seen: dict[str, Any]) -> None:
    assert all(is_whole(one, LETTER) for one in seen["together"])


def test_audio_of_an_interrupted_turn_is_not_in_the_next(seen: dict[str, Any]) -> None:
    assert 0 < seen["interrupted"] < 20
    assert is_whole(seen["after"], SENTENCE)


def test_text_streamed_in_pieces_is_spoken_completely(seen: dict[str, Any]) -> None:
    assert is_whole(seen["pieces"], LETTER)


def test_character_timestamps_cover_the_text(seen: dict[str, Any]) -> None:
    letters = "".join(letter for letter, _, _ in seen["letters"]["words"])
    assert letters.split() == SENTENCE.split()


@pytest.mark.parametrize("encoding", ["PCM", "LINEAR16", "MP3", "OGG_OPUS", "FLAC"])
@pytest.mark.parametrize("way", ["socket", "http"])
def test_every_encoding_of_the_plugin_works_over_socket_and_http(
    seen: dict[str, Any], way: str, encoding: str
) -> None:
    speech = seen[f"{way} {encoding}"]
    assert speech["seconds"] == pytest.approx(seen["second"]["seconds"], abs=0.6)
    assert [word.strip() for word, _, _ in speech["words"]] == LETTER.split()


def test_service_errors_raise_the_error_classes_of_the_plugin(seen: dict[str, Any]) -> None:
    assert seen["unknown voice"].startswith("APIError: Inworld error: no voice has that")
    assert seen["unknown voice, http"].startswith("APIStatusError")
    assert is_whole(seen["again"], SENTENCE)
    assert seen["wrong key"].startswith("APIConnectionError")
    assert "401" in seen["wrong key, http"]


def test_the_plugin_lists_voices_of_the_service(seen: dict[str, Any], tone_server: Server) -> None:
    assert english_voice(tone_server) in [voice["voiceId"] for voice in seen["voices"]]


@pytest.mark.slow
@pytest.mark.weights
def test_speech_of_the_fast_voice_through_the_plugin_is_transcribed_correctly(
    registry_clients: RegistryClients, speech_server: Server
) -> None:
    voice = english_voice(speech_server)
    arguments = speech_server.url, speech_server.key, voice, "first"
    first = registry_clients.run(SCRIPT, *arguments)
    assert [word.strip() for word, _, _ in first["first"]["words"]] == SENTENCE.split()
    assert transcript(speech_server, base64.b64decode(first["pcm"])) == "the weather is nice today"


def transcript(server: Server, pcm: bytes) -> str:
    """The transcript of PCM at 24 kHz, in lower case, without punctuation."""
    answer = httpx.post(
        f"{server.url}/stt",
        files={"audio": wav_header(24_000, len(pcm)) + pcm},
        headers={"Authorization": f"Bearer {server.key}"},
        timeout=60,
        trust_env=False,
    )
    text: str = answer.raise_for_status().json()["text"]
    return "".join(letter for letter in text.lower() if letter.isalpha() or letter == " ").strip()
