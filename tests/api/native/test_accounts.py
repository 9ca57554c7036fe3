"""Sign-up, login, profile, API keys and their isolation between workspaces."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import httpx
import jwt
import pytest

from api.app import create_app
from api.services import Services
from db.database import utc_now
from pipelines.accounts import authentication
from pipelines.accounts.authentication import new_api_key
from pipelines.errors import Unauthorized
from tests.api.in_process import client_of
from tests.api.replaced import with_request_limits
from tests.clock import WallClock
from tests.patience import PATIENCE_S

PASSWORD = "correct horse"


async def sign_up(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    body = {"email": "ada@example.com", "password": PASSWORD, **fields}
    return await client.post("/auth/signup", json=body)


def bearer(credential: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"}


async def new_key(
    client: httpx.AsyncClient, headers: dict[str, str], **fields: Any
) -> dict[str, Any]:
    answer = await client.post("/developer/api", headers=headers, json={"name": "k", **fields})
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


async def test_the_token_of_a_sign_up_is_valid_at_once(client: httpx.AsyncClient) -> None:
    answer = await sign_up(client, name="Ada", company="Engines")
    assert answer.status_code == 201
    user = answer.json()["user"]
    assert set(user) == {"id", "email", "name", "created_at"}
    assert user["email"] == "ada@example.com" and user["created_at"].endswith("Z")
    assert 0 < int(user["id"]) < 2**53
    assert (await client.get("/plans", headers=bearer(answer.json()["token"]))).status_code == 200


async def test_the_workspace_is_named_after_company_name_or_address(
    client: httpx.AsyncClient, services: Services
) -> None:
    names = [
        ({"name": "Ada", "company": "Engines"}, "Engines"),
        ({"name": "Ada"}, "Ada"),
        ({"plan": "pro"}, "a2"),  # an unknown field
    ]
    for number, (fields, expected) in enumerate(names):
        answer = await sign_up(client, email=f"a{number}@example.com", **fields)
        principal = await services.platform.accounts.authenticator.authenticate(
            answer.json()["token"]
        )
        assert (principal.workspace, principal.plan) == (expected, "free")


@pytest.mark.in_process
async def test_email_addresses_ignore_case_and_outer_spaces(client: httpx.AsyncClient) -> None:
    assert (await sign_up(client)).status_code == 201
    for spelling in ("ada@example.com", " Ada@EXAMPLE.com "):
        answer = await sign_up(client, email=spelling)
        assert (answer.status_code, answer.json()["error"]) == (400, "email_taken")


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("password1", "common password"),
        ("12345678", "common password"),
        ("aaaaaaaaaaaa", "Repeats"),
        ("antiphon", "about this account"),
    ],
)
async def test_a_password_that_is_guessed_first_is_refused_with_the_reason(
    client: httpx.AsyncClient, password: str, why: str
) -> None:
    answer = await sign_up(client, password=password)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert "too easy to guess" in answer.json()["message"] and why in answer.json()["message"]


async def test_concurrent_sign_ups_create_one_account(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(sign_up(client) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 400, 400, 400]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"email": "nobody"}, "email"),
        ({"email": "a@b.co" + "m" * 250}, "email"),
        ({"email": 5}, "email"),
        ({"password": "short77"}, "password"),
        ({"password": "x" * 257}, "password"),
        ({"password": None}, "password"),
        ({"name": "x" * 201}, "name"),
        ({"name": "bell\x07"}, "name"),
        ({"company": ["x"]}, "company"),
    ],
)
async def test_an_invalid_field_is_named_and_its_value_not_returned(
    client: httpx.AsyncClient, fields: dict[str, Any], named: str
) -> None:
    answer = await sign_up(client, **fields)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert answer.json()["message"].startswith(f"{named}: ")
    value = str(fields[named])
    assert len(value) < 5 or value not in answer.text


@pytest.mark.parametrize("email", ["ada@example.test", "ада@почта.рф"])
async def test_email_addresses_in_any_script_and_in_test_domains_are_accepted(
    client: httpx.AsyncClient, email: str
) -> None:
    assert (await sign_up(client, email=email)).json()["user"]["email"] == email


async def test_login_returns_a_token_for_the_right_password_only(client: httpx.AsyncClient) -> None:
    await sign_up(client, password="p\u00e4ssw\u00f6rter")
    good = {"email": "ADA@example.com", "password": "pa\u0308sswo\u0308rter"}  # decomposed Unicode
    answer = await client.post("/auth/login", json=good)
    assert answer.status_code == 200
    headers = bearer(answer.json()["token"])
    assert (await client.get("/plans", headers=headers)).status_code == 200
    refused = [
        await client.post("/auth/login", json={**good, **change})
        for change in ({"password": "wrong"}, {"email": "bob@example.com"}, {"email": "?"})
    ]
    assert {answer.status_code for answer in refused} == {401}
    assert len({answer.text for answer in refused}) == 1


async def test_a_profile_update_changes_only_given_fields(client: httpx.AsyncClient) -> None:
    token = (await sign_up(client, name="Ada", company="Engines")).json()["token"]
    answer = await client.put("/auth/profile", headers=bearer(token), json={"name": " Lovelace "})
    assert answer.status_code == 200
    profile = answer.json()
    assert set(profile) == {"id", "email", "name", "company", "updated_at"}
    assert (profile["name"], profile["company"]) == ("Lovelace", "Engines")
    answer = await client.put("/auth/profile", headers=bearer(token), json={"company": ""})
    assert (answer.json()["name"], answer.json()["company"]) == ("Lovelace", "")


async def test_an_api_key_is_shown_once_and_listed_without_its_secret(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    created = await new_key(client, auth, name="ci", scopes=["tts", "stt"])
    assert set(created) == {"id", "name", "key", "prefix", "scopes", "created_at", "expires_at"}
    assert len(created["key"]) == 49 and created["key"].startswith(created["prefix"])
    listing = await client.get("/developer/api", headers=auth)
    assert created["key"] not in listing.text
    listed = next(key for key in listing.json()["keys"] if key["id"] == created["id"])
    assert listed["scopes"] == ["tts", "stt"]
    assert listed["last_used_at"] is None and listed["expires_at"] is None
    for status in (200, 404):
        deleted = await client.delete(f"/developer/api/{created['id']}", headers=auth)
        assert deleted.status_code == status


AUDITED: list[tuple[str, str, dict[str, object]]] = [
    ("POST", "/developer/api", {"name": "k"}),
    ("PUT", "/auth/profile", {"name": "k"}),
    ("PUT", "/auth/workspace", {"name": "k"}),
    ("PUT", "/auth/password", {"current_password": "x" * 12, "new_password": "y" * 12}),
    ("POST", "/webhooks", {"url": "https://example.com/", "events": ["tts.completed"]}),
    ("PATCH", "/webhooks/1", {"events": ["tts.failed"]}),
    ("POST", "/billing/subscribe", {"plan_id": "free", "billing_cycle": "annual"}),
    ("PATCH", "/voices/1", {"name": "k"}),
    ("PATCH", "/cartesia/voices/1", {"name": "k"}),
]


EDITS = "edit", "settings/edit"  # of ElevenLabs' voices


async def test_audited_changes_have_a_rate_limit_for_each_workspace(
    services: Services, auth: dict[str, str], other_auth: dict[str, str]
) -> None:
    """In a loop, each left its audit entries for ever."""
    admission = services.platform.request_limits.admission
    few = admission.model_copy(update={"changes_per_hour": 2})
    async with client_of(create_app(with_request_limits(services, admission=few))) as client:
        for _ in range(2):
            created = await new_key(client, auth)
            await client.delete(f"/developer/api/{created['id']}", headers=auth)
        for method, path, body in AUDITED:
            refused = await client.request(method, path, headers=auth, json=body)
            assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited"), path
        assert 60 < int(refused.headers["Retry-After"]) <= 3600
        consents = "/openai/v1/audio/voice_consents"
        for path in (consents, f"{consents}/1", *("/v1/voices/1/" + edit for edit in EDITS)):
            refused = await client.post(path, headers=auth, json={"name": "Ann"})
            assert refused.status_code == 429, path
        await new_key(client, other_auth)


async def test_ended_credentials_are_refused_by_other_replicas_within_five_seconds(
    client: httpx.AsyncClient,
    auth: dict[str, str],
    other_auth: dict[str, str],
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = authentication.Authenticator(
        services.infrastructure.database, services.infrastructure.settings.secrets
    )
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    created = await new_key(client, auth)
    credentials = [created["key"], other_auth["Authorization"].removeprefix("Bearer ")]
    for credential in credentials:
        await other.authenticate(credential)
    await client.delete(f"/developer/api/{created['id']}", headers=auth)
    await client.post("/auth/logout", headers=other_auth)
    now += authentication.CACHE_TTL_S - 0.1
    for credential in credentials:
        await other.authenticate(credential)  # cached
    now += 0.2
    for credential in credentials:
        with pytest.raises(Unauthorized):
            await other.authenticate(credential)


async def test_an_expired_key_is_refused(
    client: httpx.AsyncClient, auth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, monotonic = WallClock(monkeypatch), time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + clock.ahead.total_seconds())
    soon = (utc_now() + timedelta(hours=1)).isoformat()
    headers = bearer((await new_key(client, auth, expires_at=soon))["key"])
    # The TTL cache would keep it for longer than it is valid.
    clock.ahead = timedelta(hours=1, seconds=-authentication.CACHE_TTL_S / 2)
    assert (await client.get("/plans", headers=headers)).status_code == 200
    clock.ahead = timedelta(hours=1)
    assert (await client.get("/plans", headers=headers)).status_code == 401


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "  "},
        {"name": "x" * 201},
        {"scopes": []},
        {"scopes": ["everything"]},
        {"scopes": "tts"},
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": "2099-01-01T00:00:00"},
        {"expires_at": 4102444800},
        {"expires_at": "4102444800"},
        {"expires_at": "tomorrow"},
        {"expires_at": "9999-12-31T23:59:59-12:00"},
    ],
)
async def test_an_invalid_request_for_a_key_is_400(
    client: httpx.AsyncClient, auth: dict[str, str], fields: dict[str, Any]
) -> None:
    answer = await client.post("/developer/api", headers=auth, json={"name": "k", **fields})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert answer.json()["message"].startswith(next(iter(fields)))


async def test_a_key_cannot_create_a_key_with_more_scopes(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    headers = bearer((await new_key(client, auth, scopes=["keys"]))["key"])
    answer = await client.post(
        "/developer/api", headers=headers, json={"name": "k", "scopes": ["keys", "chat"]}
    )
    assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope")
    weaker = await new_key(client, headers)
    listed = (await client.get("/developer/api", headers=auth)).json()["keys"]
    assert next(key for key in listed if key["id"] == weaker["id"])["scopes"] == ["keys"]


async def test_a_key_cannot_create_a_key_that_expires_later(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    end = utc_now() + timedelta(hours=1)
    headers = bearer((await new_key(client, auth, expires_at=end.isoformat()))["key"])
    inherits = await new_key(client, headers)
    assert datetime.fromisoformat(inherits["expires_at"]) == end
    sooner = await new_key(client, headers, expires_at=(end - timedelta(minutes=1)).isoformat())
    assert datetime.fromisoformat(sooner["expires_at"]) < end
    later = {"name": "k", "expires_at": (end + timedelta(minutes=1)).isoformat()}
    answer = await client.post("/developer/api", headers=headers, json=later)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    assert answer.json()["message"].startswith("expires_at")


async def test_use_of_a_key_is_recorded(client: httpx.AsyncClient, auth: dict[str, str]) -> None:
    created = await new_key(client, auth)
    await client.get("/plans", headers=bearer(created["key"]))

    async def is_recorded() -> bool:
        listed = (await client.get("/developer/api", headers=auth)).json()["keys"]
        found = next(key for key in listed if key["id"] == created["id"])
        return found["last_used_at"] is not None

    await eventually(is_recorded)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Asks ever less often: the plan has 60 requests a minute."""
    pause_s = 0.02
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(pause_s)
            pause_s *= 1.5


async def until_audited(
    client: httpx.AsyncClient, auth: dict[str, str], key_id: str, details: dict[str, Any]
) -> None:
    """Until the only refusal of the key in the log is this one."""

    async def is_audited() -> bool:
        entries = (await client.get("/audit?limit=100", headers=auth)).json()["data"]
        mine = [one for one in entries if (one["target"], one["action"]) == (key_id, "key.refused")]
        assert {one["actor"] for one in mine} <= {f"key:{key_id}"}
        return [one["details"] for one in mine] == [details]

    await eventually(is_audited)


async def test_expired_and_revoked_keys_are_refused_like_unknown_ones_and_audited(
    client: httpx.AsyncClient, auth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(monkeypatch)
    soon = (utc_now() + timedelta(hours=1)).isoformat()
    expired, revoked = await new_key(client, auth, expires_at=soon), await new_key(client, auth)
    await client.delete(f"/developer/api/{revoked['id']}", headers=auth)
    clock.ahead = timedelta(hours=1)
    answers = [
        await client.get("/plans", headers=bearer(key))
        for key in (new_api_key(), expired["key"], revoked["key"]) * 3
    ]
    unknown = answers[0]
    for answer in answers:
        assert (answer.status_code, answer.content) == (401, unknown.content)
        assert set(answer.headers) == set(unknown.headers)
    for key, reason in ((expired, "expired"), (revoked, "revoked")):
        await until_audited(client, auth, key["id"], {"reason": reason})


async def test_a_key_refused_for_a_missing_scope_is_audited(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    weak = await new_key(client, auth, scopes=["tts"])
    for _ in range(3):
        answer = await client.get("/chats", headers=bearer(weak["key"]))
        assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope")
    await until_audited(client, auth, weak["id"], {"reason": "scope", "scopes": ["chat"]})


async def test_a_malformed_key_id_is_404(client: httpx.AsyncClient, auth: dict[str, str]) -> None:
    for key_id in ("0", "-1", "1e3", "x", "9" * 400, "１"):
        assert (await client.delete(f"/developer/api/{key_id}", headers=auth)).status_code == 404


def tokens(services: Services) -> dict[str, str]:
    """Tokens that must be refused."""
    (key,) = services.infrastructure.settings.secrets.token_keys
    now = utc_now()
    claims: dict[str, Any] = {
        "iss": "antiphon",
        "aud": "antiphon",
        "sub": "1",
        "workspace": "1",
        "iat": now,
        "exp": now + timedelta(hours=1),
        "jti": "j",
    }
    without_expiry = {name: value for name, value in claims.items() if name != "exp"}
    return {
        "of an unknown user": jwt.encode(claims, key),
        "expired": jwt.encode({**claims, "exp": now - timedelta(seconds=1)}, key),
        "without an expiry": jwt.encode(without_expiry, key),
        "of another key": jwt.encode(claims, "o" * 48),
        "of another audience": jwt.encode({**claims, "aud": "x"}, key),
        "unsigned": jwt.encode(claims, "", algorithm="none"),
        "of another algorithm": jwt.encode(claims, key * 2, algorithm="HS512"),
        "a made-up key": new_api_key(),
        "a mistyped key": new_api_key()[:-1] + "!",
        "dots": "..",
        "very long": "a." * 50_000,
    }


async def test_every_wrong_credential_gets_the_same_answer(
    client: httpx.AsyncClient, auth: dict[str, str], services: Services
) -> None:
    texts = set()
    for name, token in tokens(services).items():
        answer = await client.get("/plans", headers=bearer(token))
        assert answer.status_code == 401, name
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        texts.add(answer.text)
    assert len(texts) == 1


@pytest.mark.in_process
async def test_the_key_is_checked_before_the_body_is_read(client: httpx.AsyncClient) -> None:
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    for path in ("/developer/api", "/v1/chat/completions", "/stt"):
        answer = await client.post(path, content=body(), headers={"Content-Type": "text/plain"})
        assert answer.status_code == 401


async def test_the_first_workspace_is_created_once(services: Services) -> None:
    key = await services.platform.accounts.ensure_first_workspace()
    assert key is not None
    assert (
        await services.platform.accounts.authenticator.authenticate(key)
    ).scopes == authentication.ALL_SCOPES
    assert await services.platform.accounts.ensure_first_workspace() is None
