"""A custom voice as clients and webhooks see it."""

from datetime import UTC, datetime
from typing import Any

from db.voices.voices import Voice
from db.webhooks.outbox import NewEvent


def voice_object(voice: Voice) -> dict[str, Any]:
    """JSON, the same in responses and in events."""
    return {
        "id": str(voice.id),
        "name": voice.name,
        "description": voice.description,
        "language": voice.language,
        "gender": voice.gender,
        "status": voice.status,
        "is_custom": True,
        "created_at": iso_moment(voice.created_at),
        "estimated_completion": iso_moment(voice.estimated_completion),
        "progress": round(voice.progress, 3),
        "similarity": None if voice.similarity is None else round(voice.similarity, 3),
        "reason": voice.reason,
    }


def created_event(voice: Voice) -> NewEvent:
    return NewEvent("voice.created", voice_object(voice))


def ready_event(voice: Voice) -> NewEvent:
    return NewEvent("voice.ready", voice_object(voice))


def failed_event(voice: Voice) -> NewEvent:
    cause = {"error": voice.error, "message": voice.reason}
    return NewEvent("voice.failed", voice_object(voice) | cause)


def iso_moment(moment: datetime) -> str:
    """To the millisecond, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
