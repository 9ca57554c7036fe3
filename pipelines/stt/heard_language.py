"""The language of a transcript whose engine does not say it, from its text."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

from models.stt.base import Transcript
from pipelines.text.language_detection import detect_language, paragraph_language

BY_TEXT = 0.9  # the probability of a language that only the text shows


async def with_language(heard: Awaitable[Transcript], expected: str | None) -> Transcript:
    """The transcript in one of its candidates, if it has some: in the `expected` one, that of the
    utterance before, unless the text is clearly in another."""
    transcript = await heard
    if not transcript.candidates:
        return transcript
    text, offered = " ".join(one.text for one in transcript.segments), set(transcript.candidates)
    if expected in offered:
        language = await asyncio.to_thread(paragraph_language, text, offered, expected)
    else:
        language = await asyncio.to_thread(detect_language, text, offered)
    return replace(transcript, language=language, candidates=(), scores={language: BY_TEXT})
