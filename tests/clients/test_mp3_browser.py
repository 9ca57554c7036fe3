"""The MP3 of several flushes in the players of a page in Chromium, and in the program `ffmpeg`."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.api.local_server import Server
from tests.clients.browser import Browser, pages
from tests.clients.conftest import english_voice

pytestmark = pytest.mark.slow

SENTENCES = ("A sentence for the room.", "And one more.", "The last one is a little longer.")
CHARACTER_S = 0.06  # of the tone engine
RACHEL = "21m00Tcm4TlvDq8ikWAM"


def elevenlabs(server: Server, kind: str, context: dict[str, str]) -> list[str]:
    """Pieces of MP3 of one stream, in base64, with a flush after each sentence."""
    with _connect(server, f"v1/text-to-speech/{RACHEL}/{kind}") as socket:
        _send(socket, text=" ", xi_api_key=server.key, **context)
        for sentence in SENTENCES:
            _send(socket, text=f"{sentence} ", flush=True, **context)
        _send(socket, **({"close_socket": True} if context else {"text": ""}))
        messages = [json.loads(message) for message in socket]
    return [message["audio"] for message in messages if message.get("audio")]


def stream_input(server: Server) -> list[str]:
    return elevenlabs(server, "stream-input", {})


def multi_stream_input(server: Server) -> list[str]:
    return elevenlabs(server, "multi-stream-input", {"context_id": "a"})


def inworld(server: Server) -> list[str]:
    """Pieces as above, of a context at the defaults of Inworld's socket."""
    key = server.key
    with _connect(
        server, "tts/v1/voice:streamBidirectional", Authorization=f"Basic {key}"
    ) as socket:
        _send(socket, create={"voiceId": english_voice(server)}, contextId="a")
        for sentence in SENTENCES:
            _send(socket, send_text={"text": sentence, "flush_context": {}}, contextId="a")
        _send(socket, close_context={}, contextId="a")
        pieces = []
        for message in socket:
            result = json.loads(message)["result"]
            if "audioChunk" in result:
                pieces.append(result["audioChunk"]["audioContent"])
            if "contextClosed" in result:
                return pieces
    raise AssertionError("the socket ended before its context")


def _connect(server: Server, path: str, **headers: str) -> ClientConnection:
    url = f"{server.url.replace('http', 'ws', 1)}/{path}"
    return connect(url, additional_headers=headers, max_size=None)


def _send(socket: ClientConnection, **message: object) -> None:
    socket.send(json.dumps(message))


@pytest.mark.parametrize("pieces_of", [stream_input, multi_stream_input, inworld])
def test_players_play_the_mp3_of_several_flushes_to_its_end(
    tone_server: Server, browser: Browser, pieces_of: Callable[[Server], list[str]]
) -> None:
    pieces = pieces_of(tone_server)
    assert len(pieces) >= len(SENTENCES)
    expected_s = pytest.approx(sum(map(len, SENTENCES)) * CHARACTER_S, abs=0.7)
    with pages() as url, browser.open(url, "mp3.html") as page:
        seen = page.call("play", pieces)
    assert seen.pop("ranges") == 1
    assert seen == {"decoded": expected_s, "element": expected_s, "source": expected_s}
    if program := shutil.which("ffmpeg"):
        ran = subprocess.run(
            [program, "-nostdin", "-xerror", "-i", "-", "-f", "null", "-"],
            input=b"".join(map(base64.b64decode, pieces)),
            capture_output=True,
        )
        log = ran.stderr.decode()
        assert ran.returncode == 0, log
        hours, minutes, seconds = re.findall(r"time=(\d+):(\d+):([\d.]+)", log)[-1]
        assert int(hours) * 3600 + int(minutes) * 60 + float(seconds) == expected_s
        assert not re.search(r"error|invalid|skipped|missing", log, re.IGNORECASE), log
