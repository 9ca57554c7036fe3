"""Credentials are shown once: no Idempotency-Key brings one back."""

import json
import re
from typing import Any

import httpx
import pytest
from sqlmodel import Session, select

from api.app import routed_app
from api.http.routing import StrictRoute
from api.services import Services
from db.idempotency import IdempotentAnswer
from tests.api.native.voices.voice_making import create, finish
from tests.openapi import document

Headers = dict[str, str]
SECRET = re.compile(r"\b(?:sk|tk|sutkn|ek|shr)_[A-Za-z0-9_-]{20,}")
MAKES_SECRETS: dict[str, dict[str, Any]] = {
    "/developer/api": {"name": "k"},
    "/auth/tokens": {"scopes": ["tts"]},
    "/openai/v1/realtime/client_secrets": {},
    "/v1/auth/grant": {},
    "/cartesia/access-token": {},
    "/v1/single-use-token/{token_type}": {},
}
# Its answer has no credential of the service, but the password of a peer connection.
CALLS = {"/openai/v1/realtime/calls", "/openai/v1/realtime/calls/{call_id}/hangup"}


def _rows(session: Session) -> list[IdempotentAnswer]:
    return list(session.exec(select(IdempotentAnswer)))


async def test_the_code_of_a_share_is_not_answered_twice(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await create(client, auth, consent="Yes.")
    await finish(services)
    body = {"by_code": True, "speaker_allows_sharing": True}
    keyed, path = {**auth, "Idempotency-Key": "1"}, f"/voices/{voice['id']}/shares"
    answers = [await client.post(path, headers=keyed, json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 409]
    assert SECRET.search(answers[0].text) and not SECRET.search(answers[1].text)
    assert len((await client.get("/voice-shares", headers=auth)).json()["data"]) == 1


@pytest.mark.parametrize("path", MAKES_SECRETS)
async def test_a_credential_is_neither_kept_nor_answered_twice(
    client: httpx.AsyncClient, auth: Headers, services: Services, path: str
) -> None:
    keyed = {**auth, "Idempotency-Key": "1"}
    url = path.format(token_type="tts_websocket")
    first = await client.post(url, headers=keyed, json=MAKES_SECRETS[path])
    assert first.status_code in (200, 201) and SECRET.search(first.text), first.text
    second = await client.post(url, headers=keyed, json=MAKES_SECRETS[path])
    assert second.status_code == 409 and not SECRET.search(second.text)
    (row,) = await services.infrastructure.database.read(_rows)
    assert row.body is None


def test_every_route_that_shows_a_credential_is_tried() -> None:
    """By its declaration, and by the names of the fields of its answers."""
    names = {"token", "key", "value", "access_token", "secret", "code", "password"}
    declared = {
        route.path_format
        for route in routed_app().routes
        if isinstance(route, StrictRoute) and route.shows_secret and "POST" in (route.methods or ())
    }
    described = document()
    schemas = described["components"]["schemas"]
    shown = set()
    for path, methods in described["paths"].items():
        if "post" in methods and methods["post"].get("security", True):
            text = json.dumps(methods["post"]["responses"])
            answers = [schemas[name] for name in re.findall(r"schemas/(\w+)\"", text)]
            if any(names & set(answer.get("properties", {})) for answer in answers):
                shown.add(path)
    assert shown <= declared - CALLS == {*MAKES_SECRETS, "/voices/{voice_id}/shares"}
