"""Events of the client: what is read, and the errors of what is not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.realtime import RealtimeErrorEvent

from api.openai.realtime.client_events import (
    AppendAudio,
    CancelResponse,
    ClientEvent,
    CreateItem,
    CreateResponse,
    TruncateItem,
    UpdateSession,
    parse_client_event,
)
from api.openai.realtime.faults import RealtimeFault
from api.openai.realtime.items import (
    MAX_AUDIO_BYTES,
    FunctionCallItem,
    FunctionCallOutputItem,
    ItemReference,
    MessageItem,
    from_wire,
    to_wire,
)
from api.openai.realtime.session_object import RealtimeSession, merged
from tests.api.openai.realtime.examples import ANSWER, CALL, CLIENT_EVENTS, JUNK, OUTPUT, SYSTEM

SESSION = RealtimeSession(id="sess_1")


def parse(event: Any) -> ClientEvent:
    return parse_client_event(json.dumps(event))


def fault_of(event: Any) -> RealtimeFault:
    with pytest.raises(RealtimeFault) as raised:
        parse(event)
    return raised.value


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": fields}


def message(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return item(type="message", role=role, content=list(content))


def handle(text: str) -> None:
    """What the server does with an event before it acts upon it."""
    event = parse_client_event(text)
    if isinstance(event, UpdateSession):
        merged(SESSION, event.session, voice_frozen=True)
    elif isinstance(event, CreateResponse):
        event.response.applied_to(SESSION)


@given(st.text() | JUNK.map(json.dumps) | CLIENT_EVENTS.map(json.dumps))
def test_any_text_is_an_event_or_a_fault(text: str) -> None:
    try:
        handle(text)
    except RealtimeFault as fault:
        assert isinstance(fault.event, str)
        shown = RealtimeErrorEvent.model_validate_json(fault.event).error
        assert (shown.type, shown.message) == ("invalid_request_error", fault.message)
        assert (shown.code, shown.param) == (fault.code, fault.param)
        assert fault.code
        assert len(fault.message) < 1000


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ([], "invalid_json", None),
        ({}, "missing_required_parameter", "type"),
        ({"type": ["session.update"]}, "invalid_type", "type"),
        ({"type": "session.begin"}, "invalid_value", "type"),
        ({"type": "session.update"}, "missing_required_parameter", "session"),
        ({"type": "session.update", "session": []}, "invalid_type", "session"),
        ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio"),
        ({"type": "input_audio_buffer.append", "audio": 5}, "invalid_type", "audio"),
        ({"type": "input_audio_buffer.append", "audio": "A"}, "invalid_value", "audio"),
        ({"type": "input_audio_buffer.append", "audio": "é"}, "invalid_value", "audio"),
        ({"type": "conversation.item.delete", "item_id": ""}, "empty_string", "item_id"),
        (
            {"type": "conversation.item.retrieve", "item_id": "x" * 201},
            "string_above_max_length",
            "item_id",
        ),
        (
            {
                "type": "conversation.item.truncate",
                "item_id": "item_1",
                "content_index": 0,
                "audio_end_ms": -1,
            },
            "integer_below_min_value",
            "audio_end_ms",
        ),
        (item(), "missing_required_parameter", "item.type"),
        (item(type="mcp_call"), "invalid_value", "item.type"),
        (item(type="item_reference", id="item_1"), "invalid_value", "item.type"),
        (item(type="message", content=[]), "missing_required_parameter", "item.role"),
        (item(type="message", role="developer", content=[]), "invalid_value", "item.role"),
        (
            item(type="function_call_output", output="1"),
            "missing_required_parameter",
            "item.call_id",
        ),
        (item(type="function_call", name="add", arguments={}), "invalid_type", "item.arguments"),
        (
            message("user", {"type": "input_image", "image_url": "data:"}),
            "invalid_value",
            "item.content[0].type",
        ),
        (
            message("user", {"type": "input_text", "text": "a"}, {"type": "output_text"}),
            "invalid_value",
            "item.content[1].type",
        ),
        (
            message("system", {"type": "input_text"}),
            "missing_required_parameter",
            "item.content[0].text",
        ),
        (
            message("user", {"type": "input_audio"}),
            "missing_required_parameter",
            "item.content[0].audio",
        ),
        (
            message("assistant", {"type": "output_audio", "audio": "AAAA"}),
            "missing_required_parameter",
            "item.content[0].transcript",
        ),
        (
            message("user", {"type": "input_audio", "audio": "A"}),
            "invalid_value",
            "item.content[0].audio",
        ),
        (
            {"type": "response.create", "response": {"conversation": "other"}},
            "invalid_value",
            "response.conversation",
        ),
        (
            {"type": "response.create", "response": {"input": [{"type": "item_reference"}]}},
            "missing_required_parameter",
            "response.input[0].id",
        ),
        (
            {"type": "response.create", "response": {"metadata": {"a": 5}}},
            "invalid_type",
            "response.metadata.a",
        ),
        (
            {"type": "response.create", "response": {"metadata": {"k" * 65: ""}}},
            "string_above_max_length",
            f"response.metadata.{'k' * 65}",
        ),
        (
            {"type": "response.create", "response": {"metadata": {"a": "v" * 513}}},
            "string_above_max_length",
            "response.metadata.a",
        ),
        (
            {"type": "response.create", "response": {"metadata": {str(n): "" for n in range(17)}}},
            "object_above_max_properties",
            "response.metadata",
        ),
    ],
)
def test_a_fault_has_openais_code_and_the_path_of_its_field(
    event: Any, code: str, param: str | None
) -> None:
    fault = fault_of(event)
    assert (fault.code, fault.param) == (code, param)


def test_a_fault_names_the_event_of_the_client() -> None:
    fault = fault_of({"type": "input_audio_buffer.append", "event_id": "mine"})
    assert isinstance(fault.event, str)
    shown = RealtimeErrorEvent.model_validate_json(fault.event).error
    assert shown.event_id == fault.event_id == "mine"
    assert fault_of({"type": "response.cancel", "event_id": 5}).event_id is None


def test_unknown_fields_are_ignored_and_null_is_an_absent_field() -> None:
    event = parse({"type": "response.cancel", "response_id": None, "new": 1})
    assert event == CancelResponse(type="response.cancel")


def test_audio_is_decoded_and_limited() -> None:
    event = parse({"type": "input_audio_buffer.append", "audio": "/wAB"})
    assert isinstance(event, AppendAudio)
    assert event.audio == b"\xff\x00\x01"
    text = "A" * (4 * -(-MAX_AUDIO_BYTES // 3) + 4)
    fault = fault_of({"type": "input_audio_buffer.append", "audio": text})
    assert (fault.code, fault.param) == ("invalid_value", "audio")
    assert str(MAX_AUDIO_BYTES) in fault.message


@pytest.mark.parametrize("shown", [SYSTEM, ANSWER, CALL, OUTPUT])
def test_an_item_that_the_server_showed_can_be_created_again(shown: Any) -> None:
    event = parse(item(**shown))
    assert isinstance(event, CreateItem)
    assert to_wire(from_wire(event.item)) == {**shown, "status": "completed"}


def test_contents_have_the_names_of_the_beta_too() -> None:
    for role, kind in [("system", "input_text"), ("assistant", "output_text")]:
        event = parse(message(role, {"type": "text", "text": "a"}))
        assert isinstance(event, CreateItem)
        assert isinstance(event.item, MessageItem)
        assert [(part.type, part.spoken_text) for part in event.item.content] == [(kind, "a")]


def test_audio_of_a_restored_conversation_may_have_its_transcript_only() -> None:
    for role, kind in [("user", "input_audio"), ("assistant", "output_audio")]:
        event = parse(message(role, {"type": kind, "transcript": "a", "audio": None}))
        assert isinstance(event, CreateItem)
        assert isinstance(event.item, MessageItem)
        assert event.item.content[0].spoken_text == "a"


def test_whole_numbers_may_be_written_as_decimals() -> None:
    event = parse(
        {
            "type": "conversation.item.truncate",
            "item_id": "item_1",
            "content_index": 0,
            "audio_end_ms": 1500.0,
        }
    )
    assert isinstance(event, TruncateItem)
    assert event.audio_end_ms == 1500


def test_the_input_of_a_response_may_refer_to_items() -> None:
    given = {"input": [{"type": "item_reference", "id": "item_1"}, CALL]}
    event = parse({"type": "response.create", "response": given})
    assert isinstance(event, CreateResponse)
    assert event.response.input is not None
    reference, call = event.response.input
    assert reference == ItemReference(id="item_1")
    assert isinstance(call, FunctionCallItem)
    assert to_wire(from_wire(call)) == CALL
    empty = parse({"type": "response.create", "response": {"input": []}})
    assert isinstance(empty, CreateResponse)
    assert empty.response.input == []
    plain = parse({"type": "response.create"})
    assert isinstance(plain, CreateResponse)
    assert plain.response.input is None


def test_the_output_of_a_function_may_be_empty() -> None:
    event = parse(item(type="function_call_output", call_id="call_1", output=""))
    assert isinstance(event, CreateItem)
    assert isinstance(event.item, FunctionCallOutputItem)
