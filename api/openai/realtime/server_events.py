"""The server's events of the Realtime dialect over WebSocket, each as one JSON text frame.

The names are those of the GA version (openai-python's `types/realtime`). Of its 46 events these 32
exist here: those of MCP, of WebRTC and SIP, and the beta's two are left out. `type` is
always the first key, and `event_id` the second: `beta.to_beta` relies on it.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from api.sockets.kernel.conversation import json_text
from configs.load import load_yaml
from configs.schema.base import StrictModel

ID_LETTERS = 21  # behind the prefix, as in OpenAI's ids

WireItem: TypeAlias = dict[str, Any]
"""An item of a conversation, from `wire.to_wire`."""


class RealtimeNames(StrictModel):
    """The tables of `names.yaml`."""

    races: frozenset[str | None]
    tags: frozenset[str]
    expected: dict[str, str]
    json_types: dict[str, str]
    formats: dict[str, dict[str, Any]]
    places: dict[str, tuple[str, ...]]
    events: dict[str, str]
    contents: dict[str, str]


NAMES = load_yaml(RealtimeNames, str(Path(__file__).with_name("names.yaml")))


def new_id(prefix: str) -> str:
    """A random id such as `item_` and 21 characters (126 bits)."""
    return f"{prefix}_{secrets.token_urlsafe(16)[:ID_LETTERS]}"


def error(
    message: str,
    *,
    code: str | None = None,
    kind: str = "invalid_request_error",
    param: str | None = None,
    event_id: str | None = None,
) -> str:
    """`event_id` is that of the client's event at fault, `param` the path of its field."""
    body = {"type": kind, "code": code, "message": message, "param": param, "event_id": event_id}
    return _frame("error", error=body)


def _plain(kind: str, *names: str) -> Callable[..., str]:
    """A function that writes the event with the values of these fields, in this order."""

    def write(*values: Any) -> str:
        return _frame(kind, **dict(zip(names, values, strict=True)))

    return write


session_created = _plain("session.created", "session")
session_updated = _plain("session.updated", "session")
item_added = _plain("conversation.item.added", "item", "previous_item_id")
item_done = _plain("conversation.item.done", "item", "previous_item_id")
item_retrieved = _plain("conversation.item.retrieved", "item")
item_deleted = _plain("conversation.item.deleted", "item_id")
item_truncated = _plain("conversation.item.truncated", "item_id", "content_index", "audio_end_ms")
audio_committed = _plain("input_audio_buffer.committed", "item_id", "previous_item_id")
audio_cleared = _plain("input_audio_buffer.cleared")
# Times count from the session's first audio. The start includes the prefix padding.
speech_started = _plain("input_audio_buffer.speech_started", "item_id", "audio_start_ms")
speech_stopped = _plain("input_audio_buffer.speech_stopped", "item_id", "audio_end_ms")
# The idle timeout passed: no speech between these times.
timeout_triggered = _plain(
    "input_audio_buffer.timeout_triggered", "item_id", "audio_start_ms", "audio_end_ms"
)
response_created = _plain("response.created", "response")
response_done = _plain("response.done", "response")
output_item_added = _plain("response.output_item.added", "response_id", "output_index", "item")
output_item_done = _plain("response.output_item.done", "response_id", "output_index", "item")
_CALL = ("response_id", "item_id", "output_index", "call_id")  # where a function call is
arguments_delta = _plain("response.function_call_arguments.delta", *_CALL, "delta")
# `arguments` is the whole JSON text.
arguments_done = _plain("response.function_call_arguments.done", *_CALL, "name", "arguments")
_PART = ("response_id", "item_id", "output_index", "content_index")  # where a part of content is
part_added = _plain("response.content_part.added", *_PART, "part")
part_done = _plain("response.content_part.done", *_PART, "part")
audio_delta = _plain("response.output_audio.delta", *_PART, "delta")  # base64
audio_done = _plain("response.output_audio.done", *_PART)
transcript_delta = _plain("response.output_audio_transcript.delta", *_PART, "delta")
transcript_done = _plain("response.output_audio_transcript.done", *_PART, "transcript")
text_delta = _plain("response.output_text.delta", *_PART, "delta")
text_done = _plain("response.output_text.done", *_PART, "text")


def transcription_delta(item_id: str, delta: str) -> str:
    return _transcription("delta", item_id, delta=delta)


def transcription_completed(
    item_id: str, transcript: str, seconds: float, *, logprobs: list[dict[str, Any]] | None = None
) -> str:
    """`seconds` is the length of the audio, by which transcription is charged."""
    usage = {"type": "duration", "seconds": round(seconds, 3)}
    return _transcription(
        "completed", item_id, transcript=transcript, usage=usage, logprobs=logprobs
    )


def transcription_segment(
    item_id: str, text: str, speaker: str, start_s: float, end_s: float
) -> str:
    """What one speaker says of an item; times as of `speech_started`, in seconds."""
    times = {"start": round(start_s, 3), "end": round(end_s, 3)}
    return _transcription("segment", item_id, id=new_id("seg"), text=text, speaker=speaker, **times)


def transcription_failed(item_id: str, code: str, message: str) -> str:
    # Without `param`: openai-agents-js takes no null here.
    body = {"type": "server_error", "code": code, "message": message}
    return _transcription("failed", item_id, error=body)


def rate_limits_updated(limit: int, remaining: int, reset_s: float) -> str:
    """What is left of the requests of the plan, until all are allowed again."""
    left = {"limit": limit, "remaining": remaining, "reset_seconds": round(reset_s, 3)}
    return _frame("rate_limits.updated", rate_limits=[{"name": "requests", **left}])


def content_part(is_audio: bool, text: str) -> dict[str, str]:
    """Of audio with its transcript. A part is `text` or `audio` in GA too, that of an item not."""
    return {"type": "audio", "transcript": text} if is_audio else {"type": "text", "text": text}


def _transcription(step: str, item_id: str, **fields: Any) -> str:
    """Of the item's only part, as an utterance has."""
    kind = f"conversation.item.input_audio_transcription.{step}"
    return _frame(kind, item_id=item_id, content_index=0, **fields)


def _frame(kind: str, **fields: Any) -> str:
    return json_text({"type": kind, "event_id": new_id("event"), **fields})
