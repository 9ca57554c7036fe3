"""The addresses on which the service and its Ray cluster listen, and who may ask Ray."""

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from benchmarks.harness.service import Service, running_service
from tests.processes import assert_on_loopback, command_of, exposed, find, listeners
from tests.promises.conftest import config_without_weights
from tests.servers import free_port

pytestmark = pytest.mark.ray


@contextmanager
def service(**variables: str) -> Iterator[tuple[Service, str]]:
    """The service as `make run` starts it, with all its applications; its dashboard's URL."""
    dashboard = free_port()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as environment:
        # That of the tests' own clusters; without it the service makes one.
        environment.delenv("RAY_AUTH_TOKEN")
        file = Path(folder, "serve.yaml")
        file.write_text(yaml.safe_dump(config_without_weights()))
        command = [sys.executable, "-m", "deployments.main", "--config", str(file)]
        variables |= {"RAY_DASHBOARD_PORT": str(dashboard)}
        with running_service([*command, "--num-cpus", "2"], variables) as running:
            yield running, f"http://127.0.0.1:{dashboard}"


def speak(running: Service, headers: dict[str, str]) -> httpx.Response:
    body = {"text": "Hello", "voice": "Alto"}
    return httpx.post(f"{running.url}/tts-synthesize", json=body, headers=headers, timeout=30)


@pytest.mark.slow  # tests/promises looks at the sockets of a service that runs anyway
def test_by_default_every_socket_is_on_the_loopback() -> None:
    with service() as (running, dashboard):
        assert_on_loopback(running.pid)
        assert httpx.get(f"{dashboard}/api/serve/applications/").status_code == 401
        assert running.console == f"{running.url}/console"  # its output is no terminal
        port = running.url.rpartition(":")[2]
        command = [sys.executable, "-m", "deployments.operator", "login-link"]
        environment = {**os.environ, "ANTIPHON_DATA": str(running.data), "PORT": port}
        printed = subprocess.run(command, env=environment, check=True, capture_output=True)
        address, _, token = printed.stdout.decode().strip().partition("#login=")
        assert address == running.console
        link = {"token": token}
        proxied = {"X-Forwarded-For": "203.0.113.7"}
        url = f"{running.url}/auth/link"
        assert httpx.post(url, json=link, headers=proxied).status_code == 404
        answers = [httpx.post(url, json=link) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 401]
        owner = {"Authorization": f"Bearer {answers[0].json()['token']}"}
        spoken = speak(running, owner)
        assert spoken.status_code == 200 and spoken.headers["X-RateLimit-Limit"] == "100000"
        usage = httpx.get(f"{running.url}/billing/usage", headers=owner).json()
        assert (usage["total_cost"], usage["credit_balance"]) == (0, 5)
        assert usage["usage"][0]["units"] == len("Hello")
        logs = find(running.pid, "/raylet ")
        session = re.search(r"/\S+/session_[^/\s]+", command_of(logs[0]))
        assert session is not None
        for log in Path(session[0], "logs").rglob("*"):
            assert log.is_dir() or token.encode() not in log.read_bytes()


@pytest.mark.slow
def test_an_exposed_host_opens_the_gateway_and_guards_ray() -> None:
    with service(HOST="0.0.0.0") as (running, dashboard):
        port = running.url.rpartition(":")[2]
        assert set().union(*exposed(listeners(running.pid)).values()) == {f"0.0.0.0:{port}"}
        job = {"entrypoint": "true"}
        bare = httpx.post(f"{dashboard}/api/jobs/", json=job)
        headers = {"Authorization": f"Bearer {'0' * 64}"}
        wrong = httpx.post(f"{dashboard}/api/jobs/", json=job, headers=headers)
        assert (bare.status_code, wrong.status_code) == (401, 403)
        headers = {"Authorization": f"Bearer {(running.data / 'ray_token').read_text()}"}
        listed = httpx.get(f"{dashboard}/api/jobs/", headers=headers, timeout=30)
        # Of the two jobs above none is there, only the service itself.
        assert listed.status_code == 200 and [one["type"] for one in listed.json()] == ["DRIVER"]
        headers = {"Authorization": f"Bearer {running.key}"}
        spoken = speak(running, headers)
        assert spoken.status_code == 200, spoken.text
        assert spoken.headers["X-RateLimit-Limit"] == "60"
        assert httpx.get(f"{running.url}/billing/usage", headers=headers).json()["total_cost"] > 0
        assert running.console == f"{running.url}/console"
        answer = httpx.post(f"{running.url}/auth/link", json={"token": "any"})
        assert answer.status_code == 404


def test_the_sockets_of_a_process_are_found_by_their_addresses() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")):
        with socket.create_server((host, 0), family=family) as server:
            address = f"{host}:{server.getsockname()[1]}"
            assert address in set().union(*listeners(os.getpid()).values())
            assert (address in str(exposed(listeners(os.getpid())))) == (host == "::")
