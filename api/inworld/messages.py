"""Messages of Inworld's text-to-speech API in both directions, on the socket and over HTTP."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from api.callers import Caller
from api.dialects.outputs import ForeignVoice, Letter, columns, letters_of, voice_for
from api.http.errors import to_api_error
from api.native.pronunciations import DictionaryNames
from api.sockets.kernel.conversation import ClientFault, checked, json_text
from api.sockets.tts.contexts import DEFAULT_DELAY_MS, DEFAULT_THRESHOLD, FlushRules
from api.sockets.tts.events import (
    PITCHES,
    SPEAKING_RATES,
    STABILITIES,
    LenientModel,
    clamped,
    pitch_ratio,
)
from configs.load import load_yaml
from configs.schema.base import StrictModel
from models.base import VoiceGender
from pipelines.audio.encode.formats import EncoderFormat, open_encoder
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import ContextWire, EncodedChunk, SpeechStream
from pipelines.tts.shaping import TimedWord

InworldEncoding = Literal["LINEAR16", "PCM", "WAV", "MP3", "OGG_OPUS", "FLAC", "MULAW"]

# With LINEAR16, each message has a WAV header; with WAV, only the first message after a flush.
FORMATS: Mapping[InworldEncoding, EncoderFormat] = {
    "LINEAR16": "wav_messages",
    "PCM": "pcm",
    "WAV": "wav_stream",
    "MP3": "mp3",
    "OGG_OPUS": "ogg",
    "FLAC": "flac",
    "MULAW": "mulaw",
}
WITH_HEADER: frozenset[InworldEncoding] = frozenset({"LINEAR16", "WAV"})
SLOW: frozenset[InworldEncoding] = frozenset({"MP3", "OGG_OPUS", "FLAC"})

TimestampType = Literal["TIMESTAMP_TYPE_UNSPECIFIED", "WORD", "CHARACTER"]
ContextId = Annotated[str, Field(max_length=256)]


class InworldNames(StrictModel):
    voices: dict[str, dict[VoiceGender, list[str]]]  # by language (ISO 639-1)


_FOREIGN_VOICES = {
    name: ForeignVoice(name, language, gender, is_multilingual=True)
    for language, genders in load_yaml(
        InworldNames, str(Path(__file__).with_name("names.yaml"))
    ).voices.items()
    for gender, names in genders.items()
    for name in names
}

_STABILITY_OF_MODE = {"STABLE": STABILITIES[1], "CREATIVE": STABILITIES[0]}


class InworldModel(LenientModel):
    """Base class of messages. Names are in camelCase or snake_case, as protocol buffers allow."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class InworldAudio(InworldModel):
    """Audio format, speaking rate and pitch."""

    audio_encoding: InworldEncoding = "MP3"
    sample_rate_hertz: int = Field(default=48_000, ge=8000, le=48_000)
    speaking_rate: Annotated[float, clamped(SPEAKING_RATES)] = 1.0
    pitch: Annotated[float, clamped(PITCHES)] = Field(default=0.0, description="Semitones.")

    @field_validator("audio_encoding", "sample_rate_hertz", "speaking_rate", mode="before")
    @classmethod
    def _zero_is_absent(cls, value: Any, info: ValidationInfo) -> Any:
        # Protocol buffers do not send a zero, or the first value of an enumeration.
        is_zero = value == 0 and not isinstance(value, bool)
        if is_zero or value == "AUDIO_ENCODING_UNSPECIFIED":
            return cls.model_fields[info.field_name or ""].default
        return value


class Voicing(InworldModel):
    """The voice and style of a text. The voice determines model and language."""

    voice_id: str = Field(min_length=1, max_length=200, description="Voice id or name.")
    audio_config: InworldAudio = Field(default_factory=InworldAudio)
    temperature: float = Field(
        default=1.0, ge=0, le=2, description="Higher values give more variation."
    )
    delivery_mode: str | None = Field(
        default=None, description="`STABLE`, `BALANCED` or `CREATIVE`; overrides `temperature`."
    )
    timestamp_type: TimestampType = "TIMESTAMP_TYPE_UNSPECIFIED"
    timestamp_transport_strategy: str | None = Field(
        default=None, description="`SYNC` sends words together with their audio, or earlier."
    )
    pronunciations: DictionaryNames = ()

    @property
    def style(self) -> SpeechRequest:
        return SpeechRequest(
            text="",
            speed=self.audio_config.speaking_rate,
            pitch=pitch_ratio(self.audio_config.pitch),
            stability=self._stability,
            timings=self.timestamp_type != "TIMESTAMP_TYPE_UNSPECIFIED",
            pronunciations=self.pronunciations,
            free_cues=True,
        )

    @property
    def _stability(self) -> float:
        if self.delivery_mode in _STABILITY_OF_MODE:
            return _STABILITY_OF_MODE[self.delivery_mode]
        if self.delivery_mode == "BALANCED" or not self.temperature:
            return 1.0
        return min(max(1.0 / self.temperature, STABILITIES[0]), STABILITIES[1])


class Create(Voicing):
    """Opens a context."""

    auto_mode: bool = False
    auto_mode_strategy: str | None = None
    max_buffer_delay_ms: int = Field(default=DEFAULT_DELAY_MS, ge=0)
    buffer_char_threshold: int = Field(default=DEFAULT_THRESHOLD, ge=0)

    @property
    def flush_rules(self) -> FlushRules:
        return FlushRules(
            sentences=self.auto_mode,
            splits_words=self.auto_mode_strategy == "SENTENCE_BOUNDARY",
            delay_s=(self.max_buffer_delay_ms or DEFAULT_DELAY_MS) / 1000,
            max_characters=self.buffer_char_threshold or DEFAULT_THRESHOLD,
        )


class UpdateConfig(InworldModel):
    """Changes some fields of `create`."""

    model_config = ConfigDict(extra="allow")


class Empty(InworldModel):
    """A message without fields."""


class SendTextRequest(InworldModel):
    """Appends text to the buffer, and may flush it at once."""

    text: str
    flush_context: Empty | None = None


class ClientMessage(InworldModel):
    """A message of the client: the id of a context, and exactly one of the other fields."""

    context_id: ContextId | None = None
    create: Create | None = None
    send_text: SendTextRequest | None = None
    flush_context: Empty | None = None
    update_config: UpdateConfig | None = None
    close_context: Empty | None = None
    cancel_context: Empty | None = None


_MESSAGES = tuple(name for name in ClientMessage.model_fields if name != "context_id")
_NAMES = {alias for name in _MESSAGES for alias in (name, to_camel(name))}


def named_context(event: dict[str, Any]) -> str | None:
    """Returns the id of the context that a message names, before it is validated."""
    context_id = event.get("contextId", event.get("context_id"))
    return context_id if isinstance(context_id, str) else None


def parse_message(event: dict[str, Any]) -> ClientMessage:
    """Validates a message. Raises ClientFault, which names the field and its limit."""
    if sum(key in _NAMES and value is not None for key, value in event.items()) != 1:
        raise ClientFault(f"a message has exactly one of {', '.join(_MESSAGES)}")
    return checked(ClientMessage, event)


def updated(create: Create, update: UpdateConfig) -> Create:
    """Returns `create` with the changes of `update`. Raises ClientFault."""
    before = create.model_dump(by_alias=True, exclude_unset=True)
    after = {to_camel(name): value for name, value in (update.model_extra or {}).items()}
    audio = after.get("audioConfig")
    if isinstance(audio, dict):
        camel = {to_camel(name): value for name, value in audio.items()}
        after["audioConfig"] = before.get("audioConfig", {}) | camel
    return checked(Create, before | after, "update_config")


# Values of google.rpc.Code.
INVALID_ARGUMENT = 3
NOT_FOUND = 5
ALREADY_EXISTS = 6
RESOURCE_EXHAUSTED = 8
ABORTED = 10
INTERNAL = 13
# Codes by HTTP status. NOT_FOUND is only used for contexts, since clients ignore it.
_CODES = {400: INVALID_ARGUMENT, 403: 7, 404: INVALID_ARGUMENT, 429: RESOURCE_EXHAUSTED, 503: 14}


class RpcStatus(BaseModel):
    """A gRPC status. Code 0 is success."""

    code: int = 0
    message: str = ""
    details: list[Any] = Field(default_factory=list)


def code_of(status: int) -> int:
    """Returns the code for an HTTP status."""
    return _CODES.get(status, INTERNAL)


def failure(message: str, code: int, context_id: str | None = None) -> str:
    """Returns an error event, about a context if its id is given."""
    context = {} if context_id is None else {"contextId": context_id}
    return _event(context, RpcStatus(code=code, message=message))


def context_event(context_id: str, name: str, body: dict[str, Any], message: str = "") -> str:
    """Returns an event about a context, other than an error."""
    return _event({"contextId": context_id, name: body}, RpcStatus(message=message))


def _event(result: dict[str, Any], status: RpcStatus) -> str:
    return json_text({"result": {**result, "status": status.model_dump()}})


def description(create: Create, model_id: str) -> dict[str, Any]:
    """Returns the configuration of a context, in which `modelId` is the model that speaks."""
    hidden = {"delivery_mode", "timestamp_transport_strategy", "auto_mode_strategy"}
    return create.model_dump(by_alias=True, exclude=hidden) | {"modelId": model_id}


class Alignment:
    """Timestamps of words or characters, which count from the start of each flush. Clients take the
    end of a flush's last word as its length, and add up the lengths. So the last word is held back
    until the flush ends, and is given the end of the audio."""

    def __init__(self, voicing: Voicing) -> None:
        self._by_letter = voicing.timestamp_type == "CHARACTER"
        self._holds_back = voicing.timestamp_transport_strategy != "SYNC"
        self._flush_start_s = 0.0
        self._held_back: tuple[TimedWord, ...] = ()

    def of(self, words: Sequence[TimedWord]) -> dict[str, Any] | None:
        """Returns the `timestampInfo` of words, without the last word, which is held back."""
        ready = (*self._held_back, *(word for word in words if not word.mark))
        if self._holds_back and ready:
            self._held_back = ready[-1:]
            ready = ready[:-1]
        return self.whole(ready)

    def rest(self, spoken_s: float) -> dict[str, Any] | None:
        """Returns the `timestampInfo` of the held-back word; the flush ends at `spoken_s`."""
        words = [replace(word, end_s=max(word.end_s, spoken_s)) for word in self._held_back]
        self._held_back = ()
        info = self.whole(words)
        self._flush_start_s = spoken_s
        return info

    def whole(self, words: Sequence[TimedWord]) -> dict[str, Any] | None:
        """Returns the `timestampInfo` of words, none of which is held back."""
        if not words:
            return None
        if self._by_letter:
            letters = letters_of(words, from_s=self._flush_start_s)
            return {"characterAlignment": _alignment("character", letters)}
        spans = [
            (word.word, word.start_s - self._flush_start_s, word.end_s - self._flush_start_s)
            for word in words
            if not word.mark
        ]
        return {"wordAlignment": _alignment("word", spans)}


def _alignment(name: str, spans: Sequence[Letter]) -> dict[str, Any]:
    return columns(spans, f"{name}s", f"{name}StartTimeSeconds", f"{name}EndTimeSeconds")


class InworldWire(ContextWire):
    def __init__(self, context_id: str, create: Create) -> None:
        self._context_id = context_id
        self._alignment = Alignment(create)
        self._warning = ""  # text for the status of the next event

    def audio(self, chunk: EncodedChunk) -> str:
        return self._chunk(chunk.data, self._alignment.of(chunk.words or ()))

    def rest(self, spoken_s: float) -> str | None:
        timing = self._alignment.rest(spoken_s)
        return None if timing is None else self._chunk(b"", timing)

    def warned(self, dropped: Sequence[str]) -> None:
        """Notes dropped cues, which the status of the next event will name."""
        self._warning = f"markup not followed: {', '.join(dropped)}"

    def flushed(self, *, is_automatic: bool) -> str:
        return self._end_event("flushCompleted")

    def closed(self) -> str:
        return self._end_event("contextClosed")

    def _end_event(self, name: str) -> str:
        message = self._warning
        self._warning = ""
        return context_event(self._context_id, name, {}, message)

    def error(self, error: Exception) -> str:
        api_error = to_api_error(error)
        return failure(api_error.message, code_of(api_error.status), self._context_id)

    def _chunk(self, data: bytes, timing: dict[str, Any] | None) -> str:
        return context_event(self._context_id, "audioChunk", audio_body(data, timing))


def audio_body(data: bytes, timing: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the fields of a piece of audio, with `timestampInfo` unless `timing` is None."""
    body: dict[str, Any] = {"audioContent": b64encode(data).decode("ascii")}
    return body if timing is None else body | {"timestampInfo": timing}


async def open_stream(voicing: Voicing, caller: Caller, *, whole: bool = False) -> SpeechStream:
    """Opens a stream; `whole` puts one WAV header before all audio. Raises an error of CODED."""
    foreign = _FOREIGN_VOICES.get(voicing.voice_id)
    voice = await voice_for(voicing.voice_id, foreign, caller, "voice_id")
    audio = voicing.audio_config
    encoding = audio.audio_encoding
    if whole and encoding in WITH_HEADER:
        encoding = "PCM"
    return caller.open_stream(
        voice,
        voicing.style,
        partial(open_encoder, FORMATS[encoding], audio.sample_rate_hertz),
        slow_encoder=encoding in SLOW,
        whole=whole,
    )
