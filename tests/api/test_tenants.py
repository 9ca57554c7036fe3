"""What belongs to one workspace does not exist for another, whatever it tries."""

from uuid import uuid4

import httpx
import pytest

Headers = dict[str, str]

CHAT = "/v1/chat/completions"
TRIES = [
    ("GET", "/chats/{chat}"),
    ("DELETE", "/chats/{chat}"),
    ("POST", CHAT),
    ("POST", f"/openai{CHAT}"),
    ("DELETE", "/developer/api/{key}"),
]


async def attempt(
    client: httpx.AsyncClient, headers: Headers, method: str, path: str, chat: str, key: str
) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "hi"}], "chat_id": chat, "stream": False}
    return await client.request(
        method,
        path.format(chat=chat, key=key),
        headers=headers,
        json=body if method == "POST" else None,
    )


async def belongings(client: httpx.AsyncClient, headers: Headers) -> tuple[str, str]:
    """The ids of a new chat and a new key."""
    body = {"messages": [{"role": "user", "content": "mine"}], "stream": False}
    chat = await client.post(CHAT, headers=headers, json=body)
    key = await client.post("/developer/api", headers=headers, json={"name": "mine"})
    return chat.json()["chat_id"], key.json()["id"]


@pytest.mark.parametrize(("method", "path"), TRIES)
async def test_a_strangers_answer_is_that_of_an_id_that_never_was(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, method: str, path: str
) -> None:
    chat, key = await belongings(client, auth)
    theirs = await attempt(client, other_auth, method, path, chat, key)
    never = await attempt(client, other_auth, method, path, str(uuid4()), "1")
    assert (theirs.status_code, theirs.json()) == (never.status_code, never.json())
    assert theirs.status_code == 404
    assert (await attempt(client, auth, method, path, chat, key)).status_code == 200


@pytest.mark.parametrize(
    ("path", "items"), [("/chats", "data"), ("/developer/api", "keys"), ("/audit", "data")]
)
async def test_lists_hold_only_what_is_the_workspaces_own(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, path: str, items: str
) -> None:
    mine = await belongings(client, auth)
    theirs = await belongings(client, other_auth)
    for headers, own, foreign in ((auth, mine, theirs), (other_auth, theirs, mine)):
        text = (await client.get(path, headers=headers)).text
        assert any(one in text for one in own) and not any(one in text for one in foreign)


async def test_a_token_of_one_workspace_reads_its_own_profile_only(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers
) -> None:
    answer = await client.put("/auth/profile", headers=other_auth, json={"name": "Other"})
    assert answer.json()["name"] == "Other"
    mine = await client.put("/auth/profile", headers=auth, json={})
    assert mine.json()["id"] != answer.json()["id"] and mine.json()["name"] == "Owner"
