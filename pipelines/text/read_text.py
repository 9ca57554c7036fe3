"""Text that is read in place of the caller's text, with the place of each character.

A word with given phonemes is read as a stand-in: its letters between two signs of Unicode's private
use plane 15, which number it. So it keeps its place in cleaning, normalisation and chunking, and
`take_phonemes` finds it in the text for the engine.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from html import unescape
from operator import itemgetter

Phonemes = tuple[tuple[int, int, str], ...]
"""IPA of spans of a text: start, end, IPA."""

SIGNS = re.compile("([\U000f0000-\U000ffffd])")
_FIRST_SIGN = 0xF0000
_STAND_IN = re.compile(r"([\U000f0000-\U000ffffd])(.*?)\1")
_NO_LETTER = re.compile(r"[\s\d!-/:-@\[-`{-~]+")
_TAG = re.compile(r"<[^>]*>")


class ReadText:
    """Text that grows by `add`, and is read once."""

    def __init__(self, source: str, *, is_markup: bool) -> None:
        """`source` is the caller's text."""
        self.text = ""
        self.marks: deque[tuple[int, str, int]] = deque()  # position, name, place in the source
        self._source = source
        self._is_markup = is_markup
        self._places: list[tuple[int, int]] = []
        self._ipa: list[str] = []

    def add(self, read: str, places: Sequence[tuple[int, int]], ipa: str | None = None) -> None:
        """Adds text with the place of each character, or a single place for all of it."""
        read = SIGNS.sub(" ", read)
        if ipa is not None:
            sign = chr(_FIRST_SIGN + len(self._ipa))
            read = f"{sign}{_NO_LETTER.sub('', read) or 'x'}{sign}"
            self._ipa.append(ipa)
        self._places += [places[0]] * len(read) if len(places) == 1 else places
        self.text += read

    def count_up_to(self, place: int) -> int:
        """Counts the characters that are read up to a place in the caller's text."""
        return bisect_right(self._places, place, key=itemgetter(1))

    def place(self, start: int, end: int) -> tuple[str, int, int]:
        """Returns a word as the caller wrote it, with start and end in the caller's text."""
        start, end = self._places[start][0], self._places[end - 1][1]
        word = self._source[start:end]
        return unescape(_TAG.sub("", word)) if self._is_markup else word, start, end

    def joined(self, spans: Sequence[tuple[int, int]], offset: int) -> list[tuple[int, int]]:
        """Merges spans, relative to `offset`, of text that replaces the same word."""
        merged: list[tuple[int, int]] = []
        for first, last in spans:
            begins = self._places[offset + first]
            if merged and self._places[offset + merged[-1][1] - 1] == begins:
                first, _ = merged.pop()
            merged.append((first, last))
        return merged

    def take_phonemes(self, text: str) -> tuple[str, Phonemes]:
        """Converts a part of the text for the engine: without signs, with the IPA of its spans."""
        taken: list[tuple[int, int, str]] = []
        bare = ""
        position = 0
        for stand_in in _STAND_IN.finditer(text):
            bare += text[position : stand_in.start()]
            start, position = len(bare), stand_in.end()
            bare += stand_in[2]
            taken.append((start, len(bare), self._ipa[ord(stand_in[1]) - _FIRST_SIGN]))
        return SIGNS.sub("", bare + text[position:]), tuple(taken)
