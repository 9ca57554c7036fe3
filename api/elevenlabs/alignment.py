"""ElevenLabs' `POST /v1/forced-alignment`: the times of a known text in a recording."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field

from api.callers import CallerDep
from api.elevenlabs.options import SCHEMES
from api.elevenlabs.recordings import with_words
from api.http.bodies import NOT_BLANK
from api.http.errors import ApiError
from api.http.routing import make_router
from api.http.uploads import UploadLimits, form_schema, receive_form
from models.stt.options import RecognitionOptions
from pipelines.text.alignment import AlignedWord, align_text
from pipelines.text.segmentation import is_speakable

router = make_router("ElevenLabs' dialect", scope="stt", visitors=True, schemes=SCHEMES)

MAX_CHARACTERS = 16_000  # about 15 minutes of speech
LIMITS = UploadLimits(max_field_bytes=3 * MAX_CHARACTERS)


class AlignmentFields(BaseModel):
    """The form field beside the recording."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS), NOT_BLANK]


class AlignedCharacter(BaseModel):
    text: str
    start: float = Field(description="Start time in the recording, in seconds.")
    end: float


class AlignedText(AlignedCharacter):
    loss: float = Field(description="0 for a word that was recognised with certainty.")


class ForcedAlignment(BaseModel):
    """The characters and words of the text, with their times."""

    characters: list[AlignedCharacter]
    words: list[AlignedText]
    loss: float = Field(description="Mean loss of the words.")


@router.post(
    "/v1/forced-alignment",
    summary="Get the times of a text in a recording, for ElevenLabs' clients",
    openapi_extra=form_schema("file", AlignmentFields),
)
async def align(request: Request, caller: CallerDep) -> ForcedAlignment:
    """Recognises the recording, and gives each word of the text the time of the recognised word.
    Words that were not recognised share the time between their neighbours, and the characters of a
    word share its time. The price is that of a transcription."""
    async with receive_form(request, LIMITS, caller.check_credit) as form:
        text = form.read(AlignmentFields).text
        if not is_speakable(text):
            raise ApiError("validation_error", "text: has no letter or digit", param="text")
        path = form.file("file").path
        recognition = RecognitionOptions(words=True)
        transcript = await caller.transcribe(request, path, recognition, with_words)
    words = await asyncio.to_thread(align_text, text, transcript.words, transcript.language)
    return ForcedAlignment(
        characters=_characters(text, words),
        words=[
            AlignedText(
                text=word.word, loss=round(word.loss, 4), **_times(word.start_s, word.end_s)
            )
            for word in words
        ],
        loss=round(sum(word.loss for word in words) / max(len(words), 1), 4),
    )


def _characters(text: str, words: Sequence[AlignedWord]) -> list[AlignedCharacter]:
    """Returns all characters of the text; those between two words share the time between them."""
    characters: list[AlignedCharacter] = []
    place = 0
    time_s = words[0].start_s if words else 0.0
    for word in words:
        characters += _spread(text[place : word.start], time_s, word.start_s)
        characters += _spread(text[word.start : word.end], word.start_s, word.end_s)
        place = word.end
        time_s = word.end_s
    return characters + _spread(text[place:], time_s, time_s)


def _spread(text: str, start_s: float, end_s: float) -> list[AlignedCharacter]:
    """Divides a time equally among characters."""
    step = (end_s - start_s) / max(len(text), 1)
    return [
        AlignedCharacter(text=letter, **_times(start_s + step * at, start_s + step * (at + 1)))
        for at, letter in enumerate(text)
    ]


def _times(start_s: float, end_s: float) -> dict[str, Any]:
    return {"start": round(start_s, 3), "end": round(end_s, 3)}
