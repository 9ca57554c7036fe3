"""Input items of the Responses dialect, which become messages of a chat, and the ids of responses.

The id of a response names a turn of a saved chat: `resp_`, 32 hexadecimal digits of the chat, and
16 of the turn. Ids of its items, which an item reference repeats, have the same digits after `msg_`
(message), `fc_` (call) or `rs_` (reasoning). Ids of calls end with their index.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, model_validator

from api.http.bodies import RequestModel
from api.http.errors import ApiError
from api.native.chat.schemas import MAX_MESSAGES, CallArguments, RefusalPart, joins, without_parts
from models.llm.base import ChatMessage
from pipelines.chat.history import SavedAnswer, TurnName
from pipelines.chat.pipeline import Completion

_NAME = re.compile(r"(resp|msg|fc|rs)_([0-9a-f]{32})([0-9a-f]{16})(?:_([0-9]{1,3}))?")


def digits_of(completion: Completion) -> str:
    """Returns the digits in an answer's ids. Without a saved answer, they refer to nothing."""
    chat = completion.chat_id or UUID(bytes=bytes(16))
    return f"{chat.hex}{completion.turn}"


def parse_id(text: str) -> tuple[str, TurnName, int] | None:
    """Returns the prefix of an id, its turn, and its index or 0; None for any other text."""
    match = _NAME.fullmatch(text)
    return match and (match[1], (UUID(match[2]), match[3]), int(match[4] or 0))


_KINDS = "message, function_call, function_call_output, reasoning or item_reference"

ItemId = Annotated[str, Field(max_length=200)]


class TextContent(RequestModel):
    """A text part. Images, files and audio are not supported."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: Any = None  # in parts of answers; ignored, like `logprobs`
    logprobs: Any = None


PartList = Annotated[
    list[Annotated[TextContent | RefusalPart, Field(discriminator="type")]], Field(min_length=1)
]
ContentText = Annotated[
    str, BeforeValidator(joins("input_text", "output_text"), json_schema_input_type=str | PartList)
]


class WholeItem(RequestModel):
    """Base class of items that are sent in full, whose ids are not looked up."""

    id: ItemId | None = None
    status: Annotated[str, Field(max_length=40)] | None = None


class RoleMessage(WholeItem):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: ContentText

    _without_parts = model_validator(mode="before")(without_parts)


class CallItem(WholeItem):
    """A function call of an earlier answer."""

    type: Literal["function_call"]
    call_id: Annotated[str, Field(min_length=1, max_length=200)]
    name: Annotated[str, Field(min_length=1, max_length=64)]
    arguments: CallArguments


class CallOutput(WholeItem):
    """The result of a function call."""

    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(min_length=1, max_length=200)]
    output: ContentText

    _without_parts = model_validator(mode="before")(without_parts)


class ReasoningItem(WholeItem):
    """The reasoning of an earlier answer. It is ignored."""

    type: Literal["reasoning"]
    summary: list[Any] | None = None
    content: list[Any] | None = None
    encrypted_content: str | None = None


class StoredItem(RequestModel):
    """A reference to an item of a stored response, by id."""

    type: Literal["item_reference"] | None = None
    id: ItemId


def _kind_of(item: Any) -> Any:
    """Returns the type of an item. An item without `type` is a message, or a reference by id."""
    kind = item.get("type") if isinstance(item, dict) else None
    if isinstance(item, dict) and kind is None:
        return "message" if "role" in item else "item_reference"
    return kind if isinstance(kind, str) else None


ResponseItem: TypeAlias = Annotated[
    Annotated[RoleMessage, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[CallOutput, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[StoredItem, Tag("item_reference")],
    Discriminator(
        _kind_of,
        custom_error_type="unknown_item",
        custom_error_message=f"items must be of type {_KINDS}",
    ),
]
ItemList = Annotated[list[ResponseItem], Field(min_length=1, max_length=MAX_MESSAGES)]


def _listed(given: Any) -> Any:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


ResponseInput = Annotated[ItemList, BeforeValidator(_listed, json_schema_input_type=str | ItemList)]


def referenced(items: Sequence[ResponseItem]) -> set[TurnName]:
    """Returns the turns of all items that are only references. Raises ApiError(not_found)."""
    return {_reference(item)[1] for item in items if isinstance(item, StoredItem)}


def to_messages(
    items: Sequence[ResponseItem], answers: Mapping[TurnName, SavedAnswer]
) -> list[ChatMessage]:
    """Converts items to the messages of a chat, instructions first; calls join the answer before
    them. `answers` has the answers of all referenced turns. Raises ApiError(not_found)."""
    messages: list[ChatMessage] = []

    def call(item: dict[str, Any]) -> None:
        if not messages or messages[-1].role != "assistant":
            messages.append(ChatMessage("assistant", ""))
        messages[-1].extra.setdefault("tool_calls", []).append(item)

    for item in items:
        match item:
            case RoleMessage():
                role = "system" if item.role == "developer" else item.role
                messages.append(ChatMessage(role, item.content))
            case CallItem():
                function = {"name": item.name, "arguments": item.arguments}
                call({"id": item.call_id, "type": "function", "function": function})
            case CallOutput():
                messages.append(ChatMessage("tool", item.output, {"tool_call_id": item.call_id}))
            case StoredItem():
                prefix, turn, number = _reference(item)
                answer = answers.get(turn)
                if answer is None or (prefix == "fc" and number >= len(answer.calls)):
                    raise _unknown()
                if prefix == "fc":
                    call(answer.calls[number])
                elif prefix == "msg" and not number:  # message 0 stands for the whole text
                    messages.append(ChatMessage("assistant", answer.text))
    return sorted(messages, key=lambda message: message.role != "system")


def to_items(messages: Sequence[ChatMessage], digits: str) -> list["InputItem"]:
    """Converts messages to the items that a response read, with its `digits` in their ids."""
    items: list[InputItem] = []

    def new_id() -> str:
        return f"in_{digits}_{len(items)}"

    for message in messages:
        is_answer = message.role == "assistant"
        if message.role == "tool":
            call_id = message.extra["tool_call_id"]
            items.append(ListedResult(id=new_id(), call_id=call_id, output=message.content))
        elif message.content or not is_answer:
            part: dict[str, Any] = {"type": "input_text", "text": message.content}
            if is_answer:
                part = {"type": "output_text", "text": message.content, "annotations": []}
            items.append(ListedMessage(id=new_id(), role=message.role, content=[part]))
        for call in message.extra.get("tool_calls", ()):
            items.append(ListedCall(id=new_id(), call_id=call["id"], **call["function"]))
    return items


class ListedMessage(BaseModel):
    type: Literal["message"] = "message"
    id: str
    status: Literal["completed"] = "completed"
    role: str
    content: list[dict[str, Any]]


class ListedCall(BaseModel):
    type: Literal["function_call"] = "function_call"
    id: str
    status: Literal["completed"] = "completed"
    call_id: str
    name: str
    arguments: str


class ListedResult(BaseModel):
    type: Literal["function_call_output"] = "function_call_output"
    id: str
    status: Literal["completed"] = "completed"
    call_id: str
    output: str


InputItem: TypeAlias = ListedMessage | ListedCall | ListedResult
"""An item that a stored response read."""


def _reference(item: StoredItem) -> tuple[str, TurnName, int]:
    if (reference := parse_id(item.id)) is None:
        raise _unknown()
    return reference


def _unknown() -> ApiError:
    message = "input: an item_reference names no stored item; send the item itself"
    return ApiError("not_found", message, param="input")
