"""Saved chats over HTTP: pages, limits in messages and bytes, and turns that are not saved."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlmodel import Session, col, update

from api.services import Services
from db.chats import CHAT_BYTES, MESSAGE_BYTES, Chat, ChatEntry, bytes_of_chats
from pipelines.storage.encryption import Encryption
from tests.api.money import Books

Headers = dict[str, str]
PATH = "/v1/chat/completions"


@pytest.fixture
def post(client: httpx.AsyncClient, auth: Headers) -> Callable[..., Any]:
    async def post(said: str = "hello", **fields: Any) -> httpx.Response:
        body: dict[str, Any] = {"messages": [{"role": "user", "content": said}], "stream": False}
        if "text" in fields:
            del body["messages"]
        return await client.post(PATH, headers=auth, json={**body, **fields})

    return post


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were decrypted."""
    texts: list[str] = []
    decrypt = Encryption.decrypt_text

    def counting(encryption: Encryption, stored: str, about: str) -> str:
        plain = decrypt(encryption, stored, about)
        if about.endswith(":message"):
            texts.append(json.loads(plain)[0])
        return plain

    monkeypatch.setattr(Encryption, "decrypt_text", counting)
    return texts


async def fill(services: Services, chat_id: str, **values: int) -> None:
    chat = update(Chat).where(col(Chat.id) == UUID(chat_id)).values(**values)
    await services.infrastructure.database.run(lambda rows: rows.connection().execute(chat))


async def test_only_the_requested_page_of_messages_is_decrypted(
    client: httpx.AsyncClient, auth: Headers, post: Callable[..., Any], opened: list[str]
) -> None:
    chat_id = (await post("one")).json()["chat_id"]
    await post("two", chat_id=chat_id)
    await post("three", chat_id=chat_id)
    opened.clear()
    path = f"/chats/{chat_id}"
    page = (await client.get(path, headers=auth, params={"page": 2, "limit": 2})).json()
    assert [message["content"] for message in page["messages"]] == opened == ["two", "two"]
    assert page["pagination"] == {"page": 2, "limit": 2, "total": 6, "pages": 3}
    whole = (await client.get(path, headers=auth)).json()
    assert [message["role"] for message in whole["messages"]] == ["user", "assistant"] * 3
    assert whole["pagination"] == {"page": 1, "limit": 100, "total": 6, "pages": 1}
    for wrong in ({"limit": 101}, {"page": 0}):
        assert (await client.get(path, headers=auth, params=wrong)).status_code == 400


async def test_a_correction_in_a_saved_chat_reads_neither_messages_nor_credit(
    post: Callable[..., Any], opened: list[str], books: Books
) -> None:
    chat_id = (await post()).json()["chat_id"]
    opened.clear()
    before = await books.kinds()
    done = await post(text="i cant beleive it", chat_id=chat_id, model="svc/rules-en")
    assert done.status_code == 200 and done.json()["chat_id"] == chat_id
    assert opened == [] and await books.kinds() == before


@pytest.mark.parametrize("fields", [{}, {"text": "i cant beleive it", "model": "svc/rules-en"}])
async def test_a_full_chat_is_not_continued_unless_the_turn_is_not_saved(
    fields: dict[str, str], post: Callable[..., Any], services: Services, books: Books
) -> None:
    chat_id = (await post()).json()["chat_id"]
    before = await books.kinds()
    await fill(services, chat_id, stored_bytes=4_000_000)
    full = await post(chat_id=chat_id, **fields)
    assert (full.status_code, full.json()["error"]) == (400, "validation_error")
    assert "chat_id: the chat is full" in full.json()["message"]
    assert await books.kinds() == before
    assert (await post(chat_id=chat_id, save_chat=False, **fields)).status_code == 200
    assert (await post(**fields)).status_code == 200


async def test_a_chat_is_full_after_its_most_messages(
    post: Callable[..., Any], services: Services
) -> None:
    chat_id = (await post()).json()["chat_id"]

    def add_messages(session: Session) -> None:
        for position in range(2, 2000):
            at: dict[str, Any] = {"chat_id": UUID(chat_id), "position": position}
            session.add(ChatEntry(**at, role="user", content="", extra={}))

    await services.infrastructure.database.run(add_messages)
    full = await post(chat_id=chat_id)
    assert full.status_code == 400 and "2000 messages" in full.json()["message"]


@pytest.mark.parametrize("fields", [{}, {"text": "i cant beleive it", "model": "svc/rules-en"}])
async def test_a_workspace_saves_as_many_bytes_of_chats_as_its_plan_allows(
    fields: dict[str, str],
    client: httpx.AsyncClient,
    auth: Headers,
    post: Callable[..., Any],
    services: Services,
) -> None:
    chat_id = (await post()).json()["chat_id"]
    await fill(services, chat_id, stored_bytes=20_000_000)
    full = await post(**fields)
    assert (full.status_code, full.json()["error"]) == (403, "plan_required")
    assert "20 MB of saved chats" in full.json()["message"]
    assert (await post(save_chat=False, **fields)).status_code == 200
    assert (await client.delete(f"/chats/{chat_id}", headers=auth)).status_code == 200
    assert (await post(**fields)).status_code == 200


async def test_the_stored_bytes_of_chats_are_counted(
    post: Callable[..., Any], services: Services, books: Books
) -> None:
    async def total() -> int:
        database = services.infrastructure.database
        return await database.read(bytes_of_chats, books.workspace_id)

    chat_id = (await post("x" * 1000)).json()["chat_id"]
    first = await total()
    assert CHAT_BYTES + 2 * (MESSAGE_BYTES + 1000) < first < CHAT_BYTES + 4000
    await post("y" * 1000, chat_id=chat_id)
    assert await total() == pytest.approx(2 * first - CHAT_BYTES, abs=10)


@pytest.mark.parametrize("fields", [{}, {"text": "i cant beleive it", "model": "svc/rules-en"}])
async def test_a_turn_that_is_not_saved_names_no_chat(
    fields: dict[str, str], post: Callable[..., Any]
) -> None:
    assert (await post(save_chat=False, **fields)).json()["chat_id"] is None
    stream = await post(save_chat=False, stream=True, **fields)
    events = [json.loads(line[6:]) for line in stream.text.split("\n\n")[:-2]]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("chat_id" not in event for event in events)
    assert "type" not in events[0] and events[-1]["type"] == "done"


async def test_a_turn_that_continues_a_chat_unsaved_names_that_chat(
    client: httpx.AsyncClient, auth: Headers, post: Callable[..., Any]
) -> None:
    chat_id = (await post()).json()["chat_id"]
    unsaved = (await post(chat_id=chat_id, save_chat=False)).json()
    assert unsaved["chat_id"] == chat_id and unsaved["usage"]["prompt_tokens"] == 3
    saved = (await client.get(f"/chats/{chat_id}", headers=auth)).json()
    assert saved["pagination"]["total"] == 2
