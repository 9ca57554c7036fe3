"""The caller's dictionary, applied last and always, also in code and addresses.

A term matches regardless of case, as whole words, and white space in it matches any white space.
All terms are searched in one pass from left to right, at each place the longest first, and
replacements are not searched again, so they may contain terms. Of terms that differ in case only,
the one whose case fits wins; of equal ones, the first. A replacement that ends in a full stop
replaces the full stop of the sentence as well.

Terms of the caller's text are found before anything corrects it, and nothing may change them."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from operator import attrgetter

from pipelines.correction.edits import Edit
from pipelines.correction.protection import Protected
from pipelines.correction.request import DictionaryEntry

# Scripts without spaces between words, or with particles joined to them: no word boundaries.
_NO_BORDERS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
_LEAST_PLURAL = 3  # letters of a term with a plural: "its" is no plural of "it"


class Dictionary:
    """Terms and replacements, found by hash instead of patterns, so that no terms make it slow."""

    def __init__(self, entries: Sequence[DictionaryEntry]) -> None:
        self._exact: dict[str, str] = {}
        self._folded: dict[str, str] = {}
        for entry in entries:
            self._exact.setdefault(entry.term, entry.replacement)
            self._folded.setdefault(_fold(entry.term), entry.replacement)
        self._plurals = {
            term + ending
            for term in self._folded
            if len(term) >= _LEAST_PLURAL and not _NO_BORDERS.match(term[-1])
            for ending in ("s", "es")
        }
        self._names = {name for name in self._exact.values() if not name.islower()} - {""}
        lengths: dict[str, set[int]] = {}
        for word in (*self._folded, *self._plurals, *map(_fold, self._names)):
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(of, reverse=True) for first, of in lengths.items()}
        firsts = "".join(map(re.escape, lengths))
        self._begins = re.compile(f"[{firsts}]") if firsts else None
        self.reach = max((of[0] for of in self._lengths.values()), default=-2) + 2
        """Number of characters at the end of a growing text that may still become a match."""

    def protected(self, text: str) -> list[Protected]:
        """Finds what no other step may change: terms and, outside of them, their plurals and the
        replacements with capitals that `text` already spells in this way."""
        held: list[Protected] = []
        for keeps in (False, True):
            spans = self._spans(text, held, 0, len(text), keeps=keeps)
            terms = [Protected(*span, "term") for span in spans]
            held = sorted([*held, *terms], key=attrgetter("start"))
        return held

    def edits(
        self, text: str, start: int = 0, end: int | None = None, held: Sequence[Protected] = ()
    ) -> Iterator[Edit]:
        """Yields the replacements that begin in `text[start:end]`, in order; they may end outside.
        `held` are `protected` spans, between which other terms may match."""
        end = len(text) if end is None else end
        held = [span for span in held if start <= span.start < end]
        terms = self._spans(text, held, start, end, keeps=False)
        spans = sorted([*((span.start, span.end) for span in held), *terms])
        starts = {first for first, _ in spans}
        for first, last in spans:
            written = text[first:last]
            replacement = self._exact.get(written)
            if replacement is None:
                replacement = self._folded.get(_fold(written), written)
            ends = text[last : last + 2].rstrip() == "." and last not in starts
            if ends and replacement.endswith("."):
                last += 1  # the full stop of the sentence, which "Corp." already has
            yield Edit(first, last, replacement, "dictionary")

    def _spans(
        self, text: str, held: Sequence[Protected], start: int, end: int, *, keeps: bool
    ) -> Iterator[tuple[int, int]]:
        """Yields terms in `text[start:end]` between `held`; with `keeps` also protected words."""
        if self._begins is None:
            return
        folded = _fold(text[start:])
        at = start
        for most, after in [*((span.start, span.end) for span in held), (len(text), len(text))]:
            while first := self._begins.search(folded, at - start, max(min(most, end) - start, 0)):
                at = start + first.start()
                length = self._match(text, folded, start, at, most, keeps)
                if length:
                    yield at, at + length
                at += length or 1
            at = max(at, after)

    def _match(self, text: str, folded: str, start: int, at: int, most: int, keeps: bool) -> int:
        """Length of the longest word at `at` that ends by `most`; 0 without one."""
        inside = _continues(text[at - 1 : at], text[at])
        for length in self._lengths.get(folded[at - start], ()):
            last = at + length - 1
            word = folded[at - start : last + 1 - start]
            is_kept = keeps and (word in self._plurals or text[at : last + 1] in self._names)
            if last >= most or not (word in self._folded or is_kept):
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
    """Folds case and white space of `text`; the length stays."""
    small = (" " if character.isspace() else character.lower() for character in text)
    return "".join(new if len(new) == 1 else old for new, old in zip(small, text, strict=True))
