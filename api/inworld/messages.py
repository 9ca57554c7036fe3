"""Messages of Inworld's text-to-speech API in both directions, on the socket and over HTTP.

A flush is one audio file, or messages that stand alone.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from api.dialects.outputs import Letter, columns, letters_of
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
from pipelines.audio.encode.encoder import wav_header
from pipelines.audio.encode.formats import EncoderFormat, open_encoder
from pipelines.billing.operation import Operation
from pipelines.temporary_files import TemporaryFile
from pipelines.tts.paid import PaidSynthesis
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import ContextWire, EncodedChunk, SpeechStream
from pipelines.tts.shaping import TimedWord

InworldEncoding = Literal["LINEAR16", "PCM", "WAV", "MP3", "OGG_OPUS", "FLAC", "MULAW"]

# LINEAR16 messages have a WAV header each, those of WAV only the first after a flush.
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

_STABILITY_OF_MODE = {"STABLE": STABILITIES[1], "CREATIVE": STABILITIES[0]}


class InworldModel(LenientModel):
    """Names as protocol buffers read them: camelCase, or as the fields are called."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class InworldAudio(InworldModel):
    """Audio format, speaking rate and pitch."""

    audio_encoding: InworldEncoding = "MP3"
    sample_rate_hertz: int = Field(default=48_000, ge=8000, le=48_000)
    speaking_rate: Annotated[float, clamped(SPEAKING_RATES)] = 1.0
    pitch: Annotated[float, clamped(PITCHES)] = Field(default=0.0, description="In semitones.")

    @field_validator("audio_encoding", "sample_rate_hertz", "speaking_rate", mode="before")
    @classmethod
    def _zero_is_absent(cls, value: Any, info: ValidationInfo) -> Any:
        # Protocol buffers cannot tell zero, or the first of an enumeration, from a field left out.
        is_zero = value == 0 and not isinstance(value, bool)
        if is_zero or value == "AUDIO_ENCODING_UNSPECIFIED":
            return cls.model_fields[info.field_name or ""].default
        return value


class Voicing(InworldModel):
    """The voice and style of a text. `modelId` and `language` follow from the voice here."""

    voice_id: str = Field(min_length=1, max_length=200, description="Voice id or name.")
    audio_config: InworldAudio = Field(default_factory=InworldAudio)
    temperature: float = Field(default=1.0, ge=0, le=2, description="Higher values vary more.")
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
    def flushing(self) -> FlushRules:
        return FlushRules(
            self.auto_mode,
            self.auto_mode_strategy == "SENTENCE_BOUNDARY",
            (self.max_buffer_delay_ms or DEFAULT_DELAY_MS) / 1000,
            self.buffer_char_threshold or DEFAULT_THRESHOLD,
        )


class UpdateConfig(InworldModel):
    """Changes fields of `create`; those left out stay."""

    model_config = ConfigDict(extra="allow")


class Empty(InworldModel):
    """A message without fields."""


class SendTextRequest(InworldModel):
    """Appends to the buffer, and may flush it at once."""

    text: str
    flush_context: Empty | None = None


class ClientMessage(InworldModel):
    """Exactly one of these beside the id of the context."""

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
    """The context that an unchecked message names."""
    named = event.get("contextId", event.get("context_id"))
    return named if isinstance(named, str) else None


def parse_message(event: dict[str, Any]) -> ClientMessage:
    """Raises ClientFault that names the field and its limit."""
    if sum(key in _NAMES and value is not None for key, value in event.items()) != 1:
        raise ClientFault(f"a message has exactly one of {', '.join(_MESSAGES)}")
    return checked(ClientMessage, event)


def updated(create: Create, update: UpdateConfig) -> Create:
    """`create` with the fields of `update`. Raises ClientFault."""
    before = create.model_dump(by_alias=True, exclude_unset=True)
    after = {to_camel(name): value for name, value in (update.model_extra or {}).items()}
    audio = after.get("audioConfig")
    if isinstance(audio, dict):
        camel = {to_camel(name): value for name, value in audio.items()}
        after["audioConfig"] = before.get("audioConfig", {}) | camel
    return checked(Create, before | after, "update_config")


# Values of google.rpc.Code.
INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, RESOURCE_EXHAUSTED = 3, 5, 6, 8
ABORTED, INTERNAL = 10, 13
# HTTP statuses as such codes. NOT_FOUND is for contexts alone, since clients ignore it.
_CODES = {400: INVALID_ARGUMENT, 403: 7, 404: INVALID_ARGUMENT, 429: RESOURCE_EXHAUSTED, 503: 14}


class RpcStatus(BaseModel):
    """A gRPC status. Code 0 is success."""

    code: int = 0
    message: str = ""
    details: list[Any] = Field(default_factory=list)


def code_of(status: int) -> int:
    return _CODES.get(status, INTERNAL)


def failure(message: str, code: int, context_id: str | None = None) -> str:
    """An error, of a context where one is known."""
    named = {} if context_id is None else {"contextId": context_id}
    return _event(named, RpcStatus(code=code, message=message))


def context_event(context_id: str, name: str, body: dict[str, Any], message: str = "") -> str:
    """An event that is no error."""
    return _event({"contextId": context_id, name: body}, RpcStatus(message=message))


def _event(result: dict[str, Any], status: RpcStatus) -> str:
    return json_text({"result": {**result, "status": status.model_dump()}})


def description(create: Create, model_id: str) -> dict[str, Any]:
    """The configuration that a context got: `modelId` is the model that speaks."""
    hidden = {"delivery_mode", "timestamp_transport_strategy", "auto_mode_strategy"}
    return create.model_dump(by_alias=True, exclude=hidden) | {"modelId": model_id}


class Alignment:
    """Timestamps of words or characters, counted from the start of each flush.

    Clients take the end of the last word for the end of a flush, and add these up. So the last word
    is held back until the end of its flush, and ends with the audio.
    """

    def __init__(self, voicing: Voicing) -> None:
        self._by_letter = voicing.timestamp_type == "CHARACTER"
        self._waits = voicing.timestamp_transport_strategy != "SYNC"
        self._began_s = 0.0
        self._last: tuple[TimedWord, ...] = ()

    def of(self, words: Sequence[TimedWord]) -> dict[str, Any] | None:
        """The `timestampInfo` of these words, but for the last one."""
        known = (*self._last, *(word for word in words if not word.mark))
        if self._waits and known:
            known, self._last = known[:-1], known[-1:]
        return self.whole(known)

    def rest(self, spoken_s: float) -> dict[str, Any] | None:
        """The `timestampInfo` of the last word of a flush that ends after `spoken_s` of audio."""
        last = [replace(word, end_s=max(word.end_s, spoken_s)) for word in self._last]
        self._last = ()
        info = self.whole(last)
        self._began_s = spoken_s
        return info

    def whole(self, words: Sequence[TimedWord]) -> dict[str, Any] | None:
        """The `timestampInfo` of a text whose audio comes in one piece."""
        if not words:
            return None
        if self._by_letter:
            letters = letters_of(words, from_s=self._began_s)
            return {"characterAlignment": _alignment("character", letters)}
        spans = [
            (word.word, word.start_s - self._began_s, word.end_s - self._began_s)
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
        self._warning = ""  # of the flush that has ended

    def audio(self, chunk: EncodedChunk) -> str:
        return self._chunk(chunk.data, self._alignment.of(chunk.words or ()))

    def rest(self, spoken_s: float) -> str | None:
        timing = self._alignment.rest(spoken_s)
        return None if timing is None else self._chunk(b"", timing)

    def warned(self, dropped: Sequence[str]) -> None:
        """The status of the next event names them."""
        self._warning = f"not followed: {', '.join(dropped)}"

    def flushed(self, *, is_automatic: bool) -> str:
        return self._ended("flushCompleted")

    def closed(self) -> str:
        return self._ended("contextClosed")

    def _ended(self, name: str) -> str:
        message, self._warning = self._warning, ""
        return context_event(self._context_id, name, {}, message)

    def error(self, error: Exception) -> str:
        shown = to_api_error(error)
        return failure(shown.message, code_of(shown.status), self._context_id)

    def _chunk(self, data: bytes, timing: dict[str, Any] | None) -> str:
        return context_event(self._context_id, "audioChunk", audio_body(data, timing))


def audio_body(data: bytes, timing: dict[str, Any] | None) -> dict[str, Any]:
    """Base64 audio, with `timestampInfo` where there is some."""
    body: dict[str, Any] = {"audioContent": b64encode(data).decode("ascii")}
    return body if timing is None else body | {"timestampInfo": timing}


async def open_stream(
    voicing: Voicing,
    synthesis: PaidSynthesis,
    workspace_id: int,
    operation: Operation,
    *,
    whole: bool = False,
) -> SpeechStream:
    """The stream that `voicing` describes; `whole` is for a text whose chunks are a `WholeFile`.

    Raises EngineError, PipelineError or DatabaseError.
    """
    voice = await synthesis.pipeline.directory.find_named(voicing.voice_id, workspace_id)
    audio = voicing.audio_config
    encoding = audio.audio_encoding
    if whole and encoding in WITH_HEADER:
        encoding = "PCM"
    return SpeechStream(
        synthesis=synthesis,
        workspace_id=workspace_id,
        voice=voice,
        style=voicing.style,
        make_encoder=partial(open_encoder, FORMATS[encoding], audio.sample_rate_hertz),
        slow_encoder=encoding in SLOW,
        is_whole=whole,
        operation=operation,
    )


class WholeFile:
    """All chunks of a text as one file, not in memory. For LINEAR16 and WAV the chunks are PCM."""

    def __init__(self, encoding: InworldEncoding, sample_rate_hz: int) -> None:
        self._rate = sample_rate_hz
        self._head = len(wav_header(sample_rate_hz)) if encoding in WITH_HEADER else 0
        self._file = TemporaryFile()
        self._file.write(bytes(self._head))

    @property
    def is_empty(self) -> bool:
        return self._file.size == self._head

    def add(self, data: bytes) -> None:
        """Raises StorageUnavailable when the disk is full."""
        self._file.write(data)

    def finish(self) -> TemporaryFile:
        """The file, with its true length in the header."""
        if self._head:
            header = wav_header(self._rate, self._file.size - self._head)
            self._file.seek(0)
            self._file.write(header)
        return self._file
