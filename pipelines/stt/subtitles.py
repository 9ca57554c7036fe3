"""Writes subtitles (SubRip and WebVTT) of words with times, and splits them into sentences and
paragraphs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from typing import TypeVar

from models.stt.base import Word
from pipelines.stt.formatting import separator_of
from pipelines.text.segmentation import sentence_spans

T = TypeVar("T")

MAX_CUE_S = 6.0
MIN_CUE_S = 0.1  # words may have no length, but a cue must
MAX_CUE_CHARACTERS = 84  # two lines of 42
MAX_PAUSE_S = 0.8
PARAGRAPH_PAUSE_S = 1.0  # a longer pause after a sentence ends the paragraph
MAX_SENTENCES = 5  # per paragraph
SENTENCE_ENDS = (".", "!", "?", "。", "！", "？", "।", "؟", "۔")
_AFTER_END = "\"'”’»」』)]"  # marks that may stand between the end of a sentence and the next
_WORDS_BEFORE = 5  # words of a sentence by which its last one is judged


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle: text that is on the screen together."""

    start: float  # seconds
    end: float
    text: str
    speaker: str | None = None


Turns = Iterable[tuple[str | None, Sequence[Word]]]
"""Words of each speaker's turn; the speaker is None where speakers are not known."""


def to_srt(turns: Turns, language: str, most: int = MAX_CUE_CHARACTERS) -> str:
    """Writes SubRip of words in a language (ISO 639-1). A cue has `most` characters at most, unless
    a single word is longer."""
    return "".join(
        f"{number}\n{clock_time(cue.start, ',')} --> {clock_time(cue.end, ',')}\n"
        f"{f'{cue.speaker}: ' if cue.speaker else ''}{cue.text}\n\n"
        for number, cue in enumerate(_cues(turns, language, most), start=1)
    )


def to_vtt(turns: Turns, language: str, most: int = MAX_CUE_CHARACTERS) -> str:
    """Writes WebVTT like `to_srt`, with the speakers as voices."""
    cues = (
        f"{clock_time(cue.start, '.')} --> {clock_time(cue.end, '.')}\n"
        f"{f'<v {escape(cue.speaker)}>' if cue.speaker else ''}{escape(cue.text, quote=False)}\n\n"
        for cue in _cues(turns, language, most)
    )
    return "WEBVTT\n\n" + "".join(cues)


def _cues(turns: Turns, language: str, most: int) -> list[Cue]:
    """Lists the cues by their starts, as WebVTT asks: the turns of channels may overlap."""
    cues: list[Cue] = []
    separator = separator_of(language)
    for speaker, words in turns:
        lines = cut(words, lambda line, word: _is_full(line, word, language, most))
        for line, following in zip_longest(lines, lines[1:]):
            start = line[0].start
            end = max(word.end for word in line)
            if following and start < following[0].start:
                end = min(end, following[0].start)
            text = separator.join(word.word for word in line)
            cues.append(Cue(start, max(end, start + MIN_CUE_S), text, speaker))
    return sorted(cues, key=lambda cue: cue.start)


def _is_full(line: list[Word], word: Word, language: str, most: int) -> bool:
    return (
        word.end - line[0].start > MAX_CUE_S
        or len(separator_of(language).join(part.word for part in [*line, word])) > most
        or word.start - line[-1].end > MAX_PAUSE_S
        or _ends_sentence(line, word, language)
    )


def _ends_sentence(words: Sequence[Word], following: Word, language: str) -> bool:
    """Whether the last word ends a sentence, and not only an abbreviation such as "Dr."."""
    if not words[-1].word.rstrip(_AFTER_END).endswith(SENTENCE_ENDS):
        return False
    separator = separator_of(language)
    text = separator.join(word.word for word in words[-_WORDS_BEFORE:])
    spans = sentence_spans(f"{text}{separator}{following.word}", language)
    return any(end == len(text) for _, end in spans)


def clock_time(seconds: float, mark: str) -> str:
    """Formats a time as 01:02:03.456, with the decimal mark of the format."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{mark}{rest % 1000:03}"


def cut(items: Iterable[T], ends: Callable[[list[T], T], bool]) -> list[list[T]]:
    """Splits words or the like into parts. A part ends where `ends(part, next_item)` is true."""
    parts: list[list[T]] = []
    for item in items:
        if not parts or ends(parts[-1], item):
            parts.append([])
        parts[-1].append(item)
    return parts


def sentences_of(words: Sequence[Word], language: str) -> list[list[Word]]:
    """Splits words of a language (ISO 639-1) into sentences."""
    return cut(words, lambda sentence, word: _ends_sentence(sentence, word, language))


def paragraphs_of(words: Sequence[Word], language: str) -> list[list[list[Word]]]:
    """Groups the sentences of words into paragraphs."""

    def ends(paragraph: list[list[Word]], sentence: list[Word]) -> bool:
        pause_s = sentence[0].start - paragraph[-1][-1].end
        return pause_s > PARAGRAPH_PAUSE_S or len(paragraph) == MAX_SENTENCES

    return cut(sentences_of(words, language), ends)
