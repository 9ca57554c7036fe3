"""Both sockets from the `websockets` library, in both of its styles."""

import base64
import json
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.api.local_server import Server
from tests.clients.conftest import english_voice, socket_url

TEXT = "The weather is nice today. Shall we go to the park?"
SILENCE = b"\xff" * 480  # 60 ms of mu-law


def speak(connection: ClientConnection, voice_id: str, config: dict[str, Any]) -> bytes:
    """Runs a whole session and checks the order of its events; returns the audio."""
    names: list[str] = []
    audio = b""
    for text in connection:
        message = json.loads(text)
        name, body = next(iter(message.items()))
        names += [name] if names[-1:] != [name] else []
        if name == "connection_established":
            assert body["service"] == "tts" and isinstance(body["user_id"], int)
            create = {"context_id": "c", "voice_id": voice_id, "audio_config": config}
            connection.send(json.dumps({"create_context": create}))
            connection.send(json.dumps({"send_text": {"context_id": "c", "text": TEXT}}))
            connection.send(json.dumps({"flush_context": {"context_id": "c"}}))
            connection.send(json.dumps({"close_context": {"context_id": "c"}}))
        elif name == "audio_chunk":
            audio += base64.b64decode(body["audioContent"])
    assert names == [
        "connecting",
        "connection_established",
        "context_created",
        "audio_chunk",
        "flush_completed",
        "context_closed",
    ]
    assert connection.close_code == 1000
    return audio


def test_the_synchronous_client_receives_speech(tone_server: Server) -> None:
    with connect(socket_url(tone_server, "/ws/tts")) as connection:
        audio = speak(connection, english_voice(tone_server), {"sample_rate_hertz": 8000})
    assert len(audio) / 16_000 == pytest.approx(len(TEXT) * 0.06, abs=1.0)


@pytest.mark.weights
def test_speech_from_the_tts_socket_is_transcribed_by_the_stt_socket(speech_server: Server) -> None:
    config = {"audio_encoding": "MULAW", "sample_rate_hertz": 8000}
    with connect(socket_url(speech_server, "/ws/tts")) as connection:
        audio = speak(connection, english_voice(speech_server), config)
    assert recognised(speech_server, audio).lower().count("park") == 1


def recognised(server: Server, audio: bytes) -> str:
    """The texts of all finals of a mu-law call."""
    texts = []
    with connect(socket_url(server, "/ws/stt")) as connection:
        for text in connection:
            message = json.loads(text)
            kind = message.get("type") or next(iter(message))
            if kind == "connection_established":
                start = {"type": "start", "languages": ["en"], "config": {"continuous_mode": True}}
                connection.send(json.dumps(start))
            elif kind == "connected":
                for begin in range(0, len(audio), len(SILENCE)):
                    connection.send(audio[begin : begin + len(SILENCE)])
                for _ in range(20):
                    connection.send(SILENCE)
                connection.send(json.dumps({"type": "stop"}))
            elif kind == "transcription" and message["is_final"]:
                texts.append(message["text"])
            elif kind == "session_stopped":
                summary = message["billing_summary"]
                assert summary["total_duration_seconds"] > len(audio) / 8000
            assert kind != "error", message
        assert connection.close_code == 1000
    return " ".join(texts)
