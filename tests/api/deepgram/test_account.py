"""What Deepgram's clients read of an account, and their short tokens."""

from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.api.deepgram.socket_client import STREAM
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer

Headers = dict[str, str]


def with_token(auth: Headers) -> Headers:
    return {"Authorization": auth["Authorization"].replace("Bearer", "Token")}


async def test_models_are_listed_for_deepgrams_clients_beside_the_own_list(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    own = (await client.get("/models", headers=auth)).json()
    both = (await client.get("/v1/models", headers=with_token(auth))).json()
    assert both["data"] == own["data"] and both["object"] == "list"
    (recogniser,), voices = both["stt"], both["tts"]
    assert recogniser["streaming"] and "en" in recogniser["languages"]
    assert {one["metadata"]["tags"][0] for one in voices} <= {"masculine", "feminine"}
    for one in (recogniser, voices[0]):
        found = await client.get(f"/v1/models/{one['uuid']}", headers=with_token(auth))
        assert found.json() == one
    model = own["data"][0]
    assert (await client.get(f"/v1/models/{model['id']}", headers=auth)).json() == model
    missing = await client.get("/v1/models/none", headers=auth)
    assert (missing.status_code, missing.json()["error"]) == (404, "model_not_found")


async def test_the_key_and_the_workspace_are_shown_as_a_project(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers
) -> None:
    key = (await client.get("/v1/auth/token", headers=with_token(auth))).json()
    assert key["api_key_id"] and {"stt", "tts"} <= set(key["scopes"])
    (project,) = (await client.get("/v1/projects", headers=with_token(auth))).json()["projects"]
    path = f"/v1/projects/{project['project_id']}"
    assert (await client.get(path, headers=with_token(auth))).json() == project
    other = await client.get(path, headers=with_token(other_auth))
    assert (other.status_code, other.json()["err_code"]) == (404, "NOT_FOUND")


async def test_a_granted_token_opens_what_its_key_may_and_makes_no_other(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    for body in ({}, {"ttl_seconds": 60}, None):
        answer = await client.post("/v1/auth/grant", headers=with_token(auth), json=body)
        if body is None:
            answer = await client.post("/v1/auth/grant", headers=with_token(auth))
        assert answer.status_code == 200, answer.text
        granted = answer.json()
        assert granted["expires_in"] == (body or {}).get("ttl_seconds", 30)
    bearer = {"Authorization": f"bearer {granted['access_token']}"}
    spoken = await client.post("/v1/speak", headers=bearer, json={"text": "Hello."})
    assert spoken.status_code == 200, spoken.text
    again = await client.post("/v1/auth/grant", headers=bearer, json={})
    assert (again.status_code, again.json()["error"]) == (403, "insufficient_scope")
    wrongs: list[Any] = [*({"ttl_seconds": one} for one in (0, 7200, "soon")), []]
    for wrong in wrongs:
        refused = await client.post("/v1/auth/grant", headers=with_token(auth), json=wrong)
        assert (refused.status_code, refused.json()["err_code"]) == (400, "Bad Request")


async def test_a_grant_obeys_a_body_without_its_length(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"ttl_seconds": '
        yield b"600}"

    headers = {**with_token(auth), "Content-Type": "application/json"}
    answer = await client.post("/v1/auth/grant", headers=headers, content=pieces())
    assert (answer.status_code, answer.json()["expires_in"]) == (200, 600)

    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    form = {**with_token(auth), "Content-Type": "application/x-www-form-urlencoded"}  # of urllib
    for empty, content in ((headers, nothing()), (with_token(auth), nothing()), (form, b"")):
        answer = await client.post("/v1/auth/grant", headers=empty, content=content)
        assert (answer.status_code, answer.json()["expires_in"]) == (200, 30)


async def test_a_granted_token_opens_a_socket_from_a_browser(server: SocketServer) -> None:
    async with httpx.AsyncClient(base_url=f"http://{server.address}") as http:
        headers = {"Authorization": f"Token {server.key}"}
        granted = (await http.post("/v1/auth/grant", headers=headers)).json()
    query = "&".join(f"{name}={value}" for name, value in STREAM.items())
    offered = ["bearer", granted["access_token"]]
    url = f"ws://{server.address}/v1/listen?{query}"
    async with connect(url, subprotocols=offered) as socket:
        assert socket.subprotocol == "bearer"
