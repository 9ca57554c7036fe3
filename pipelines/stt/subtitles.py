"""Writes subtitles (SubRip and WebVTT) of words with times."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from models.stt.base import Word

MAX_CUE_S = 6.0
MAX_CUE_CHARACTERS = 84  # two lines of 42
MAX_PAUSE_S = 0.8
SENTENCE_ENDS = (".", "!", "?", "。", "！", "？", "।", "؟")


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle: text that is on the screen together."""

    start: float  # seconds
    end: float
    text: str
    speaker: str | None = None


Turns = Iterable[tuple[str | None, Sequence[Word]]]
"""Words of each speaker's turn; the speaker is None where speakers are not known."""


def to_srt(turns: Turns, separator: str = " ", most: int = MAX_CUE_CHARACTERS) -> str:
    """Writes SubRip. `separator` stands between words; it is empty in languages without spaces.

    A cue has `most` characters at most, unless a single word is longer.
    """
    return "".join(
        f"{number}\n{clock_time(cue.start, ',')} --> {clock_time(cue.end, ',')}\n"
        f"{f'{cue.speaker}: ' if cue.speaker else ''}{cue.text}\n\n"
        for number, cue in enumerate(_cues(turns, separator, most), start=1)
    )


def to_vtt(turns: Turns, separator: str = " ", most: int = MAX_CUE_CHARACTERS) -> str:
    """Writes WebVTT like `to_srt`, with the speakers as voices."""
    cues = (
        f"{clock_time(cue.start, '.')} --> {clock_time(cue.end, '.')}\n"
        f"{f'<v {escape(cue.speaker)}>' if cue.speaker else ''}{escape(cue.text, quote=False)}\n\n"
        for cue in _cues(turns, separator, most)
    )
    return "WEBVTT\n\n" + "".join(cues)


def _cues(turns: Turns, separator: str, most: int) -> Iterable[Cue]:
    for speaker, words in turns:
        lines: list[list[Word]] = []
        for word in words:
            if not lines or _full(lines[-1], word, separator, most):
                lines.append([])
            lines[-1].append(word)
        for line in lines:
            text = separator.join(word.word for word in line)
            yield Cue(line[0].start, line[-1].end, text, speaker)


def _full(line: list[Word], word: Word, separator: str, most: int) -> bool:
    return (
        word.end - line[0].start > MAX_CUE_S
        or len(separator.join(part.word for part in [*line, word])) > most
        or word.start - line[-1].end > MAX_PAUSE_S
        or line[-1].word.endswith(SENTENCE_ENDS)
    )


def clock_time(seconds: float, mark: str) -> str:
    """Formats a time as 01:02:03.456, with the decimal mark of the format."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{mark}{rest % 1000:03}"
