"""The names and the flat session of the beta."""

import json
from functools import cache
from typing import Any

import pytest
from openai.types.beta.realtime import RealtimeServerEvent
from openai.types.beta.realtime.session import Session
from pydantic import TypeAdapter

from api.openai.realtime.beta import from_beta, is_beta, to_beta
from api.openai.realtime.client_events import CreateResponse, UpdateSession, parse_client_event
from api.openai.realtime.server_events import SessionCreated, SessionUpdated, TextDelta, as_wire
from api.openai.realtime.session_object import RealtimeSession, merged
from tests.api.openai.realtime.examples import OPENAI_FRAMES, SESSION, TRANSCRIPTION
from tests.api.openai.realtime.test_server_events import unknown_fields

GA_ONLY = {
    "conversation.item.done",
    "conversation.item.input_audio_transcription.segment",
    "input_audio_buffer.timeout_triggered",
}


@cache
def known_events() -> TypeAdapter[Any]:
    return TypeAdapter(RealtimeServerEvent)


def as_typed(event: dict[str, Any]) -> dict[str, Any]:
    """The types of the beta know only words as a choice, though its API took a function, too, and
    demand a secret that it sent only over HTTP; the client validates neither."""
    if event["type"].startswith("transcription_session"):
        event["session"]["client_secret"] = {"expires_at": 0, "value": ""}
    if isinstance(event.get("session", {}).get("tool_choice"), dict):
        event["session"]["tool_choice"] = "auto"
    return event


@pytest.mark.parametrize("frame", OPENAI_FRAMES, ids=lambda frame: json.loads(frame)["type"])
def test_clients_of_the_beta_know_the_events(frame: str) -> None:
    original = json.loads(frame)
    kind = original["type"]
    translated = to_beta(original)
    assert json.loads(frame) == original
    if kind == "conversation.item.done":
        assert translated is None
    elif kind not in GA_ONLY:
        assert translated is not None
        event = known_events().validate_python(as_typed(translated))
        assert event.type == translated["type"]
        nested = (".audio", ".type", ".output_modalities")
        assert not [field for field in unknown_fields(event) if field.endswith(nested)]


def test_the_session_is_flat() -> None:
    event = to_beta(as_wire(SessionCreated(session=SESSION.as_json())))
    assert event is not None
    shown = as_typed(event)["session"]
    flat = Session.model_validate(shown)
    assert (flat.voice, flat.modalities, flat.speed) == ("marin", ["audio", "text"], 1.25)
    assert (flat.input_audio_format, flat.output_audio_format) == ("g711_ulaw", "pcm16")
    assert flat.max_response_output_tokens == 100
    assert flat.turn_detection is not None
    assert flat.turn_detection.eagerness == "low"
    assert not {"audio", "type", "output_modalities", "max_output_tokens"} & shown.keys()


def test_a_transcription_session_has_events_of_its_own() -> None:
    event = to_beta(as_wire(SessionUpdated(session=TRANSCRIPTION.as_json())))
    assert event is not None
    assert event["type"] == "transcription_session.updated"
    assert event["session"]["input_audio_format"] == "pcm16"


def test_a_flat_session_is_read() -> None:
    text = json.dumps(
        {
            "type": "session.update",
            "session": {
                "modalities": ["text", "audio"],
                "instructions": "Be brief.",
                "voice": "ash",
                "input_audio_format": "g711_alaw",
                "output_audio_format": "pcm16",
                "input_audio_transcription": {"model": "whisper-1"},
                "turn_detection": None,
                "temperature": 0.8,
                "max_response_output_tokens": 200,
            },
        }
    )
    event = parse_client_event(text)
    assert isinstance(event, UpdateSession)
    session = merged(RealtimeSession(id="sess_1"), event.session)
    heard, spoken = session.audio.input, session.audio.output
    assert (spoken.voice, spoken.format.type) == ("ash", "audio/pcm")
    assert (heard.format.type, heard.format.rate) == ("audio/pcma", 8000)
    assert heard.turn_detection is None
    assert heard.transcription is not None
    assert (session.speaks, session.temperature, session.sampling().max_tokens) == (True, 0.8, 200)


def test_what_is_shown_in_the_beta_can_be_sent_back() -> None:
    shown = to_beta(as_wire(SessionUpdated(session=SESSION.as_json())))
    assert shown is not None
    event = from_beta({"type": "session.update", "session": shown["session"]})
    assert merged(SESSION, event["session"]) == SESSION


def test_a_response_has_flat_options() -> None:
    event = parse_client_event(
        '{"type":"response.create","response":{"modalities":["text"],"voice":"ash"}}'
    )
    assert isinstance(event, CreateResponse)
    session = event.response.applied_to(SESSION)
    assert (session.speaks, session.audio.output.voice) == (False, "ash")


def test_a_text_that_names_an_event_is_not_translated() -> None:
    text = "response.output_text.delta"
    delta = TextDelta(response_id="resp_1", item_id="item_1", output_index=0, delta=text)
    event = to_beta(as_wire(delta))
    assert event is not None
    assert event["type"] == "response.text.delta"
    assert event["delta"] == "response.output_text.delta"


def test_fields_of_ga_are_read_as_they_are() -> None:
    nested = {"audio": {"output": {"voice": "ash"}}}
    event = {"type": "session.update", "session": nested}
    assert from_beta(event) == event
    assert from_beta({"session": {"voice": "marin", **nested}}) == {"session": nested}


@pytest.mark.parametrize(
    ("headers", "subprotocols", "expected"),
    [
        ({}, [], False),
        ({"openai-beta": "realtime=v1"}, [], True),
        ({"openai-beta": "assistants=v2, realtime=v1"}, [], True),
        ({"openai-beta": "assistants=v2"}, [], False),
        ({}, ["realtime", "openai-beta.realtime-v1"], True),
        ({}, ["realtime"], False),
    ],
)
def test_a_client_asks_for_the_beta(
    headers: dict[str, str], subprotocols: list[str], expected: bool
) -> None:
    assert is_beta(headers, subprotocols) is expected
