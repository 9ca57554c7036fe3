"""Corrects spelling by a noisy channel (Kernighan, Church and Gale, 1990). It weighs the likelihood
of a candidate between its neighbours against its edit distance (optimal string alignment)."""

import re
from collections.abc import Iterable, Iterator

from rapidfuzz.distance import OSA

from configs.schema.correction import CorrectionWords
from models.grammar_check.word_statistics import WordStatistics
from pipelines.correction.regional import REGULAR

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Natural logarithms, chosen on the `dev` part of benchmarks/correction/faulty.yaml.
_EDIT_COST = 7.0  # cost of each letter that differs
_FIRST_LETTER_COST = 8.0  # the first letter is rarely wrong
_LEAST = -20.0  # score, costs included, that the best word needs
_LEAST_PER_LETTER = -0.5  # long words seldom resemble each other by chance
_LEAST_NAME = -14.5  # score for a capitalised word, which may be a name
_LEAST_NAME_PER_LETTER = -1.5  # score per letter, from six letters on
_LONGEST = 30  # letters; longer strings are no words
_IN_USE = -15.0  # words at least as common are accepted, even if the engine rejects them
_SHORT = 6  # letters that a word needs for each letter that differs
_SHORTEST = 4  # letters; shorter words resemble too many others, so only swaps of letters are tried
_SWAP_MARGIN = 3.0  # margin by which a confusable must fit better than the written word
_LONE_SWAP_MARGIN = 5.0  # margin where only the word after is known
# Margin where only the word before speaks for the confusable. Below it, all nine swaps in correct
# sentences were wrong, and three of six in sentences with mistakes.
_ONE_SIDED_MARGIN = 7.2
# Words so common that many of their pairs were never counted. They are swapped only if each
# neighbour by itself prefers the confusable by _SIDE_MARGIN: of 27 swaps in 3,444 correct sentences
# 25 were wrong, and all but four of these had such a word.
_COMMON_CONFUSABLES = frozenset("accept are form hear now our than too were where".split())
_SIDE_MARGIN = 3.0
_NO_PREFERENCE = 0.1
_RARE = -13.0
# Suffixes that make a word of a known word, and the endings of the latter.
_DERIVED = (("ity", ("", "y")), ("bly", ("ble",)), ("ness", ("",)))
_SHORTEST_STEM = 5  # letters

Neighbours = tuple[str | None, str | None]
"""Words before and after, in lower case; None at the boundary of a sentence."""


class Speller:
    """Corrector of English words, all in lower case."""

    def __init__(self, statistics: WordStatistics, words: CorrectionWords) -> None:
        self._statistics = statistics
        self._proper = frozenset(words.proper)
        self._swaps: dict[str, set[str]] = {}
        for group in words.confusables:
            for word in group:
                self._swaps.setdefault(word, set()).update(set(group) - {word})

    def meant(
        self, word: str, offered: Iterable[str], neighbours: Neighbours, *, may_be_name: bool
    ) -> str | None:
        """Finds the correction of an unknown `word`; None where it is not clear."""
        if self._statistics.is_listed(word):
            return None
        for candidate in offered:
            if candidate.lower() == word:
                return candidate
            # For "declinations", the engine offers "declination's".
            if candidate.replace("'", "").lower() == word and not candidate.endswith("'s"):
                return candidate
        if len(word) > _LONGEST:
            return None
        if len(word) < _SHORTEST:
            offered = [candidate for candidate in offered if sorted(candidate) == sorted(word)]
            return offered[0] if len(word) > 2 and offered else None
        american = word.replace("is", "iz").replace("ys", "yz").replace("our", "or")
        if any(self._statistics.log_probability(form) > _IN_USE for form in (word, american)):
            return None  # the engine's dialect has another spelling
        if self._is_british(word) or self._is_derived(word):
            return None
        candidates = {c.lower() for c in offered if c.isalpha() and (c.islower() or may_be_name)}
        candidates |= {near for near in _one_edit_away(word) if self._statistics.knows(near)}
        scored = [
            (self._score(word, candidate, neighbours), candidate)
            for candidate in candidates
            if self._is_plausible(word, candidate, neighbours, may_be_name)
        ]
        if not scored:
            return None
        _, best = max(scored)
        is_plural = word.endswith("s") and not word.endswith("ss")
        if is_plural and best in (word[:-1], word[:-2]):
            return None  # a rare one, such as "shockwaves"
        alone = self._score(word, best, (None, None))
        if may_be_name and best not in self._proper:
            least = _LEAST_NAME + max(0, len(word) - 5) * _LEAST_NAME_PER_LETTER
        else:
            least = _LEAST + len(word) * _LEAST_PER_LETTER
        return best if alone >= least else None

    def _is_plausible(
        self, word: str, candidate: str, neighbours: Neighbours, may_be_name: bool
    ) -> bool:
        """Whether a candidate is likely; for a short word it must be known next to a neighbour."""
        distance = OSA.distance(word, candidate)
        if may_be_name and distance > 1 and candidate not in self._proper:
            return False
        if sorted(set(word)) == sorted(set(candidate)) or len(word) >= _SHORT * distance:
            return True
        return self._statistics.has_pair(neighbours[0], candidate) or self._statistics.has_pair(
            candidate, neighbours[1]
        )

    def is_near(self, word: str, least: float) -> bool:
        """Whether a word likelier than `least` is one edit away."""
        if len(word) > _LONGEST:
            return False
        return any(self._statistics.log_probability(near) > least for near in _one_edit_away(word))

    def swap(self, word: str, neighbours: Neighbours) -> str | None:
        """Finds a confusable that fits clearly better between the neighbours than `word` does."""
        others = self._swaps.get(word)
        if not others or neighbours == (None, None):
            return None
        fits = {
            other: self._statistics.log_fits(neighbours[0], other, neighbours[1])
            for other in others
        }
        best = max(fits, key=lambda other: fits[other])
        written = self._statistics.log_fits(neighbours[0], word, neighbours[1])
        before, after = neighbours
        follows = self._statistics.log_follows
        after_objects = after is None or (
            self._statistics.log_probability(after) > _RARE  # a rare word has few known neighbours
            and follows(best, after) <= follows(word, after) + _NO_PREFERENCE
        )
        if before is None:
            margin = _LONE_SWAP_MARGIN
        else:
            margin = _ONE_SIDED_MARGIN if after_objects else _SWAP_MARGIN
        if fits[best] <= written + margin:
            return None
        if word in _COMMON_CONFUSABLES and not self._suits_both(word, best, neighbours):
            return None
        return best

    def _suits_both(self, word: str, other: str, neighbours: Neighbours) -> bool:
        """Whether each of two neighbours prefers `other` by itself."""
        before, after = neighbours
        if before is None or after is None:
            return False
        follows = self._statistics.log_follows
        return (
            follows(before, other) > follows(before, word) + _SIDE_MARGIN
            and follows(other, after) > follows(word, after) + _SIDE_MARGIN
        )

    def _is_british(self, word: str) -> bool:
        return any(
            pattern.search(word) and self._statistics.knows(pattern.sub(american, word))
            for pattern, american in REGULAR
        )

    def _is_derived(self, word: str) -> bool:
        """Whether it is made of a known word, as "additionality" is."""
        return any(
            word.endswith(suffix)
            and len(stem := word.removesuffix(suffix)) >= _SHORTEST_STEM
            and any(self._statistics.knows(stem + ending) for ending in endings)
            for suffix, endings in _DERIVED
        )

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
_BREAK = re.compile(r"[^\s'’-]|\n")  # anything else: punctuation, numbers, signs


class WordChecker:
    """Words of a text and their neighbours."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.spans = [match.span() for match in _WORD.finditer(text)]
        self.indices = {span: index for index, span in enumerate(self.spans)}

    def neighbours(self, index: int) -> Neighbours:
        """Returns the neighbours of a word; punctuation is a boundary."""
        return self._neighbour(index - 1, index), self._neighbour(index + 1, index)

    def _neighbour(self, other: int, index: int) -> str | None:
        if not 0 <= other < len(self.spans):
            return None
        first, second = sorted((other, index))
        if _BREAK.search(self._text, self.spans[first][1], self.spans[second][0]):
            return None
        start, end = self.spans[other]
        if end - start > 1 and self._text[start:end].isupper():
            return None  # an acronym is no context
        return self._text[start:end].lower().replace("’", "'")
