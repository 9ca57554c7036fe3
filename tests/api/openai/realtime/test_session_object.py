"""Session objects: defaults, merges, and the overrides of one response."""

from copy import deepcopy
from typing import Any, get_args

import pytest
from hypothesis import given
from openai.types.realtime import RealtimeSessionCreateRequest
from openai.types.realtime.realtime_transcription_session_create_request import (
    RealtimeTranscriptionSessionCreateRequest,
)

from api.openai.realtime.faults import RealtimeFault
from api.openai.realtime.session_object import (
    RealtimeSession,
    ResponseOptions,
    SemanticVad,
    ServerVad,
    TranscriptionSession,
    merged,
    new_session,
)
from configs.load import load_yaml
from configs.schema.voices import OpenAIConfig
from models.llm.base import SamplingOptions
from pipelines.chat.history import Retention
from pipelines.ports import undated
from tests.api.openai.realtime.examples import SESSION, UPDATES

MODELS = [
    name
    for part in get_args(RealtimeSessionCreateRequest.model_fields["model"].annotation)
    for name in get_args(part)
    if "realtime" in name
]
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}}


def test_every_realtime_model_that_the_client_names_is_known() -> None:
    assert "gpt-realtime" in MODELS
    assert {undated(name) for name in MODELS} <= load_yaml(
        OpenAIConfig, "openai"
    ).realtime_models.keys()


def default() -> RealtimeSession:
    session = new_session("realtime", model="gpt-realtime", voice="marin")
    assert isinstance(session, RealtimeSession)
    return session


def listening(**fields: Any) -> dict[str, Any]:
    return {"audio": {"input": fields}}


def speaking(**fields: Any) -> dict[str, Any]:
    return {"audio": {"output": fields}}


def fault_of(update: dict[str, Any], session: RealtimeSession = SESSION) -> RealtimeFault:
    with pytest.raises(RealtimeFault) as raised:
        merged(session, update)
    return raised.value


def test_a_new_session_has_the_defaults_of_openai() -> None:
    session = default()
    shown = session.as_json()
    RealtimeSessionCreateRequest.model_validate(shown)
    assert session.id.startswith("sess_")
    assert {**shown, "id": ""} == {
        "type": "realtime",
        "object": "realtime.session",
        "id": "",
        "model": "gpt-realtime",
        "output_modalities": ["audio"],
        "instructions": "",
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "tracing": None,
        "truncation": "auto",
        "prompt": None,
        "expires_at": None,
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24_000},
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 500,
                    "idle_timeout_ms": None,
                    "create_response": True,
                    "interrupt_response": True,
                },
            },
            "output": {
                "format": {"type": "audio/pcm", "rate": 24_000},
                "voice": "marin",
                "speed": 1.0,
            },
        },
        "include": None,
    }


def test_a_new_transcription_session_has_only_input() -> None:
    heard = {"input": {"transcription": {"model": "whisper-1"}}}
    session = merged(new_session("transcription", expires_at=5), {"audio": heard})
    assert isinstance(session, TranscriptionSession)
    shown = session.as_json()
    RealtimeTranscriptionSessionCreateRequest.model_validate(shown)
    assert (shown["object"], shown["expires_at"]) == ("realtime.transcription_session", 5)
    assert list(shown["audio"]) == ["input"]
    assert shown["audio"]["input"]["transcription"] == {"model": "whisper-1"}
    tools = merged(session, {"tools": [ADD], "type": "transcription"})
    assert tools == session


@given(UPDATES, UPDATES)
def test_a_merge_makes_another_valid_session_or_a_fault(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    session = default()
    for update in (first, second):
        before, sent = deepcopy(session), deepcopy(update)
        try:
            after = merged(session, update)
        except RealtimeFault as fault:
            assert fault.param is not None
            assert fault.param.startswith("session")
            after = session
        else:
            RealtimeSessionCreateRequest.model_validate(after.as_json())
            assert (after.id, after.model) == (session.id, session.model)
            assert merged(after, update) == after
            assert merged(after, {}) == after
            assert merged(after, after.as_json()) == after
            if after.audio.output.voice == session.audio.output.voice:
                assert merged(session, update, voice_frozen=True) == after
        assert (session, update) == (before, sent)
        session = after


def test_a_field_that_is_left_out_stays() -> None:
    session = merged(SESSION, listening(transcription={"language": "de"}))
    assert session.audio.input.transcription is not None
    assert session.audio.input.transcription.model == "whisper-1"
    assert session.audio.input.transcription.language == "de"
    noise = merged(session, listening(noise_reduction={"type": "far_field"}))
    assert noise.audio.input.noise_reduction is not None
    assert noise.audio.input.noise_reduction.strength == 0.5
    assert noise.instructions == "Be brief."
    assert noise.audio.output == SESSION.audio.output


def test_null_and_empty_values_clear_fields() -> None:
    cleared = merged(
        SESSION,
        {
            "instructions": "",
            "tools": [],
            "tool_choice": None,
            "max_output_tokens": None,
            "tracing": None,
            "prompt": None,
            "include": None,
            "audio": {
                "input": {
                    "format": None,
                    "transcription": None,
                    "noise_reduction": None,
                    "turn_detection": None,
                },
                "output": {"voice": None, "speed": None},
            },
        },
    )
    assert (cleared.instructions, cleared.tools, cleared.tool_choice) == ("", [], "auto")
    assert (cleared.tracing, cleared.prompt, cleared.include) == (None, None, None)
    assert cleared.sampling().max_tokens is None
    heard = cleared.audio.input
    assert (heard.transcription, heard.noise_reduction, heard.turn_detection) == (None,) * 3
    assert (heard.format.type, heard.format.rate) == ("audio/pcm", 24_000)
    assert (cleared.audio.output.voice, cleared.audio.output.speed) == (None, 1.0)
    assert merged(SESSION, {"audio": None}) == SESSION


def test_turn_detection_is_merged_within_its_kind_only() -> None:
    quick = merged(default(), listening(turn_detection={"silence_duration_ms": 200}))
    detection = quick.audio.input.turn_detection
    assert isinstance(detection, ServerVad)
    assert (detection.silence_duration_ms, detection.prefix_padding_ms) == (200, 300)
    silent = {"type": "server_vad", "create_response": False}
    semantic = merged(merged(quick, listening(turn_detection=silent)), {})
    semantic = merged(semantic, listening(turn_detection={"type": "semantic_vad"}))
    detection = semantic.audio.input.turn_detection
    assert isinstance(detection, SemanticVad)
    assert detection.create_response
    assert detection.longest_wait_s == 4.0
    manual = merged(semantic, listening(turn_detection=None))
    fault = fault_of(listening(turn_detection={"threshold": 0.1}), manual)
    assert fault.param == "session.audio.input.turn_detection.type"
    assert fault.code == "missing_required_parameter"


@pytest.mark.parametrize(
    ("update", "code", "param"),
    [
        ({"output_modalities": ["text", "audio"]}, "invalid_value", "output_modalities"),
        ({"output_modalities": []}, "invalid_value", "output_modalities"),
        ({"instructions": 5}, "invalid_type", "instructions"),
        ({"max_output_tokens": 4097}, "invalid_value", "max_output_tokens"),
        ({"max_output_tokens": True}, "invalid_value", "max_output_tokens"),
        ({"type": "translation"}, "invalid_value", "type"),
        ({"type": "transcription"}, "invalid_parameter", "type"),
        ({"model": "other"}, "invalid_value", "model"),
        ({"include": ["all"]}, "invalid_value", "include[0]"),
        ({"tracing": "on"}, "invalid_value", "tracing"),
        ({"tool_choice": "any"}, "invalid_value", "tool_choice"),
        ({"tool_choice": {"type": "mcp"}}, "invalid_value", "tool_choice.type"),
        (
            {"tool_choice": {"type": "function"}},
            "missing_required_parameter",
            "tool_choice.name",
        ),
        (
            {"tool_choice": {"type": "function", "name": "sub"}},
            "invalid_value",
            "tool_choice.name",
        ),
        ({"tools": [{"type": "mcp", "server_label": "a"}]}, "invalid_value", "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].name"),
        ({"tools": [ADD, {**ADD, "name": "a b"}]}, "invalid_value", "tools[1].name"),
        ({"tools": [ADD, ADD]}, "invalid_value", "tools"),
        (
            {"tools": [{**ADD, "name": f"f{n}"} for n in range(129)]},
            "array_above_max_length",
            "tools",
        ),
        (
            speaking(format={"type": "audio/pcm", "rate": 16_000}),
            "invalid_value",
            "audio.output.format.rate",
        ),
        (speaking(format={"type": "audio/mp3"}), "invalid_value", "audio.output.format.type"),
        (speaking(speed=1.6), "decimal_above_max_value", "audio.output.speed"),
        (speaking(speed=0.2), "decimal_below_min_value", "audio.output.speed"),
        (speaking(voice={"name": "marin"}), "invalid_type", "audio.output.voice"),
        (
            listening(turn_detection={"type": "server_vad", "threshold": 1.5}),
            "decimal_above_max_value",
            "audio.input.turn_detection.threshold",
        ),
        (
            listening(turn_detection={"type": "server_vad", "idle_timeout_ms": 4999}),
            "integer_below_min_value",
            "audio.input.turn_detection.idle_timeout_ms",
        ),
        (
            listening(turn_detection={"type": "server_vad", "create_response": "no"}),
            "invalid_type",
            "audio.input.turn_detection.create_response",
        ),
        (
            listening(turn_detection={"type": "semantic_vad", "eagerness": "max"}),
            "invalid_value",
            "audio.input.turn_detection.eagerness",
        ),
        (
            listening(turn_detection={"type": "vad"}),
            "invalid_value",
            "audio.input.turn_detection.type",
        ),
        (
            listening(noise_reduction={"type": "room"}),
            "invalid_value",
            "audio.input.noise_reduction.type",
        ),
        ({"truncation": "never"}, "invalid_value", "truncation.type"),
        (
            {"truncation": {"type": "retention_ratio", "retention_ratio": 1.5}},
            "decimal_above_max_value",
            "truncation.retention_ratio",
        ),
        (
            {"truncation": {"type": "retention_ratio", "token_limits": {"post_instructions": -1}}},
            "integer_below_min_value",
            "truncation.token_limits.post_instructions",
        ),
        (
            listening(transcription={"language": 5}),
            "invalid_type",
            "audio.input.transcription.language",
        ),
    ],
)
def test_a_wrong_field_is_named(update: dict[str, Any], code: str, param: str) -> None:
    fault = fault_of(update)
    assert (fault.code, fault.param) == (code, f"session.{param}")


def test_the_voice_cannot_be_changed_after_the_first_audio() -> None:
    with pytest.raises(RealtimeFault) as raised:
        merged(SESSION, speaking(voice="ash"), voice_frozen=True)
    assert raised.value.code == "cannot_update_voice"
    assert merged(SESSION, speaking(voice="marin", speed=1.0), voice_frozen=True)
    assert merged(SESSION, speaking(voice={"id": "ash"})).audio.output.voice == "ash"


def test_an_update_may_name_the_model_when_the_connection_did_not() -> None:
    unnamed = RealtimeSession(id="sess_1")
    named = merged(unnamed, {"model": "gpt-realtime"})
    assert named.model == "gpt-realtime"
    assert merged(named, {"model": "gpt-realtime"}) == merged(named, {"model": None}) == named
    assert fault_of({"model": "other"}, named).param == "session.model"


def test_unknown_fields_and_ids_are_ignored() -> None:
    assert merged(SESSION, {"id": "mine", "object": "x", "expires_at": 1, "new": {}}) == SESSION


def test_truncation_and_temperature_reach_the_model() -> None:
    limits = {"post_instructions": 500}
    wanted = {"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": limits}
    session = merged(SESSION, {"truncation": wanted, "temperature": 0.9, "max_output_tokens": 9})
    assert session.truncation.as_retention() == Retention(0.5, 500)
    assert session.as_json()["truncation"] == wanted
    assert session.sampling() == SamplingOptions(temperature=0.9, max_tokens=9)
    assert merged(session, {"truncation": "disabled"}).as_json()["truncation"] == "disabled"


def test_fields_without_effect_are_shown_again() -> None:
    shown = SESSION.as_json()
    assert shown["tracing"] == {"workflow_name": "w"}
    assert shown["truncation"] == {"type": "retention_ratio", "retention_ratio": 0.8}
    assert shown["prompt"] == {"id": "pmpt_1"}
    assert shown["reasoning"] == {"effort": "low"}
    assert shown["parallel_tool_calls"] is True


def test_tools_are_chosen_as_in_the_chat_route() -> None:
    assert (SESSION.choice(), SESSION.called_tool()) == ("required", "add")
    assert [tool.to_openai() for tool in SESSION.tools] == [
        {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    ]
    # A named tool may be removed later, and a choice may come before its tools.
    without = merged(SESSION, {"tools": []})
    assert (without.choice(), without.called_tool()) == ("auto", None)
    assert merged(without, {"tool_choice": "required"}).choice() == "auto"
    assert merged(SESSION, {"tool_choice": "none"}).choice() == "none"


def test_a_response_has_its_own_options() -> None:
    options = ResponseOptions.model_validate(
        {
            "output_modalities": ["text"],
            "instructions": "",
            "tools": [],
            "max_output_tokens": 5,
            "audio": {"output": {"voice": "ash"}},
            "model": "other",
            "id": "mine",
            "tool_choice": None,
        }
    )
    session = options.applied_to(SESSION)
    assert not session.speaks
    assert (session.instructions, session.tools, session.sampling().max_tokens) == ("", [], 5)
    assert (session.audio.output.voice, session.audio.output.speed) == ("ash", 1.25)
    assert (session.id, session.model) == (SESSION.id, SESSION.model)
    assert ResponseOptions().applied_to(SESSION) == SESSION
    with pytest.raises(RealtimeFault) as raised:
        options.applied_to(SESSION, voice_frozen=True)
    assert raised.value.code == "cannot_update_voice"
    wrong = ResponseOptions.model_validate({"audio": {"output": {"voice": 5}}})
    with pytest.raises(RealtimeFault) as raised:
        wrong.applied_to(SESSION)
    assert raised.value.param == "response.audio.output.voice"
