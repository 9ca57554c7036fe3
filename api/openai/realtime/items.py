"""Items of a conversation on the wire: messages, calls of functions, and the outputs of those
calls."""

from typing import Annotated, Any, Literal, TypeAlias, assert_never, cast

from pydantic import BeforeValidator, Field, model_validator

from api.http.bodies import WHOLE
from api.native.chat.schemas import CallArguments
from api.openai.realtime.faults import MISSING, wrong, wrong_choice
from api.openai.realtime.server_events import (
    AudioCommitted,
    ItemAdded,
    ItemDone,
    Send,
    WireItem,
    new_id,
)
from api.sockets.tts.events import LenientModel
from pipelines.agents.items import ConversationItems, Item, Part, PartKind
from pipelines.audio.decode.stream import decode_base64
from pipelines.chat.history import Retention
from pipelines.errors import InvalidAudio

MAX_AUDIO_BYTES = 15 << 20  # of one event, decoded
MAX_TEXT = 1 << 20  # characters; a body of the chat route has no more
MAX_PARTS = 128
ItemStatus = Literal["completed", "incomplete", "in_progress"]
Role = Literal["system", "user", "assistant"]
PartType = Literal["input_text", "input_audio", "output_text", "output_audio"]

_PART_TYPES: dict[Role, tuple[PartType, ...]] = {  # what the content of each role may be
    "system": ("input_text",),
    "user": ("input_text", "input_audio"),
    "assistant": ("output_text", "output_audio"),
}

_NEEDED = {  # the field without which a part has no content
    "input_text": "text",
    "output_text": "text",
    "input_audio": "audio",
    "output_audio": "transcript",
}

Identifier = Annotated[str, Field(min_length=1, max_length=200)]
LongText = Annotated[str, Field(max_length=MAX_TEXT)]


def _decoded(value: Any) -> Any:
    """The bytes of base64; other types are left to the type's own check."""
    if not isinstance(value, str):
        return value
    if len(value) > -(-MAX_AUDIO_BYTES // 3) * 4:
        raise wrong("invalid_value", f"audio is larger than {MAX_AUDIO_BYTES} bytes")
    try:
        return decode_base64(value)
    except InvalidAudio:
        message = "Expected base64-encoded audio bytes but got an invalid value."
        raise wrong("invalid_value", message) from None


def _no_image(value: Any) -> Any:
    if value == "input_image":
        raise wrong("invalid_value", "images are not supported: the models read and hear only")
    return value


AudioBytes = Annotated[bytes, BeforeValidator(_decoded)]


class ContentPart(LenientModel):
    """A part of a message. `audio` is in the session's format of its direction.

    Of audio whose text is already known the bytes may be left out, as when a conversation is
    restored.
    """

    # The latter two only until the message is validated.
    type: Annotated[Literal[PartType, "text", "audio"], BeforeValidator(_no_image)]
    text: LongText | None = None
    audio: AudioBytes | None = None
    transcript: LongText | None = None

    @property
    def words(self) -> str:
        return (self.transcript if self.type.endswith("audio") else self.text) or ""


class ItemModel(LenientModel):
    """Without an `id` the server gives it one."""

    id: Identifier | None = None
    status: ItemStatus = "completed"


class MessageItem(ItemModel):
    type: Literal["message"] = "message"
    role: Role
    content: Annotated[list[ContentPart], Field(max_length=MAX_PARTS)]

    @model_validator(mode="after")
    def _suits_role(self) -> "MessageItem":
        types = _PART_TYPES[self.role]
        of_beta = {kind.partition("_")[2]: kind for kind in types}  # which names no direction
        for index, part in enumerate(self.content):
            at = f"content[{index}]"
            part.type = of_beta.get(part.type, part.type)
            if part.type not in types:
                raise wrong_choice(part.type, types, f"{at}.type")
            field = _NEEDED[part.type]
            audio = part.transcript if part.audio is None else part.audio
            if {"text": part.text, "audio": audio, "transcript": part.transcript}[field] is None:
                raise wrong(MISSING, "", f"{at}.{field}")
        return self


class FunctionCallItem(ItemModel):
    """A call that the model made."""

    type: Literal["function_call"] = "function_call"
    call_id: Identifier | None = None
    name: Annotated[str, Field(min_length=1, max_length=64)]
    arguments: Annotated[CallArguments, Field(max_length=MAX_TEXT)]


class FunctionCallOutputItem(ItemModel):
    """What the client's function returned."""

    type: Literal["function_call_output"] = "function_call_output"
    call_id: Identifier
    output: LongText


class ItemReference(LenientModel):
    """An item of the conversation as input of a response."""

    type: Literal["item_reference"] = "item_reference"
    id: Identifier


AnyItem: TypeAlias = MessageItem | FunctionCallItem | FunctionCallOutputItem
InputItem: TypeAlias = Annotated[AnyItem | ItemReference, Field(discriminator="type")]


class Truncation(LenientModel):
    """What is read of a conversation of which not all fits: a word, or an object."""

    type: Literal["auto", "disabled", "retention_ratio"] = "auto"
    retention_ratio: Annotated[float, Field(ge=0, le=1)] = 0.8  # of what fits
    token_limits: dict[str, Annotated[int, Field(ge=0), WHOLE]] | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    def as_json(self) -> Any:
        has_options = self.type == "retention_ratio"
        return self.model_dump(exclude_none=True) if has_options else self.type

    def as_retention(self) -> Retention:
        most_tokens = (self.token_limits or {}).get("post_instructions")
        return Retention(self.retention_ratio, most_tokens)


def to_wire(item: Item) -> WireItem:
    """The item as events show it: audio only as its transcript."""
    head = {"id": item.id, "object": "realtime.item", "type": item.kind, "status": item.status}
    match item.kind:
        case "function_call":
            call = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            return {**head, **call}
        case "function_call_output":
            return {**head, "call_id": item.call_id, "output": item.output}
        case "message":
            return {**head, "role": item.role, "content": [_part(part) for part in item.parts]}


def _part(part: Part) -> dict[str, str]:
    text = "transcript" if part.kind.endswith("audio") else "text"
    return {"type": part.kind, text: part.text}


def from_wire(item: AnyItem) -> Item:
    """An item of the client. Its audio is not part of it: it is to be transcribed first."""
    item_id = item.id or new_id("item")
    match item:
        case FunctionCallItem():
            call_id = item.call_id or new_id("call")
            return Item(
                item_id,
                "function_call",
                "assistant",
                call_id=call_id,
                name=item.name,
                arguments=item.arguments,
            )
        case FunctionCallOutputItem():
            return Item(item_id, "function_call_output", call_id=item.call_id, output=item.output)
        case MessageItem():
            parts = [Part(cast(PartKind, part.type), part.words) for part in item.content]
            return Item(item_id, "message", item.role, parts)
        case _:
            assert_never(item)


class ItemFeed:
    """The items of a conversation, and the events that show each to the client."""

    def __init__(self, send: Send) -> None:
        self.items = ConversationItems()
        self._send = send

    async def begin(self, item: Item, after: str | None = None) -> None:
        """Adds an item, which may grow. Raises as `ConversationItems.add`."""
        self.items.add(item, after)
        previous = self.items.previous_id(item.id)
        await self._send(ItemAdded(item=to_wire(item), previous_item_id=previous))

    async def insert(self, item: Item, after: str | None = None) -> None:
        """Adds a whole item. Raises as `ConversationItems.add`."""
        await self.begin(item, after)
        await self.finish(item)

    async def finish(self, item: Item) -> None:
        """Ends an item, which the client may have deleted."""
        if item.id in self.items:
            previous = self.items.previous_id(item.id)
            await self._send(ItemDone(item=to_wire(item), previous_item_id=previous))

    async def commit(self, item: Item) -> None:
        """Adds the user's speech."""
        previous = self.items.last_id
        await self._send(AudioCommitted(item_id=item.id, previous_item_id=previous))
        await self.insert(item)
