"""Events that the server sends in the Realtime dialect, named as in GA (openai-python's
`types/realtime`). Of its 46 events, 11 are left out: those of MCP, of SIP, and two of the beta."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, dataclass_transform

from api.sockets.kernel.conversation import json_text
from configs.load import load_yaml
from configs.schema.base import StrictModel

ID_LETTERS = 21  # after the prefix, as in OpenAI's ids

WireItem: TypeAlias = dict[str, Any]
"""An item of a conversation, from `items.to_wire`."""


class RealtimeNames(StrictModel):
    races: frozenset[str | None]
    tags: frozenset[str]
    expected: dict[str, str]
    json_types: dict[str, str]
    formats: dict[str, dict[str, Any]]
    paths: dict[str, tuple[str, ...]]
    events: dict[str, str]
    contents: dict[str, str]


NAMES = load_yaml(RealtimeNames, str(Path(__file__).with_name("names.yaml")))


def new_id(prefix: str) -> str:
    """Makes a random id: the prefix, "_" and 21 characters (126 bits)."""
    return f"{prefix}_{secrets.token_urlsafe(16)[:ID_LETTERS]}"


@dataclass_transform(kw_only_default=True, frozen_default=True)
class ServerEvent:
    """Base class of the events. Each subclass becomes a dataclass; its fields are sent in order."""

    type: ClassVar[str]

    def __init_subclass__(cls, type: str = "") -> None:
        cls.type = type
        dataclass(frozen=True, kw_only=True)(cls)


Send: TypeAlias = Callable[[ServerEvent], Awaitable[None]]


def as_wire(event: ServerEvent) -> dict[str, Any]:
    """Returns the JSON object of an event, with a new id."""
    return {"type": event.type, "event_id": new_id("event"), **vars(event)}


def frame_of(event: ServerEvent) -> str:
    """Returns the text message of an event."""
    return json_text(as_wire(event))


class ErrorEvent(ServerEvent, type="error"):
    """An error, with the client's `event_id`, and in `param` the path of the field at fault."""

    error: dict[str, Any]


class SessionCreated(ServerEvent, type="session.created"):
    session: dict[str, Any]


class SessionUpdated(ServerEvent, type="session.updated"):
    session: dict[str, Any]


class ItemAdded(ServerEvent, type="conversation.item.added"):
    item: WireItem
    previous_item_id: str | None


class ItemDone(ServerEvent, type="conversation.item.done"):
    item: WireItem
    previous_item_id: str | None


class ItemRetrieved(ServerEvent, type="conversation.item.retrieved"):
    item: WireItem


class ItemDeleted(ServerEvent, type="conversation.item.deleted"):
    item_id: str


class ItemTruncated(ServerEvent, type="conversation.item.truncated"):
    item_id: str
    content_index: int
    audio_end_ms: int


class AudioCommitted(ServerEvent, type="input_audio_buffer.committed"):
    item_id: str
    previous_item_id: str | None


class AudioCleared(ServerEvent, type="input_audio_buffer.cleared"):
    pass


class UserSpeechStarted(ServerEvent, type="input_audio_buffer.speech_started"):
    """Speech began. Times count from the session's first audio; the start includes the padding."""

    item_id: str
    audio_start_ms: int


class UserSpeechStopped(ServerEvent, type="input_audio_buffer.speech_stopped"):
    item_id: str
    audio_end_ms: int


class IdleTimeoutTriggered(ServerEvent, type="input_audio_buffer.timeout_triggered"):
    """The user was silent from `audio_start_ms` to `audio_end_ms`."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


class TranscriptionEvent(ServerEvent):
    """Base class of the events about an utterance, which is the only part of its item."""

    item_id: str
    content_index: int = 0


class TranscriptionDelta(
    TranscriptionEvent, type="conversation.item.input_audio_transcription.delta"
):
    delta: str


class TranscriptionCompleted(
    TranscriptionEvent, type="conversation.item.input_audio_transcription.completed"
):
    """The final transcript. `usage` has the length of the audio, which is what is charged."""

    transcript: str
    usage: dict[str, Any]
    logprobs: list[dict[str, Any]] | None


class TranscriptionSegment(
    TranscriptionEvent, type="conversation.item.input_audio_transcription.segment"
):
    """A speaker's part of an utterance. Times are seconds from the session's first audio."""

    id: str = field(default_factory=lambda: new_id("seg"), compare=False)
    text: str
    speaker: str
    start: float
    end: float


class TranscriptionFailed(
    TranscriptionEvent, type="conversation.item.input_audio_transcription.failed"
):
    """No transcript could be made. `error` has no `param`, since openai-agents-js refuses null."""

    error: dict[str, str]


class ResponseCreated(ServerEvent, type="response.created"):
    response: dict[str, Any]


class ResponseDone(ServerEvent, type="response.done"):
    response: dict[str, Any]


class OutputItemAdded(ServerEvent, type="response.output_item.added"):
    response_id: str
    output_index: int
    item: WireItem


class OutputItemDone(ServerEvent, type="response.output_item.done"):
    response_id: str
    output_index: int
    item: WireItem


class OutputEvent(ServerEvent):
    """Base class of the events about an item of a response."""

    response_id: str
    item_id: str
    output_index: int


class CallEvent(OutputEvent):
    """Base class of the events about a function call."""

    call_id: str


class ArgumentsDelta(CallEvent, type="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(CallEvent, type="response.function_call_arguments.done"):
    """The arguments of a call are complete; `arguments` is the whole JSON text."""

    name: str
    arguments: str


class PartEvent(OutputEvent):
    """Base class of the events about the content of a message, which has only one part."""

    content_index: int = 0


class PartAdded(PartEvent, type="response.content_part.added"):
    part: dict[str, str]


class PartDone(PartEvent, type="response.content_part.done"):
    part: dict[str, str]


class AudioDelta(PartEvent, type="response.output_audio.delta"):
    delta: str  # base64


class AudioDone(PartEvent, type="response.output_audio.done"):
    pass


class TranscriptDelta(PartEvent, type="response.output_audio_transcript.delta"):
    delta: str


class TranscriptDone(PartEvent, type="response.output_audio_transcript.done"):
    transcript: str


class TextDelta(PartEvent, type="response.output_text.delta"):
    delta: str


class TextDone(PartEvent, type="response.output_text.done"):
    text: str


class OutputBufferEvent(ServerEvent):
    """Base class of the events about the speech of a call over WebRTC."""

    response_id: str


class OutputStarted(OutputBufferEvent, type="output_audio_buffer.started"):
    """The speech of a response begins to play."""


class OutputStopped(OutputBufferEvent, type="output_audio_buffer.stopped"):
    """The speech of a response was played to its end."""


class OutputCleared(OutputBufferEvent, type="output_audio_buffer.cleared"):
    """The rest of a response's speech was dropped."""


class RateLimitsUpdated(ServerEvent, type="rate_limits.updated"):
    """The remaining requests of the plan, and the time until all are available again."""

    rate_limits: list[dict[str, Any]]
