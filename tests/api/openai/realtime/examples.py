"""One of every event of the server, and updates of sessions."""

from typing import Any

from hypothesis import strategies as st

from api.openai.realtime import server_events as events
from api.openai.realtime.items import to_wire
from api.openai.realtime.responses import RealtimeResponse, RealtimeUsage
from api.openai.realtime.session_object import RealtimeSession, TranscriptionSession, merged
from pipelines.agents.items import Item, Part

SESSION = merged(
    RealtimeSession(id="sess_1", model="gpt-realtime"),
    {
        "instructions": "Be brief.",
        "audio": {
            "input": {
                "format": {"type": "audio/pcmu"},
                "noise_reduction": {"type": "near_field", "strength": 0.5},
                "transcription": {"model": "whisper-1", "language": "en"},
                "turn_detection": {"type": "semantic_vad", "eagerness": "low"},
            },
            "output": {"voice": {"id": "marin"}, "speed": 1.25},
        },
        "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}}],
        "tool_choice": {"type": "function", "name": "add"},
        "max_output_tokens": 100,
        "tracing": {"workflow_name": "w"},
        "truncation": {"type": "retention_ratio", "retention_ratio": 0.8},
        "prompt": {"id": "pmpt_1"},
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": True,
        "include": ["item.input_audio_transcription.logprobs"],
    },
)
TRANSCRIPTION = TranscriptionSession(id="sess_2", expires_at=1_800_000_000)

SPOKEN = to_wire(Item("item_1", "message", parts=[Part("input_audio")]))
ANSWER = to_wire(
    Item(
        "item_2",
        "message",
        "assistant",
        [Part("output_audio", "Hi."), Part("output_text", "Hi.")],
        "in_progress",
    )
)
SYSTEM = to_wire(Item("item_3", "message", "system", [Part("input_text", "Be brief.")]))
CALL = to_wire(Item("item_4", "function_call", call_id="call_1", name="add", arguments='{"a":1}'))
OUTPUT = to_wire(Item("item_5", "function_call_output", call_id="call_1", output="2"))


def response() -> RealtimeResponse:
    """In progress."""
    return RealtimeResponse("resp_1", SESSION, "conv_1", {"client_event_id": "e"})


def ended_responses() -> list[RealtimeResponse]:
    """One of each way to end."""
    completed, cancelled, cut, failed = (response() for _ in range(4))
    completed.output = [ANSWER, CALL]
    completed.usage = RealtimeUsage(10, 3, 4, 5)
    completed.end("completed")
    cancelled.end("cancelled", reason="turn_detected")
    cut.end("incomplete", reason="max_output_tokens")
    failed.conversation_id = failed.metadata = None
    error = {"type": "server_error", "code": "overloaded", "message": "try again"}
    failed.end("failed", error=error)
    return [completed, cancelled, cut, failed]


_PART = ("resp_1", 'item_"2', 0, 1)
_CALL = ("resp_1", "item_4", 1, "call_1")

FRAMES: list[str] = [
    events.error("no", code="invalid_value", param="session.tools[0].name", event_id="e"),
    events.error("no", kind="server_error"),
    events.session_created(SESSION.as_json()),
    events.session_created(RealtimeSession(id="sess_3").as_json()),
    events.session_updated(TRANSCRIPTION.as_json()),
    *(events.item_added(item, "item_0") for item in (SPOKEN, ANSWER, SYSTEM, CALL, OUTPUT)),
    events.item_done(SPOKEN, None),
    events.item_retrieved(SPOKEN),
    events.item_deleted("item_1"),
    events.item_truncated("item_2", 0, 1500),
    events.transcription_delta("item_1", "Hel"),
    events.transcription_completed("item_1", "Hello.", 1.25),
    events.transcription_completed(
        "item_1", "Hello.", 1.25, logprobs=[{"token": "a", "bytes": [97], "logprob": -0.1}]
    ),
    events.transcription_segment("item_1", "Hello.", "A", 0.12, 1.37),
    events.transcription_failed("item_1", "overloaded", "try again"),
    events.audio_committed("item_1", None),
    events.audio_cleared(),
    events.speech_started("item_1", 120),
    events.speech_stopped("item_1", 1370),
    events.timeout_triggered("item_1", 1370, 7370),
    events.response_created(response().as_json()),
    *(events.response_done(one.as_json()) for one in ended_responses()),
    events.output_item_added("resp_1", 0, ANSWER),
    events.output_item_done("resp_1", 1, CALL),
    events.part_added(*_PART, events.content_part(True, "")),
    events.part_done(*_PART, events.content_part(False, "Hi.")),
    events.audio_delta(*_PART, "AAECAw=="),
    events.audio_done(*_PART),
    events.transcript_delta(*_PART, '"Hé'),
    events.transcript_done(*_PART, '"Hé!"'),
    events.text_delta(*_PART, "\n"),
    events.text_done(*_PART, "\n!"),
    events.arguments_delta(*_CALL, '{"a"'),
    events.arguments_done(*_CALL, "add", '{"a":1}'),
    events.rate_limits_updated(100, 50, 1.5),
]

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def _object(**fields: Any) -> st.SearchStrategy[Any]:
    """An object with any of the fields, or null, sometimes with junk."""
    optional = {name: field | JUNK for name, field in fields.items()}
    return st.none() | st.fixed_dictionaries({}, optional=optional)


def _one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


_FORMAT = _object(
    type=_one_of("audio/pcm", "audio/pcmu", "audio/pcma"), rate=_one_of(24_000, 8000, 24_000.0)
)
_INPUT = _object(
    format=_FORMAT,
    transcription=_object(model=st.text(max_size=3), language=_one_of("en", ""), prompt=st.text()),
    noise_reduction=_object(type=_one_of("near_field", "far_field"), strength=st.floats(0, 2)),
    turn_detection=_object(
        type=_one_of("server_vad", "semantic_vad"),
        threshold=st.floats(0, 1),
        silence_duration_ms=st.integers(0, 1000),
        idle_timeout_ms=st.integers(4999, 30_001),
        eagerness=_one_of("low", "auto"),
        create_response=st.booleans(),
    ),
)
_OUTPUT = _object(format=_FORMAT, voice=_one_of("ash", "marin"), speed=st.floats(0.2, 1.6))
_TOOL = _object(type=_one_of("function"), name=_one_of("add", "sub"), description=st.text())
_FLAT = {  # the beta's
    "voice": _one_of("ash", "marin"),
    "modalities": _one_of(["audio", "text"], ["text"]),
    "input_audio_format": _one_of("pcm16", "g711_ulaw", "opus"),
}
UPDATES = _object(
    type=_one_of("realtime", "transcription"),
    model=_one_of("gpt-realtime", "other"),
    output_modalities=_one_of(["audio"], ["text"], ["text", "audio"]),
    instructions=st.text(max_size=5),
    audio=_object(input=_INPUT, output=_OUTPUT),
    tools=st.lists(_TOOL, max_size=3),
    tool_choice=_one_of("auto", "none", "required", {"type": "function", "name": "add"}),
    max_output_tokens=_one_of("inf", 1, 4096, 4097, 0),
    include=_one_of([], ["item.input_audio_transcription.logprobs"]),
    **_FLAT,
).map(lambda update: update or {})

_PARTS = st.lists(
    _object(
        type=_one_of("input_text", "input_audio", "output_text", "output_audio", "text", "audio"),
        text=st.text(max_size=3),
        audio=_one_of("AAAA", "A", "%"),
        transcript=st.text(max_size=3),
    ),
    max_size=3,
)
_ITEM = _object(
    type=_one_of("message", "function_call", "function_call_output", "item_reference"),
    id=st.text(max_size=3),
    role=_one_of("system", "user", "assistant"),
    content=_PARTS,
    call_id=st.text(max_size=3),
    name=st.text(max_size=3),
    arguments=st.text(max_size=3),
    output=st.text(max_size=3),
)
_RESPONSE = _object(
    conversation=_one_of("auto", "none"),
    input=st.lists(_ITEM, max_size=3),
    metadata=st.dictionaries(st.text(max_size=70), st.text(max_size=3), max_size=3),
    instructions=st.text(max_size=5),
    audio=_object(output=_OUTPUT),
    tools=st.lists(_TOOL, max_size=3),
    tool_choice=_one_of("auto", {"type": "function", "name": "add"}),
    **_FLAT,
)
CLIENT_EVENTS = _object(
    type=_one_of(
        "session.update",
        "input_audio_buffer.append",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "output_audio_buffer.clear",
        "conversation.item.create",
        "conversation.item.retrieve",
        "conversation.item.delete",
        "conversation.item.truncate",
        "response.create",
        "response.cancel",
        "transcription_session.update",
    ),
    event_id=st.text(max_size=3),
    session=UPDATES,
    audio=_one_of("AAAA", "A", "%", "é"),
    item=_ITEM,
    previous_item_id=_one_of("root", "item_1"),
    item_id=_one_of("item_1", ""),
    content_index=_one_of(0, -1, 0.0),
    audio_end_ms=_one_of(0, 1500),
    response=_RESPONSE,
    response_id=_one_of("resp_1"),
)
