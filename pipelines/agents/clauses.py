"""Splits an answer, while it is generated, into pieces to speak.

The first piece is a clause or phrase, so that speech starts early: it ends at the first punctuation
mark after a few words, or before a preposition or conjunction. Later pieces are whole sentences,
which sound better, unless a gap would be heard before a sentence ends.
"""

import re

from pipelines.text.chunking import Length, Rank, best_cut
from pipelines.text.segmentation import finished
from pipelines.tts.cues import uncut

# A clause that is shorter than both is spoken together with the text that follows.
FIRST_WORDS = 3
FIRST_CHARACTERS = 12
# A word that opens an answer, such as "Yes,", is spoken alone: while it sounds, for 0.4 s, a model
# of 20 tokens a second writes the next clause.
OPENING = re.compile(r"\s*[^\W\d_]{2,}[,!，！](\s|$)")
PHRASE = Length(least=12, ideal=20, most=40)  # characters, as in the first chunk of any text
# Length of a first piece without any phrase boundary, which ends before a word.
ANY_WORD = Length(least=12, ideal=40, most=48)
LONGEST_CLAUSE = 120  # characters; longer clauses are cut at a space
# A mark that ends a clause, with the space after it: without one, the mark may belong to a number
# or an abbreviation. After a letter, some marks need no space.
_CLAUSE_END = re.compile(r"""[,;:.!?…–—]["'”’»)\]]*\s|(?<=[^\W\d_])[,;!?]$|[，、；：。！？।]|\n""")
_WORD = re.compile(r"\w+")


class ClauseSplitter:
    """Takes the deltas of one answer and returns them in pieces, which together are the answer."""

    def __init__(self, language: str) -> None:
        self._language = language  # ISO 639-1
        self._rest = ""  # text that was not returned yet
        self._is_first = True

    def push(self, text: str) -> None:
        self._rest += text

    def take(self, *, hurries: bool) -> str:
        """Returns the next piece that can be spoken, or "". With `hurries`, which means that the
        listener has soon heard everything before it, a clause may be a piece."""
        size = finished(self._rest, self._language)
        if not size and (hurries or self._is_first):
            size = self._clause()
        size = uncut(self._rest, size)
        return self._cut(size) if self._rest[:size].strip() else ""

    def drop_unfinished(self) -> bool:
        """Drops the text after the last sentence that has ended and was not returned yet.

        Returns False, and drops nothing, if there is no such sentence.
        """
        size = uncut(self._rest, finished(self._rest, self._language))
        self._rest = self._rest[: size or None]
        return bool(size)

    def finish(self) -> str:
        """Returns the rest, at the end of the answer."""
        return self._cut(len(self._rest))

    def _clause(self) -> int:
        if self._is_first and (opening := OPENING.match(self._rest)):
            return opening.end()
        for mark in _CLAUSE_END.finditer(self._rest):
            words = len(_WORD.findall(self._rest, 0, mark.end()))
            if words >= FIRST_WORDS or mark.end() >= FIRST_CHARACTERS:
                return mark.end()
        whole_words = self._rest[: self._rest.rfind(" ") + 1]  # the last word may be cut off
        if cut := best_cut(whole_words, PHRASE, self._language, Rank.PHRASE):
            return cut
        if self._is_first and len(whole_words) > PHRASE.most:
            if cut := best_cut(whole_words, ANY_WORD, self._language, Rank.WORD):
                return cut
        if len(self._rest) > LONGEST_CLAUSE:
            return self._rest.rfind(" ", 0, LONGEST_CLAUSE) + 1
        return 0

    def _cut(self, size: int) -> str:
        piece = self._rest[:size]
        self._rest = self._rest[size:]
        self._is_first = False
        return piece
