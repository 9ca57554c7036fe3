"""Sample data for tests of webhooks: in the shape of the real event, marked as a test."""

from typing import Any

from db.webhooks import EventKind

_FAILURE = {"error": "internal_error", "message": "an example of a failure"}
_VOICE = {
    "id": "voice-of-a-test",
    "name": "Example",
    "description": None,
    "language": "en",
    "gender": "neutral",
    "is_custom": True,
    "created_at": "2026-01-01T12:00:00.000Z",
    "estimated_completion": "2026-01-01T12:12:00.000Z",
    "similarity": None,
    "reason": None,
}
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
    "agent.session.completed": {
        "id": "sess_of-a-test",
        "model": "svc/slm-3b-int4",
        "started_at": "2026-01-01T12:00:00.000Z",
        "duration": 12.5,
        "close_code": 1000,
        "chat_id": None,
        "usage": {"seconds": 12.0, "input_tokens": 40, "output_tokens": 8, "characters": 24},
        "transcript": [
            {
                "type": "message",
                "role": "user",
                "text": "Hello?",
                "start": 1.2,
                "duration": 0.8,
            },
            {
                "type": "message",
                "role": "assistant",
                "text": "Hello from your webhook.",
                "start": 2.4,
                "duration": 1.5,
            },
        ],
    },
    "voice.created": {**_VOICE, "status": "processing", "progress": 0.0},
    "voice.ready": {**_VOICE, "status": "ready", "progress": 1.0, "similarity": 0.85},
    "voice.failed": {
        **_VOICE,
        "status": "failed",
        "progress": 1.0,
        "reason": _FAILURE["message"],
        **_FAILURE,
    },
}


def sample_data(kind: EventKind) -> dict[str, Any]:
    """The data of a sample event."""
    return {**_DATA[kind], "test": True}
