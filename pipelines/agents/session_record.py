"""The record of an agent session that has ended: a saved chat, and an event for webhooks."""

import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from db.database import iso_moment, utc_now
from db.errors import DatabaseError
from db.webhooks import NewEvent
from pipelines.agents.items import Item, as_messages
from pipelines.agents.response import Answer
from pipelines.chat.history import ChatHistory
from pipelines.webhooks.events import WebhookEvents

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class SessionRecord:
    """Records one session. Without a call of `begin`, `close` does nothing."""

    _history: ChatHistory
    _events: WebhookEvents
    _workspace_id: int
    _may_save: bool
    _count_bytes: Callable[[int], Awaitable[bool]]  # gets the event's bytes; False refuses it
    _chat_id: UUID | None = None  # None: no chat is saved
    _session_id: str = ""
    _model: str = ""
    _started_at: str = ""
    _began_at: float = 0.0

    def __post_init__(self) -> None:
        self._usage = {"seconds": 0.0, "input_tokens": 0, "output_tokens": 0, "characters": 0}

    def begin(self, session_id: str, model: str) -> None:
        """Begins the session; `model` is the id or alias of the model that is to answer."""
        self._session_id = session_id
        self._model = model
        self._began_at = time.monotonic()
        self._started_at = iso_moment(utc_now())

    async def save_chat(self, wanted: bool) -> UUID | None:
        """Sets whether the conversation becomes a chat; returns the id of that chat, or None.
        Raises PlanRequired or DatabaseUnavailable, and then changes nothing."""
        if not (wanted and self._may_save):
            self._chat_id = None
        elif self._chat_id is None:
            await self._history.check(self._workspace_id, None, saves=True)
            self._chat_id = uuid4()
        return self._chat_id

    def count(self, answer: Answer) -> None:
        """Adds the tokens and characters of an answer to the usage."""
        self._model = answer.model
        if answer.usage is not None:
            self._usage["input_tokens"] += answer.usage.prompt_tokens
            self._usage["output_tokens"] += answer.usage.completion_tokens
        self._usage["characters"] += answer.characters

    async def close(self, items: Iterable[Item], close_code: int, heard_s: float) -> None:
        """Ends the session; `heard_s` is the length of the user's audio in seconds."""
        if not self._session_id:
            return
        conversation = list(items)
        chat_id = await self._save(conversation)
        self._usage["seconds"] = round(heard_s, 3)
        data: dict[str, Any] = {
            "id": self._session_id,
            "model": self._model,
            "started_at": self._started_at,
            "duration": round(time.monotonic() - self._began_at, 3),
            "close_code": close_code,
            "chat_id": None if chat_id is None else str(chat_id),
            "usage": self._usage,
            "transcript": [entry for item in conversation if (entry := self._entry(item))],
        }
        if await self._count_bytes(len(json.dumps(data))):
            await self._events.record(self._workspace_id, NewEvent("agent.session.completed", data))

    async def _save(self, items: list[Item]) -> UUID | None:
        messages = as_messages(items)
        if self._chat_id is None or not messages:
            return None
        try:
            is_saved = await self._history.save_conversation(
                self._workspace_id, self._chat_id, messages, self._model
            )
        except DatabaseError:  # the session is over: only the log can report it
            logger.exception("chat_not_saved", extra={"chat_id": str(self._chat_id)})
            return None
        return self._chat_id if is_saved else None

    def _entry(self, item: Item) -> dict[str, Any] | None:
        """Returns an entry of the transcript; None for a message without text."""
        start = {"start": round(max(item.began_at - self._began_at, 0.0), 3)}
        if item.kind == "function_call":
            return {"type": item.kind, "name": item.name, "arguments": item.arguments, **start}
        if item.kind == "function_call_output":
            return {"type": item.kind, "output": item.output, **start}
        if not item.text:
            return None
        audio_ms = sum(part.audio_ms for part in item.parts)
        duration = audio_ms / 1000 if audio_ms else None
        message = {"role": item.role, "text": item.text}
        return {"type": item.kind, **message, **start, "duration": duration}
