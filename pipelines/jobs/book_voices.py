"""The voices that read a book: one for each chapter, by its language."""

import asyncio
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace

from models.scripts import letters_outside
from pipelines.errors import NothingToSpeak
from pipelines.jobs.documents.book import Book, Chapter
from pipelines.jobs.speech import SpeechTask
from pipelines.text.language_detection import BY_NGRAMS, RECOGNISED, detect_language
from pipelines.text.language_names import engine_codes, name_language
from pipelines.text.segmentation import clean, is_speakable
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import is_ssml
from pipelines.tts.voices import DETECTED_CHARACTERS, AvailableVoice

_ENOUGH = 60  # letters; fewer, such as names, do not outweigh the language that a book states
_MOST_UNREAD = 0.75  # share of letters in another script, such as those of a name on a title page


@dataclass(frozen=True, slots=True)
class ChapterVoice:
    """The language of a chapter (ISO 639-1 code), and the voice that reads it."""

    language: str
    voice: AvailableVoice


async def first_voice(task: SpeechTask, pipeline: SpeechPipeline) -> AvailableVoice:
    """Choose a voice for the language that the book states or else shows in the first block that a
    voice can read. Raises as `SpeechPipeline.plan`."""
    offered = {voice.language for voice in await pipeline.directory.voices()}
    language = await asyncio.to_thread(_stated_language, task.book, offered | RECOGNISED)
    request = replace(task.request, language=language if language in offered else None)
    blocks = await asyncio.to_thread(lambda: [*task.blocks()])
    *others, last = [block for block in blocks if is_speakable(block.text)] or blocks[:1]

    async def voice_of(chapter: int, text: str) -> AvailableVoice:
        with task.errors_of(chapter):
            plan = await pipeline.plan(replace(request, text=text))
        return plan.voice

    for chapter, text, _ in others:
        with suppress(NothingToSpeak):
            return await voice_of(chapter, text)
    chapter, text, _ = last
    return await voice_of(chapter, text)


async def chapter_voices(
    book: Book, pipeline: SpeechPipeline, usual: AvailableVoice, *, is_named: bool
) -> list[ChapterVoice]:
    """Choose a voice for each chapter: `usual` if it `is_named` by the request or the language of
    the chapter is its own, or else the default voice of that language. A chapter whose language is
    not clear is taken to be in that of the book, or in that of `usual`. Raises EngineLost."""
    directory = pipeline.directory
    offered = await directory.voices()
    codes = frozenset(voice.language for voice in offered)
    candidates = codes | RECOGNISED
    stated = await asyncio.to_thread(_stated_language, book, candidates)

    def language_of(chapter: Chapter) -> str:
        if is_ssml(chapter.text):  # names its languages and voices
            return usual.language
        return _language_of(chapter, candidates, stated, usual.language)

    def voice_of(language: str) -> AvailableVoice:
        # A voice that also speaks the language would do so with the accent of its own.
        is_unknown = language not in codes and not directory.awaits_default(language)
        if is_named or is_unknown or language == usual.language:
            return usual
        return directory.default(language, offered)

    languages = await asyncio.to_thread(lambda: [*map(language_of, book.chapters)])
    return [ChapterVoice(language, voice_of(language)) for language in languages]


def _stated_language(book: Book, candidates: Set[str]) -> str | None:
    """Return the language that a book states, if it can be told from `candidates`, unless the
    longest chapter is clearly in another: converters state a language unasked. Blocking."""
    can_tell = candidates | BY_NGRAMS
    stated = next((code for code in engine_codes(book.language) if code in can_tell), None)
    longest = max(book.chapters, key=lambda chapter: len(chapter.text))
    return stated and _language_of(longest, candidates, stated)


def _language_of(
    chapter: Chapter, candidates: Set[str], stated: str | None, usual: str | None = None
) -> str:
    text = clean(chapter.text[:DETECTED_CHARACTERS])
    if not stated:
        return detect_language(text, candidates, usual)
    letters = sum(map(str.isalpha, text))
    unread = len(letters_outside(frozenset({stated})).findall(text))
    if letters < _ENOUGH and unread <= _MOST_UNREAD * letters:
        return stated
    return detect_language(text, candidates | {stated}, stated)


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
