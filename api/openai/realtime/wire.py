"""Between the items of a conversation and their wire shapes."""

from typing import assert_never, cast

from api.openai.realtime import server_events
from api.openai.realtime.items import (
    ContentPart,
    FunctionCallItem,
    FunctionCallOutputItem,
    MessageItem,
)
from api.openai.realtime.items import Item as WireItem
from pipelines.agents.items import Item, Part, PartKind


def to_wire(item: Item) -> WireItem:
    """The item as events show it: audio only as its transcript."""
    if item.kind == "function_call":
        return FunctionCallItem(
            id=item.id,
            status=item.status,
            call_id=item.call_id,
            name=item.name,
            arguments=item.arguments,
        )
    if item.kind == "function_call_output":
        return FunctionCallOutputItem(
            id=item.id, status=item.status, call_id=item.call_id, output=item.output
        )
    return MessageItem(
        id=item.id,
        status=item.status,
        role=item.role,
        content=[_part(part) for part in item.parts],
    )


def _part(part: Part) -> ContentPart:
    if part.kind.endswith("audio"):
        return ContentPart(type=part.kind, transcript=part.text)
    return ContentPart(type=part.kind, text=part.text)


def from_wire(item: WireItem) -> Item:
    """An item of the client. Its audio is not part of it: it is to be transcribed first."""
    item_id = item.id or server_events.new_id("item")
    match item:
        case FunctionCallItem():
            call_id = item.call_id or server_events.new_id("call")
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
