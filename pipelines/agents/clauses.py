"""Splits an answer, while it is generated, into pieces to speak.

The first piece is a clause or phrase, so that speech starts early: it ends at the first mark after
a few words, or before a preposition or conjunction. Later ones are whole sentences, which sound
better, unless the speech would run dry before one ends.
"""

import re

from pipelines.text.chunking import Length, Rank, best_cut
from pipelines.text.segmentation import finished
from pipelines.tts.cues import uncut

# A shorter clause is spoken with what follows, but for a word that opens an answer, such as "Yes,":
# while it sounds, for 0.4 s, a model of 20 tokens a second writes the next clause.
FIRST_WORDS, FIRST_CHARACTERS = 3, 12
OPENING = re.compile(r"\s*[^\W\d_]{2,}[,!，！](\s|$)")
PHRASE = Length(least=12, ideal=20, most=40)  # as the first chunk of a longer text
# Beyond its most, a first piece ends before any word that may be separated.
ANY_WORD = Length(least=12, ideal=40, most=48)
LONGEST_CLAUSE = 120  # characters: a longer one is cut at a space
# A mark that ends a clause, and the space after it that shows that it is no part of a number or an
# abbreviation; some are none after a letter.
_CLAUSE_END = re.compile(r"""[,;:.!?…–—]["'”’»)\]]*\s|(?<=[^\W\d_])[,;!?]$|[，、；：。！？।]|\n""")
_WORD = re.compile(r"\w+")


class ClauseSplitter:
    """Gets the deltas of one answer; `take` gives what can be spoken. All pieces together are the
    answer."""

    def __init__(self, language: str) -> None:
        self._language = language  # of the voice
        self._rest = ""  # not taken yet
        self._is_first = True

    def push(self, text: str) -> None:
        self._rest += text

    def take(self, *, hurries: bool) -> str:
        """The next piece, or nothing while none has ended; `hurries` when the listener will soon
        have heard everything before it."""
        size = finished(self._rest, self._language)
        if not size and (hurries or self._is_first):
            size = self._clause()
        size = uncut(self._rest, size)
        return self._cut(size) if self._rest[:size].strip() else ""

    def drop_unfinished(self) -> bool:
        """Whether a sentence has ended that was not taken; what comes after it is dropped then."""
        size = uncut(self._rest, finished(self._rest, self._language))
        self._rest = self._rest[: size or None]
        return bool(size)

    def finish(self) -> str:
        """What is left at the end of the answer."""
        return self._cut(len(self._rest))

    def _clause(self) -> int:
        if self._is_first and (opening := OPENING.match(self._rest)):
            return opening.end()
        for mark in _CLAUSE_END.finditer(self._rest):
            words = len(_WORD.findall(self._rest, 0, mark.end()))
            if words >= FIRST_WORDS or mark.end() >= FIRST_CHARACTERS:
                return mark.end()
        known = self._rest[: self._rest.rfind(" ") + 1]  # the last word may be cut off
        if cut := best_cut(known, PHRASE, self._language, Rank.PHRASE):
            return cut
        if self._is_first and len(known) > PHRASE.most:
            if cut := best_cut(known, ANY_WORD, self._language, Rank.WORD):
                return cut
        if len(self._rest) > LONGEST_CLAUSE:
            return self._rest.rfind(" ", 0, LONGEST_CLAUSE) + 1
        return 0

    def _cut(self, size: int) -> str:
        piece, self._rest = self._rest[:size], self._rest[size:]
        self._is_first = False
        return piece
