"""What the program behind `make run` says of its settings before it starts anything."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from configs.settings import PROJECT_DIR, load_settings
from deployments.main import doubts, readyz
from tests.servers import free_port


def ended(folder: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """The exit status of the program, and what it wrote to its two streams."""
    done = subprocess.run(
        [sys.executable, "-m", "deployments.main", *arguments],
        cwd=PROJECT_DIR,
        env={
            **os.environ,
            "ANTIPHON_DATA": str(folder),
            "PORT": str(free_port()),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def taken_port() -> Iterator[int]:
    """One on which another gateway listens, which would share it with a gateway."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "abc"), ("DATABASE_URL", "postgresql://user:canary@127.0.0.1:1/database")],
)
def test_a_wrong_setting_ends_the_start_with_one_sentence(
    tmp_path: Path, name: str, value: str
) -> None:
    status, said, complained = ended(tmp_path, **{name: value})
    assert (status, said) == (1, "")
    assert complained.startswith(name) and complained.count("\n") == 1, complained
    assert "canary" not in complained


def test_a_port_of_another_service_is_not_shared(tmp_path: Path, taken_port: int) -> None:
    status, said, complained = ended(tmp_path, HOST="127.0.0.1", PORT=str(taken_port))
    assert (status, said) == (1, "")
    assert complained.startswith("HOST and PORT") and "already in use" in complained, complained


@pytest.mark.parametrize("text", [None, "[]", "applications: ["])
def test_a_configuration_that_is_none_is_a_wrong_usage(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "serve.yaml"
    if text is not None:
        file.write_text(text)
    status, _, complained = ended(tmp_path, "--config", str(file))
    assert status == 2 and "--config: " in complained and "Traceback" not in complained, complained


@pytest.mark.parametrize(
    ("host", "public_url", "expected"),
    [
        ("127.0.0.1", "", 0),
        ("0.0.0.0", "", 1),
        ("::", "", 1),
        ("::", "https://speech.example", 0),
    ],
)
def test_addresses_that_nobody_else_can_reach_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, public_url: str, expected: int
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setenv("HOST", host)
    monkeypatch.setenv("PUBLIC_URL", public_url)
    warnings = doubts(load_settings())
    assert len(warnings) == expected and all("PUBLIC_URL" in text for text in warnings)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"status": "degraded", "degraded": ["files"]}', ["files"]),
        (b'{"status": "ok"}', []),
        (b"<html>", None),  # another program
    ],
)
def test_what_lacks_its_store_is_read_from_readyz(body: bytes, expected: list[str] | None) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        url = f"http://127.0.0.1:{server.server_port}/readyz"
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        told = readyz(url)
        assert (None if told is None else told.get("degraded", [])) == expected
        answering.join()
    assert readyz(url) is None  # the server has ended
