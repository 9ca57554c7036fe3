"""Client secrets: what they open, until when, and what they never open."""

import asyncio
import json
import time
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
from openai.types.realtime import ClientSecretCreateResponse
from sqlmodel import select

from db.client_secrets import ClientSecret
from db.database import utc_now
from pipelines.accounts import authentication, client_secrets
from pipelines.accounts.authentication import (
    MISPLACED_SECRET,
    SECRET_PREFIX,
    UNKNOWN_SECRET,
    new_api_key,
)
from tests.altered import altered
from tests.api.inworld.socket_client import PATH as INWORLD
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.test_handshake import new_key, new_workspace, refused
from tests.api.sockets.test_sessions import limit
from tests.clock import WallClock
from tests.patience import PATIENCE_S

SOCKET = "/openai/v1/realtime"
TEN_MINUTES = timedelta(minutes=10)
INSTRUCTIONS = "Speak about pelicans."


async def create(
    server: SocketServer, key: str | None = None, scheme: str = "Bearer", **body: Any
) -> httpx.Response:
    headers = {"Authorization": f"{scheme} {key or server.key}"}
    async with httpx.AsyncClient(base_url=f"http://{server.address}") as client:
        return await client.post(f"{SOCKET}/client_secrets", headers=headers, json=body)


async def secret_of(server: SocketServer, key: str | None = None, **session: Any) -> str:
    answer = await create(server, key, session={"type": "realtime", **session})
    assert answer.status_code == 200, answer.text
    return cast(str, answer.json()["value"])


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"model": "gpt-9"}, "model_not_found"),
        ({"audio": {"output": {"voice": "nobody"}}}, "voice_not_found"),
    ],
)
async def test_impossible_sessions_get_no_client_secret(
    server: SocketServer, asked: dict[str, Any], code: str
) -> None:
    answer = await create(server, session={"type": "realtime", **asked})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)


def browser(server: SocketServer, secret: str, query: str = "model=gpt-realtime") -> Any:
    """A socket as OpenAI's clients open it in a browser, where they can set no header."""
    offered = ["realtime", f"openai-insecure-api-key.{secret}", "openai-agents-sdk.0.14"]
    return connect(f"ws://{server.address}{SOCKET}?{query}", subprotocols=offered)


async def opened(server: SocketServer, secret: str, query: str = "model=gpt-realtime") -> Any:
    """The session that the secret opens."""
    async with browser(server, secret, query) as socket:
        assert socket.subprotocol == "realtime"
        event = json.loads(await socket.recv())
        assert event["type"] == "session.created", event
        return event["session"]


async def refusal(server: SocketServer, key: str, path: str = SOCKET) -> tuple[int, str]:
    """The status and message in place of the upgrade."""
    headers = {"Authorization": f"Bearer {key}"}
    answer = await refused(f"ws://{server.address}{path}", additional_headers=headers)
    return answer.status_code, answer.json()["message"]


async def rows(server: SocketServer) -> list[ClientSecret]:
    database = server.services.infrastructure.database
    return await database.read(lambda session: list(session.exec(select(ClientSecret))))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"expires_after": {"anchor": "created_at", "seconds": 600}},
        {"session": {"type": "realtime", "model": "gpt-realtime", "instructions": INSTRUCTIONS}},
        {"session": {"type": "transcription"}},
    ],
)
async def test_a_secret_is_answered_in_the_shape_of_openai(
    server: SocketServer, body: dict[str, Any]
) -> None:
    answer = await create(server, **body)
    assert answer.status_code == 200, answer.text
    assert int(answer.headers["x-ratelimit-remaining"]) >= 0  # it is a request of the plan
    made = ClientSecretCreateResponse.model_validate(answer.json())
    assert made.value.startswith(SECRET_PREFIX) and made.session.id.startswith("sess_")
    assert made.session.type == body.get("session", {}).get("type", "realtime")
    assert 590 < made.expires_at - time.time() <= 600


async def test_a_browser_opens_sessions_with_their_configuration_until_the_secret_expires(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "CACHE_TTL_S", 0.0)
    limit(server, monkeypatch, recheck_s=0.05)
    clock = WallClock(monkeypatch)
    voice = {"output": {"voice": "marin"}}
    secret = await secret_of(server, instructions=INSTRUCTIONS, audio=voice)
    for _ in range(2):
        session = await opened(server, secret)
        assert session["instructions"] == INSTRUCTIONS
        assert session["audio"]["output"]["voice"] == "marin"
    async with browser(server, secret) as live:
        await live.recv()
        clock.ahead = TEN_MINUTES
        assert await refusal(server, secret) == (401, UNKNOWN_SECRET)
        await asyncio.sleep(0.3)  # several checks of its key
        await live.send(json.dumps({"type": "input_audio_buffer.clear"}))
        assert json.loads(await live.recv())["type"] == "input_audio_buffer.cleared"


async def test_the_session_of_a_secret_takes_precedence_over_the_query(
    server: SocketServer,
) -> None:
    secret = await secret_of(server, model="gpt-realtime-mini")
    assert (await opened(server, secret, "model=gpt-realtime"))["model"] == "gpt-realtime-mini"
    made = await create(server, session={"type": "transcription"})
    for query in ("intent=transcription", "model=gpt-realtime"):
        session = await opened(server, made.json()["value"], query)
        assert session["type"] == "transcription"
    secret = await secret_of(server)
    assert (await opened(server, secret, "intent=transcription"))["type"] == "realtime"


@pytest.mark.parametrize("way", ["header", "query"])
async def test_a_secret_may_be_sent_as_any_key(server: SocketServer, way: str) -> None:
    secret = await secret_of(server)
    headers = {"Authorization": f"Bearer {secret}"} if way == "header" else {}
    query = f"?apiKey={secret}" if way == "query" else ""
    async with connect(f"ws://{server.address}{SOCKET}{query}", additional_headers=headers) as one:
        assert json.loads(await one.recv())["type"] == "session.created"
        assert one.subprotocol is None


async def test_a_key_makes_secrets_only_of_sessions_that_its_scopes_allow(
    server: SocketServer,
) -> None:
    _, listens = await new_key(server, ["stt"])
    _, speaks = await new_key(server, ["tts", "chat"])
    made = await create(server, listens, session={"type": "transcription"})
    assert (await opened(server, made.json()["value"]))["type"] == "transcription"
    for key, kind in ((listens, "realtime"), (speaks, "realtime"), (speaks, "transcription")):
        answer = await create(server, key, session={"type": kind})
        assert answer.status_code == 403, (key, kind)
        assert answer.json()["error"]["code"] == "insufficient_scope"


@pytest.mark.parametrize("path", ["/ws/tts", "/ws/stt", INWORLD])
async def test_other_sockets_refuse_a_secret_without_looking_it_up(
    server: SocketServer, path: str
) -> None:
    secret = await secret_of(server)
    assert await refusal(server, secret, path) == (401, MISPLACED_SECRET)
    offered = ["realtime", f"openai-insecure-api-key.{server.key}"]
    answer = await refused(f"ws://{server.address}{path}", subprotocols=offered)
    assert answer.status_code == 401  # nor do they read subprotocols


async def test_routes_refuse_a_secret_also_the_one_that_makes_them(server: SocketServer) -> None:
    secret = await secret_of(server)
    answers = [await create(server, secret)]
    async with httpx.AsyncClient(base_url=f"http://{server.address}") as client:
        for path, scheme in (("/plans", "Bearer"), ("/tts/v1/voices", "Basic")):
            headers = {"Authorization": f"{scheme} {secret}"}
            answers.append(await client.get(path, headers=headers))
    for answer in answers:
        assert (answer.status_code, answer.json()["message"]) == (401, MISPLACED_SECRET)


async def test_garbage_is_no_secret(server: SocketServer) -> None:
    secret = await secret_of(server)
    for wrong in (
        "ek_",
        f"ek_{'a' * 46}",
        altered(secret),
        f"{secret}x",
        secret[3:],
        f"sk_{secret[3:]}",
    ):
        assert (await refusal(server, wrong))[0] == 401, wrong
    assert await refusal(server, f"ek_{server.key[3:]}") == (401, UNKNOWN_SECRET)
    assert await refusal(server, new_api_key(SECRET_PREFIX)) == (401, UNKNOWN_SECRET)


async def test_unknown_secrets_are_limited_and_lock_out_no_known_ones(
    server: SocketServer,
) -> None:
    secret = await secret_of(server)
    most = server.services.platform.request_limits.admission.unknown_keys_per_minute
    guesses = (refusal(server, new_api_key(SECRET_PREFIX)) for _ in range(most + 2))
    statuses = [status for status, _ in await asyncio.gather(*guesses)]
    assert sorted(statuses) == [401] * most + [429] * 2
    assert (await refusal(server, new_api_key()))[0] == 429  # they count as keys do
    await opened(server, secret)
    await opened(server, await secret_of(server))


async def until_closed(socket: Any) -> int:
    async with asyncio.timeout(PATIENCE_S):
        await socket.wait_closed()
    return cast(int, socket.close_code)


@pytest.mark.parametrize("way", ["revoked", "expired", "logout", "ended", "erased"])
async def test_a_secret_and_its_sockets_end_with_what_made_it(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    platform = server.services.platform
    accounts, authenticator = platform.accounts, platform.accounts.authenticator
    clock = WallClock(monkeypatch)
    token = await new_workspace(server, "made@example.com")
    owner = await authenticator.authenticate(token)
    maker = token
    if way in ("revoked", "expired"):
        end = utc_now() + timedelta(minutes=5)
        new = await accounts.create_key(owner, "server", ["stt", "tts", "chat"], end)
        maker = new.key
    kept, secret = await secret_of(server), await secret_of(server, maker)
    async with browser(server, secret) as live, browser(server, kept) as other:
        await live.recv()
        match way:
            case "revoked":
                await accounts.delete_key(owner, new.row.id)
            case "expired":
                clock.ahead = timedelta(minutes=6)
            case "logout":
                await accounts.log_out(owner)
            case "ended":
                assert owner.session_id is not None
                await accounts.end_session(owner, owner.session_id)
            case "erased":
                await platform.erasure.erase(owner)
        assert (await refusal(server, secret))[0] == 401
        assert await until_closed(live) == 4401
        assert other.close_code is None
    await opened(server, kept)
    if way in ("revoked", "ended", "erased"):
        assert len(await rows(server)) == 1


async def test_a_secret_lasts_no_longer_than_the_key_that_made_it(server: SocketServer) -> None:
    accounts = server.services.platform.accounts
    principal = await accounts.authenticator.authenticate(server.key)
    end = utc_now() + timedelta(minutes=1)
    new = await accounts.create_key(principal, "short", ["stt", "tts", "chat"], end)
    answer = await create(server, new.key)
    assert answer.json()["expires_at"] == int(end.timestamp())


async def test_a_workspace_has_a_limited_number_of_secrets_that_have_not_expired(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(monkeypatch)
    monkeypatch.setattr(client_secrets, "MAX_SECRETS", 2)
    statuses = [(await create(server)).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    answer = await create(server)
    assert answer.json()["error"]["code"] == "rate_limited"
    assert "2 client secrets" in answer.json()["message"] and "retry-after" in answer.headers
    token = await new_workspace(server, "another@example.com")
    assert (await create(server, token)).status_code == 200
    clock.ahead = TEN_MINUTES
    assert (await create(server)).status_code == 200


async def test_neither_the_secret_nor_its_session_is_stored_in_clear_text(
    server: SocketServer,
) -> None:
    secret = await secret_of(server, instructions=INSTRUCTIONS)
    (row,) = await rows(server)
    stored = f"{row.model_dump()}"
    assert secret not in stored and secret[3:-6] not in stored
    assert "pelican" not in stored


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"expires_after": {"seconds": 9}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": 7201}}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "now"}}, "expires_after.anchor"),
        ({"session": "realtime"}, "session"),
        ({"session": {"type": "translation"}}, "session.type"),
        ({"session": {"audio": {"output": {"speed": 9}}}}, "session.audio.output.speed"),
    ],
)
async def test_a_wrong_field_is_named(
    server: SocketServer, body: dict[str, Any], param: str
) -> None:
    answer = await create(server, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_session_of_over_64_kib_is_refused(server: SocketServer) -> None:
    tools = [
        {"type": "function", "name": f"tool_{number}", "description": "d" * 1000}
        for number in range(80)
    ]
    answer = await create(server, session={"type": "realtime", "tools": tools})
    assert answer.status_code == 400 and "65536 bytes" in answer.json()["message"]
    assert await rows(server) == []
