"""The voices that read a book: one for each chapter, by its language."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pipelines.errors import NothingToSpeak
from pipelines.jobs.documents.book import Chapter
from pipelines.jobs.speech import SpeechTask
from pipelines.text.language_detection import RECOGNISED, detect_language
from pipelines.text.language_names import name_language
from pipelines.text.segmentation import clean, is_speakable
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import is_ssml
from pipelines.tts.voices import DETECTED_CHARACTERS, AvailableVoice


@dataclass(frozen=True, slots=True)
class ChapterVoice:
    """The language of a chapter (ISO 639-1 code), and the voice that reads it."""

    language: str
    voice: AvailableVoice


async def first_voice(task: SpeechTask, pipeline: SpeechPipeline) -> AvailableVoice:
    """Choose a voice for the first block that one can read. Raises as `SpeechPipeline.plan`."""
    blocks = await asyncio.to_thread(lambda: [*task.blocks()])
    *others, last = [block for block in blocks if is_speakable(block[1])] or blocks[:1]

    async def voice_of(chapter: int, text: str) -> AvailableVoice:
        with task.errors_of(chapter):
            plan = await pipeline.plan(replace(task.request, text=text))
        return plan.voice

    for chapter, text in others:
        with suppress(NothingToSpeak):
            return await voice_of(chapter, text)
    chapter, text = last
    return await voice_of(chapter, text)


async def chapter_voices(
    chapters: Sequence[Chapter], pipeline: SpeechPipeline, usual: AvailableVoice, *, is_named: bool
) -> list[ChapterVoice]:
    """Choose a voice for each chapter: `usual` if it `is_named` by the request or speaks the
    language of the chapter, or else the default voice of that language. A chapter whose language is
    not clear is taken to be in that of `usual`. Raises EngineLost."""
    directory = pipeline.directory
    offered = await directory.voices()
    codes = frozenset(voice.language for voice in offered)

    def language_of(chapter: Chapter) -> str:
        if is_ssml(chapter.text):  # names its languages and voices
            return usual.language
        text = clean(chapter.text[:DETECTED_CHARACTERS])
        return detect_language(text, codes | RECOGNISED, usual.language)

    def voice_of(language: str) -> AvailableVoice:
        if is_named or language not in codes or usual.speaks(language):
            return usual
        return directory.default(language, offered)

    languages = await asyncio.to_thread(lambda: [*map(language_of, chapters)])
    return [ChapterVoice(language, voice_of(language)) for language in languages]


def language_warnings(chapters: Sequence[Chapter], voices: Sequence[ChapterVoice]) -> list[str]:
    """Write a warning for each language that the voice of its chapters does not speak."""
    titles: dict[tuple[str, str], list[str]] = {}
    for chapter, chosen in zip(chapters, voices, strict=True):
        if not chosen.voice.speaks(chosen.language):
            key = (chosen.voice.info.name, chosen.language)
            titles.setdefault(key, []).append(chapter.title)
    return [
        f"the voice {name} does not speak {name_language(code).name}, the language of "
        f"“{first}”{f' and {len(more)} more' if more else ''}"
        for (name, code), (first, *more) in titles.items()
    ]
