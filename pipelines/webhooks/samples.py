"""What a test of a webhook sends: data in the shape of the real event, marked as a test."""

from typing import Any

from db.outbox import EventKind

_FAILURE = {"error": "internal_error", "message": "an example of a failure"}
_VOICE = {"id": "voice-of-a-test", "name": "Example", "language": "en"}
_DATA: dict[EventKind, dict[str, Any]] = {
    "tts.completed": {
        "id": "tts-of-a-test",
        "text": "Hello from your webhook.",
        "voice_id": "voice-of-a-test",
        "audio_url": None,
        "duration": 1.5,
    },
    "tts.failed": {"id": "tts-of-a-test", "voice_id": "voice-of-a-test", **_FAILURE},
    "stt.completed": {
        "id": "stt-of-a-test",
        "text": "Hello from your webhook.",
        "language": "en",
        "duration": 1.5,
    },
    "stt.failed": {"id": "stt-of-a-test", **_FAILURE},
    "voice.created": {**_VOICE, "status": "processing"},
    "voice.ready": {**_VOICE, "status": "ready", "similarity": 0.8},
    "voice.failed": {**_VOICE, "status": "failed", **_FAILURE},
}


def sample_data(kind: EventKind) -> dict[str, Any]:
    """Data of an event that did not happen."""
    return {**_DATA[kind], "test": True}
