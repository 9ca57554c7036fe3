"""Estimates how long a text takes to speak, in letters: as a quick bound, or exactly."""

import re
from collections.abc import Generator

from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.segmentation import clean, is_speakable

LETTERS_PER_S = 18  # rate of the voices
WIDE_LETTER = 3  # a Chinese, Japanese or Korean letter takes as long to speak as three others
DIGIT = 6  # about as many letters as a digit is spoken with
SIGN = 5  # "dollars", "percent", "slash", "at"
MOST_LETTERS = 32  # most letters of a digit or sign with the unit after it; 29 measured
DOT = 16  # most letters of a full stop, which addresses and abbreviations speak
NAMED = 24  # a sign that espeak-ng reads by its name or its code: measured 22 with its pause
SPELLED_W = 9  # "double-u" in English, "double vé" in French
COUNTED = 5000  # characters whose spoken length is counted at once
# Letters that could be spoken in the pauses after a line and a sentence: 0.45 and 0.18 s. Short
# sentences take longer than their letters: "No." 0.41 to 0.48 s, as long as 8 letters.
LINE_PAUSE, SHORTEST_LINE = 8, 8
SENTENCE_PAUSE = 5

_WIDE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_NAMED = "ʽ-˿ᴀ-ᶿ⁰-₟℀-ℕ℘-⅏∀-⋿\u0d58-\u0d5e\u0d70-\u0d78"
_WS = ("ww", "WW", "Ww", "wW")  # doubled; a single one is a sound in a word, or a word of Polish
_SPELLED = re.compile("[Ww]{2,}")
_SAID_LONGER = re.compile(rf"(\d)|([{_NAMED}])|([$€£¥₹%&@/=#+])|{_WIDE.pattern}")
_MAY_BE_LONG = re.compile(rf"[\d$€£¥₹₩₽৳₺₴₪₱₫¢%٪&@/=+_#<>×÷±§°²³ºª¼-¾⅐-⅞Ⅰ-ↈ①-⓿{_NAMED}]")
_ENDS = "!?…։؟۔।॥။។።፧‼‽⁇⁈⁉。！？｡"  # ends of sentences, beside the full stop
_SENTENCE_END = re.compile(rf"""[.{_ENDS}]+["'”’»」』)\]]*\s|[。！？]+""")


def spoken_length(text: str) -> int:
    """Returns the time to speak a normalised text, in letters, without its pauses."""
    return _with_spelled(text) + sum(_letters(sign) - 1 for sign in _SAID_LONGER.finditer(text))


def _with_spelled(text: str) -> int:
    """Counts the characters of `text`, with more for each that is spelled."""
    if not any(row in text for row in _WS):  # a tenth of the time of the expression
        return len(text)
    return len(text) + (SPELLED_W - 1) * sum(map(len, _SPELLED.findall(text)))


def most_spoken(text: str) -> int:
    """Returns an upper bound of the spoken length, with pauses, of a text that is not normalised.

    It does not read numbers: 10 µs for 1,000 characters, 0.2 ms where lines have one letter.

    Only forms made of letters exceed it, such as the French "Dr" and castling in chess, "O-O", up
    to 3.5 times.
    """
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    signs = len(_MAY_BE_LONG.findall(text))
    marks = MOST_LETTERS * signs + DOT * text.count(".")
    ends = SENTENCE_PAUSE * sum(map(text.count, _ENDS))
    return _with_spelled(text) + (WIDE_LETTER - 1) * wide + marks + ends + _line_pauses(text)


def spoken_lengths(text: str, language: str) -> Generator[int, None, None]:
    """Yields the spoken length, with pauses, of each COUNTED characters of a text.

    The text is not normalised. Blocking: 8 ms a block, 0.25 s for one of numbers, which have to be
    written as words.
    """
    for start in range(0, len(text), COUNTED):
        spoken = normalise(clean(text[start : start + COUNTED]), language)
        # The text ends without a pause, and a sentence at the end of a line has the line's pause.
        sentences = sum(len(_SENTENCE_END.findall(line.strip())) for line in spoken.splitlines())
        yield spoken_length(spoken) + SENTENCE_PAUSE * sentences + _line_pauses(spoken)


def _line_pauses(text: str) -> int:
    """Return the letters that could be spoken in the pauses between lines, and in the extra time of
    short lines."""
    return sum(
        LINE_PAUSE + max(0, SHORTEST_LINE - len(line))
        for line in text.splitlines()[:-1]
        if is_speakable(line)
    )


def _letters(match: re.Match[str]) -> int:
    if match[1]:
        return DIGIT
    if match[2]:
        return NAMED
    return SIGN if match[3] else WIDE_LETTER
