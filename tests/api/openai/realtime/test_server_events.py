"""Every event of the server is one that OpenAI's own client knows, or has our prefix."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from openai.types.realtime import RealtimeServerEvent
from openai.types.realtime.realtime_session_create_response import RealtimeSessionCreateResponse
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse,
)
from pydantic import BaseModel, TypeAdapter

from api.openai.realtime.server_events import new_id
from tests.api.openai.realtime.examples import (
    FRAMES,
    OPENAI_FRAMES,
    SESSION,
    TRANSCRIPTION,
    event_types,
)

_KNOWN: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
# The client's type of `session.created` is that of the request, which lacks these.
_OF_SESSIONS = {"id", "object", "expires_at"}


def unknown_fields(value: Any, path: str = "") -> Iterator[str]:
    """The fields that the client's types do not have: almost all of theirs are optional."""
    if isinstance(value, BaseModel):
        yield from (f"{path}.{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from unknown_fields(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from unknown_fields(one, path)


@pytest.mark.parametrize("frame", OPENAI_FRAMES, ids=lambda frame: json.loads(frame)["type"])
def test_openais_client_knows_the_event_and_all_its_fields(frame: str) -> None:
    event = _KNOWN.validate_json(frame)
    assert event.type == json.loads(frame)["type"]
    assert event.event_id.startswith("event_")
    unknown = set(unknown_fields(event))
    assert unknown <= {f".session.{name}" for name in _OF_SESSIONS}


def test_there_is_an_example_of_every_event() -> None:
    assert {json.loads(frame)["type"] for frame in FRAMES} == set(event_types())


def test_no_event_is_missing() -> None:
    union = get_args(get_args(RealtimeServerEvent)[0])
    kinds = {get_args(event.model_fields["type"].annotation)[0] for event in union}
    beta = {"conversation.created", "conversation.item.created"}
    elsewhere = {kind for kind in kinds if "mcp" in kind}
    telephony = {"input_audio_buffer.dtmf_event_received"}
    ours = {json.loads(frame)["type"] for frame in OPENAI_FRAMES}
    assert ours == kinds - beta - elsewhere - telephony
    assert len(ours) == 35


def test_session_objects_are_those_of_openais_client() -> None:
    realtime = RealtimeSessionCreateResponse.model_validate(SESSION.as_json())
    assert set(unknown_fields(realtime)) <= {".parallel_tool_calls"}
    shown = RealtimeTranscriptionSessionCreateResponse.model_validate(TRANSCRIPTION.as_json())
    # Its type of turn detection is older than that of the request.
    detection = ("create_response", "interrupt_response", "idle_timeout_ms")
    assert set(unknown_fields(shown)) <= {f".audio.input.turn_detection.{n}" for n in detection}


def test_type_and_event_id_are_the_first_keys_of_a_frame() -> None:
    for frame in FRAMES:
        assert list(json.loads(frame))[:2] == ["type", "event_id"]
        assert frame.startswith('{"type":"')


def test_ids_are_random_and_have_21_characters_behind_the_prefix() -> None:
    ids = {new_id("item") for _ in range(1000)}
    assert len(ids) == 1000
    assert {len(one) for one in ids} == {len("item_") + 21}
