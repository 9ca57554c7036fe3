"""Saved chats, and the part of a conversation that fits the context of a model."""

import asyncio
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeVar, cast
from uuid import UUID

from sqlmodel import Session

from configs.schema.platform import PlansConfig
from db import chats
from db.accounts import Workspace
from db.chats import ALL, Chat, ChatEntry
from db.database import Database
from models.llm.base import ChatMessage, Role, TokenUsage
from models.llm.tool_calls import readable_arguments
from pipelines.errors import ChatNotFound, InvalidRequest, PlanRequired, UnknownToolCall
from pipelines.storage.encryption import Encryption
from pipelines.storage.room import check_room, plan_limits
from pipelines.tasks import TtlCache

TITLE_LENGTH = 80
# An estimate: English has over 4 bytes per token, most other scripts about 3. If a text has fewer,
# the engine raises ContextLengthExceeded, and more is dropped.
BYTES_PER_TOKEN = 3
TOKENS_PER_MESSAGE = 8  # added by the template
TOKENS_PER_TOOLS = 256  # instructions on calls
TOKENS_PER_PROMPT = 64  # instructions that a template adds by itself
MB = 1_000_000

KEPT = "kept"  # key in an answer's extras for data that no model reads
TurnName = tuple[UUID, str]  # a chat and the name of one of its turns

M = TypeVar("M", ChatMessage, ChatEntry)


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    text: str
    calls: list[dict[str, Any]]
    model: str
    usage: TokenUsage
    kept: dict[str, Any] | None  # `ChatRequest.kept`, and how the answer ended


class ChatHistory:
    """Saved chats of workspaces. Methods raise DatabaseUnavailable. Messages and titles are
    encrypted, bound to their workspace and chat. Threads decrypt: a full chat takes some 30 ms."""

    def __init__(self, database: Database, encryption: Encryption, plans: PlansConfig) -> None:
        self._database = database
        self._encryption = encryption
        self._plans = plans
        # Counting takes 3 ms for 10,000 chats, which have at least 40 MB.
        self._used: TtlCache[int, int] = TtlCache(lambda used: min(60.0, used / (5 * MB)), 10_000)

    async def check(self, workspace_id: int, chat_id: UUID | None, *, saves: bool) -> None:
        """Checks that a turn may begin, without reading messages. Raises ChatNotFound; for a turn
        to be saved, InvalidRequest when the chat is full, and PlanRequired or StorageLimit when the
        workspace is."""
        if chat_id is None and not saves:
            return
        room_mb = await self._database.read(self._room_mb, workspace_id, chat_id, saves)
        count = partial(self._database.read, chats.bytes_of_chats, workspace_id)
        if saves and await self._used.get(workspace_id, count) >= room_mb * MB:
            full = f"the plan has room for {room_mb} MB of saved chats"
            raise PlanRequired(f"{full}; delete some, or save none (save_chat or store false)")

    def _room_mb(
        self, session: Session, workspace_id: int, chat_id: UUID | None, saves: bool
    ) -> int:
        chat = None if chat_id is None else chats.find_chat(session, workspace_id, chat_id)
        if chat_id is not None and chat is None:
            raise ChatNotFound
        most = self._plans.chat
        if chat is not None and saves:
            messages = chats.count_messages(session, chat.id)
            if chat.stored_bytes >= most.mb * MB or messages >= most.messages:
                full = f"the chat is full, with {most.messages} messages or {most.mb} MB"
                raise InvalidRequest(f"chat_id: {full}; leave it out, or send save_chat false")
        if saves:
            check_room(session, self._plans, workspace_id, more=1)
        return plan_limits(session, self._plans, workspace_id).saved_chats_mb

    async def load(
        self,
        workspace_id: int,
        chat_id: UUID,
        budget_tokens: int | None = None,
        *,
        after: str | None = None,
    ) -> tuple[ChatMessage, ...]:
        """Reads the messages of a chat up to the turn `after`, or to the last, oldest first. With a
        budget it decrypts only what `continued` can use: the instructions, the last turn, and as
        many messages before it as fit. Raises ChatNotFound, also for an unknown turn."""
        saved = await self._database.read(chats.read_chat, workspace_id, chat_id)
        if saved is None:
            raise ChatNotFound
        chat, entries, _ = saved
        path = chats.path_to(entries, after)
        if after is not None and not path:
            raise ChatNotFound
        return await asyncio.to_thread(self._open_newest, chat, path, budget_tokens)

    async def answers(
        self, workspace_id: int, turns: Collection[TurnName]
    ) -> dict[TurnName, SavedAnswer]:
        """Reads the answers of those turns that exist."""
        chat_ids = {chat_id for chat_id, _ in turns}
        names = {name for _, name in turns}
        entries = await self._database.read(chats.find_answers, workspace_id, chat_ids, names)

        def opened(entry: ChatEntry) -> SavedAnswer:
            text, extra = self._open_readable(workspace_id, entry)
            calls = extra.get("tool_calls", [])
            usage = TokenUsage(entry.prompt_tokens or 0, entry.completion_tokens or 0)
            return SavedAnswer(text, calls, entry.model or "", usage, extra.get(KEPT))

        read = await asyncio.to_thread(list, map(opened, entries))
        return {(e.chat_id, str(e.turn)): answer for e, answer in zip(entries, read, strict=True)}

    async def delete_turn(self, workspace_id: int, chat_id: UUID, turn: str) -> None:
        """Deletes a turn with the messages that no other turn continues. Raises ChatNotFound."""
        if not await self._database.run(chats.delete_turn, workspace_id, chat_id, turn):
            raise ChatNotFound
        self._used.forget(workspace_id)

    async def read(
        self, workspace_id: int, chat_id: UUID, page: int = 1, limit: int = ALL
    ) -> tuple[Chat, list[ChatEntry], int]:
        """Reads a chat, a page of its messages, oldest first, and the number of all its messages.
        Raises ChatNotFound."""
        saved = await self._database.read(chats.read_chat, workspace_id, chat_id, page, limit)
        if saved is None:
            raise ChatNotFound
        await asyncio.to_thread(self._open, *saved[:2])
        return saved

    async def page(self, workspace_id: int, page: int, limit: int) -> tuple[list[Chat], int]:
        """Reads one page of chats, last used first, and the number of all; `page` counts from 1."""
        listed, total = await self._database.read(chats.list_chats, workspace_id, page, limit)
        await asyncio.to_thread(list, map(self._open_title, listed))
        return listed, total

    async def delete(self, workspace_id: int, chat_id: UUID) -> None:
        """Deletes a chat. Raises ChatNotFound."""
        if not await self._database.run(chats.delete_chat, workspace_id, chat_id):
            raise ChatNotFound
        self._used.forget(workspace_id)

    def _open(self, chat: Chat, entries: list[ChatEntry]) -> None:
        self._open_title(chat)
        for entry in entries:
            entry.content, entry.extra = self._open_message(chat.workspace_id, entry)
            entry.extra.pop(KEPT, None)

    def _open_newest(
        self, chat: Chat, entries: list[ChatEntry], budget_tokens: int | None
    ) -> tuple[ChatMessage, ...]:
        def opened(entry: ChatEntry) -> ChatMessage:
            text, extra = self._open_readable(chat.workspace_id, entry)
            extra.pop(KEPT, None)
            return ChatMessage(cast(Role, entry.role), text, extra)

        if budget_tokens is None:
            return tuple(map(opened, entries))
        newest: list[ChatMessage] = []
        used = 0
        has_turn = False
        for entry in reversed(entries):
            if entry.role != "system":
                newest.append(opened(entry))
                used += estimate_tokens(newest[-1:])
                has_turn = has_turn or entry.role == "user"
                if has_turn and used > budget_tokens:
                    break
        return (*map(opened, _instructions(entries)), *reversed(newest))

    def _open_title(self, chat: Chat) -> None:
        about = chat_about(chat.workspace_id, chat.id, "title")
        chat.title = self._encryption.decrypt_text(chat.title, about)

    def _open_message(self, workspace_id: int, entry: ChatEntry) -> tuple[str, dict[str, Any]]:
        """Decrypts text and extras, which are encrypted together."""
        about = chat_about(workspace_id, entry.chat_id)
        text, extra = json.loads(self._encryption.decrypt_text(entry.content, about))
        return text, extra

    def _open_readable(self, workspace_id: int, entry: ChatEntry) -> tuple[str, dict[str, Any]]:
        """Decrypts text and extras, with calls that a model can read again, whatever was saved."""
        text, extra = self._open_message(workspace_id, entry)
        for call in extra.get("tool_calls", ()):
            function = call["function"]
            function["arguments"] = readable_arguments(function["arguments"])
        return text, extra

    async def save(
        self,
        workspace_id: int,
        chat_id: UUID,
        sent: Sequence[ChatMessage],
        answer: ChatMessage,
        model: str,
        usage: TokenUsage | None,
        *,
        is_new: bool,
        turn: str | None = None,
        after: str | None = None,
    ) -> None:
        """Adds a turn: what the user sent, then the answer, behind the turn `after` or the last."""
        entries = [_to_entry(message) for message in (*sent, answer)]
        entries[-1].model = model
        entries[-1].turn = turn
        if usage is not None:
            entries[-1].prompt_tokens = usage.prompt_tokens
            entries[-1].completion_tokens = usage.completion_tokens
        self._seal(workspace_id, chat_id, entries)
        title = self._seal_title(workspace_id, chat_id, sent) if is_new else None
        await self._database.run(chats.append_to_chat, workspace_id, chat_id, entries, title, after)

    async def save_conversation(
        self, workspace_id: int, chat_id: UUID, messages: Sequence[ChatMessage], model: str
    ) -> bool:
        """Saves a conversation that has ended as a new chat; `model` generated its answers. False
        when the workspace was erased meanwhile, or no longer stores texts."""
        entries = [_to_entry(message) for message in messages]
        for entry in entries:
            entry.model = model if entry.role == "assistant" else None
        await asyncio.to_thread(self._seal, workspace_id, chat_id, entries)
        title = self._seal_title(workspace_id, chat_id, messages)

        def append(session: Session) -> bool:
            workspace = session.get(Workspace, workspace_id)
            if workspace is None or workspace.retention == "zero":
                return False
            chats.append_to_chat(session, workspace_id, chat_id, entries, title)
            return True

        return await self._database.run(append)

    def _seal(self, workspace_id: int, chat_id: UUID, entries: Sequence[ChatEntry]) -> None:
        for entry in entries:
            plain = json.dumps([entry.content, entry.extra], ensure_ascii=False)
            about = chat_about(workspace_id, chat_id)
            entry.content, entry.extra = self._encryption.encrypt_text(plain, about), {}

    def _seal_title(self, workspace_id: int, chat_id: UUID, messages: Sequence[ChatMessage]) -> str:
        about = chat_about(workspace_id, chat_id, "title")
        return self._encryption.encrypt_text(_title(messages), about)


@dataclass(frozen=True, slots=True)
class Retention:
    """Part of a long conversation that the model reads: a retention ratio, and a limit."""

    ratio: float = 1.0  # share of what fits
    most_tokens: int | None = None  # excludes the instructions

    def dropped(self, all_tokens: int, budget_tokens: int) -> int:
        """Returns how many tokens of the oldest messages are left out. It grows in steps, so that
        prompts between two steps begin alike and stay cached."""
        excess = max(0, all_tokens - budget_tokens)
        step = max(1, round(budget_tokens * (1 - self.ratio)))
        return math.ceil(excess / step) * step


def continued(
    history: Sequence[ChatMessage],
    sent: Sequence[ChatMessage],
    budget_tokens: int | None,
    retention: Retention = Retention(),
) -> tuple[ChatMessage, ...]:
    """Makes the prompt: instructions, then as much of `history` as fits, then all of `sent`. New
    instructions replace older ones. `budget_tokens` None means no limit."""
    instructions = _instructions(sent) or _instructions(history)
    earlier = [message for message in history if message.role != "system"]
    new = [message for message in sent if message.role != "system"]
    if new and new[0].role == "tool":
        # A result needs its call, and the call the user's message before it.
        start = last_turn(earlier)
        earlier, new = earlier[:start], [*earlier[start:], *new]
    if retention.most_tokens is not None:
        most = estimate_tokens(instructions) + retention.most_tokens
        budget_tokens = most if budget_tokens is None else min(budget_tokens, most)
    if budget_tokens is not None:
        history_tokens = estimate_tokens(earlier)
        all_tokens = estimate_tokens((*instructions, *new)) + history_tokens
        dropped = retention.dropped(all_tokens, budget_tokens)
        earlier = _newest_that_fit(earlier, history_tokens - dropped)
    return (*instructions, *earlier, *new)


def estimate_tokens(messages: Sequence[ChatMessage]) -> int:
    """Estimates the tokens of messages, rather too many than too few."""
    return sum(_size(message) // BYTES_PER_TOKEN + TOKENS_PER_MESSAGE for message in messages)


def most_tokens(messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] = ()) -> int:
    """Returns an upper bound of the tokens: no tokenizer needs more tokens than bytes."""
    of_tools = len(json.dumps(tools)) + TOKENS_PER_TOOLS if tools else 0
    return TOKENS_PER_PROMPT + of_tools + sum(_size(m) + TOKENS_PER_MESSAGE for m in messages)


def check_results(history: Sequence[ChatMessage], sent: Sequence[ChatMessage]) -> None:
    """Raises UnknownToolCall when a tool result has no call before it."""
    called: set[str] = set()
    for message in (*history, *sent):
        called.update(call["id"] for call in message.extra.get("tool_calls", ()))
        if message.role == "tool" and message.extra.get("tool_call_id") not in called:
            raise UnknownToolCall("tool_call_id: no earlier call has that id")


def _size(message: ChatMessage) -> int:
    """Counts the bytes of all fields that a template may render."""
    return len(message.content.encode()) + len(json.dumps(message.extra)) - len("{}")


def last_turn(messages: Sequence[ChatMessage]) -> int:
    """Returns the index of the last message of a user."""
    users = (index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "user")
    return next(users, 0)


def _instructions(messages: Sequence[M]) -> list[M]:
    """Selects the last unbroken run of system messages."""
    runs = groupby(messages, key=lambda message: message.role)
    instructions = [list(run) for role, run in runs if role == "system"]
    return instructions[-1] if instructions else []


def _newest_that_fit(messages: list[ChatMessage], budget_tokens: int) -> list[ChatMessage]:
    """Selects whole turns from the end; the first message is a user's."""
    start = len(messages)
    used = 0
    for index in range(len(messages) - 1, -1, -1):
        used += estimate_tokens(messages[index : index + 1])
        if used > budget_tokens:
            break
        if messages[index].role == "user":
            start = index
    return messages[start:]


def _title(sent: Sequence[ChatMessage]) -> str:
    spoken = next((m.content for m in sent if m.role == "user"), sent[0].content)
    words = " ".join(_storable(spoken).split())
    return words if len(words) <= TITLE_LENGTH else words[: TITLE_LENGTH - 1].rstrip() + "…"


def _to_entry(message: ChatMessage) -> ChatEntry:
    # `append_to_chat` sets the chat and the position.
    return ChatEntry(
        chat_id=UUID(int=0),
        position=0,
        role=message.role,
        content=_storable(message.content),
        extra=message.extra,
    )


def _storable(text: str) -> str:
    """Removes U+0000, which PostgreSQL cannot store."""
    return text.replace("\0", "")


def chat_about(workspace_id: int, chat_id: UUID, what: str = "message") -> str:
    """Associated data of a chat's encrypted messages, or of its title."""
    return f"chat:{workspace_id}:{chat_id}:{what}"
