"""A custom voice as requests, responses and webhook events show it."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from db.database import iso_moment
from db.voices.voices import Voice
from db.webhooks import EventKind, NewEvent
from models.speaker.base import Embedding

VoiceStatus = Literal["processing", "ready", "failed"]
VoiceGenderGiven = Literal["male", "female", "neutral"]

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""ISO 8601, UTC, to the millisecond."""


@dataclass(frozen=True, slots=True)
class NewVoice:
    name: str
    description: str | None = None
    language: str | None = None  # any code, such as en-GB; None: the language of the samples
    gender: VoiceGenderGiven = "neutral"
    consent: str | None = None  # attested in words
    consent_token: str | None = None  # token of a spoken sentence
    reader: Embedding | None = None  # voice in the consent phrase, to compare with the recordings
    address: str | None = None  # address of the client
    earlier: Voice | None = None  # voice of which it becomes a version, in the same language


class CustomVoice(BaseModel):
    """A custom voice and its progress."""

    id: str
    name: str
    description: str | None
    language: str = Field(description="ISO 639-1 code, as given or detected.")
    gender: VoiceGenderGiven
    status: VoiceStatus
    is_custom: bool
    created_at: Moment
    estimated_completion: Moment = Field(
        description="Estimated end of the build, then the actual end."
    )
    progress: float = Field(description="Share of work done, 0 to 1.")
    similarity: float | None = Field(
        description="Similarity to held-out recordings; 1 is the same speaker."
    )
    reason: str | None = Field(description="Why the build failed.")
    waiting: str | None = Field(
        default=None,
        description="Why a voice waits, in answers of `GET`; null while it is built.",
    )
    preview_at: Moment | None = Field(description="When `GET /voices/{id}/preview` last changed.")
    version_of: str | None = Field(description="Voice that this version replaces if it is better.")
    owner: str | None = Field(description="Workspace that shares the voice; null if own.")
    is_imported: bool


def custom_voice(voice: Voice, owner: str | None = None, waiting: str | None = None) -> CustomVoice:
    fields = {
        "id": str(voice.id),
        "is_custom": True,
        "is_imported": voice.imported is not None,
        "owner": owner,
        "waiting": waiting,
        "preview_at": voice.preview_at and iso_moment(voice.preview_at),
        "version_of": voice.version_of and str(voice.version_of),
        "created_at": iso_moment(voice.created_at),
        "estimated_completion": iso_moment(voice.estimated_completion),
        "progress": round(voice.progress, 3),
        "similarity": None if voice.similarity is None else round(voice.similarity, 3),
    }
    return CustomVoice.model_validate(voice.model_dump() | fields)


def voice_event(kind: EventKind, voice: Voice) -> NewEvent:
    """Make the event with the current voice; the event of a failure also has the reason."""
    cause = {"error": voice.error, "message": voice.reason} if kind == "voice.failed" else {}
    return NewEvent(kind, custom_voice(voice).model_dump() | cause)
