"""A custom voice as clients and webhooks see it."""

from datetime import UTC, datetime
from typing import Any, get_args

from db.voices.tables import Voice
from db.webhooks.outbox import NewEvent
from models.info import Accent, VoiceGender

LOWEST_FEMALE_HZ = 165.0  # where the pitch of most women begins and that of most men has ended


def voice_object(voice: Voice) -> dict[str, Any]:
    """The same in answers and in events."""
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
    told = {"error": voice.error, "message": voice.reason}
    return NewEvent("voice.failed", {**voice_object(voice), **told})


def heard_gender(voice: Voice) -> VoiceGender:
    """What the list of voices says, which knows only two: as was stated, else by the pitch."""
    for gender in get_args(VoiceGender):
        if voice.gender == gender:
            return gender  # type: ignore[no-any-return]
    return "male" if (voice.pitch_hz or LOWEST_FEMALE_HZ) < LOWEST_FEMALE_HZ else "female"


def stated_accent(voice: Voice) -> Accent:
    """As whoever asked for the voice named its language."""
    for accent in get_args(Accent):
        if voice.accent == accent:
            return accent  # type: ignore[no-any-return]
    return "Neutral"


def iso_moment(moment: datetime) -> str:
    """To the millisecond, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
