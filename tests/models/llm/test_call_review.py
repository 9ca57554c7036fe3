"""Calls that small models made up, and calls that look so and are right."""

import json
from typing import Any

import pytest

from models.llm.base import ChatMessage, GenerationRequest
from models.llm.call_review import asking_for, review


def tool(name: str, **types: str) -> dict[str, Any]:
    properties: dict[str, Any] = {parameter: {"type": kind} for parameter, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{name}", "type": "function", "function": function}


def asked(text: str, *tools: dict[str, Any]) -> GenerationRequest:
    return GenerationRequest((ChatMessage("user", text),), tools=tools)


@pytest.mark.parametrize(
    ("ask", "parameter", "value"),
    [
        ("Please cancel my order.", "order_id", "12345"),
        ("Please cancel my order.", "order_id", 12345),
        ("Please cancel my order.", "order_id", "ORD-1001"),
        ("Please cancel my order.", "order_id", "your_order_id"),
        ("Please cancel my order.", "order_id", "<order id>"),
        ("Please cancel my order.", "order_id", "order id"),
        ("Reserve a meeting room for me.", "room", "Conference Room 101"),
        ("Where is my parcel?", "tracking_number", 1234567890),
        ("Where is my parcel P-204?", "tracking_number", "P-777"),
        ("Call me back.", "phone", "{{phone}}"),
    ],
)
def test_calls_with_an_invented_identifier_are_dropped(
    ask: str, parameter: str, value: str | int
) -> None:
    kind = "integer" if isinstance(value, int) else "string"
    request = asked(ask, tool("act", **{parameter: kind}))
    reviewed = review(request, [call("act", {parameter: value})])
    assert reviewed.kept == ()
    assert reviewed.missing == (parameter,)


@pytest.mark.parametrize(
    ("ask", "parameter", "value"),
    [
        ("Cancel my order 12345.", "order_id", "12345"),
        ("Cancel my order 12345.", "order_id", 12345),
        ("Cancel order a17, please.", "order_id", "A17"),
        ("What is the weather in the capital of Italy?", "city", "Rome"),
        ("Wie ist das Wetter in Rom?", "city", "Rome"),
        ("Remind me tomorrow at ten.", "at", "2026-11-30T10:00"),
        ("What happened at Christmas?", "when", "Christmas 2026"),
        ("Tell Tom that I am late.", "text", "The train is late, I come at 1530 or later."),
        ("Paint it red.", "colour", "#ff0000"),
        ("Wake me in a quarter of an hour.", "seconds", 900),
        ("Set the light to half.", "level", 0.5),
        ("Turn it off.", "on", False),
        ("List some.", "ids", [12345]),
        ("Note nothing.", "note", ""),
        ("Call 555-123-4567.", "phone", "5551234567"),
        ("Cancel order 12 345.", "order_id", 12345),
        ("Pay 1,500 dollars.", "amount", "1500"),
        ("It is order one two three four five.", "order_id", "12345"),
        ("Book it for tomorrow.", "begin", "2026-11-30T10:00:00.000Z"),
        ("Meet me at half past three.", "meeting_time", "1530"),
        ("Make it full.", "brightness", "100%"),
        ("What is the weather in Rome?", "position", "41.9028,12.4964"),
        ("Play them.", "artist", "The_Beatles"),
        ("Open it.", "file", "my_list"),
    ],
)
def test_calls_with_derived_values_are_kept(ask: str, parameter: str, value: Any) -> None:
    made = call("act", {parameter: value})
    reviewed = review(asked(ask, tool("act", **{parameter: "string"})), [made])
    assert reviewed.kept == ({"index": 0, **made},)
    assert reviewed.missing == ()


def test_values_from_results_enumerations_and_optional_parameters_are_kept() -> None:
    function = tool("act", room="string", size="string", code="integer")
    properties = function["function"]["parameters"]["properties"]
    properties["size"] = {"type": "string", "enum": ["A4", "DIN 6771"]}
    properties["room"]["description"] = "The room: 101 is the lobby, 102 the kitchen."
    function["function"]["parameters"]["required"] = ["room", "size"]
    result = ChatMessage("tool", "Room 4711 is free.", {"tool_call_id": "call_1"})
    request = GenerationRequest((ChatMessage("user", "Any room?"), result), tools=(function,))
    for room in ("4711", "102"):
        made = call("act", {"room": room, "size": "DIN 6771", "code": 999})
        assert review(request, [made]).kept == ({"index": 0, **made},)


def test_sums_of_invented_numbers_are_dropped_after_a_result() -> None:
    add = tool("add", a="number", b="number")
    question = ChatMessage("user", "Is it warmer in Rome or in Oslo?")
    earlier = call("get_weather", {"city": "Rome"})
    answer = ChatMessage("assistant", "", {"tool_calls": [earlier]})
    result = ChatMessage("tool", "27.0 degrees, and 1,900 more", {"tool_call_id": earlier["id"]})
    request = GenerationRequest((question, answer, result), tools=(add,))
    invented = call("add", {"a": 10, "b": 20})
    derived = call("add", {"a": 27, "b": 1900.0})
    assert review(request, [invented]).kept == ()
    assert review(request, [derived]).kept == ({"index": 0, **derived},)
    # At first a number may be known: the degrees of latitude and longitude of a city.
    first = GenerationRequest((question,), tools=(add,))
    assert review(first, [invented]).kept == ({"index": 0, **invented},)
    assert review(first, [derived, invented]).kept == ()
    alone = call("set_timer", {"minutes": 30})  # "half an hour"
    assert review(request, [alone]).kept == ({"index": 0, **alone},)


def test_kept_calls_are_numbered_anew() -> None:
    request = asked("Cancel order 123.", tool("cancel", order_id="string"))
    calls = [call("cancel", {"order_id": number}) for number in ("555", "123")]
    assert review(request, calls).kept == ({"index": 0, **calls[1]},)


@pytest.mark.parametrize("schema", [None, {}, {"required": ["a"]}, {"properties": {"a": True}}])
def test_any_schema_and_any_arguments_are_taken(schema: Any) -> None:
    function = {"type": "function", "function": {"name": "act", "parameters": schema}}
    for arguments in ("{}", "null", '{"a": {"b": [1]}}', '{"a": "cut'):
        made = {"id": "1", "type": "function", "function": {"name": "act", "arguments": arguments}}
        assert review(asked("Act.", function), [made]).kept == ({"index": 0, **made},)


def test_the_user_is_asked_for_what_is_missing() -> None:
    messages = (ChatMessage("system", "Be brief."), ChatMessage("user", "Cancel it."))
    first, last = asking_for(["order_id", "account_number", "order_id"], messages)
    assert first == messages[0]
    assert last.content.startswith("Cancel it.\n\n")
    assert "the order id and account number" in last.content
