"""One of every event of the server, and updates of sessions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from api.openai.realtime import server_events as events
from api.openai.realtime.faults import RealtimeFault
from api.openai.realtime.items import to_wire
from api.openai.realtime.responses import RealtimeResponse, usage_json
from api.openai.realtime.session_object import RealtimeSession, TranscriptionSession, merged
from models.llm.base import TokenUsage
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
    completed.usage = usage_json(TokenUsage(10, 3, cached_tokens=5), audio_tokens=4)
    completed.end("completed")
    for response_ in (cancelled, cut, failed):
        response_.usage = usage_json(TokenUsage(0, 0), audio_tokens=0)
    cancelled.end("cancelled", reason="turn_detected")
    cut.end("incomplete", reason="max_output_tokens")
    failed.conversation_id = failed.metadata = None
    error = {"type": "server_error", "code": "overloaded", "message": "try again"}
    failed.end("failed", error=error)
    return [completed, cancelled, cut, failed]


_PART: dict[str, Any] = {
    "response_id": "resp_1",
    "item_id": 'item_"2',
    "output_index": 0,
    "content_index": 1,
}
_CALL: dict[str, Any] = {
    "response_id": "resp_1",
    "item_id": "item_4",
    "output_index": 1,
    "call_id": "call_1",
}
_UTTERANCE: dict[str, Any] = {"item_id": "item_1"}
_TIMED = events.TranscriptionCompleted(
    **_UTTERANCE,
    transcript="Hello.",
    usage={"type": "duration", "seconds": 1.25},
    logprobs=[{"token": "a", "bytes": [97], "logprob": -0.1}],
)
_LEFT = {"name": "requests", "limit": 100, "remaining": 50, "reset_seconds": 1.5}

EVENTS: list[events.ServerEvent] = [
    RealtimeFault("invalid_value", "no", param="session.tools[0].name", event_id="e").error,
    RealtimeFault(None, "no", kind="server_error").error,
    events.SessionCreated(session=SESSION.as_json()),
    events.SessionCreated(session=RealtimeSession(id="sess_3").as_json()),
    events.SessionUpdated(session=TRANSCRIPTION.as_json()),
    *(
        events.ItemAdded(item=item, previous_item_id="item_0")
        for item in (SPOKEN, ANSWER, SYSTEM, CALL, OUTPUT)
    ),
    events.ItemDone(item=SPOKEN, previous_item_id=None),
    events.ItemRetrieved(item=SPOKEN),
    events.ItemDeleted(item_id="item_1"),
    events.ItemTruncated(item_id="item_2", content_index=0, audio_end_ms=1500),
    events.TranscriptionDelta(**_UTTERANCE, delta="Hel"),
    replace(_TIMED, logprobs=None),
    _TIMED,
    events.TranscriptionSegment(**_UTTERANCE, text="Hello.", speaker="A", start=0.12, end=1.37),
    events.TranscriptionFailed(
        **_UTTERANCE,
        error={"type": "server_error", "code": "overloaded", "message": "try again"},
    ),
    events.AudioCommitted(item_id="item_1", previous_item_id=None),
    events.AudioCleared(),
    events.UserSpeechStarted(item_id="item_1", audio_start_ms=120),
    events.UserSpeechStopped(item_id="item_1", audio_end_ms=1370),
    events.IdleTimeoutTriggered(item_id="item_1", audio_start_ms=1370, audio_end_ms=7370),
    events.ResponseCreated(response=response().as_json()),
    *(events.ResponseDone(response=ended.as_json()) for ended in ended_responses()),
    events.OutputItemAdded(response_id="resp_1", output_index=0, item=ANSWER),
    events.OutputItemDone(response_id="resp_1", output_index=1, item=CALL),
    events.PartAdded(**_PART, part={"type": "audio", "transcript": ""}),
    events.PartDone(**_PART, part={"type": "text", "text": "Hi."}),
    events.AudioDelta(**_PART, delta="AAECAw=="),
    events.AudioDone(**_PART),
    events.TranscriptDelta(**_PART, delta='"Hé'),
    events.TranscriptDone(**_PART, transcript='"Hé!"'),
    events.TextDelta(**_PART, delta="\n"),
    events.TextDone(**_PART, text="\n!"),
    events.ArgumentsDelta(**_CALL, delta='{"a"'),
    events.ArgumentsDone(**_CALL, name="add", arguments='{"a":1}'),
    events.RateLimitsUpdated(rate_limits=[_LEFT]),
    events.OutputStarted(response_id="resp_1"),
    events.OutputStopped(response_id="resp_1"),
    events.OutputCleared(response_id="resp_1"),
]
FRAMES = [events.frame_of(event) for event in EVENTS]


def event_types(base: type[events.ServerEvent] = events.ServerEvent) -> Iterator[str]:
    """The types of all events of the server, from their classes."""
    for event in base.__subclasses__():
        if event.type:
            yield event.type
        yield from event_types(event)


OWN_TYPES = {kind for kind in event_types() if kind.startswith("antiphon.")}
"""Events that OpenAI does not have."""
OPENAI_FRAMES = [events.frame_of(event) for event in EVENTS if event.type not in OWN_TYPES]

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
