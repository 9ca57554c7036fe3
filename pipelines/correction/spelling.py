"""Which word was meant: how common it is, beside its neighbours too, against how far off it is."""

import re
from collections.abc import Iterable, Iterator, Sequence

from rapidfuzz.distance import OSA

from models.grammar.statistics import WordStatistics

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# In natural logarithms; chosen on the `dev` part of benchmarks/correction_data/faulty.yaml.
_EDIT_COST = 6.0  # of each letter that differs
_FIRST_LETTER_COST = 4.0  # people rarely get it wrong
_LEAST = -18.5  # of the best word, costs included; else nothing is changed
_LEAST_PER_LETTER = -0.5  # long words are seldom near each other by chance
_LEAST_NAME = -13.5  # of a capitalised word, which may be a name
_LEAST_NAME_PER_LETTER = -1.5  # from six letters on
_SWAP_MARGIN = 2.0  # by how much a confusable must fit better than what was written

Neighbours = tuple[str | None, str | None]
"""The words before and after, in small letters; None at the border of a sentence."""


class Speller:
    """English; words are in small letters."""

    def __init__(
        self,
        statistics: WordStatistics,
        confusables: Iterable[Sequence[str]],
        proper: Iterable[str],
    ) -> None:
        self._statistics = statistics
        self._proper = frozenset(proper)
        self._swaps: dict[str, set[str]] = {}
        for group in confusables:
            for word in group:
                self._swaps.setdefault(word, set()).update(set(group) - {word})

    def meant(
        self, word: str, offered: Iterable[str], neighbours: Neighbours, *, may_be_name: bool
    ) -> str | None:
        """What an unknown `word` was meant to be; None where that is not clear."""
        for candidate in offered:
            if candidate.lower() == word or candidate.replace("'", "").lower() == word:
                return candidate
        if len(word) < 3:
            return None
        candidates = {
            candidate.lower() for candidate in offered if candidate.replace("'", "").isalpha()
        }
        candidates |= {near for near in _one_edit_away(word) if self._statistics.knows(near)}
        if may_be_name:
            candidates = {c for c in candidates if c in self._proper or OSA.distance(c, word) == 1}
        scored = [(self._score(word, candidate, neighbours), candidate) for candidate in candidates]
        if not scored:
            return None
        _, best = max(scored)
        alone = self._score(word, best, (None, None))
        if may_be_name and best not in self._proper:
            least = _LEAST_NAME + max(0, len(word) - 5) * _LEAST_NAME_PER_LETTER
            return best if len(word) >= 4 and alone >= least else None
        return best if alone >= _LEAST + len(word) * _LEAST_PER_LETTER else None

    def swap(self, word: str, neighbours: Neighbours) -> str | None:
        """A confusable that fits clearly better between the neighbours than `word` does."""
        others = self._swaps.get(word)
        if not others or neighbours == (None, None):
            return None
        fits = {
            other: self._statistics.log_fits(neighbours[0], other, neighbours[1])
            for other in others
        }
        best = max(fits, key=lambda other: fits[other])
        written = self._statistics.log_fits(neighbours[0], word, neighbours[1])
        return best if fits[best] > written + _SWAP_MARGIN else None

    def _score(self, word: str, candidate: str, neighbours: Neighbours) -> float:
        cost = _EDIT_COST * OSA.distance(word, candidate)
        if candidate[:1] != word[:1]:
            cost += _FIRST_LETTER_COST
        if sorted(set(candidate)) == sorted(set(word)):
            cost -= 2.0  # letters doubled, undoubled or in another order
        return self._statistics.log_fits(neighbours[0], candidate, neighbours[1]) - cost


def _one_edit_away(word: str) -> Iterator[str]:
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
        for letter in _LETTERS:
            yield before + letter + after
            if after:
                yield before + letter + after[1:]


_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_BREAK = re.compile(r"[.!?,;:()\[\]\"“”\n…—–]")


class Words:
    """The words of a text and who stands beside whom."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.spans = [match.span() for match in _WORD.finditer(text)]
        self._index = {span: index for index, span in enumerate(self.spans)}

    def index(self, start: int, end: int) -> int | None:
        return self._index.get((start, end))

    def neighbours(self, index: int) -> Neighbours:
        """Punctuation is a border too."""
        return self._neighbour(index - 1, index), self._neighbour(index + 1, index)

    def _neighbour(self, other: int, index: int) -> str | None:
        if not 0 <= other < len(self.spans):
            return None
        first, second = sorted((other, index))
        if _BREAK.search(self._text, self.spans[first][1], self.spans[second][0]):
            return None
        start, end = self.spans[other]
        return self._text[start:end].lower().replace("’", "'")
