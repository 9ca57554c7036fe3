"""Saved chats on both databases."""

import asyncio
from uuid import UUID, uuid4

from db.accounts import User, Workspace, add_user
from db.chats import (
    ChatEntry,
    append_to_chat,
    bytes_of_chats,
    delete_chat,
    delete_turn,
    find_answers,
    list_chats,
    path_to,
    read_chat,
)
from db.database import Database


async def read_entries(
    database: Database, workspace_id: int, chat_id: UUID
) -> list[ChatEntry] | None:
    found = await database.read(read_chat, workspace_id, chat_id)
    return None if found is None else found[1]


async def add_workspace(database: Database, email: str = "a@b.co") -> int:
    user = User(email=email, password_hash="!")
    workspace = Workspace(owner_id=user.id, name="w", plan="free")
    await database.run(add_user, user, workspace)
    return workspace.id


def turn(text: str) -> list[ChatEntry]:
    return [
        ChatEntry(chat_id=UUID(int=0), position=0, role=role, content=text, extra={"k": [1]})
        for role in ("user", "assistant")
    ]


async def test_messages_of_a_chat_are_stored_in_order(database: Database) -> None:
    workspace_id, chat_id = await add_workspace(database), uuid4()
    await database.run(append_to_chat, workspace_id, chat_id, turn("ünï 😀"), "title")
    await database.run(append_to_chat, workspace_id, chat_id, turn("two"))
    entries = await read_entries(database, workspace_id, chat_id)
    assert entries is not None
    assert [(e.position, e.content) for e in entries] == [
        (0, "ünï 😀"),
        (1, "ünï 😀"),
        (2, "two"),
        (3, "two"),
    ]
    assert entries[0].extra == {"k": [1]}
    found = await database.read(read_chat, workspace_id, chat_id)
    assert found is not None
    chat, *_ = found
    assert chat.title == "title" and chat.updated_at > chat.created_at


async def test_concurrent_turns_of_a_chat_get_separate_positions(database: Database) -> None:
    workspace_id, chat_id = await add_workspace(database), uuid4()
    await database.run(append_to_chat, workspace_id, chat_id, turn("0"), "title")
    await asyncio.gather(
        *(database.run(append_to_chat, workspace_id, chat_id, turn(str(n))) for n in range(1, 9))
    )
    entries = await read_entries(database, workspace_id, chat_id)
    assert entries is not None
    assert [entry.position for entry in entries] == list(range(18))
    texts = [entry.content for entry in entries]
    assert texts[::2] == texts[1::2] and sorted(texts[::2]) == [str(n) for n in range(9)]


async def test_chats_are_listed_with_the_last_used_first(database: Database) -> None:
    workspace_id = await add_workspace(database)
    ids = [uuid4() for _ in range(5)]
    for chat_id in ids:
        await database.run(append_to_chat, workspace_id, chat_id, turn("x"), str(chat_id))
    await database.run(append_to_chat, workspace_id, ids[0], turn("again"))
    chats, total = await database.read(list_chats, workspace_id, 1, 2)
    assert ([chat.id for chat in chats], total) == ([ids[0], ids[4]], 5)
    chats, _ = await database.read(list_chats, workspace_id, 3, 2)
    assert [chat.id for chat in chats] == [ids[1]]


async def test_a_chat_of_another_workspace_is_inaccessible(database: Database) -> None:
    mine, chat_id = await add_workspace(database), uuid4()
    theirs = await add_workspace(database, "c@d.co")
    await database.run(append_to_chat, mine, chat_id, turn("x"), "title")
    await database.run(append_to_chat, theirs, chat_id, turn("theirs"))
    assert await database.read(read_chat, theirs, chat_id) is None
    assert await read_entries(database, theirs, chat_id) is None
    assert not await database.run(delete_chat, theirs, chat_id)
    entries = await read_entries(database, mine, chat_id)
    assert entries is not None and [entry.content for entry in entries] == ["x", "x"]


async def test_deleting_a_chat_deletes_its_messages(database: Database) -> None:
    workspace_id, chat_id = await add_workspace(database), uuid4()
    await database.run(append_to_chat, workspace_id, chat_id, turn("x"), "title")
    assert await database.run(delete_chat, workspace_id, chat_id)
    assert await read_entries(database, workspace_id, chat_id) is None
    await database.run(append_to_chat, workspace_id, chat_id, turn("y"), "again")
    entries = await read_entries(database, workspace_id, chat_id)
    assert entries is not None and len(entries) == 2


async def test_turns_that_follow_the_same_one_are_branches(database: Database) -> None:
    workspace_id, chat_id = await add_workspace(database), uuid4()

    async def add(text: str, after: str | None) -> None:
        entries = turn(text)
        entries[-1].model, entries[-1].turn = "m", text
        title = None if after else "title"
        await database.run(append_to_chat, workspace_id, chat_id, entries, title, after)

    async def path(name: str | None) -> list[str]:
        entries = await read_entries(database, workspace_id, chat_id)
        return [entry.content for entry in path_to(entries or [], name)[::2]]

    await add("a", None)
    await asyncio.gather(*(add(name, "a") for name in ("b", "c", "d")))
    await add("e", "b")
    await add("never", "unknown")
    assert [await path(name) for name in "abcde"] == [["a"], *(["a", x] for x in "bcd"), [*"abe"]]
    assert await path(None) == [*"abe"] and await path("never") == []
    theirs = await add_workspace(database, "c@d.co")
    assert await database.read(find_answers, theirs, [chat_id], [*"abc"]) == []
    found = await database.read(find_answers, workspace_id, [chat_id], [*"ab", "never"])
    assert {entry.turn for entry in found} == {"a", "b"}
    assert not await database.run(delete_turn, theirs, chat_id, "c")
    for name in "acbd":  # those in the middle stay until the last that continues them is deleted
        assert await database.run(delete_turn, workspace_id, chat_id, name)
        assert not await database.run(delete_turn, workspace_id, chat_id, name)
    assert await path("e") == [*"abe"]
    assert len(await read_entries(database, workspace_id, chat_id) or ()) == 6
    assert await database.run(delete_turn, workspace_id, chat_id, "e")
    assert await read_entries(database, workspace_id, chat_id) is None
    assert await database.read(bytes_of_chats, workspace_id) == 0
