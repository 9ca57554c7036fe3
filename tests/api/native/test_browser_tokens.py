"""Tokens for browsers: what they open, until when, and what they never make."""

from datetime import datetime, timedelta

import httpx
import pytest

from db.database import utc_now
from tests.clock import WallClock

Headers = dict[str, str]


async def make(client: httpx.AsyncClient, headers: Headers, **body: object) -> httpx.Response:
    return await client.post("/auth/tokens", headers=headers, json=body)


async def token_of(client: httpx.AsyncClient, headers: Headers, *scopes: str) -> Headers:
    answer = await make(client, headers, scopes=list(scopes))
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def test_a_token_lasts_as_long_as_asked(client: httpx.AsyncClient, auth: Headers) -> None:
    answer = await make(client, auth, scopes=["stt", "tts", "stt"], expires_in=60)
    body = answer.json()
    assert body["token"].startswith("tk_") and body["scopes"] == ["stt", "tts"]
    left = datetime.fromisoformat(body["expires_at"]) - utc_now()
    assert timedelta(seconds=20) < left <= timedelta(seconds=60)


async def test_a_token_ends_by_itself(
    client: httpx.AsyncClient, auth: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await token_of(client, auth, "tts")
    WallClock(monkeypatch).ahead = timedelta(seconds=601)
    answer = await client.get("/models", headers=token)
    assert answer.status_code == 401 and "has expired" in answer.json()["message"]


async def test_a_key_gives_no_scope_that_it_lacks(client: httpx.AsyncClient, auth: Headers) -> None:
    made = await client.post("/developer/api", headers=auth, json={"name": "k", "scopes": ["tts"]})
    narrow = {"Authorization": f"Bearer {made.json()['key']}"}
    assert (await make(client, narrow, scopes=["tts"])).status_code == 201
    beyond = await make(client, narrow, scopes=["tts", "chat"])
    assert (beyond.status_code, beyond.json()["error"]) == (403, "insufficient_scope")


@pytest.mark.parametrize(
    "body",
    [{}, {"scopes": []}, {"scopes": ["keys"]}, {"scopes": ["billing"]}, {"scopes": "tts"}]
    + [{"scopes": ["tts"], "expires_in": seconds} for seconds in (9, 7201, 1.5, "600")],
)
async def test_an_invalid_request_for_a_token_is_400(
    client: httpx.AsyncClient, auth: Headers, body: dict[str, object]
) -> None:
    answer = await client.post("/auth/tokens", headers=auth, json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


async def test_the_end_of_a_key_ends_its_tokens(client: httpx.AsyncClient, auth: Headers) -> None:
    made = (await client.post("/developer/api", headers=auth, json={"name": "k"})).json()
    token = await token_of(client, {"Authorization": f"Bearer {made['key']}"}, "tts")
    assert (await client.get("/models", headers=token)).status_code == 200
    assert (await client.delete(f"/developer/api/{made['id']}", headers=auth)).status_code == 200
    assert (await client.get("/models", headers=token)).status_code == 401
