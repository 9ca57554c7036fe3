"""What clients of Inworld's text-to-speech API send, on the socket and over HTTP."""

from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.alias_generators import to_camel

from api.inworld.encoding import InworldEncoding
from api.sockets.kernel.conversation import ClientFault
from api.sockets.kernel.events import fault_message
from api.sockets.tts.events import PITCHES, SPEAKING_RATES, STABILITIES, LenientModel, clamped
from pipelines.tts.context_voice import ContextStyle

TimestampType = Literal["TIMESTAMP_TYPE_UNSPECIFIED", "WORD", "CHARACTER"]
ContextId = Annotated[str, Field(max_length=256)]

_STABILITY_OF_MODE = {"STABLE": STABILITIES[1], "CREATIVE": STABILITIES[0]}
DEFAULT_DELAY_MS = 3000
DEFAULT_THRESHOLD = 1000  # characters


class InworldModel(LenientModel):
    """Names as protocol buffers read them: camelCase, or as the fields are called."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class InworldAudio(InworldModel):
    """The format, and how fast and high the voice speaks."""

    audio_encoding: InworldEncoding = "MP3"
    sample_rate_hertz: int = Field(default=48_000, ge=8000, le=48_000)
    speaking_rate: Annotated[float, clamped(SPEAKING_RATES)] = 1.0
    pitch: Annotated[float, clamped(PITCHES)] = Field(default=0.0, description="Semitones.")

    @field_validator("audio_encoding", mode="before")
    @classmethod
    def _unspecified(cls, value: Any) -> Any:
        return "MP3" if value == "AUDIO_ENCODING_UNSPECIFIED" else value

    @field_validator("sample_rate_hertz", "speaking_rate", mode="before")
    @classmethod
    def _zero_is_absent(cls, value: Any, info: ValidationInfo) -> Any:
        # Protocol buffers cannot tell zero from a field left out.
        default = cls.model_fields[info.field_name or ""].default
        return default if value == 0 and not isinstance(value, bool) else value


class Voicing(InworldModel):
    """What a text is spoken with. `modelId` and `language` follow from the voice here."""

    voice_id: str = Field(min_length=1, max_length=200, description="The id or name of a voice.")
    audio_config: InworldAudio = Field(default_factory=InworldAudio)
    temperature: float = Field(default=1.0, ge=0, le=2, description="More varies more.")
    delivery_mode: str | None = Field(
        default=None, description="`STABLE`, `BALANCED` or `CREATIVE`; wins over `temperature`."
    )
    timestamp_type: TimestampType = "TIMESTAMP_TYPE_UNSPECIFIED"
    timestamp_transport_strategy: str | None = Field(
        default=None, description="With `SYNC` no word comes after its audio."
    )

    @property
    def style(self) -> ContextStyle:
        """In the terms of this service."""
        return ContextStyle(
            speaking_rate=self.audio_config.speaking_rate,
            pitch_semitones=self.audio_config.pitch,
            stability=self._stability,
            timings=self.timestamp_type != "TIMESTAMP_TYPE_UNSPECIFIED",
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


class UpdateConfig(InworldModel):
    """Changes fields of `create`; those left out stay."""

    model_config = ConfigDict(extra="allow")


class Empty(InworldModel):
    """A message that is all said by its name."""


class SendTextRequest(InworldModel):
    """Appends to the buffer, and may flush it at once."""

    text: str
    flush_context: Empty | None = Field(
        default=None, validation_alias=AliasChoices("flush_context", "flushContext")
    )


class _Message(InworldModel):
    context_id: ContextId | None = None


class CreateMessage(_Message):
    create: Create


class SendTextMessage(_Message):
    send_text: SendTextRequest


class FlushMessage(_Message):
    flush_context: Empty


class UpdateMessage(_Message):
    update_config: UpdateConfig


class CloseMessage(_Message):
    close_context: Empty


class CancelMessage(_Message):
    cancel_context: Empty


ClientMessage = (
    CreateMessage | SendTextMessage | FlushMessage | UpdateMessage | CloseMessage | CancelMessage
)

_MESSAGES: dict[str, type[ClientMessage]] = {
    "create": CreateMessage,
    "send_text": SendTextMessage,
    "flush_context": FlushMessage,
    "update_config": UpdateMessage,
    "close_context": CloseMessage,
    "cancel_context": CancelMessage,
}
_NAMES = {alias: name for name in _MESSAGES for alias in (name, to_camel(name))}


def named_context(event: dict[str, Any]) -> str | None:
    """The context that an unchecked message names."""
    named = event.get("contextId", event.get("context_id"))
    return named if isinstance(named, str) else None


def parse_message(event: dict[str, Any]) -> ClientMessage:
    """Raises ClientFault that names the field and its limit."""
    names = [_NAMES[key] for key in event if key in _NAMES]
    if len(names) != 1:
        raise ClientFault(f"a message has exactly one of {', '.join(_MESSAGES)}")
    try:
        return _MESSAGES[names[0]].model_validate(event)
    except ValidationError as error:
        raise ClientFault(fault_message(error)) from None


def updated(create: Create, update: UpdateConfig) -> Create:
    """`create` with the fields of `update`. Raises ClientFault."""
    before = create.model_dump(by_alias=True, exclude_unset=True)
    after = {to_camel(name): value for name, value in (update.model_extra or {}).items()}
    audio = after.get("audioConfig")
    if isinstance(audio, dict):
        camel = {to_camel(name): value for name, value in audio.items()}
        after["audioConfig"] = before.get("audioConfig", {}) | camel
    try:
        return Create.model_validate(before | after)
    except ValidationError as error:
        raise ClientFault(fault_message(error, "update_config")) from None
