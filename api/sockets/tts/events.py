"""The messages of `/ws/tts`: JSON objects with one key, which names the message."""

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from api.http.bodies import RequestModel
from api.http.errors import to_api_error
from api.native.pronunciations import DictionaryNames
from api.native.speech import unread_json
from api.sockets.kernel.conversation import ClientFault, checked, json_text, parse_spoken
from pipelines.tts.session import ContextWire, EncodedChunk
from pipelines.tts.shaping import timings_json

SPEAKING_RATES = (0.5, 1.5)
PITCHES = (-6.0, 6.0)  # semitones
STABILITIES = (0.6, 1.5)
MOST_WARNINGS = 20
SHOWN_CHARACTERS = 100  # of a wrong value that an error repeats


def clamped(limits: tuple[float, float]) -> AfterValidator:
    low, high = limits
    return AfterValidator(lambda value: min(max(value, low), high))


def pitch_ratio(semitones: float) -> float:
    return float(2 ** (semitones / 12))


def _with_null(schema: dict[str, Any]) -> None:
    """Fields that may be absent may be null."""
    for name, field in schema.get("properties", {}).items():
        if name not in schema.get("required", ()) and field.get("default", field) is not None:
            about = {one: field.pop(one) for one in ("default", "description") if one in field}
            schema["properties"][name] = {"anyOf": [field, {"type": "null"}], **about}


class LenientModel(RequestModel):
    """Numbers are not strings, but null is an absent field."""

    model_config = ConfigDict(json_schema_extra=_with_null)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None}


class TTSClientMessage(LenientModel):
    """The value of a message's key."""

    context_id: str | None = Field(default=None, max_length=256)


class AudioConfig(LenientModel):
    """Accepts any value: errors for unsupported ones have a wording of their own."""

    audio_encoding: Any = "LINEAR16"
    sample_rate_hertz: Any = 16_000


class CreateContext(TTSClientMessage):
    """Opens a context: a voice, a format and a buffer of text."""

    voice_id: str | None = None
    audio_config: AudioConfig = AudioConfig()
    speaking_rate: Annotated[float, clamped(SPEAKING_RATES)] = 1.0
    pitch: Annotated[float, clamped(PITCHES)] = 0.0
    stability: Annotated[float, clamped(STABILITIES)] = 1.0
    boost_volume: bool = False
    timestamps: bool = False
    pronunciations: DictionaryNames = ()


class SendText(TTSClientMessage):
    """Appends to the buffer."""

    text: str


MESSAGES: dict[str, type[TTSClientMessage]] = {
    "create_context": CreateContext,
    "send_text": SendText,
    "flush_context": TTSClientMessage,
    "close_context": TTSClientMessage,  # which speaks the text of the buffer first
}


def context_event(
    name: Literal["context_created", "flush_completed", "context_closed"],
    context_id: str,
    **fields: Any,
) -> str:
    """An event about a context, as JSON."""
    return json_text({name: {"context_id": context_id, **fields}})


def tts_error(message: str, context_id: str | None = None) -> str:
    """Without an id for a context that was not created."""
    return json_text({"error": {"context_id": context_id, "message": message}})


def parse_message(text: str) -> tuple[str, Any]:
    """The name of a message and its body, not checked yet. Raises ClientFault."""
    event = parse_spoken(text)
    if len(event) != 1:
        raise ClientFault("a message is an object with exactly one key, which names it")
    name, body = next(iter(event.items()))
    if name not in MESSAGES:
        raise ClientFault(f"unknown message; supported: {', '.join(MESSAGES)}")
    return name, body


def check_message(name: str, body: Any) -> TTSClientMessage:
    """Raises ClientFault that names the field and its limit."""
    return checked(MESSAGES[name], body, name)


def shown(value: Any) -> str:
    """A wrong value as an error repeats it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


class TtsWire(ContextWire):
    def __init__(self, context_id: str, unread: Sequence[str] = ()) -> None:
        """`unread` grows while the context speaks."""
        self._context_id = context_id
        self._unread = unread
        self._named = 0  # of them, by flushes
        self._id_json = json.dumps(context_id)
        self._dropped: dict[str, None] = {}

    def audio(self, chunk: EncodedChunk) -> str:
        """JSON text: the validation of a model would cost more than everything else."""
        words = "" if chunk.words is None else f",{json_text(timings_json(chunk.words))[1:-1]}"
        audio = b64encode(chunk.data).decode("ascii")
        return f'{{"audio_chunk":{{"context_id":{self._id_json},"audioContent":"{audio}"{words}}}}}'

    def flushed(self, *, is_automatic: bool) -> str:
        new = self._unread[self._named :]
        self._named = len(self._unread)
        return context_event("flush_completed", self._context_id, **unread_json(new))

    def warned(self, dropped: Sequence[str]) -> None:
        """The last message names them."""
        self._dropped |= dict.fromkeys(dropped)

    def closed(self) -> str:
        warnings = [f"not followed: {cue}" for cue in [*self._dropped][:MOST_WARNINGS]]
        named = {"warnings": warnings} if warnings else {}
        return context_event(
            "context_closed", self._context_id, **named, **unread_json(self._unread)
        )

    def error(self, error: Exception) -> str:
        return tts_error(to_api_error(error).message, self._context_id)
