"""Sessions: tokens that are listed and ended, log out, and changes of the password."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import jwt
import pytest
from sqlmodel import Session, col, func, select

from api.services import Services
from configs.load import load_yaml
from configs.schema.platform import RetentionConfig
from db import sessions
from db.sessions import LoginSession
from pipelines.maintenance.housekeeping import Housekeeper
from tests.api.native.test_accounts import eventually
from tests.clock import WallClock

EMAIL, PASSWORD = "ada@example.com", "correct horse"
WRONG = {"current_password": "wrong horse", "new_password": "battery staple"}
RIGHT = {"current_password": PASSWORD, "new_password": "battery staple"}


def bearer(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code in (200, 201), answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def sign_up(client: httpx.AsyncClient) -> dict[str, str]:
    body = {"email": EMAIL, "password": PASSWORD}
    return bearer(await client.post("/auth/signup", json=body))


async def log_in(
    client: httpx.AsyncClient, password: str = PASSWORD, agent: bytes = b"test"
) -> httpx.Response:
    body = {"email": EMAIL, "password": password}
    return await client.post("/auth/login", json=body, headers={b"User-Agent": agent})


async def status(client: httpx.AsyncClient, headers: dict[str, str]) -> int:
    return (await client.get("/plans", headers=headers)).status_code


async def listed(client: httpx.AsyncClient, headers: dict[str, str]) -> list[dict[str, Any]]:
    answer = await client.get("/auth/sessions", headers=headers)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["sessions"]
    return found


async def actions(client: httpx.AsyncClient, headers: dict[str, str]) -> list[str]:
    entries = (await client.get("/audit?limit=100", headers=headers)).json()["data"]
    return [entry["action"] for entry in entries]


@pytest.fixture
async def first(client: httpx.AsyncClient) -> AsyncIterator[dict[str, str]]:
    """Headers with the token of a sign-up."""
    yield await sign_up(client)


@pytest.mark.in_process
async def test_sessions_are_listed_newest_first_with_address_and_user_agent(
    client: httpx.AsyncClient, first: dict[str, str]
) -> None:
    second = bearer(await log_in(client, agent=b"phone\x85" + b"x" * 300))
    newest, oldest = await listed(client, second)
    assert (newest["current"], oldest["current"]) == (True, False)
    assert (newest["address"], newest["user_agent"]) == ("127.0.0.1", "phone" + "x" * 195)
    assert oldest["created_at"] <= newest["created_at"]
    fields = {"id", "created_at", "last_used_at", "address", "user_agent", "current"}
    assert set(oldest) == fields
    assert [one["current"] for one in await listed(client, first)] == [False, True]


async def test_the_use_of_a_session_is_recorded(
    client: httpx.AsyncClient, first: dict[str, str]
) -> None:
    async def is_recorded() -> bool:
        return (await listed(client, first))[0]["last_used_at"] is not None

    await eventually(is_recorded)


async def test_logging_out_ends_the_token_of_the_request_only(
    client: httpx.AsyncClient, first: dict[str, str]
) -> None:
    second = bearer(await log_in(client))
    answer = await client.post("/auth/logout", headers=first)
    assert (answer.status_code, answer.json()["success"]) == (200, True)
    assert (await status(client, first), await status(client, second)) == (401, 200)
    assert len(await listed(client, second)) == 1


@pytest.mark.in_process
async def test_one_session_is_ended_by_its_id_and_all_others_together(
    client: httpx.AsyncClient, first: dict[str, str]
) -> None:
    second, third, fourth = [bearer(await log_in(client)) for _ in range(3)]
    (mine,) = [one["id"] for one in await listed(client, second) if one["current"]]
    assert (await client.delete(f"/auth/sessions/{mine}", headers=first)).status_code == 200
    assert await status(client, second) == 401
    again = await client.delete(f"/auth/sessions/{mine}", headers=first)
    assert (again.status_code, again.json()["error"]) == (404, "not_found")
    assert (await client.delete("/auth/sessions", headers=third)).status_code == 200
    statuses = [await status(client, one) for one in (first, third, fourth)]
    assert statuses == [401, 200, 401]
    assert (await actions(client, third))[:2] == ["sessions.ended", "session.ended"]


async def test_an_unknown_session_id_is_404(
    client: httpx.AsyncClient, first: dict[str, str]
) -> None:
    for session_id in ("0", "x", "%20", f"{UUID(int=1)}"):
        answer = await client.delete(f"/auth/sessions/{session_id}", headers=first)
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


async def test_ending_all_sessions_leaves_those_of_another_user(
    client: httpx.AsyncClient, other_auth: dict[str, str], first: dict[str, str]
) -> None:
    await client.delete("/auth/sessions", headers=other_auth)
    assert await status(client, first) == 200


async def test_a_change_of_password_ends_all_other_tokens_and_is_audited(
    client: httpx.AsyncClient, first: dict[str, str]
) -> None:
    second = bearer(await log_in(client))
    answer = await client.put("/auth/password", headers=second, json=RIGHT)
    assert answer.status_code == 200, answer.text
    assert (await status(client, first), await status(client, second)) == (401, 200)
    assert (await log_in(client)).status_code == 401
    assert (await log_in(client, "battery staple")).status_code == 200
    assert (await actions(client, second))[0] == "password.changed"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"current_password": "wrong horse"}, "current_password"),
        ({"new_password": "short77"}, "new_password"),
        ({"new_password": "x" * 257}, "new_password"),
        ({"new_password": None}, "new_password"),
    ],
)
async def test_an_invalid_change_of_password_is_400_and_changes_nothing(
    client: httpx.AsyncClient, first: dict[str, str], change: dict[str, Any], named: str
) -> None:
    answer = await client.put("/auth/password", headers=first, json={**RIGHT, **change})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert answer.json()["message"].startswith(f"{named}: ")
    assert (await log_in(client)).status_code == 200


async def test_an_api_key_neither_changes_the_password_nor_logs_out(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    for answer in (
        await client.put("/auth/password", headers=auth, json=RIGHT),
        await client.post("/auth/logout", headers=auth),
    ):
        assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope")
        assert "token of a login" in answer.json()["message"]


async def test_guesses_of_the_current_password_are_limited_for_the_user(
    client: httpx.AsyncClient, first: dict[str, str], services: Services
) -> None:
    most = services.platform.request_limits.admission.failed_logins_per_minute
    answers = [await client.put("/auth/password", headers=first, json=WRONG) for _ in range(most)]
    assert {answer.status_code for answer in answers} == {400}
    answer = await client.put("/auth/password", headers=first, json=RIGHT)
    assert (answer.status_code, answer.json()["error"]) == (429, "rate_limited")
    assert (await log_in(client)).status_code == 200


async def test_a_login_that_races_a_password_change_gets_no_session(
    client: httpx.AsyncClient,
    first: dict[str, str],
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accounts = services.platform.accounts
    verify = accounts._passwords.verify

    async def verify_and_change(stored: str | None, password: str, **owner: str) -> bool:
        matches = await verify(stored, password, **owner)
        monkeypatch.undo()
        changed = await client.put("/auth/password", headers=first, json=RIGHT)
        assert changed.status_code == 200
        return matches

    monkeypatch.setattr(accounts._passwords, "verify", verify_and_change)
    assert (await log_in(client)).status_code == 401
    assert len(await listed(client, first)) == 1


async def test_a_token_without_its_session_is_refused(
    client: httpx.AsyncClient, first: dict[str, str], services: Services
) -> None:
    (key,) = services.infrastructure.settings.secrets.token_keys
    token = first["Authorization"].removeprefix("Bearer ")
    claims = jwt.decode(token, key, algorithms=["HS256"], audience="antiphon")
    headers = {"kid": jwt.get_unverified_header(token)["kid"]}
    forged, same = (
        jwt.encode({**claims, "jti": session}, key, headers=headers)
        for session in (uuid4().hex, claims["jti"])
    )
    assert await status(client, {"Authorization": f"Bearer {same}"}) == 200
    assert await status(client, {"Authorization": f"Bearer {forged}"}) == 401


async def test_the_oldest_sessions_of_a_user_end_beyond_the_bound(
    client: httpx.AsyncClient,
    first: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    later = [bearer(await log_in(client)) for _ in range(3)]
    assert await status(client, first) == 401
    assert [one["current"] for one in await listed(client, later[0])] == [False, False, True]


async def test_ended_sessions_are_kept_for_their_days_and_then_deleted(
    client: httpx.AsyncClient,
    first: dict[str, str],
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    infrastructure, keep = services.infrastructure, load_yaml(RetentionConfig, "retention")

    async def rows() -> int:
        def count(session: Session) -> int:
            return session.exec(select(func.count(col(LoginSession.id)))).one()

        housekeeper = Housekeeper(infrastructure.database, infrastructure.files, keep)
        await housekeeper.run_once()
        return await infrastructure.database.read(count)

    clock = WallClock(monkeypatch)
    await client.post("/auth/logout", headers=first)
    clock.ahead = timedelta(days=keep.session_days, minutes=-1)
    assert await rows() == 1
    clock.ahead = timedelta(days=keep.session_days, minutes=1)
    assert await rows() == 0


async def test_passwords_and_tokens_are_in_no_log(
    client: httpx.AsyncClient, first: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await client.put("/auth/password", headers=first, json=RIGHT)
    await log_in(client, "battery staple")
    text = caplog.text
    for secret in (PASSWORD, "battery staple", first["Authorization"].removeprefix("Bearer ")):
        assert secret not in text
