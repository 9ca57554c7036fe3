"""Writes subtitles (SubRip and WebVTT) of words with times, and splits them into sentences and
paragraphs."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, takewhile, zip_longest
from typing import TypeVar
from unicodedata import east_asian_width

from models.stt.base import Word
from pipelines.stt.formatting import separator_of
from pipelines.text.segmentation import sentence_spans

T = TypeVar("T")

MAX_CUE_S = 6.0
MIN_CUE_S = 0.1  # words may have no length, but a cue must
LINE_COLUMNS = 42
MAX_CUE_CHARACTERS = 2 * LINE_COLUMNS
MOST_WORDS = 200  # of a phrase that are looked at for a cue
MAX_PAUSE_S = 0.8
SHORT_PAUSE_S = 0.2  # where a line ends better than within speech
PARAGRAPH_PAUSE_S = 1.0  # a longer pause after a sentence ends the paragraph
MAX_SENTENCES = 5  # per paragraph
SENTENCE_ENDS = (".", "!", "?", "。", "！", "？", "।", "؟", "۔")
_AFTER_END = "\"'”’»」』)]"  # marks that may stand between the end of a sentence and the next
_MARKS = ",;:…–—、，；：،؛」』）)"  # marks after which a line ends well
_NO_END = "「『（【《〈“‘([{"  # end no line
_NO_START = "、。，．！？；：…」』）】》〉”’,.!?;:)%ー々っゃゅょッャュョァィゥェォ"  # nor begin one
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
    """Writes SubRip of words in a language (ISO 639-1). A cue has `most` characters at most, of
    which wide ones count twice, unless a single word is longer."""
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
    for speaker, words in turns:
        phrases = cut(words, lambda phrase, word: _ends_phrase(phrase, word, language))
        lines = [line for phrase in phrases for line in _fitting(phrase, language, most)]
        for line, following in zip_longest(lines, lines[1:]):
            start = line[0].start
            end = max(word.end for word in line)
            if following and start < following[0].start:
                end = min(end, following[0].start)
            text = _in_lines(line, language)
            cues.append(Cue(start, max(end, start + MIN_CUE_S), text, speaker))
    return sorted(cues, key=lambda cue: cue.start)


def _ends_phrase(phrase: list[Word], word: Word, language: str) -> bool:
    return word.start - phrase[-1].end > MAX_PAUSE_S or _ends_sentence(phrase, word, language)


def _fitting(words: Sequence[Word], language: str, most: int) -> Iterator[Sequence[Word]]:
    """Splits a phrase into parts of similar length that fit into a cue each."""
    ends = _ends(words, language)

    def share(first: int, end: int) -> float:
        seconds = words[end - 1].end - words[first].start
        return max(_columns(ends, first, end, language) / most, seconds / MAX_CUE_S)

    first = 0
    while len(words) - first > 1 and (parts := math.ceil(share(first, len(words)))) > 1:
        at = _split(words, ends, first, language, parts, lambda *part: share(*part) <= 1)
        yield words[first:at]
        first = at
    yield words[first:]


def _in_lines(words: Sequence[Word], language: str) -> str:
    """Joins the words of a cue, in two lines if they are too long for one."""
    ends = _ends(words, language)

    def fits(first: int, end: int) -> bool:
        return _columns(ends, first, end, language) <= LINE_COLUMNS

    parts = [words]
    if len(words) > 1 and not fits(0, len(words)):
        at = _split(words, ends, 0, language, 2, fits)
        parts = [words[:at], words[at:]]
    separator = separator_of(language)
    return "\n".join(separator.join(word.word for word in part) for part in parts)


def _split(
    words: Sequence[Word],
    ends: Sequence[int],
    first: int,
    language: str,
    parts: int,
    fits: Callable[[int, int], bool],
) -> int:
    """Chooses where the first of `parts` parts of the words from `first` on ends. This part
    `fits`, is about as long as the others, and ends at a mark or pause if possible."""
    is_spaced = bool(separator_of(language))
    near = range(first + 1, min(first + MOST_WORDS, len(words)))
    places = list(takewhile(lambda at: fits(first, at), near)) or [first + 1]

    def merit(at: int) -> float:
        is_too_long = parts == 2 and not fits(at, len(words))
        uneven = abs((ends[at] - ends[first]) * parts / (ends[-1] - ends[first]) - 1)
        return _ease(words[at - 1], words[at], is_spaced=is_spaced) - uneven - is_too_long

    return max(places, key=merit)


def _ease(word: Word, following: Word, *, is_spaced: bool) -> float:
    """Grades a line end after a word: the share of its length by which the line may be uneven."""
    last = word.word[-1:]
    first = following.word[:1]
    if not is_spaced and (last.isdigit() or last in _NO_END or first in _NO_START):
        return -1.0
    if last in _MARKS:
        return 0.8
    if following.start - word.end >= SHORT_PAUSE_S:
        return 0.4
    # A Japanese phrase usually begins with another letter and ends with hiragana.
    return 0.3 if _is_hiragana(last) and not _is_hiragana(first) else 0.0


def _is_hiragana(letter: str) -> bool:
    return "\u3041" <= letter <= "\u309f"


def _ends(words: Sequence[Word], language: str) -> list[int]:
    """Returns 0, and the column after each word and its separator; computed once for a phrase.
    Chinese, Japanese and Korean letters take two columns."""
    separator = separator_of(language)
    widths = (
        sum(2 if east_asian_width(letter) in "FW" else 1 for letter in word.word + separator)
        for word in words
    )
    return list(accumulate(widths, initial=0))


def _columns(ends: Sequence[int], first: int, end: int, language: str) -> int:
    """Returns the width of the words from `first` to before `end`."""
    return ends[end] - ends[first] - len(separator_of(language))


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
