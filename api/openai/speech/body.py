"""What OpenAI's clients ask of speech."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from api.http.schemas import RequestModel
from api.native.speech.schemas import TEXT_CHARACTERS

SpeechFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]

INSTRUCTIONS_CHARACTERS = 4096


class VoiceReference(RequestModel):
    """A voice by its id."""

    id: str


def _id_of(value: Any) -> Any:
    """Ids and names are looked for alike, so that the two ways of naming are one."""
    return value["id"] if isinstance(value, dict) and "id" in value else value


VoiceName = Annotated[
    str,
    Field(min_length=1, max_length=200),
    BeforeValidator(_id_of, json_schema_input_type=str | VoiceReference),
]


class OpenAISpeechBody(RequestModel):
    """What to say, and how."""

    model: str | None = Field(
        default=None, max_length=200, description="`tts-1`, `gpt-4o-mini-tts` or an id from here."
    )
    input: str = Field(min_length=1, max_length=TEXT_CHARACTERS)
    voice: VoiceName | None = Field(
        default=None,
        description="A voice of OpenAI's, or the name or id of any voice here. By default the "
        "language of the text decides.",
    )
    response_format: SpeechFormat = Field(
        default="mp3", description="`opus` is in Ogg; `pcm` is 16-bit little-endian mono, 24 kHz."
    )
    speed: float = Field(default=1.0, ge=0.25, le=4.0)
    stream_format: Literal["audio", "sse"] = Field(
        default="audio", description="Bare bytes, or events with base64; both as they are made."
    )
    instructions: str | None = Field(
        default=None, max_length=INSTRUCTIONS_CHARACTERS, description="Has no effect."
    )

    @field_validator("input", mode="after")
    @classmethod
    def _has_text(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        return value
