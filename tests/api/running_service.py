"""The tests of the interface against gateways that run:

    GATEWAYS=http://10.0.0.1:8000,http://10.0.0.2:8000 pytest tests/api

Requests go to the gateways in turn, so what one writes the next one reads. Tests that look into the
application or change it are skipped. The service has the models of `config_without_weights`, open
sign-up and plans that can be changed, and trusts `X-Forwarded-For` of this machine.
"""

import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from tests.api.sockets.client import SocketAddresses
from tests.patience import PATIENCE_S

URLS = [url for url in os.environ.get("GATEWAYS", "").split(",") if url]
MAIL = b"@example.com"
INSIDE = {"services", "app", "settings", "books", "server", "stt_server", "plain", "fake"}
INSIDE |= {"monkeypatch", "tmp_path", "database", "caplog", "capsys"}
APPLICATION = ("settings", "services", "app")
REPLACED = {"client", "auth", "other_auth", "shared_server"}


def is_from_outside(item: pytest.Item) -> bool:
    """Whether the test uses the service, and neither it nor a fixture of it its objects."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("in_process"):
        return False
    if vars(item.module).keys() & INSIDE or replaces_application(item):
        return False
    definitions = item._fixtureinfo.name2fixturedefs
    wanted, seen = list(item._fixtureinfo.argnames), set[str]()
    while wanted:
        name = wanted.pop()
        if name not in seen:
            seen.add(name)
            if name not in REPLACED:
                wanted += [one for made in definitions.get(name, ()) for one in made.argnames]
    return bool(seen & REPLACED) and not seen & INSIDE


def replaces_application(item: pytest.Function) -> bool:
    """Whether a conftest.py near the test defines the application again, so that it has other
    engines than the service that runs."""
    manager = item.session._fixturemanager
    return any(len(manager.getfixturedefs(name, item) or ()) > 1 for name in APPLICATION)


class InTurn(httpx.AsyncHTTPTransport):
    """Sends each request to the next gateway. Tests have an address and a mail domain each, so that
    they may sign up the same people."""

    def __init__(self) -> None:
        super().__init__()
        self._urls = cycle(map(httpx.URL, URLS))
        self._address = f"192.0.{random.randrange(256)}.{random.randrange(256)}"
        self._domain = f"@{uuid4().hex}.example.com".encode()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        gateway = next(self._urls)
        request.url = request.url.copy_with(
            scheme=gateway.scheme, host=gateway.host, port=gateway.port
        )
        request.headers.setdefault("X-Forwarded-For", self._address)
        if not (request.url.path.startswith("/auth") and "Content-Length" in request.headers):
            return await super().handle_async_request(request)
        body = (await request.aread()).replace(MAIL, self._domain)
        request.headers["Content-Length"] = str(len(body))
        request.stream = httpx.ByteStream(body)
        answer = await super().handle_async_request(request)
        said = (await answer.aread()).replace(self._domain, MAIL)
        headers = [(name, value) for name, value in answer.headers.raw if name != b"content-length"]
        await answer.aclose()
        return httpx.Response(answer.status_code, headers=headers, content=said)


def make_client() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=InTurn(), base_url="http://test", timeout=PATIENCE_S)


async def sign_up(client: httpx.AsyncClient) -> dict[str, str]:
    body = {"email": f"{uuid4().hex}@example.com", "password": f"a password {uuid4().hex}"}
    answer = await client.post("/auth/signup", json=body)
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def make_key(client: httpx.AsyncClient) -> str:
    """Of a new workspace, with every scope."""
    answer = await client.post(
        "/developer/api", json={"name": "Tests"}, headers=await sign_up(client)
    )
    assert answer.status_code == 201, answer.text
    key: str = answer.json()["key"]
    return key


@dataclass(frozen=True)
class RunningServer(SocketAddresses):
    """What tests that only open sockets use of `tests.api.sockets.conftest.SocketServer`."""

    key: str
    voice_id: str

    @property
    def address(self) -> str:
        return random.choice(URLS).removeprefix("http://")

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"looks at `{name}` of the application")


@pytest.fixture
def errors_cost_no_time() -> None:
    """Here they do."""


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with make_client() as made:
        yield made


@pytest.fixture
async def auth(client: httpx.AsyncClient) -> dict[str, str]:
    return {"Authorization": f"Bearer {await make_key(client)}"}


@pytest.fixture
async def other_auth(client: httpx.AsyncClient) -> dict[str, str]:
    return await sign_up(client)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_server() -> AsyncIterator[RunningServer]:
    async with make_client() as client:
        key = await make_key(client)
        headers = {"Authorization": f"Bearer {key}"}
        bought = await client.post(
            "/billing/subscribe", json={"plan_id": "enterprise"}, headers=headers
        )
        assert bought.status_code == 201, bought.text
        voices = (await client.get("/default-voices", headers=headers)).json()["data"]
        yield RunningServer(key, voices[0]["voice_id"])
