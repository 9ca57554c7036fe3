"""Calls over WebRTC from Chromium, with its own microphone: by OpenAI's agents SDK and by hand."""

import functools
import http.server
import shutil
import subprocess
import threading
import wave
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.weights.store import WeightStore
from tests.api.local_server import Server, serve_services
from tests.api.replaced import with_infrastructure
from tests.clients.browser import PAGES, QuietHandler, open_url
from tests.clients.conftest import dialogue_services
from tests.clients.dialogue import FAREWELL, GREETING
from tests.clients.microphone import RATE
from tests.clients.node_clients import NodeClients
from tests.servers import free_port

pytestmark = [pytest.mark.weights, pytest.mark.slow]

PAGE = "calls.html"
BUNDLE = "dist/bundle/openai-realtime-agents.umd.js"
MODEL = "gpt-realtime-mini"
LEAD_S = 4.0  # from the opening of the microphone until the call has connected
TURN_S = 12.0  # from one turn of the user to the next
PATIENCE_S = 45


@pytest.fixture(scope="module")
def call_server(tmp_path_factory: pytest.TempPathFactory, weights: WeightStore) -> Iterator[Server]:
    """As `agent_server`, and pages of other origins may call it."""
    services = dialogue_services(tmp_path_factory.mktemp("calls"), weights)
    settings = replace(services.infrastructure.settings, cors_origins=("*",))
    with serve_services(with_infrastructure(services, settings=settings)) as running:
        yield running


def microphone(path: Path, sentences: Path, *names: str) -> Path:
    """Writes a dialogue of the user's turns, with pauses for the answers."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(bytes(round(LEAD_S * RATE) * 2))
        for name in names:
            with wave.open(str(sentences / f"{name}.wav")) as sentence:
                file.writeframes(sentence.readframes(sentence.getnframes()))
            file.writeframes(bytes(round(TURN_S * RATE) * 2))
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, node_clients: NodeClients) -> Iterator[str]:
    """The address of a folder with the page and the SDK for browsers."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copy(PAGES / PAGE, folder)
    shutil.copy(node_clients.package("@openai/agents-realtime") / BUNDLE, folder)
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def client_secret(server: Server) -> str:
    transcription = {"model": "whisper-1", "language": "en"}
    session = {
        "type": "realtime",
        "model": MODEL,
        "audio": {"input": {"transcription": transcription}},
    }
    answer = httpx.post(
        f"{server.url}/openai/v1/realtime/client_secrets",
        headers={"Authorization": f"Bearer {server.key}"},
        json={"session": session},
    )
    return str(answer.raise_for_status().json()["value"])


def test_openais_agents_sdk_holds_a_dialogue_with_a_tool_at_its_defaults(
    call_server: Server, pages: str, sentences: Path, tmp_path: Path
) -> None:
    url = f"{call_server.url}/openai/v1/realtime/calls"
    spoken = microphone(tmp_path / "dialogue.wav", sentences, "weather", "goodbye")
    with open_url(pages, PAGE, spoken) as page:
        arguments = (url, client_secret(call_server), MODEL, 3, PATIENCE_S)
        seen: dict[str, Any] = page.call("agents", *arguments)
    assert seen["errors"] == [] and seen["calls"] == ["Oslo"]
    assert seen["said"][1:] == ["In Oslo it is fine in Oslo.", FAREWELL]
    assert any("weather" in text.lower() for text in seen["heard"])
    assert seen["loudest"] > 0.02


@pytest.fixture(params=["direct", "relay"])
def peer_configuration(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The configuration of a peer connection, with a TURN server or without.

    Skips the latter where coturn is not installed.
    """
    if request.param == "direct":
        yield {}
        return
    program = shutil.which("turnserver")
    if program is None:
        pytest.skip("coturn is not installed, so calls through a TURN server were NOT tried")
    port = free_port()
    options = ["--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1", f"--listening-port={port}"]
    options += ["--allow-loopback-peers", "--lt-cred-mech", "--user=caller:secret", "--realm=test"]
    options += ["--no-tls", "--no-dtls", "--no-cli", "--pidfile=", "--log-file=stdout"]
    with subprocess.Popen([program, "-n", *options], stdout=subprocess.DEVNULL) as turn:
        server = {
            "urls": f"turn:127.0.0.1:{port}?transport=tcp",
            "username": "caller",
            "credential": "secret",
        }
        yield {"iceServers": [server], "iceTransportPolicy": "relay"}
        turn.terminate()


def test_a_page_without_an_sdk_holds_a_dialogue(
    call_server: Server,
    pages: str,
    sentences: Path,
    tmp_path: Path,
    peer_configuration: dict[str, Any],
) -> None:
    url = f"{call_server.url}/openai/v1/realtime/calls"
    spoken = microphone(tmp_path / "dialogue.wav", sentences, "stop", "goodbye")
    with open_url(pages, PAGE, spoken) as page:
        arguments = (url, client_secret(call_server), 2, PATIENCE_S, peer_configuration)
        seen: dict[str, Any] = page.call("plain", *arguments)
    if peer_configuration:
        assert seen["paths"] == ["relay"], seen
    assert seen["location"].startswith("/v1/realtime/calls/rtc_")
    assert seen["said"] == [GREETING, FAREWELL], seen
    assert "enough" in seen["heard"][0].lower() and "bye" in seen["heard"][1].lower()
    assert seen["kinds"].count("output_audio_buffer.started") == 2 and seen["loudest"] > 0.02
