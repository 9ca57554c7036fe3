"""Between the items of a conversation and their wire shapes."""

from typing import Any, assert_never, cast

from api.openai.realtime import server_events
from api.openai.realtime.items import AnyItem, FunctionCallItem, FunctionCallOutputItem, MessageItem
from pipelines.agents.items import Item, Part, PartKind


def to_wire(item: Item) -> dict[str, Any]:
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
