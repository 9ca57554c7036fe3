"""Tasks of transcriptions as they lie in the database: releases read each other's."""

import json
from typing import Any

from configs.schema.personal_data import Redaction
from models.stt.options import RecognitionOptions, TranscriptStyle
from pipelines.jobs.transcription import TASK, TranscriptionTask

# As releases before `RecognitionOptions` stored it.
STORED: dict[str, Any] = {
    "request": {
        "language": "de",
        "languages": [],
        "profile": "meeting",
        "words": True,
        "translate": False,
        "speakers": True,
        "known": [],
        "multichannel": False,
        "prompt": "",
        "keyterms": ["Antiphon"],
        "form": {"numerals": True, "profanity_filter": False, "punctuate": False},
        "redaction": {"kinds": ["email"], "language": ""},
    },
    "url": "",
    "most_s": 3600.0,
    "window_s": 300.0,
    "known_speakers": ["a1"],
}


def test_a_task_of_an_earlier_release_is_read() -> None:
    task = TASK.validate_json(json.dumps(STORED))
    assert task == TranscriptionTask(
        request=RecognitionOptions(
            language="de",
            profile="meeting",
            words=True,
            speakers=True,
            keyterms=("Antiphon",),
            form=TranscriptStyle(numerals=True, punctuate=False),
            redaction=Redaction(frozenset({"email"})),
        ),
        url="",
        most_s=3600.0,
        window_s=300.0,
        known_speakers=["a1"],
    )


def test_a_task_has_all_that_an_earlier_release_reads() -> None:
    """Beside what is new, which it ignores: so the two may run together."""
    stored = json.loads(TASK.dump_json(TASK.validate_json(json.dumps(STORED))))
    assert stored.items() >= (STORED | {"request": stored["request"]}).items()
    asked = STORED["request"]
    request = {key: value for key, value in asked.items() if key not in ("known", "form")}
    assert stored["request"].items() >= request.items()
    assert stored["request"]["form"].items() >= asked["form"].items()
