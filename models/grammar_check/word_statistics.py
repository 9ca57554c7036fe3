"""Unigram and bigram statistics of English, with stupid backoff (Brants et al., 2007).

The counts are SymSpell's, from symspellpy (MIT): Google Books n-grams (CC BY 3.0) of the words of
SCOWL. hibari's pronouncing dictionaries (Apache-2.0), checked by people, list rarer words, such as
"concerti". Loading takes 40 MB, and 1.5 s on 2 busy cores.
"""

import gzip
import json
import math
from importlib.resources import files

_WORDS = "frequency_dictionary_en_82_765.txt"
_PAIRS = "frequency_bigramdictionary_en_243_342.txt"
_DICTIONARIES = ("lexicon_us_gold.json.gz", "lexicon_gb_gold.json.gz")
_BACK_OFF = math.log(0.4)  # added to the second word's probability for an unseen bigram
_RAREST = 1_000  # count assumed for an unlisted word


class WordStatistics:
    """Word counts. Words are in lower case; logarithms are natural."""

    def __init__(self) -> None:
        folder = files("symspellpy")
        self._words: dict[str, int] = {}
        self._pairs: dict[str, int] = {}
        for name, counts in ((_WORDS, self._words), (_PAIRS, self._pairs)):
            for line in (folder / name).read_text(encoding="utf-8-sig").splitlines():
                term, _, count = line.rpartition(" ")
                counts[term] = int(count)
        listed: set[str] = set()
        for name in _DICTIONARIES:
            data = (files("hibari") / "assets" / name).read_bytes()
            listed.update(json.loads(gzip.decompress(data)))
        self._listed = {word for word in listed if word.islower()}
        self._listed -= {word.lower() for word in listed if not word.islower()}  # names
        self._log_total = math.log(sum(self._words.values()))

    def knows(self, word: str) -> bool:
        return word in self._words

    def is_listed(self, word: str) -> bool:
        """Whether dictionaries have the word in lower case only, however rare it is."""
        return word in self._listed

    def has_pair(self, first: str | None, second: str | None) -> bool:
        return f"{first} {second}" in self._pairs

    def log_probability(self, word: str) -> float:
        return math.log(self._words.get(word, _RAREST)) - self._log_total

    def log_follows(self, first: str, second: str) -> float:
        """Log probability of `second` after `first`."""
        pair = self._pairs.get(f"{first} {second}")
        if pair is None:
            return _BACK_OFF + self.log_probability(second)
        return math.log(pair) - math.log(max(self._words.get(first, _RAREST), pair))

    def log_fits(self, before: str | None, word: str, after: str | None) -> float:
        """Log probability of `word` between its neighbours; None is a sentence boundary."""
        fits = self.log_probability(word) if before is None else self.log_follows(before, word)
        return fits if after is None else fits + self.log_follows(word, after)
