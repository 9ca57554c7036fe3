"""Splits an answer, while it is generated, into pieces to speak.

The first piece is a clause or phrase, so that speech starts early: it ends at a punctuation mark
after a few words, or before a preposition or conjunction. Under load it is longer. Later pieces are
whole sentences, which sound better, unless a gap would be heard before a sentence ends."""

import math
import re
from collections.abc import Iterator
from enum import IntEnum
from itertools import chain

from pipelines.text.chunking import Length, Rank, best_cut
from pipelines.text.segmentation import finished
from pipelines.text.spoken_length import LETTERS_PER_S, spoken_length
from pipelines.tts.cues import uncut

# A clause that is shorter than both is spoken together with the text that follows.
FIRST_WORDS = 3
FIRST_CHARACTERS = 12
# A word that opens an answer, such as "Yes,", may be spoken alone: while it sounds, for 0.4 s, a
# model of 20 tokens a second writes the next clause.
OPENING = re.compile(r"\s*[^\W\d_]{2,}(?:[,!](?:\s|$)|[，、！])")
PHRASE = Length(least=12, ideal=20, most=40)  # characters, as in the first chunk of any text
# Length of a first piece without any phrase boundary, which ends before a word.
ANY_WORD = Length(least=12, ideal=40, most=48)
LONGEST_CLAUSE = 120  # characters; longer clauses are cut at a space
# Letters (by `spoken_length`) that must be there when a first piece has been heard. Each of four
# sessions on 2 cores writes 20 to 34 a second: "Sure!" alone was followed by 0.6 to 1 s of silence.
FOLLOWING = 36
# A mark that ends a clause, with the space after it: without one, the mark may belong to a number
# or an abbreviation. After a letter, some marks need no space.
_CLAUSE_END = re.compile(r"""[,;:.!?…–—]["'”’»)\]]*\s|(?<=[^\W\d_])[,;!?]$|[，、；：。！？।]|\n""")
_WORD = re.compile(r"\w+")


class Urgency(IntEnum):
    """How soon the listener has heard everything before the next piece."""

    NONE = 0  # the next piece may wait for the end of its sentence
    SOON = 1  # a clause may be a piece
    NOW = 2  # any word may end a piece, since a gap within a sentence is worse


class ClauseSplitter:
    """Takes the deltas of one answer and returns them in pieces, which together are the answer."""

    def __init__(self, language: str) -> None:
        self._language = language  # ISO 639-1
        self._rest = ""  # text that was not returned yet
        self._is_first = True

    def push(self, text: str) -> None:
        self._rest += text

    def take(self, urgency: Urgency, *, letters_per_s: float = math.inf) -> str:
        """Returns the next piece that can be spoken, or "". `letters_per_s` is the rate at which
        the answer grows: a first piece waits until FOLLOWING more letters will follow in time."""
        sentence = finished(self._rest, self._language)
        if self._is_first:
            ends = chain((sentence,), self._clause_ends(Urgency.SOON))
            size = next((end for end in ends if self._covers(end, letters_per_s)), 0)
        else:
            size = sentence or next(self._clause_ends(urgency), 0)
        size = uncut(self._rest, size)
        return self._cut(size) if self._rest[:size].strip() else ""

    def drop_unfinished(self) -> bool:
        """Drops the text after the last sentence that has ended; returns False if there is none."""
        size = uncut(self._rest, finished(self._rest, self._language))
        self._rest = self._rest[: size or None]
        return bool(size)

    def finish(self) -> str:
        """Returns the rest, at the end of the answer."""
        return self._cut(len(self._rest))

    def _clause_ends(self, urgency: Urgency) -> Iterator[int]:
        """Yields the ends of clauses, the best first."""
        if urgency is Urgency.NONE:
            return
        if self._is_first and (opening := OPENING.match(self._rest)):
            yield opening.end()
        for mark in _CLAUSE_END.finditer(self._rest):
            is_long = mark.end() >= FIRST_CHARACTERS
            if is_long or len(_WORD.findall(self._rest, 0, mark.end())) >= FIRST_WORDS:
                yield mark.end()
        whole_words = self._rest[: self._rest.rfind(" ") + 1]  # the last word may be cut off
        if cut := best_cut(whole_words, PHRASE, self._language, Rank.PHRASE):
            yield cut
        if (self._is_first and len(whole_words) > PHRASE.most) or urgency is Urgency.NOW:
            if cut := best_cut(whole_words, ANY_WORD, self._language, Rank.WORD):
                yield cut
        if len(self._rest) > LONGEST_CLAUSE:
            yield self._rest.rfind(" ", 0, LONGEST_CLAUSE) + 1

    def _covers(self, end: int, letters_per_s: float) -> bool:
        """Whether the next piece is there when the first `end` characters have been heard."""
        if end == 0 or len(self._rest) - end >= FOLLOWING:
            return end > 0
        heard_s = spoken_length(self._rest[:end]) / LETTERS_PER_S
        return spoken_length(self._rest[end:]) + heard_s * letters_per_s >= FOLLOWING

    def _cut(self, size: int) -> str:
        piece = self._rest[:size]
        self._rest = self._rest[size:]
        self._is_first = False
        return piece
