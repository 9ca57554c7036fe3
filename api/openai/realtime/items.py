"""Items of a conversation on the wire: messages, function calls and their outputs."""

from typing import Annotated, Any, Literal, TypeAlias, assert_never, cast

from pydantic import BeforeValidator, Field, model_validator

from api.http.bodies import WHOLE
from api.native.chat.schemas import CallArguments
from api.openai.realtime import server_events as events
from api.openai.realtime.faults import MISSING, wrong, wrong_choice
from api.sockets.tts.events import LenientModel
from pipelines.agents.items import ConversationItems, Item, Part, PartKind
from pipelines.audio.decode.stream import decode_base64
from pipelines.chat.history import Retention
from pipelines.errors import InvalidAudio

MAX_AUDIO_BYTES = 15 << 20  # per event, after base64 decoding
MAX_TEXT = 1 << 20  # characters, as many as the chat route takes in a body
MAX_PARTS = 128
ItemStatus = Literal["completed", "incomplete", "in_progress"]
Role = Literal["system", "user", "assistant"]
PartType = Literal["input_text", "input_audio", "output_text", "output_audio"]

_PART_TYPES: dict[Role, tuple[PartType, ...]] = {  # allowed content by role
    "system": ("input_text",),
    "user": ("input_text", "input_audio"),
    "assistant": ("output_text", "output_audio"),
}

_CONTENT_FIELDS = {  # field that holds the content, by type of part
    "input_text": "text",
    "output_text": "text",
    "input_audio": "audio",
    "output_audio": "transcript",
}

Identifier = Annotated[str, Field(min_length=1, max_length=200)]
LongText = Annotated[str, Field(max_length=MAX_TEXT)]


def _decoded(value: Any) -> Any:
    """Decodes base64. Values of other types pass, since the field's type check refuses them."""
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
        raise wrong("invalid_value", "images are not supported: models take text and audio")
    return value


AudioBytes = Annotated[bytes, BeforeValidator(_decoded)]


class ContentPart(LenientModel):
    """A part of a message. `audio` is in the session's input or output format. Clients that restore
    a conversation send a transcript without audio."""

    # "text" and "audio" are names of the beta, which the message's validator replaces.
    type: Annotated[Literal[PartType, "text", "audio"], BeforeValidator(_no_image)]
    text: LongText | None = None
    audio: AudioBytes | None = None
    transcript: LongText | None = None

    @property
    def spoken_text(self) -> str:
        """The text, or the transcript of audio; "" if there is none."""
        return (self.transcript if self.type.endswith("audio") else self.text) or ""


class ItemModel(LenientModel):
    """Base class of the items. The server chooses the `id` of an item that has none."""

    id: Identifier | None = None
    status: ItemStatus = "completed"


class MessageItem(ItemModel):
    type: Literal["message"] = "message"
    role: Role
    content: Annotated[list[ContentPart], Field(max_length=MAX_PARTS)]

    @model_validator(mode="after")
    def _suits_role(self) -> "MessageItem":
        types = _PART_TYPES[self.role]
        # The beta's types do not name a direction: "text" instead of "input_text".
        from_beta = {kind.partition("_")[2]: kind for kind in types}
        for index, part in enumerate(self.content):
            at = f"content[{index}]"
            part.type = from_beta.get(part.type, part.type)
            if part.type not in types:
                raise wrong_choice(part.type, types, f"{at}.type")
            field = _CONTENT_FIELDS[part.type]
            audio = part.transcript if part.audio is None else part.audio
            if {"text": part.text, "audio": audio, "transcript": part.transcript}[field] is None:
                raise wrong(MISSING, "", f"{at}.{field}")
        return self


class FunctionCallItem(ItemModel):
    type: Literal["function_call"] = "function_call"
    call_id: Identifier | None = None
    name: Annotated[str, Field(min_length=1, max_length=64)]
    arguments: Annotated[CallArguments, Field(max_length=MAX_TEXT)]


class FunctionCallOutputItem(ItemModel):
    """The result of a function that the client called."""

    type: Literal["function_call_output"] = "function_call_output"
    call_id: Identifier
    output: LongText


class ItemReference(LenientModel):
    """The id of a conversation item, for the input of a response."""

    type: Literal["item_reference"] = "item_reference"
    id: Identifier


AnyItem: TypeAlias = MessageItem | FunctionCallItem | FunctionCallOutputItem
InputItem: TypeAlias = Annotated[AnyItem | ItemReference, Field(discriminator="type")]


class Truncation(LenientModel):
    """How a conversation that exceeds the context is cut. The `type` alone is also allowed."""

    type: Literal["auto", "disabled", "retention_ratio"] = "auto"
    retention_ratio: Annotated[float, Field(ge=0, le=1)] = 0.8  # share of the context
    token_limits: dict[str, Annotated[int, Field(ge=0), WHOLE]] | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    def as_json(self) -> Any:
        return self.model_dump(exclude_none=True) if self.type == "retention_ratio" else self.type

    def as_retention(self) -> Retention:
        return Retention(self.retention_ratio, (self.token_limits or {}).get("post_instructions"))


def to_wire(item: Item) -> events.WireItem:
    """Converts an item to its form in events, which have the transcript in place of the audio."""
    head = {"id": item.id, "object": "realtime.item", "type": item.kind, "status": item.status}
    match item.kind:
        case "function_call":
            call = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            return {**head, **call}
        case "function_call_output":
            return {**head, "call_id": item.call_id, "output": item.output}
        case "message":
            return {**head, "role": item.role, "content": [_part(part) for part in item.parts]}


def _part(part: Part) -> dict[str, str | None]:
    if part.kind == "input_audio":  # clients wait for a transcript while it is null
        return {"type": part.kind, "transcript": part.text or None}
    return {"type": part.kind, "transcript" if part.kind == "output_audio" else "text": part.text}


def from_wire(item: AnyItem) -> Item:
    """Converts a client's item. Audio is dropped: transcribe it first."""
    item_id = item.id or events.new_id("item")
    match item:
        case FunctionCallItem():
            return Item(
                item_id,
                "function_call",
                "assistant",
                call_id=item.call_id or events.new_id("call"),
                name=item.name,
                arguments=item.arguments,
            )
        case FunctionCallOutputItem():
            return Item(item_id, "function_call_output", call_id=item.call_id, output=item.output)
        case MessageItem():
            parts = [Part(cast(PartKind, part.type), part.spoken_text) for part in item.content]
            return Item(item_id, "message", item.role, parts)
        case _:
            assert_never(item)


class ItemFeed:
    """The items of a conversation; sends the client an event about each change."""

    def __init__(self, send: events.Send) -> None:
        self.items = ConversationItems()
        self._send = send

    async def begin(self, item: Item, after: str | None = None) -> None:
        """Adds an item that may still grow. Raises the errors of `ConversationItems.add`."""
        self.items.add(item, after)
        previous = self.items.previous_id(item.id)
        await self._send(events.ItemAdded(item=to_wire(item), previous_item_id=previous))

    async def insert(self, item: Item, after: str | None = None) -> None:
        """Adds a complete item. Raises the errors of `ConversationItems.add`."""
        await self.begin(item, after)
        await self.finish(item)

    async def finish(self, item: Item) -> None:
        """Announces that an item is complete, unless the client has deleted it."""
        if item.id in self.items:
            previous = self.items.previous_id(item.id)
            await self._send(events.ItemDone(item=to_wire(item), previous_item_id=previous))

    async def commit(self, item: Item) -> None:
        """Adds an utterance of the user."""
        previous = self.items.last_id
        await self._send(events.AudioCommitted(item_id=item.id, previous_item_id=previous))
        await self.insert(item)
