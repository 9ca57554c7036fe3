"""Both sockets from Node: its own WebSocket, and the package `ws` of npm."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.api.local_server import Server
from tests.clients.conftest import english_voice
from tests.clients.node_clients import NodeClients, require_node

SCRIPT = Path(__file__).parent / "sockets_node.mjs"
TEXT = "A sentence from Node."


@pytest.fixture
def command(request: pytest.FixtureRequest) -> list[str]:
    """The command that runs the script with that WebSocket implementation."""
    if request.param == "ws":
        clients: NodeClients = request.getfixturevalue("node_clients")
        return [str(clients.node), str(clients.script(SCRIPT.name))]
    return [str(require_node() / "bin" / "node"), str(SCRIPT)]


@pytest.mark.parametrize(
    "command", ["builtin", pytest.param("ws", marks=pytest.mark.slow)], indirect=True
)
def test_tts_and_stt_sockets_work_from_node(
    tone_server: Server, command: list[str], request: pytest.FixtureRequest
) -> None:
    kind = request.node.callspec.params["command"]
    base = tone_server.url.replace("http", "ws", 1)
    arguments = [kind, base, tone_server.key, english_voice(tone_server), TEXT]
    ran = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["speech"] == [
        "connecting",
        "connection_established",
        "context_created",
        "audio_chunk",
        "context_closed",
    ]
    assert seen["bytes"] / 32_000 == pytest.approx(len(TEXT) * 0.06, abs=0.5)
    assert seen["recognition"][:4] == [
        "connecting",
        "connection_established",
        "connected",
        "test_response",
    ]
    assert seen["recognition"][-1] == "session_stopped"
    assert (seen["echo"]["message"], seen["echo"]["timestamp"]) == ("hello", 5)
    assert seen["summary"]["characters_transcribed"] == 0
