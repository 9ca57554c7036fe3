"""The WebSocket handshake: an HTTP status and error for each reason of refusal."""

import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from pipelines.accounts.service import Accounts
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer, upgrade

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATHS = ["/ws/tts", "/ws/stt"]
INWORLD = "/tts/v1/voice:streamBidirectional"


async def refused(url: str, **options: Any) -> httpx.Response:
    """The answer in place of the upgrade."""
    with pytest.raises(InvalidStatus) as refusal:
        async with connect(url, **options):
            pass
    answer = refusal.value.response
    headers = list(answer.headers.raw_items())
    return httpx.Response(answer.status_code, headers=headers, content=bytes(answer.body or b""))


async def new_key(server: SocketServer, scopes: list[str]) -> tuple[int, str]:
    accounts: Accounts = server.services.platform.accounts
    principal = await accounts.authenticator.authenticate(server.key)
    made = await accounts.create_key(principal, "another", scopes, None)
    return made.row.id, made.key


async def new_workspace(server: SocketServer, email: str) -> str:
    """The token of its user; on the plan `enterprise`."""
    signed_in = await server.services.platform.accounts.sign_up(email, "a long password", "", "")
    await server.services.infrastructure.database.run(upgrade)
    return signed_in.token


@pytest.mark.parametrize("path", [*PATHS, "/openai/v1/realtime", "/telephony/twilio", INWORLD])
async def test_get_without_upgrade_returns_200_ok(shared_server: SocketServer, path: str) -> None:
    async with httpx.AsyncClient(base_url=f"http://{shared_server.address}") as client:
        answer = await client.get(path)
        assert (answer.status_code, answer.text) == (200, "ok")
        assert answer.headers["content-type"].startswith("text/plain")
        assert (await client.post(path)).status_code == 405


@pytest.mark.parametrize("path", ["/ws/tts/", "//ws//tts"])
async def test_further_slashes_in_a_path_change_nothing(
    shared_server: SocketServer, path: str
) -> None:
    async with connect(shared_server.url(path)):
        pass


@pytest.mark.parametrize("path", ["/", "/ws", "/ws/other", "/tts-stream"])
async def test_an_unknown_socket_path_is_404(shared_server: SocketServer, path: str) -> None:
    answer = await refused(shared_server.url(path))
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


async def test_a_model_of_too_many_characters_is_refused(shared_server: SocketServer) -> None:
    url = shared_server.url("/openai/v1/realtime")
    answer = await refused(f"{url}&model={'x' * 201}")
    assert answer.status_code == 400
    assert answer.json()["message"] == "model: at most 200 characters"


@pytest.mark.parametrize("path", PATHS)
async def test_a_browser_is_told_why_its_token_is_refused(
    shared_server: SocketServer, path: str
) -> None:
    _, chat = await new_key(shared_server, ["chat"])
    for key, code in (("tk_wrong", "unauthorized"), (chat, "insufficient_scope")):
        url = shared_server.url(path, key)
        assert (await refused(url)).json()["error"] == code
        async with connect(url, origin=Origin("https://page.example")) as socket:
            assert json.loads(await socket.recv())["error"] == code
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            received = closed.value.rcvd
            assert received is not None and (received.code, received.reason) == (4401, code)


async def test_more_sockets_than_the_plan_allows_are_429(shared_server: SocketServer) -> None:
    signed_in = await shared_server.services.platform.accounts.sign_up(
        "free@example.com", "a long password", "", ""
    )
    url = shared_server.url("/ws/tts", signed_in.token)
    async with connect(url), connect(url.replace("tts", "stt")):
        answer = await refused(url)
        assert (answer.status_code, answer.json()["error"]) == (429, "concurrency_limit")
        assert "2 sessions" in answer.json()["message"]
        assert int(answer.headers["retry-after"]) >= 1
        async with shared_server.tts():  # another workspace has its own limit
            pass
    await shared_server.until_empty()
    async with connect(url):
        pass


async def test_workspaces_that_flood_sockets_leave_some_to_the_next(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared_server.until_empty()
    monkeypatch.setattr(shared_server.services.infrastructure.sockets, "at_most", 16)
    tokens = [await new_workspace(shared_server, f"flood{one}@example.com") for one in range(5)]
    opened = [0] * 5
    async with AsyncExitStack() as stack:
        for one, token in enumerate(tokens):
            while True:
                try:
                    await stack.enter_async_context(connect(shared_server.url("/ws/tts", token)))
                except InvalidStatus as refusal:
                    assert refusal.response.status_code == 503
                    assert b'"overloaded"' in bytes(refusal.response.body or b"")
                    break
                opened[one] += 1
    assert opened == [8, 4, 2, 1, 1]
    await shared_server.until_empty()


async def test_a_draining_server_refuses_handshakes_with_503(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_server.services.infrastructure.sockets, "draining", True)
    answer = await refused(shared_server.url("/ws/tts"))
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    async with httpx.AsyncClient() as client:
        ready = await client.get(f"http://{shared_server.address}/readyz")
    assert ready.status_code == 503
