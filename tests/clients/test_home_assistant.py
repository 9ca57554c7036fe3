"""Home Assistant itself, with its own integration, over engines with weights.

It is no package of .venv-clients, since its releases want interpreters of their own, and hundreds
of MB. HASS names its program: `HASS=/srv/ha/bin/hass pytest -m slow tests/clients/…`.
"""

import io
import os
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import av
import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal

from api.services import Services
from configs.settings import BRAND
from deployments.gateway.wyoming import WyomingListener
from models.audio import float_to_pcm16, resample
from models.stt.base import STT_SAMPLE_RATE
from models.weights.store import WeightStore
from tests.clients.conftest import dialogue_services
from tests.clients.dialogue import FAREWELL, GREETING, SENTENCES
from tests.clients.home_assistant import STREAMED, HomeAssistant
from tests.models.sounds import speak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STT, TTS, AGENT = (f"{kind}.{BRAND.lower()}" for kind in ("stt", "tts", "conversation"))
HOST = "127.0.0.1"
TEXT = "This is the first sentence. This is the second one. And this is the last"


@contextmanager
def listening(services: Services, key: str, port: int = 0) -> Iterator[WyomingListener]:
    """In a thread."""
    with start_blocking_portal(backend_options={"use_uvloop": True}) as portal:
        listener = WyomingListener(services, HOST, port, key)
        portal.call(listener.start)
        try:
            yield listener
        finally:
            sockets = services.infrastructure.sockets
            portal.call(listener.stop, sockets.drain(1, 1001, "the end"))
            sockets.draining = False  # for the next one


def spoken(text: str, weights: WeightStore) -> bytes:
    """As a microphone of Home Assistant sends it."""
    return float_to_pcm16(np.pad(speak(text, weights), STT_SAMPLE_RATE // 2))


def heard(file: bytes) -> bytes:
    """The audio of a file, to be transcribed."""
    with av.open(io.BytesIO(file), "r") as container:
        rate = container.streams.audio[0].rate
        frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
    pcm = np.concatenate(frames, axis=1)[0]
    if pcm.dtype == np.int16:
        pcm = pcm / 32768
    return float_to_pcm16(resample(pcm.astype(np.float32), rate, STT_SAMPLE_RATE))


def test_home_assistant_hears_speaks_and_talks_and_finds_the_service_again(
    tmp_path: Path, weights: WeightStore
) -> None:
    program = os.environ.get("HASS")
    if not program:
        pytest.skip("HASS names no program of Home Assistant, which was NOT tried")
    services = dialogue_services(tmp_path, weights)
    folder = tmp_path / "home"
    folder.mkdir()
    with start_blocking_portal() as portal:
        key = portal.call(services.platform.accounts.ensure_first_workspace)
    assert key is not None
    command = spoken(SENTENCES["goodbye"], weights)
    try:
        with HomeAssistant(program, folder) as home:
            with listening(services, key) as listener:
                port = listener.address[1]
                added = home.add(HOST, port)
                assert (added["type"], added["title"]) == ("create_entry", BRAND)
                entities = {STT, TTS, AGENT} if home.streams else {STT, TTS}
                assert entities <= home.entities()
                voices = home.ask("tts/engine/voices", engine_id=TTS, language="en")["voices"]
                story = home.transcribe(STT, spoken(SENTENCES["story"], weights), "en")
                assert story == {"text": SENTENCES["story"], "result": "success"}
                assert home.transcribe(STT, bytes(32_000), "en")["text"] == ""
                for voice in ({}, {"options": {"voice": voices[0]["voice_id"]}}):
                    said = home.transcribe(STT, heard(home.speak(TTS, TEXT, **voice)), "en")
                    assert "first sentence" in said["text"] and "the last" in said["text"]
                wav = home.speak(TTS, TEXT, options={"preferred_format": "wav"})
                with wave.open(io.BytesIO(wav)) as file:
                    assert file.getparams()[:3] == (1, 2, 24_000)
                if home.streams:
                    _talk(home, command)
            assert home.transcribe(STT, command, "en") == {"text": None, "result": "error"}
            with listening(services, key, port):
                assert home.transcribe(STT, command, "en")["text"] == SENTENCES["goodbye"]
                said = home.transcribe(STT, heard(home.speak(TTS, "It is back again.")), "en")
                assert "back again" in said["text"]
            errors = [line for line in home.log().splitlines() if " ERROR " in line]
            assert all("Error processing audio stream" in line for line in errors), errors
    finally:
        services.infrastructure.database.close()


def _talk(home: HomeAssistant, command: bytes) -> None:
    """A conversation, an assistant, and one whose answer is spoken while it is generated."""
    first = home.say(AGENT, "hello")
    again = home.say(AGENT, "bye", first["conversation_id"])
    assert again["conversation_id"] == first["conversation_id"]
    answers = [one["response"]["speech"]["plain"]["speech"] for one in (first, again)]
    assert answers == [GREETING, FAREWELL]
    for agent, answer in ((AGENT, FAREWELL), ("conversation.streamed", STREAMED)):
        seen = home.assist(command, stt=STT, tts=TTS, conversation=agent)
        assert "error" not in seen and seen["stt-end"]["stt_output"]["text"]
        said = home.transcribe(STT, heard(seen["audio"]), "en")["text"]
        words = answer.split()
        assert words[0] in said and words[-1].strip(".") in said, said
