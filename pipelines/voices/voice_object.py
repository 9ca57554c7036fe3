"""A custom voice as responses and webhook events show it."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from db.voices.voices import Voice
from db.webhooks import EventKind, NewEvent

VoiceStatus = Literal["processing", "ready", "failed"]
VoiceGenderGiven = Literal["male", "female", "neutral"]

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""ISO 8601, UTC, to the millisecond."""


class CustomVoice(BaseModel):
    """A voice and its progress."""

    id: str
    name: str
    description: str | None
    language: str = Field(description="ISO 639-1 code; detected in the samples if not given.")
    gender: VoiceGenderGiven
    status: VoiceStatus
    is_custom: bool
    created_at: Moment
    estimated_completion: Moment = Field(description="The actual time once it is finished.")
    progress: float = Field(description="Share of the work that is done, 0 to 1.")
    similarity: float | None = Field(
        description="Of its speech to held-out recordings; 1 is the same speaker."
    )
    reason: str | None = Field(description="Why it failed.")


def custom_voice(voice: Voice) -> CustomVoice:
    fields = {
        "id": str(voice.id),
        "is_custom": True,
        "created_at": iso_moment(voice.created_at),
        "estimated_completion": iso_moment(voice.estimated_completion),
        "progress": round(voice.progress, 3),
        "similarity": None if voice.similarity is None else round(voice.similarity, 3),
    }
    return CustomVoice.model_validate(voice.model_dump() | fields)


def voice_event(kind: EventKind, voice: Voice) -> NewEvent:
    """The event with the current voice; that of a failure also has the reason."""
    cause = {"error": voice.error, "message": voice.reason} if kind == "voice.failed" else {}
    return NewEvent(kind, custom_voice(voice).model_dump() | cause)


def iso_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
