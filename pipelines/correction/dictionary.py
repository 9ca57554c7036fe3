"""The caller's dictionary: applied last and always, also in code and addresses.

A term matches regardless of case, as whole words, and a white-space character in it matches any
one. All terms are searched in one pass from left to right, at each place the longest first, and
replacements are not searched again, so they may contain terms. Of terms that differ in case only,
the one whose case fits wins; of equal ones, the first. A replacement that ends in a full stop
replaces the full stop of the sentence as well.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from pipelines.correction.edits import Edit
from pipelines.correction.request import DictionaryEntry

# Scripts without spaces between words, or with particles joined to them: no word boundaries.
_NO_BORDERS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)


class Dictionary:
    """Looks terms up by hash instead of by patterns, so that no choice of terms makes it slow."""

    def __init__(self, entries: Sequence[DictionaryEntry]) -> None:
        self._exact: dict[str, str] = {}
        self._folded: dict[str, str] = {}
        for entry in entries:
            self._exact.setdefault(entry.term, entry.replacement)
            self._folded.setdefault(_fold(entry.term), entry.replacement)
        lengths: dict[str, set[int]] = {}
        for term in self._folded:
            lengths.setdefault(term[0], set()).add(len(term))
        self._lengths = {first: sorted(of, reverse=True) for first, of in lengths.items()}
        self.reach = max(map(len, self._folded), default=-2) + 2
        """How many characters before the end of a growing text may still become a match."""

    def edits(self, text: str, start: int = 0, end: int | None = None) -> Iterator[Edit]:
        """The replacements that begin in `text[start:end]`, in order; a boundary may be outside."""
        folded = _fold(text[start:])
        at = start
        while at < (len(text) if end is None else end):
            length = self._match(text, folded, start, at)
            if length:
                found = text[at : at + length]
                replacement = self._exact.get(found)
                if replacement is None:
                    replacement = self._folded[folded[at - start : at - start + length]]
                after = text[at + length : at + length + 2]
                if replacement.endswith(".") and after.rstrip() == ".":
                    length += 1  # the full stop that ends the sentence, which "Corp." has already
                yield Edit(at, at + length, replacement, "dictionary")
            at += length or 1

    def _match(self, text: str, folded: str, start: int, at: int) -> int:
        """The length of the longest term at `at`; 0 where there is none."""
        inside = _continues(text[at - 1 : at], text[at])
        for length in self._lengths.get(folded[at - start], ()):
            last = at + length - 1
            if last >= len(text) or folded[at - start : last + 1 - start] not in self._folded:
                continue
            if not inside and not _continues(text[last], text[last + 1 : last + 2]):
                return length
        return 0


def _continues(before: str, after: str) -> bool:
    """Whether there is no word boundary between two characters; either may be missing."""
    if not before or not after or _NO_BORDERS.match(before) or _NO_BORDERS.match(after):
        return False
    return _in_word(before) and _in_word(after)


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


def _fold(text: str) -> str:
    """`text` with one case and one kind of space, of the same length."""
    small = (" " if character.isspace() else character.lower() for character in text)
    return "".join(one if len(one) == 1 else old for one, old in zip(small, text, strict=True))
