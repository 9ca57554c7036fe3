"""What a visitor of a page may do with a browser token: results of own requests, and no more."""

import json
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest

from api.services import Services
from tests.api.money import principal_of
from tests.api.native.voices.voice_making import enrol
from tests.api.openai.realtime.client import RealtimeClient
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.voices.recordings import good_files

Headers = dict[str, str]
CHAT = {"messages": [{"role": "user", "content": "hi"}], "stream": False}
COMPLETIONS = ("/v1/chat/completions", "/openai/v1/chat/completions")
RESPONSES = "/openai/v1/responses"
SPEAKERS: dict[str, dict[str, Any]] = {
    "input": {"transcription": {"model": "whisper-1", "known_speakers": True}}
}


async def token_of(client: httpx.AsyncClient, headers: Headers, *scopes: str) -> str:
    answer = await client.post("/auth/tokens", headers=headers, json={"scopes": list(scopes)})
    assert answer.status_code == 201, answer.text
    return cast(str, answer.json()["token"])


async def visitor_of(client: httpx.AsyncClient, headers: Headers, *scopes: str) -> Headers:
    return {"Authorization": f"Bearer {await token_of(client, headers, *scopes)}"}


async def chats_of(client: httpx.AsyncClient, headers: Headers) -> int:
    return len((await client.get("/chats", headers=headers)).json()["data"])


def is_refused(answer: httpx.Response) -> bool:
    return answer.status_code == 403 and "insufficient_scope" in answer.text


async def test_a_visitor_may_choose_among_the_voices_of_the_models(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    visitor = await visitor_of(client, auth, "tts")
    everyone = (await client.get("/default-voices", headers=auth)).json()["data"]
    answer = await client.get("/default-voices", headers=visitor)
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"] == everyone != []  # the workspace has no custom voice
    assert is_refused(await client.get("/voices", headers=visitor))


@pytest.mark.parametrize("path", COMPLETIONS)
@pytest.mark.parametrize("mode", [CHAT, {"text": "a small text", "stream": False}])
async def test_chats_of_visitors_are_never_saved(
    client: httpx.AsyncClient, auth: Headers, path: str, mode: dict[str, Any]
) -> None:
    visitor = await visitor_of(client, auth, "chat")
    for asked in ({}, {"save_chat": False}, {"save_chat": None}):
        answer = await client.post(path, headers=visitor, json={**mode, **asked})
        assert answer.status_code == 200 and answer.json()["chat_id"] is None, answer.text
    assert await chats_of(client, auth) == 0
    assert is_refused(await client.post(path, headers=visitor, json={**mode, "save_chat": True}))
    kept = await client.post(path, headers=auth, json=mode)
    assert kept.json()["chat_id"]


@pytest.mark.parametrize("path", COMPLETIONS)
async def test_visitors_continue_no_chat_of_the_workspace(
    client: httpx.AsyncClient, auth: Headers, path: str
) -> None:
    saved = (await client.post(path, headers=auth, json=CHAT)).json()["chat_id"]
    visitor = await visitor_of(client, auth, "chat")
    for chat_id in (saved, str(uuid4())):
        answer = await client.post(path, headers=visitor, json={**CHAT, "chat_id": chat_id})
        assert is_refused(answer) and "chat_id" in answer.text


async def test_responses_to_visitors_are_not_stored_and_continue_none(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    visitor = await visitor_of(client, auth, "chat")
    answer = await client.post(RESPONSES, headers=visitor, json={"input": "hi"})
    assert answer.status_code == 200 and answer.json()["store"] is False
    stored = await client.post(RESPONSES, headers=auth, json={"input": "a secret"})
    response_id, item = stored.json()["id"], stored.json()["output"][0]["id"]
    reference = [{"type": "item_reference", "id": item}, {"role": "user", "content": "Repeat."}]
    for body in (
        {"input": "hi", "store": True},
        {"input": "hi", "previous_response_id": response_id},
        {"input": reference},
    ):
        assert is_refused(await client.post(RESPONSES, headers=visitor, json=body)), body
    assert await chats_of(client, auth) == 1


@pytest.mark.parametrize("known", ["true", "an id"])
async def test_visitors_cannot_ask_who_is_enrolled(
    client: httpx.AsyncClient, auth: Headers, known: str
) -> None:
    speaker = await enrol(client, auth)
    named = {"known_speakers": speaker["id"] if known == "an id" else known}
    recording = {"audio": good_files()[0]}
    visitor = await visitor_of(client, auth, "stt", "voices")
    asked = await client.post("/stt", headers=visitor, data=named, files=recording)
    assert is_refused(asked) and "Ann" not in asked.text
    allowed = await client.post("/stt", headers=auth, data=named, files=recording)
    assert allowed.status_code == 200, allowed.text
    plain = {"speaker_labels": "true"}
    own = await client.post("/stt", headers=visitor, data=plain, files=recording)
    assert own.status_code == 200, own.text


async def test_a_visitor_gets_no_stored_answer_of_the_maker_of_the_token(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    once = {"Idempotency-Key": "guessed"}
    first = await client.post(COMPLETIONS[0], headers=auth | once, json=CHAT | {"save_chat": False})
    visitors = [await visitor_of(client, auth, "chat") for _ in range(2)]
    answers = [
        await client.post(COMPLETIONS[0], headers=visitor | once, json=CHAT | {"save_chat": False})
        for visitor in visitors
    ]
    assert answers[0].status_code == 200 and answers[0].json() != first.json()
    assert (answers[1].status_code, answers[1].json()["error"]) == (400, "idempotency_mismatch")
    once = {"Idempotency-Key": "own"}
    both = [
        await client.post(COMPLETIONS[0], headers=visitors[0] | once, json=CHAT) for _ in range(2)
    ]
    assert both[0].json() == both[1].json() != first.json()


async def test_a_visitor_uses_up_no_idempotency_key_of_others(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    once = {"Idempotency-Key": "order-1"}
    visitor = await visitor_of(client, auth, "chat")
    for path in COMPLETIONS:
        assert (await client.post(path, headers=visitor | once, json=CHAT)).status_code == 200
        own = await client.post(path, headers=auth | once, json=CHAT)
        assert own.status_code == 200 and own.json()["chat_id"], own.text


async def test_a_visitor_downloads_what_was_signed_for_it(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    owner = await principal_of(services, auth)
    files = services.infrastructure.files
    stored = await files.put(owner.workspace_id, "speech", "audio/mpeg", b"sound", 60)
    visitor = await visitor_of(client, auth, "tts")
    signed = files.url(stored, owner.workspace_id, 60).removeprefix("http://test")
    assert (await client.get(signed, headers=visitor)).content == b"sound"
    assert (await client.get(f"/files/{stored}", headers=visitor)).status_code == 404


async def over_http(server: SocketServer, path: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx.AsyncClient(base_url=f"http://{server.address}", headers=headers) as http:
        answer = await http.post(path, json=body)
        assert answer.status_code in (200, 201), answer.text
        return cast(dict[str, Any], answer.json())


async def browser_token(server: SocketServer, *scopes: str) -> str:
    return cast(str, (await over_http(server, "/auth/tokens", {"scopes": scopes}))["token"])


async def test_a_visitor_cannot_name_speakers_on_the_socket(server: SocketServer) -> None:
    token = await browser_token(server, "stt")
    async with connect(server.url("/ws/stt", token)) as socket:
        await socket.send(json.dumps({"type": "start", "config": {"known_speakers": True}}))
        events = [json.loads(await socket.recv()) for _ in range(3)]
        while events[-1]["type"] != "error":
            events.append(json.loads(await socket.recv()))
        assert "known_speakers" in events[-1]["error"]


async def realtime(server: SocketServer, credential: str, query: str = "") -> Any:
    url = f"ws://{server.address}/openai/v1/realtime?model=gpt-realtime{query}"
    return connect(url, additional_headers={"Authorization": f"Bearer {credential}"})


@pytest.mark.parametrize("granted", [False, True])
async def test_only_the_maker_of_a_client_secret_lets_it_name_speakers(
    server: SocketServer, granted: bool
) -> None:
    session: dict[str, Any] = {"type": "realtime"} | ({"audio": SPEAKERS} if granted else {})
    path = "/openai/v1/realtime/client_secrets"
    secret = (await over_http(server, path, {"session": session}))["value"]
    async with await realtime(server, secret) as socket:
        client = RealtimeClient(socket)
        await client.until("session.created")
        audio = {"input": SPEAKERS["input"] | {"noise_reduction": {"type": "near_field"}}}
        change = {"type": "realtime", "audio": audio}
        await client.send("session.update", session=change)
        if granted:
            await client.until("session.updated")
        else:
            assert (await client.until_error())["code"] == "insufficient_scope"


async def test_the_realtime_session_of_a_visitor_becomes_no_chat(server: SocketServer) -> None:
    token = await browser_token(server, "tts", "stt", "chat")
    async with await realtime(server, token, "&save_chat=true") as socket:
        client = RealtimeClient(socket)
        await client.until("session.created")
        await client.say("Hello.", output_modalities=["text"])
        await client.send("session.update", session={"type": "realtime", "audio": SPEAKERS})
        assert (await client.until_error())["code"] == "insufficient_scope"
    await server.until_empty()
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx.AsyncClient(base_url=f"http://{server.address}", headers=headers) as http:
        assert await chats_of(http, headers) == 0
