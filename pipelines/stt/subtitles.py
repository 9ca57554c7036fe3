"""Writes subtitles (SubRip and WebVTT) of words with times, and splits them into sentences and
paragraphs."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from itertools import accumulate, pairwise, takewhile, zip_longest
from typing import TypeVar
from unicodedata import east_asian_width

from configs.load import load_yaml
from configs.schema.transcription import SubtitleWords
from models.stt.base import Word
from pipelines.stt.formatting import separator_of
from pipelines.text.segmentation import sentence_spans

T = TypeVar("T")

MAX_CUE_S = 6.0
READABLE_S = 1.0  # a shorter cue is a flash
MAX_LAG_S = 1.0  # seconds by which a cue may begin late, so that the one before it can be read
MIN_CUE_S = 0.1  # words may have no length, but a cue must
LINE_COLUMNS = 42
MAX_CUE_CHARACTERS = 2 * LINE_COLUMNS
MOST_WORDS = 200  # words of a phrase that are looked at for a cue
MAX_PAUSE_S = 0.8
SHORT_PAUSE_S = 0.2  # a line ends better at such a pause than within speech
PARAGRAPH_PAUSE_S = 1.0  # a longer pause after a sentence ends the paragraph
MAX_SENTENCES = 5  # per paragraph
SENTENCE_ENDS = (".", "!", "?", "。", "！", "？", "।", "؟", "۔")
_AFTER_END = "\"'”’»」』)]"  # marks that may stand between the end of a sentence and the next
_MARKS = ",;:…–—、，；：،؛」』）)"  # marks after which a line ends well
_NO_END = "「『（【《〈“‘([{"  # end no line
_NO_START = "、。，．！？；：…」』）】》〉”’,.!?;:)%ー々っゃゅょッャュョァィゥェォ"  # begin no line
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
    which wide ones count twice, unless a single word is longer. The speaker's label, which counts,
    is in the first cue after those of another speaker, as broadcasters label them."""
    labelled = [(f"{speaker}: " if speaker else "", words) for speaker, words in turns]
    cues = _cues(labelled, language, most, _width)
    before = [None, *(cue.speaker for cue in cues)]
    return "".join(
        f"{number}\n{clock_time(cue.start, ',')} --> {clock_time(cue.end, ',')}\n"
        f"{cue.speaker if cue.speaker and cue.speaker != last else ''}{cue.text}\n\n"
        for number, (last, cue) in enumerate(zip(before, cues, strict=False), start=1)
    )


def to_vtt(turns: Turns, language: str, most: int = MAX_CUE_CHARACTERS) -> str:
    """Writes WebVTT like `to_srt`, with the speakers as voices, which players do not show."""
    cues = (
        f"{clock_time(cue.start, '.')} --> {clock_time(cue.end, '.')}\n"
        f"{f'<v {escape(cue.speaker)}>' if cue.speaker else ''}{escape(cue.text, quote=False)}\n\n"
        for cue in _cues(turns, language, most, lambda _: 0)
    )
    return "WEBVTT\n\n" + "".join(cues)


def _cues(turns: Turns, language: str, most: int, label_columns: Callable[[str], int]) -> list[Cue]:
    """Lists the cues by their starts, as WebVTT asks: the turns of channels may overlap. Only then
    has a later cue of a turn room for a label, which another speaker's cue may call for."""
    cues: list[Cue] = []
    turns = [(speaker, words) for speaker, words in turns if words]
    spans = sorted((words[0].start, max(word.end for word in words)) for _, words in turns)
    may_mix = any(start < end for (_, end), (start, _) in pairwise(spans))
    for speaker, words in turns:
        # A label of more than half a line would leave too little of it.
        indent = min(label_columns(speaker or ""), LINE_COLUMNS // 2)
        phrases = cut(words, lambda phrase, word: _ends_phrase(phrase, word, language))
        if len(phrases) > 1 and phrases[-1][-1].end - phrases[-1][0].start < READABLE_S:
            if phrases[-1][0].start - phrases[-2][-1].end <= MAX_PAUSE_S:
                phrases[-2:] = [phrases[-2] + phrases[-1]]
        later = indent if may_mix else 0
        lines: list[Sequence[Word]] = []
        for phrase in phrases:
            lines += _fitting(phrase, language, most, later if lines else indent, later)
        for line, following in zip_longest(lines, lines[1:]):
            start = line[0].start
            end = max(word.end for word in line)
            if following and start < following[0].start:
                end = min(end, following[0].start)
            text = _in_lines(line, language, indent if line is lines[0] else later)
            cues.append(Cue(start, max(end, start + MIN_CUE_S), text, speaker))
    return _readable(sorted(cues, key=lambda cue: cue.start))


def _readable(cues: Sequence[Cue]) -> list[Cue]:
    """Shows cues for READABLE_S. The next cue waits for this, but at most MAX_LAG_S."""
    readable: list[Cue] = []
    begin = 0.0
    for cue, following in zip_longest(cues, cues[1:]):
        start = max(cue.start, begin)
        end = max(cue.end, start + READABLE_S)
        if following is not None and cue.end <= following.start:
            end = max(min(end, following.start + MAX_LAG_S), start + MIN_CUE_S)
            begin = end
        readable.append(replace(cue, start=start, end=end))
    return sorted(readable, key=lambda cue: cue.start)


def _ends_phrase(phrase: list[Word], word: Word, language: str) -> bool:
    """Whether a phrase ends before a word: at a pause, or a sentence that is no flash."""
    if word.start - phrase[-1].end > MAX_PAUSE_S:
        return True
    is_readable = word.start - phrase[0].start >= READABLE_S
    return is_readable and _ends_sentence(phrase, word, language)


def _fitting(
    words: Sequence[Word], language: str, most: int, indent: int, later: int
) -> Iterator[Sequence[Word]]:
    """Splits a phrase into parts of similar length that fit into a cue each, the first behind an
    indent, and those after it behind that of `later` ones."""
    ends = _ends(words, language)

    def share(first: int, end: int) -> float:
        seconds = words[end - 1].end - words[first].start
        columns = (later if first else indent) + _columns(ends, first, end, language)
        return max(columns / most, seconds / MAX_CUE_S)

    def fits(first: int, end: int) -> bool:
        # The second line of a cue begins after the last word that fits into the first line.
        lead = later if first else indent
        space = LINE_COLUMNS - lead + len(separator_of(language))
        second = min(bisect_right(ends, ends[first] + space, first + 1) - 1, end)
        is_in_lines = _columns(ends, second, end, language) <= LINE_COLUMNS
        return share(first, end) <= 1 and (is_in_lines or most != MAX_CUE_CHARACTERS)

    first = 0
    while len(words) - first > 1 and not fits(first, len(words)):
        parts = max(math.ceil(share(first, len(words))), 2)
        at = _split(words, ends, first, language, parts, fits)
        yield words[first:at]
        first = at
    yield words[first:]


def _in_lines(words: Sequence[Word], language: str, indent: int) -> str:
    """Joins the words of a cue, in two lines if they are too long for one behind the indent."""
    ends = _ends(words, language)

    def fits(first: int, end: int) -> bool:
        columns = _columns(ends, first, end, language)
        return columns + (0 if first else indent) <= LINE_COLUMNS

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
    near = range(first + 1, min(first + MOST_WORDS, len(words)))
    places = list(takewhile(lambda at: fits(first, at), near)) or [first + 1]

    def merit(at: int) -> float:
        is_too_long = parts == 2 and not fits(at, len(words))
        uneven = abs((ends[at] - ends[first]) * parts / (ends[-1] - ends[first]) - 1)
        return _ease(words[at - 1], words[at], language) - uneven - 2 * is_too_long

    return max(places, key=merit)


@cache
def _bound_words(language: str) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the words that belong to the word after them, and those that belong to the one before
    them."""
    words = load_yaml(SubtitleWords, "subtitles")
    before = words.belong_to_next.get(language, "")
    after = words.belong_to_previous.get(language, "")
    return frozenset(before.split()), frozenset(after.split())


def _ease(word: Word, following: Word, language: str) -> float:
    """Grades a line end after a word: 0.4 makes up for a line that is 40 % too long or short."""
    last = word.word[-1:]
    first = following.word[:1]
    if not separator_of(language) and (last.isdigit() or last in _NO_END or first in _NO_START):
        return -1.0
    if last in _MARKS:
        return 0.8
    to_next, to_previous = _bound_words(language)
    if word.word.lower() in to_next or following.word.lower().rstrip(_NO_START) in to_previous:
        return -0.6
    if following.start - word.end >= SHORT_PAUSE_S:
        return 0.4
    # A Japanese phrase usually begins with another letter and ends with hiragana.
    return 0.3 if _is_hiragana(last) and not _is_hiragana(first) else 0.0


def _is_hiragana(letter: str) -> bool:
    return "\u3041" <= letter <= "\u309f"


def _width(text: str) -> int:
    """Returns the columns of a text; Chinese, Japanese and Korean letters take two."""
    return sum(2 if east_asian_width(letter) in "FW" else 1 for letter in text)


def _ends(words: Sequence[Word], language: str) -> list[int]:
    """Returns 0, and the column after each word and its separator; computed once for a phrase."""
    separator = separator_of(language)
    return list(accumulate((_width(word.word + separator) for word in words), initial=0))


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
