import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.accounts import User, Workspace, add_user
from db.billing.ledger import open_account
from db.chats import delete_chat, list_chats
from db.database import Database
from models.base import ModelInfo
from models.errors import ContextLengthExceeded, EngineError, EngineLost
from models.llm.base import (
    ChatMessage,
    GenerationDelta,
    GenerationRequest,
    Role,
    SamplingOptions,
    TokenUsage,
)
from pipelines.billing.billing import Billing
from pipelines.chat.history import ChatHistory, Retention, continued, estimate_tokens
from pipelines.chat.pipeline import ChatPipeline, ChatRequest, Completion
from pipelines.storage.encryption import Encryption
from tests.db.test_chats import read_entries
from tests.db.test_webhooks import plain
from tests.migrated import sqlite_database
from tests.patience import PATIENCE_S, until

WORKSPACE, OTHER_WORKSPACE = 1, 2
CREDIT = 1_000_000  # micro-USD


class ScriptedModel:
    """Generates `words`; records the prompts; its context holds `limit` messages."""

    def __init__(self, words: list[str], context_tokens: int | None = None, limit: int = 99):
        self.words = words
        self.info = ModelInfo(
            "svc/real",
            "chat",
            "scripted",
            "us",
            0,
            ("en",),
            ("svc/alias",),
            context_tokens=context_tokens,
        )
        self.limit = limit
        self.prompts: list[tuple[ChatMessage, ...]] = []
        self.requests: list[GenerationRequest] = []
        self.closed = 0
        self.failure: EngineError | None = None

    async def describe(self) -> ModelInfo:
        return self.info

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        self.prompts.append(request.messages)
        self.requests.append(request)
        if len(request.messages) > self.limit:
            raise ContextLengthExceeded("too long")
        try:
            for count, word in enumerate(self.words, start=1):
                yield GenerationDelta(word, usage=TokenUsage(5, count))
                await asyncio.sleep(0)
            if self.failure:
                raise self.failure
            yield GenerationDelta(finish_reason="stop", usage=TokenUsage(5, len(self.words)))
        finally:
            self.closed += 1


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with sqlite_database(tmp_path) as opened:
        yield opened


@pytest.fixture
async def pipeline_of(database: Database) -> Callable[[ScriptedModel], ChatPipeline]:
    for number in (WORKSPACE, OTHER_WORKSPACE):
        user = User(id=number, email=f"{number}@example.com", password_hash="x")
        workspace = Workspace(id=number, owner_id=number, name="w", plan="free")
        await database.run(add_user, user, workspace)
        await database.run(open_account, number, CREDIT)
    return lambda model: ChatPipeline({"m": model}, history_of(database), billing_of(database))


def history_of(database: Database) -> ChatHistory:
    plans = load_yaml(PlansConfig, "plans")
    return ChatHistory(database, Encryption([b64encode(b"k" * 32).decode()]), plans)


def billing_of(database: Database) -> Billing:
    return Billing(database, load_yaml(PlansConfig, "plans").prices, plain)


def users(*texts: str) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage("user", text) for text in texts)


def prompt(*texts: str, **more: Any) -> GenerationRequest:
    return GenerationRequest(users(*texts), **more)


def saved_id(completion: Completion) -> UUID:
    assert completion.chat_id is not None
    return completion.chat_id


async def answer(pipeline: ChatPipeline, request: ChatRequest) -> str:
    completion = await pipeline.start(request)
    return "".join([delta.text async for delta in completion.deltas()])


Make = Callable[[ScriptedModel], ChatPipeline]


async def test_without_any_model_the_error_is_unavailable_not_unknown(database: Database) -> None:
    with pytest.raises(EngineLost):
        pipeline = ChatPipeline({}, history_of(database), billing_of(database))
        await pipeline.start(ChatRequest(WORKSPACE, prompt("hi")))


async def test_a_turn_is_saved_before_its_last_delta(pipeline_of: Make, database: Database) -> None:
    pipeline = pipeline_of(ScriptedModel(["good", " day"]))
    completion = await pipeline.start(ChatRequest(WORKSPACE, prompt("hi")))
    async for delta in completion.deltas():
        if delta.finish_reason:
            _, entries, _ = await history_of(database).read(WORKSPACE, saved_id(completion))
            assert [(e.role, e.content) for e in entries] == [
                ("user", "hi"),
                ("assistant", "good day"),
            ]
            assert (entries[1].prompt_tokens, entries[1].completion_tokens) == (5, 2)
            assert entries[1].model == "svc/real"


async def test_a_continued_chat_sends_its_history(pipeline_of: Make) -> None:
    model = ScriptedModel(["good"])
    pipeline = pipeline_of(model)
    completion = await pipeline.start(ChatRequest(WORKSPACE, prompt("one")))
    assert [d async for d in completion.deltas()]
    await answer(pipeline, ChatRequest(WORKSPACE, prompt("two"), chat_id=completion.chat_id))
    await answer(pipeline, ChatRequest(WORKSPACE, prompt("three"), chat_id=completion.chat_id))
    assert [m.content for m in model.prompts[-1]] == ["one", "good", "two", "good", "three"]


async def test_closing_a_chat_stops_the_model_and_saves_the_partial_answer(
    pipeline_of: Make, database: Database
) -> None:
    model = ScriptedModel(["good", " day", " to", " you"])
    completion = await pipeline_of(model).start(ChatRequest(WORKSPACE, prompt("hi")))
    deltas = completion.deltas()
    await anext(deltas)
    await anext(deltas)
    await deltas.aclose()
    assert model.closed == 1
    await until(lambda: read_entries(database, WORKSPACE, saved_id(completion)))
    _, entries, _ = await history_of(database).read(WORKSPACE, saved_id(completion))
    assert entries[-1].content == "good day"
    assert entries[-1].completion_tokens == 2


async def test_a_resumed_answer_is_not_counted_as_a_prompt(pipeline_of: Make) -> None:
    model = ScriptedModel(["good", " day", " to", " you"])
    model.info = replace(model.info, pausable=True)
    request = prompt("hi", sampling=SamplingOptions(max_tokens=9))
    completion = await pipeline_of(model).start(ChatRequest(WORKSPACE, request))
    text = ""
    async for delta in completion.deltas():
        text += delta.text
        if text == "good day":
            assert await completion.pause()
            assert model.closed == 1
            model.words = [" and", " night"]
    assert text == "good day and night"
    assert completion.usage == TokenUsage(5, 4)
    assert [one.begun for one in model.requests] == ["", "good day"]
    assert model.requests[1].messages == model.requests[0].messages
    assert model.requests[1].sampling.max_tokens == 7


async def test_an_answer_paused_at_its_last_token_ends_for_its_length(pipeline_of: Make) -> None:
    model = ScriptedModel(["good", " day", " to", " you"])
    model.info = replace(model.info, pausable=True)
    request = prompt("hi", sampling=SamplingOptions(max_tokens=2))
    completion = await pipeline_of(model).start(ChatRequest(WORKSPACE, request, save_chat=False))
    async for delta in completion.deltas():
        if completion.answer.text == "good day" and not delta.finish_reason:
            assert await completion.pause()
    assert completion.answer.finish_reason == "length" and len(model.requests) == 1


async def test_an_answer_paused_where_its_context_is_full_ends_for_its_length(
    pipeline_of: Make,
) -> None:
    model = ScriptedModel(["good", " day"])
    model.info = replace(model.info, pausable=True)
    completion = await pipeline_of(model).start(ChatRequest(WORKSPACE, prompt("hi")))
    async for delta in completion.deltas():
        if delta.text == " day":
            assert await completion.pause()
            model.limit = 0
    assert completion.answer.text == "good day"
    assert completion.answer.finish_reason == "length"


async def test_only_a_text_of_a_model_that_can_go_on_is_paused(pipeline_of: Make) -> None:
    model = ScriptedModel(["good", " day"])
    completion = await pipeline_of(model).start(ChatRequest(WORKSPACE, prompt("hi")))
    async for _ in completion.deltas():
        assert not await completion.pause()
    assert completion.answer.text == "good day"


async def test_a_turn_being_saved_when_the_client_disconnects_is_not_lost(
    pipeline_of: Make, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, proceed = asyncio.Event(), asyncio.Event()
    save = ChatHistory.save

    async def save_late(*args: Any, **kwargs: Any) -> None:
        begun.set()
        await proceed.wait()
        await save(*args, **kwargs)

    monkeypatch.setattr(ChatHistory, "save", save_late)
    request = ChatRequest(WORKSPACE, prompt("hi"))
    answering = asyncio.create_task(answer(pipeline_of(ScriptedModel(["good"])), request))
    await begun.wait()
    answering.cancel()
    await asyncio.wait([answering])
    proceed.set()
    async with asyncio.timeout(PATIENCE_S):
        while (await database.read(list_chats, WORKSPACE, 1, 20))[1] == 0:
            await asyncio.sleep(0.01)


async def test_null_characters_are_removed_before_a_chat_is_stored(
    pipeline_of: Make, database: Database
) -> None:
    await answer(pipeline_of(ScriptedModel(["a\0b"])), ChatRequest(WORKSPACE, prompt("c\0d")))
    (chat,), _ = await history_of(database).page(WORKSPACE, 1, 20)
    opened, entries, _ = await history_of(database).read(WORKSPACE, chat.id)
    assert chat.title == opened.title == "cd"
    assert [entry.content for entry in entries] == ["cd", "ab"]


async def test_chats_are_encrypted_at_rest(pipeline_of: Make, database: Database) -> None:
    await answer(pipeline_of(ScriptedModel(["pelican"])), ChatRequest(WORKSPACE, prompt("ostrich")))
    (chat,), _ = await database.read(list_chats, WORKSPACE, 1, 20)
    entries = await read_entries(database, WORKSPACE, chat.id)
    stored = [chat.title, *(entry.content for entry in entries or [])]
    assert len(stored) == 3
    assert all(text.startswith("sealed:") and "ostrich" not in text for text in stored)


async def test_an_error_mid_answer_is_raised_and_the_partial_answer_is_saved(
    pipeline_of: Make, database: Database
) -> None:
    model = ScriptedModel(["good"])
    model.failure = EngineLost("gone")
    completion = await pipeline_of(model).start(ChatRequest(WORKSPACE, prompt("hi")))
    with pytest.raises(EngineLost, match="gone"):
        assert [d async for d in completion.deltas()]
    await until(lambda: read_entries(database, WORKSPACE, saved_id(completion)))


async def test_a_deleted_chat_is_not_saved_again(pipeline_of: Make, database: Database) -> None:
    pipeline = pipeline_of(ScriptedModel(["good"]))
    first = await pipeline.start(ChatRequest(WORKSPACE, prompt("one")))
    assert [d async for d in first.deltas()]
    second = await pipeline.start(ChatRequest(WORKSPACE, prompt("two"), chat_id=first.chat_id))
    await database.run(delete_chat, WORKSPACE, saved_id(first))
    assert [d async for d in second.deltas()]
    assert await read_entries(database, WORKSPACE, saved_id(first)) is None


async def test_history_beyond_the_context_is_shortened_and_sent_again(pipeline_of: Make) -> None:
    model = ScriptedModel(["good"])
    pipeline = pipeline_of(model)
    first = await pipeline.start(ChatRequest(WORKSPACE, prompt("one")))
    assert [d async for d in first.deltas()]
    for text in ("two", "three", "four"):
        await answer(pipeline, ChatRequest(WORKSPACE, prompt(text), chat_id=first.chat_id))
    model.limit = 3
    await answer(pipeline, ChatRequest(WORKSPACE, prompt("five"), chat_id=first.chat_id))
    contents = [m.content for m in model.prompts[-1]]
    assert contents in (["four", "good", "five"], ["five"])


async def test_a_turn_decrypts_only_the_messages_that_may_fit(
    database: Database, monkeypatch: pytest.MonkeyPatch, pipeline_of: Make
) -> None:
    roles = ["system", *["user", "assistant"] * 50, "system", "system", *["user", "assistant"] * 50]
    said = [ChatMessage(cast(Role, role), f"{at} {'x' * 90}") for at, role in enumerate(roles)]
    history, chat_id = history_of(database), uuid4()
    await history.save(WORKSPACE, chat_id, said[:-1], said[-1], "m", None, is_new=True)
    opened: list[str] = []
    decrypt = Encryption.decrypt_text

    def counted(*arguments: Any) -> Any:
        opened.append(arguments[1])
        return decrypt(*arguments)

    monkeypatch.setattr(Encryption, "decrypt_text", counted)
    model = ScriptedModel(["good"], context_tokens=1000)
    await answer(pipeline_of(model), ChatRequest(WORKSPACE, prompt("next"), chat_id=chat_id))
    assert model.prompts == [continued(said, users("next"), 750)]
    assert model.prompts[0][:2] == tuple(said[101:103])
    assert len(model.prompts[0]) - 1 <= len(opened) <= len(model.prompts[0]) + 4


async def test_messages_of_a_request_are_never_cut_to_fit_the_context(pipeline_of: Make) -> None:
    pipeline = pipeline_of(ScriptedModel(["good"], limit=2))
    with pytest.raises(ContextLengthExceeded):
        await pipeline.start(ChatRequest(WORKSPACE, prompt("a", "b", "c")))


def test_history_cut_to_the_budget_keeps_whole_turns_and_the_system_message() -> None:
    history = [
        ChatMessage("system", "Be kind."),
        ChatMessage("user", "x" * 300),
        ChatMessage("assistant", "y" * 300),
        ChatMessage("user", "short"),
        ChatMessage("assistant", "answer"),
    ]
    prompt = continued(history, users("new"), 120)
    assert [m.content for m in prompt] == ["Be kind.", "short", "answer", "new"]
    assert continued(history, users("new"), None) == (*history, *users("new"))
    assert [m.content for m in continued(history, users("new"), 0)] == ["Be kind.", "new"]


def test_a_full_context_drops_turns_in_steps_so_that_prompts_begin_alike() -> None:
    said = [
        ChatMessage(role, f"{number} " + "x" * 90)
        for number in range(60)
        for role in ("user", "assistant")
    ]

    def begins(retention: Retention) -> list[str]:
        """The first message of each of the prompts of a growing conversation."""
        return [
            continued(said[:end], users("new"), 1000, retention)[0].content
            for end in range(2, 120, 2)
        ]

    assert len(set(begins(Retention()))) > 30  # another one is dropped in each turn
    assert 5 < len(set(begins(Retention(0.6)))) < 15
    kept = [continued(said[:end], users("new"), 1000, Retention(0.6)) for end in range(60, 120, 2)]
    assert all(1000 >= estimate_tokens(prompt) > 400 for prompt in kept)
    few = continued(said, users("new"), None, Retention(0.6, most_tokens=200))
    assert 2 < len(few) and estimate_tokens(few) <= 200
    assert continued(said, users("new"), 1000, Retention(0.0)) != ()


def test_a_new_system_message_replaces_the_old_one() -> None:
    history = [ChatMessage("system", "Be kind."), *users("a"), ChatMessage("assistant", "b")]
    prompt = continued(history, (ChatMessage("system", "Be brief."), *users("c")), None)
    assert [m.content for m in prompt] == ["Be brief.", "a", "b", "c"]
