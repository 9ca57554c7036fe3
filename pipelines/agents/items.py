"""The items of a spoken conversation, in order, and the messages that a language model reads.

Items are messages, function calls and their outputs, with the semantics of OpenAI's Realtime API
(https://platform.openai.com/docs/guides/realtime)."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from models.llm.base import ChatMessage
from models.llm.tool_calls import readable_arguments
from pipelines.chat.history import last_turn
from pipelines.errors import InvalidRequest
from pipelines.tts.shaping import TimedWord

MAX_ITEMS = 2000
MAX_CHARACTERS = 500_000  # characters of all items together

ItemKind = Literal["message", "function_call", "function_call_output"]
ItemRole = Literal["user", "assistant", "system"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
PartKind = Literal["input_text", "input_audio", "output_text", "output_audio"]


class ItemNotFound(InvalidRequest):
    """The conversation has no item of that id."""


@dataclass(slots=True)
class Part:
    kind: PartKind
    text: str = ""  # the transcript if the part is audio
    audio_ms: int = 0
    words: list[TimedWord] = field(default_factory=list)  # for output audio; offsets are in `text`

    def cut(self, end_ms: int) -> None:
        """Drops the audio after `end_ms`, and the words that were not heard by then."""
        if not self.words and self.audio_ms:
            # Without word times, the text is cut in proportion to the audio, at a space.
            size = len(self.text) * end_ms // self.audio_ms
            if size < len(self.text):
                self.text = self.text[: max(self.text.rfind(" ", 0, size + 1), 0)]
        else:
            # A word counts as heard if at least half of it was played.
            self.words = [
                word for word in self.words if (word.start_s + word.end_s) * 500 <= end_ms
            ]
            self.text = self.text[: self.words[-1].text_end] if self.words else ""
        self.audio_ms = end_ms


@dataclass(slots=True)
class Item:
    """A message, a function call or its output."""

    id: str
    kind: ItemKind
    role: ItemRole = "user"
    parts: list[Part] = field(default_factory=list)
    status: ItemStatus = "completed"
    call_id: str = ""
    name: str = ""  # name of the function
    arguments: str = ""  # JSON
    output: str = ""
    began_at: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if part.text)

    @property
    def characters(self) -> int:
        parts = sum(len(part.text) for part in self.parts)
        return parts + len(self.arguments) + len(self.output)


class ConversationItems:
    def __init__(self) -> None:
        self._items: dict[str, Item] = {}
        self._order: list[str] = []

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._items

    def __iter__(self) -> Iterator[Item]:
        return iter([self._items[item_id] for item_id in self._order])

    def __len__(self) -> int:
        return len(self._order)

    @property
    def last_id(self) -> str | None:
        return self._order[-1] if self._order else None

    def previous_id(self, item_id: str) -> str | None:
        """The id of the item before; None for the first item."""
        at = self._order.index(item_id)
        return self._order[at - 1] if at else None

    def find(self, item_id: str) -> Item:
        """Returns an item. Raises ItemNotFound."""
        try:
            return self._items[item_id]
        except KeyError:
            raise ItemNotFound(f"the conversation has no item {item_id!r}") from None

    def add(self, item: Item, after: str | None = None) -> None:
        """Adds an item at the end, after the item `after`, or at the beginning if that is "root".
        Raises ItemNotFound, or InvalidRequest if the id is taken or the conversation is full."""
        if item.id in self._items:
            raise InvalidRequest(f"item.id: the conversation has an item {item.id!r} already")
        self.check_room(item.characters)
        at = len(self._order)
        if after == "root":
            at = 0
        elif after is not None:
            if after not in self._items:
                raise ItemNotFound(f"previous_item_id: the conversation has no item {after!r}")
            at = self._order.index(after) + 1
        self._items[item.id] = item
        self._order.insert(at, item.id)

    def check_room(self, characters: int) -> None:
        """Raises InvalidRequest if the conversation has no room for an item of that size."""
        if characters > MAX_CHARACTERS:
            raise InvalidRequest(
                f"item: it has {characters} characters; a conversation has {MAX_CHARACTERS} at most"
            )
        used = sum(item.characters for item in self._items.values())
        if len(self) >= MAX_ITEMS or used + characters > MAX_CHARACTERS:
            raise InvalidRequest(
                f"the conversation is full, with {MAX_ITEMS} items or {MAX_CHARACTERS} "
                "characters; delete some items"
            )

    def delete(self, item_id: str) -> None:
        """Deletes an item. Raises ItemNotFound."""
        self.find(item_id)
        del self._items[item_id]
        self._order.remove(item_id)

    def truncate(self, item_id: str, part: int, end_ms: int) -> None:
        """Cuts the spoken part of an assistant's message at `end_ms` of its audio, so that the
        model reads only what the user has heard. Raises ItemNotFound or InvalidRequest."""
        item = self.find(item_id)
        if item.kind != "message" or item.role != "assistant":
            raise InvalidRequest("item_id: only messages of the assistant can be truncated")
        if part >= len(item.parts) or item.parts[part].kind != "output_audio":
            raise InvalidRequest("content_index: the item has no audio there")
        if end_ms > item.parts[part].audio_ms:
            audio_ms = item.parts[part].audio_ms
            raise InvalidRequest(f"audio_end_ms: the audio has only {audio_ms} ms")
        item.parts[part].cut(end_ms)


def as_messages(items: Iterable[Item]) -> tuple[ChatMessage, ...]:
    """Converts items to the messages that the model reads, without empty ones and outputs without a
    call. A call without an output gets an empty one, since models expect an output for each."""
    messages: list[ChatMessage] = []
    waiting: list[str] = []  # ids of calls that no output has followed yet

    def answer_calls() -> None:
        messages.extend(ChatMessage("tool", "", {"tool_call_id": call_id}) for call_id in waiting)
        waiting.clear()

    for item in items:
        if item.kind == "function_call":
            call = {
                "id": item.call_id,
                "type": "function",
                "function": {"name": item.name, "arguments": readable_arguments(item.arguments)},
            }
            last = messages[-1] if messages else None
            if last is not None and last.role == "assistant" and (waiting or not last.extra):
                calls = [*last.extra.get("tool_calls", ()), call]
                messages[-1] = replace(last, extra={**last.extra, "tool_calls": calls})
            else:
                answer_calls()
                messages.append(ChatMessage("assistant", "", {"tool_calls": [call]}))
            waiting.append(item.call_id)
        elif item.kind == "function_call_output":
            if item.call_id in waiting:
                waiting.remove(item.call_id)
                messages.append(ChatMessage("tool", item.output, {"tool_call_id": item.call_id}))
        elif item.text:
            answer_calls()
            messages.append(ChatMessage(item.role, item.text))
    answer_calls()
    return tuple(messages)


def split_turn(
    messages: Sequence[ChatMessage],
) -> tuple[tuple[ChatMessage, ...], tuple[ChatMessage, ...]]:
    """Splits messages into the history and the last turn, which begins with the user's last message
    and is never cut."""
    at = last_turn(messages)
    return tuple(messages[:at]), tuple(messages[at:])
