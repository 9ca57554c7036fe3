"""Both sockets from a page in Chromium, which plays the audio and records its microphone."""

import base64
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.audio import pcm16_to_float
from tests.api.local_server import Server
from tests.clients.browser import Page, open_page
from tests.clients.conftest import english_voice, socket_url

pytestmark = pytest.mark.weights

TEXT = "The weather is nice today. Shall we go to the park?"


@pytest.fixture(scope="module")
def microphone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the browser takes as its microphone, once it exists."""
    return tmp_path_factory.mktemp("microphone") / "speech.wav"


@pytest.fixture(scope="module")
def page(microphone: Path) -> Iterator[Page]:
    with open_page("sockets.html", microphone) as opened:
        yield opened


@pytest.fixture(scope="module")
def spoken(speech_server: Server, page: Page, microphone: Path) -> dict[str, Any]:
    """The page's results of `/ws/tts`; the speech becomes the file of its microphone."""
    seen: dict[str, Any] = page.call("speak", *arguments(speech_server), "LINEAR16", 48_000)
    with wave.open(str(microphone), "wb") as file:
        file.setparams((1, 2, 48_000, 0, "NONE", ""))
        silence = bytes(2 * 24_000)
        file.writeframes(silence + base64.b64decode(seen["pcm"]) + silence * 4)
    return seen


def arguments(server: Server) -> tuple[str, str, str]:
    return socket_url(server, "/ws/tts"), english_voice(server), TEXT


def test_a_browser_page_plays_synthesised_speech(spoken: dict[str, Any]) -> None:
    assert "error" not in spoken
    assert spoken["names"] == [
        "connecting",
        "connection_established",
        "context_created",
        "audio_chunk",
        "flush_completed",
        "context_closed",
    ]
    assert spoken["code"] == 1000
    assert 2 < spoken["seconds"] < 6
    assert spoken["loudest"] > 0.05, "nothing was heard"
    pcm = pcm16_to_float(base64.b64decode(spoken["pcm"]))
    assert len(pcm) / 48_000 == pytest.approx(spoken["seconds"], abs=0.01)
    assert np.abs(pcm).max() > 0.05


def test_a_browser_page_decodes_each_opus_chunk_by_itself(
    speech_server: Server, page: Page, spoken: dict[str, Any]
) -> None:
    seen = page.call("speak", *arguments(speech_server), "OGG_OPUS", 24_000)
    assert "error" not in seen
    assert seen["chunks"] > 1 and seen["loudest"] > 0.05
    assert seen["seconds"] == pytest.approx(spoken["seconds"], rel=0.1)


@pytest.mark.parametrize("sample_rate", [pytest.param(44_100, marks=pytest.mark.slow), 48_000])
def test_browser_microphone_audio_is_transcribed_at_its_sample_rate(
    speech_server: Server, page: Page, spoken: dict[str, Any], sample_rate: int
) -> None:
    assert spoken["pcm"]
    config = {"interim_results_frequency": 500}
    heard = page.call("listen", socket_url(speech_server, "/ws/stt"), sample_rate, config)
    assert "error" not in heard
    text = heard["text"].lower()
    assert "weather" in text or "park" in text, heard
    assert heard["mode"] == "browser" and heard["code"] == 1000
    assert heard["types"][:4] == [
        "connecting",
        "connection_established",
        "connected",
        "speech_started",
    ]
    assert heard["types"][-1] == "session_stopped"
    assert heard["summary"]["total_duration_seconds"] > 1


@pytest.mark.parametrize(
    "mime",
    [
        "audio/webm;codecs=opus",
        pytest.param("audio/mp4;codecs=opus", marks=pytest.mark.slow),
    ],
)
def test_what_a_browser_records_is_transcribed_on_deepgrams_socket(
    speech_server: Server, page: Page, spoken: dict[str, Any], mime: str
) -> None:
    assert spoken["pcm"]
    address = socket_url(speech_server, "/v1/listen").partition("?")[0]
    seen = page.call("record", f"{address}?smart_format=true", speech_server.key, mime)
    if seen is None:
        pytest.skip(f"this Chromium records no {mime}")
    assert (seen["errors"], seen["code"]) == ([], 1000)
    assert "weather" in seen["texts"][0].lower() or "park" in seen["texts"][0].lower(), seen
    assert seen["duration"] == pytest.approx(seen["seconds"], abs=0.7) and seen["sent"] > 5
