"""Messages of `/ws/tts`, which are JSON objects with one key, the name of the message."""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from api.http.bodies import RequestModel
from api.http.errors import to_api_error
from api.native.pronunciations import DictionaryNames
from api.native.speech import unread_json
from api.sockets.kernel.conversation import ClientFault, json_text, parse_spoken
from pipelines.tts.session import ContextWire, EncodedChunk
from pipelines.tts.shaping import timings_json

SPEAKING_RATES = (0.5, 1.5)
PITCHES = (-6.0, 6.0)  # semitones
STABILITIES = (0.6, 1.5)
MAX_WARNINGS = 20
EXCERPT_CHARACTERS = 100  # maximum characters of an invalid value in an error


def clamped(limits: tuple[float, float]) -> AfterValidator:
    """Returns a validator that clamps numbers to the limits."""
    low, high = limits
    return AfterValidator(lambda value: min(max(value, low), high))


def pitch_ratio(semitones: float) -> float:
    """Converts semitones to a factor of the frequency."""
    return float(2 ** (semitones / 12))


class LenientModel(RequestModel):
    """Base class of models in which a null field counts as absent."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None}


class TTSClientMessage(LenientModel):
    """Base class of the client's messages. A message has one key, whose value has these fields."""

    context_id: str | None = Field(default=None, max_length=256)


class AudioConfig(LenientModel):
    """Audio format. Any value is accepted here, since the conversation reports the errors."""

    audio_encoding: Any = "LINEAR16"
    sample_rate_hertz: Any = 16_000


class CreateContext(TTSClientMessage):
    """Opens a context, which has a voice, an audio format and a buffer of text."""

    voice_id: str | None = None
    audio_config: AudioConfig = AudioConfig()
    speaking_rate: Annotated[float, clamped(SPEAKING_RATES)] = 1.0
    pitch: Annotated[float, clamped(PITCHES)] = 0.0
    stability: Annotated[float, clamped(STABILITIES)] = 1.0
    boost_volume: bool = False
    timestamps: bool = False
    pronunciations: DictionaryNames = ()


class SendText(TTSClientMessage):
    """Appends text to the buffer of a context."""

    text: str


MESSAGES: dict[str, type[TTSClientMessage]] = {
    "create_context": CreateContext,
    "send_text": SendText,
    "flush_context": TTSClientMessage,
    "close_context": TTSClientMessage,  # the text in the buffer is spoken first
}


def context_event(
    name: Literal["context_created", "flush_completed", "context_closed"],
    context_id: str,
    **fields: Any,
) -> str:
    return json_text({name: {"context_id": context_id, **fields}})


def tts_error(message: str, context_id: str | None = None) -> str:
    """Returns an error event; `context_id` is None unless it is about an existing context."""
    return json_text({"error": {"context_id": context_id, "message": message}})


def parse_message(text: str) -> tuple[str, Any]:
    """Returns the name of a message, and its body, not validated yet. Raises ClientFault."""
    event = parse_spoken(text)
    if len(event) != 1:
        raise ClientFault("a message is an object with exactly one key, which names it")
    name, body = next(iter(event.items()))
    if name not in MESSAGES:
        raise ClientFault(f"unknown message; supported: {', '.join(MESSAGES)}")
    return name, body


def excerpt(value: Any) -> str:
    """Returns an invalid value for an error message, shortened; values except strings as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= EXCERPT_CHARACTERS else f"{text[:EXCERPT_CHARACTERS]}..."


class TtsWire(ContextWire):
    """Writes the events of a context."""

    def __init__(
        self, context_id: str, unread: Sequence[str] = (), warnings: Iterable[str] = ()
    ) -> None:
        """Writes events with `context_id`. `unread` (unreadable text) and `warnings` grow during
        the speech."""
        self._context_id = context_id
        self._unread = unread
        self._warnings = warnings
        self._reported = 0  # number of items of `unread` that were reported
        self._id_json = json.dumps(context_id)
        self._dropped: dict[str, None] = {}

    def audio(self, chunk: EncodedChunk) -> str:
        """Writes the JSON directly: validating a model would cost more than all other work."""
        words = "" if chunk.words is None else f",{json_text(timings_json(chunk.words))[1:-1]}"
        audio = b64encode(chunk.data).decode("ascii")
        return f'{{"audio_chunk":{{"context_id":{self._id_json},"audioContent":"{audio}"{words}}}}}'

    def flushed(self, *, is_automatic: bool) -> str:
        new = self._unread[self._reported :]
        self._reported = len(self._unread)
        return context_event("flush_completed", self._context_id, **unread_json(new))

    def warned(self, dropped: Sequence[str]) -> None:
        """Collects dropped cues, which `context_closed` will name."""
        self._dropped |= dict.fromkeys(dropped)

    def closed(self) -> str:
        cues = [*self._dropped][:MAX_WARNINGS]
        warnings = [*self._warnings, *(f"markup not followed: {cue}" for cue in cues)]
        fields = {"warnings": warnings} if warnings else {}
        return context_event(
            "context_closed", self._context_id, **fields, **unread_json(self._unread)
        )

    def error(self, error: Exception) -> str:
        return tts_error(to_api_error(error).message, self._context_id)
