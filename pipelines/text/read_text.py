"""What is read of a text where that is not the text itself, with the place of each character.

A word with given phonemes is read as a stand-in, its letters between two signs of Unicode's private
use plane 15 that number it: so it keeps its place in cleaning, normalisation and chunking, and
`take_phonemes` finds it in the text for the engine.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from html import unescape
from operator import itemgetter

Phonemes = tuple[tuple[int, int, str], ...]
"""The IPA of spans of a text."""

SIGNS = re.compile("([\U000f0000-\U000ffffd])")
_FIRST_SIGN = 0xF0000
_STAND_IN = re.compile(r"([\U000f0000-\U000ffffd])(.*?)\1")
_NO_LETTER = re.compile(r"[\s\d!-/:-@\[-`{-~]+")
_TAG = re.compile(r"<[^>]*>")


class ReadText:
    """Grows by `add`, and is read once."""

    def __init__(self, source: str, *, is_markup: bool) -> None:
        """`source` is the caller's text."""
        self.text = ""
        self.marks: deque[tuple[int, str, int]] = deque()  # position, name, place in the source
        self._source, self._is_markup = source, is_markup
        self._places: list[tuple[int, int]] = []
        self._ipa: list[str] = []

    def add(self, read: str, places: Sequence[tuple[int, int]], ipa: str | None = None) -> None:
        """Text and the place of each character, or one place for all of it."""
        read = SIGNS.sub(" ", read)
        if ipa is not None:
            sign = chr(_FIRST_SIGN + len(self._ipa))
            read = f"{sign}{_NO_LETTER.sub('', read) or 'x'}{sign}"
            self._ipa.append(ipa)
        self._places += [places[0]] * len(read) if len(places) == 1 else places
        self.text += read

    def count_up_to(self, place: int) -> int:
        """How many characters are read up to a place in the caller's text."""
        return bisect_right(self._places, place, key=itemgetter(1))

    def place(self, start: int, end: int) -> tuple[str, int, int]:
        """A word as the caller wrote it, and where: code points into the caller's text."""
        start, end = self._places[start][0], self._places[end - 1][1]
        word = self._source[start:end]
        return unescape(_TAG.sub("", word)) if self._is_markup else word, start, end

    def joined(self, spans: Sequence[tuple[int, int]], offset: int) -> list[tuple[int, int]]:
        """The same spans from `offset` of the text on, those of what replaces a word as one."""
        found: list[tuple[int, int]] = []
        for first, last in spans:
            begins = self._places[offset + first]
            if found and self._places[offset + found[-1][1] - 1] == begins:
                first, _ = found.pop()
            found.append((first, last))
        return found

    def take_phonemes(self, text: str) -> tuple[str, Phonemes]:
        """A part of what is read for the engine: without signs, and with the IPA of its spans."""
        taken: list[tuple[int, int, str]] = []
        bare, position = "", 0
        for found in _STAND_IN.finditer(text):
            bare += text[position : found.start()]
            start, position = len(bare), found.end()
            bare += found[2]
            taken.append((start, len(bare), self._ipa[ord(found[1]) - _FIRST_SIGN]))
        return SIGNS.sub("", bare + text[position:]), tuple(taken)
