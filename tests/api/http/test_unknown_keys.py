"""Messages of 401, and the limit of unknown keys."""

from typing import Any

import httpx
import pytest

from api.http.limits import RequestLimits
from api.services import Services
from db import accounts, sessions
from pipelines.accounts.authentication import new_api_key

Headers = dict[str, str]


async def plans(client: httpx.AsyncClient, authorization: str | None) -> httpx.Response:
    headers = {} if authorization is None else {"Authorization": authorization}
    return await client.get("/plans", headers=headers)


@pytest.mark.in_process
async def test_a_missing_key_and_a_wrong_one_have_different_messages(
    client: httpx.AsyncClient,
) -> None:
    for missing in (None, "", "Bearer", "Bearer ", "sk_abc", "Basic dXNlcjpwYXNz"):
        answer = await plans(client, missing)
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
        assert "Authorization: Bearer" in answer.json()["message"]
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    for wrong in ("sk_abc", new_api_key(), "a.b.c"):
        answer = await plans(client, f"Bearer {wrong}")
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
        assert answer.json()["message"] == "the API key or token is wrong, revoked or expired"


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The digests that were looked up in the database."""
    found: list[bytes] = []
    look_up = accounts.key_by_digest

    def counted(session: Any, digest: bytes) -> Any:
        found.append(digest)
        return look_up(session, digest)

    monkeypatch.setattr("pipelines.accounts.authentication.key_by_digest", counted)
    return found


def limit_of(services: Services) -> int:
    limits: RequestLimits = services.platform.request_limits
    return limits.admission.unknown_keys_per_minute


async def test_unknown_keys_of_an_address_are_limited_before_the_look_up(
    client: httpx.AsyncClient, services: Services, lookups: list[bytes]
) -> None:
    limit = limit_of(services)
    answers = [await plans(client, f"Bearer {new_api_key()}") for _ in range(3 * limit)]
    statuses = [answer.status_code for answer in answers]
    assert statuses == [401] * limit + [429] * 2 * limit
    assert len(lookups) == limit
    assert answers[-1].json()["error"] == "rate_limited"
    assert int(answers[-1].headers["Retry-After"]) >= 1


async def test_valid_keys_behind_an_address_of_guesses_are_never_locked_out(
    client: httpx.AsyncClient, services: Services, auth: Headers
) -> None:
    made = [await client.post("/developer/api", headers=auth, json={"name": "a"}) for _ in "abc"]
    revoked = made[0].json()
    await client.delete(f"/developer/api/{revoked['id']}", headers=auth)
    for _ in range(2 * limit_of(services)):
        await plans(client, f"Bearer {new_api_key()}")
    for one in made[1:]:  # not used before
        assert (await plans(client, f"Bearer {one.json()['key']}")).status_code == 200
    assert (await client.get("/plans", headers=auth)).status_code == 200
    assert (await plans(client, f"Bearer {revoked['key']}")).status_code == 401


async def test_ended_tokens_are_looked_up_once_and_count_as_unknown_keys(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    look_up = sessions.owner_of_session

    def counted(session: Any, *arguments: Any) -> Any:
        found.append(arguments)
        return look_up(session, *arguments)

    monkeypatch.setattr("pipelines.accounts.authentication.owner_of_session", counted)
    account = {"email": "ada@example.com", "password": "a long password"}
    tokens = [(await client.post("/auth/signup", json=account)).json()["token"]]
    for _ in range(2):
        tokens.append((await client.post("/auth/login", json=account)).json()["token"])
    ended, live, unused = (f"Bearer {token}" for token in tokens)
    await client.post("/auth/logout", headers={"Authorization": ended})
    assert (await plans(client, live)).status_code == 200
    found.clear()
    limit = limit_of(services)
    statuses = [(await plans(client, ended)).status_code for _ in range(2 * limit)]
    assert (len(found), statuses) == (1, [401] * limit + [429] * limit)

    assert len(found) == 1
    assert (await plans(client, unused)).status_code == 200  # not locked out with the ended one
    assert (await plans(client, f"Bearer {new_api_key()}")).status_code == 429


async def test_keys_that_exist_are_not_counted(
    client: httpx.AsyncClient, services: Services, auth: Headers, lookups: list[bytes]
) -> None:
    workspace = await client.get("/auth/workspace", headers=auth)
    times = limit_of(services) + 5
    for _ in range(times):
        services.platform.accounts.authenticator.forget_workspace(int(workspace.json()["id"]))
        await client.get("/plans", headers=auth)
    assert len(lookups) > times
    assert (await plans(client, f"Bearer {new_api_key()}")).status_code == 401
