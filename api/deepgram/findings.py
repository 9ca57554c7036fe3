"""Terms, replacements and entities that Deepgram's clients request in a transcript."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

from api.deepgram.options import ENTITIES
from configs.schema.personal_data import Redaction
from models.stt.base import Word
from pipelines.stt.formatting import bare_word, mean_confidence, unpunctuated
from pipelines.text.redaction import JOINT, find_entities

MAX_HITS = 10  # for each search term
LEAST_SIMILARITY = 0.8  # between the letters of a hit and of its term, 0 to 1
LEAST_WORD_SIMILARITY = 0.6  # between each word of a hit and its word in the term, 0 to 1
Json = dict[str, Any]


class Replacements:
    """Replaces words or phrases. A term is `find:replacement`, or only `find` to remove it."""

    def __init__(self, terms: Sequence[str]) -> None:
        self._by_first: dict[str, list[_Replacement]] = defaultdict(list)
        for term in terms:
            find, _, replacement = term.partition(":")
            if words := find.split():
                entry = _Replacement(words, find == find.lower(), replacement.strip())
                self._by_first[words[0].lower()].append(entry)

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def of(self, words: Sequence[Word]) -> list[tuple[int, Word]]:
        """Returns the words after the replacement, each with the index of the first original word
        that it stands for; blocking. If a term has capitals, the words must have the same."""
        plain = [unpunctuated(word.word) for word in words]
        lower = [word.lower() for word in plain]
        results: list[tuple[int, Word]] = []
        at = 0
        while at < len(words):
            match = self._match_at(plain, lower, at)
            end = at + (len(match.phrase) if match else 1)
            last = words[end - 1]
            if match is None:
                results.append((at, last))
            elif match.text:
                marks = last.word.rpartition(plain[end - 1])[2]
                results.append((at, replace(words[at], word=match.text + marks, end=last.end)))
            at = end
        return results

    def _match_at(self, plain: list[str], lower: list[str], at: int) -> "_Replacement | None":
        for term in self._by_first.get(lower[at], ()):
            spoken = lower if term.ignores_case else plain
            if spoken[at : at + len(term.phrase)] == term.phrase:
                return term
        return None


@dataclass(frozen=True, slots=True)
class _Replacement:
    """A phrase, and the text in its place."""

    phrase: list[str]
    ignores_case: bool
    text: str


def search_hits(words: Sequence[Word], terms: Sequence[str], separator: str) -> list[Json]:
    """Finds words spelled like each term (Deepgram compares sounds), best first; blocking."""
    search = _Search([bare_word(word.word) for word in words])
    results = []
    for term in terms:
        wanted = [bare for word in term.split() if (bare := bare_word(word))]
        hits = []
        for at in search.places_of(wanted):
            end = at + len(wanted)
            spoken = words[at:end]
            hits.append(
                {
                    "confidence": mean_confidence(spoken),
                    "start": round(spoken[0].start, 3),
                    "end": round(spoken[-1].end, 3),
                    "snippet": separator.join(search.plain[at:end]),
                }
            )
        results.append({"query": term, "hits": hits})
    return results


class _Search:
    """Search for terms, word by word. Each pair of different words is compared at most once."""

    def __init__(self, plain: Sequence[str]) -> None:
        self.plain = plain
        self._places: dict[str, list[int]] = defaultdict(list)  # by word
        for at, word in enumerate(plain):
            self._places[word].append(at)
        self._similar: dict[str, dict[str, float]] = {}  # words similar to each word of a term

    def places_of(self, wanted: Sequence[str]) -> list[int]:
        """Returns the indices where the best hits begin, best first; at most `MAX_HITS`."""
        if not wanted:
            return []
        similar = [self._words_like(word) for word in wanted]
        starts = (at for word in similar[0] for at in self._places[word])
        rated = sorted((-self._similarity(wanted, similar, at), at) for at in starts)
        return [at for rating, at in islice(rated, MAX_HITS) if -rating >= LEAST_SIMILARITY]

    def _similarity(
        self, wanted: Sequence[str], similar: Sequence[dict[str, float]], at: int
    ) -> float:
        """Returns how similar the words from `at` on are to a term; 0 if one differs too much."""
        spoken = self.plain[at : at + len(wanted)]
        if len(spoken) < len(wanted):
            return 0.0
        common = 0.0
        letters = 0
        for word, heard_word, similarities in zip(wanted, spoken, similar, strict=True):
            if heard_word not in similarities:
                return 0.0
            pair_letters = len(word) + len(heard_word)
            common += similarities[heard_word] * pair_letters
            letters += pair_letters
        return common / letters

    def _words_like(self, wanted: str) -> dict[str, float]:
        """Returns the spoken words that are spelled like a word, with their similarity."""
        if wanted not in self._similar:
            matcher = SequenceMatcher(None, b=wanted, autojunk=False)
            similarities = {}
            for word in self._places:
                if word == wanted:
                    similarities[word] = 1.0
                    continue
                shorter = min(len(word), len(wanted))
                if 2 * shorter < LEAST_WORD_SIMILARITY * (len(word) + len(wanted)):
                    continue
                matcher.set_seq1(word)
                if matcher.quick_ratio() < LEAST_WORD_SIMILARITY:
                    continue
                ratio = matcher.ratio()
                if ratio >= LEAST_WORD_SIMILARITY:
                    similarities[word] = ratio
            self._similar[wanted] = similarities
        return self._similar[wanted]


def entities_json(words: Sequence[Word], separator: str, language: str) -> list[Json]:
    """Returns the personal data and numbers in the words; `end_word` is exclusive."""
    joined = JOINT.join(word.word for word in words)
    text = joined.replace(JOINT, separator or JOINT)
    results = []
    for entity in find_entities(text, Redaction(frozenset(ENTITIES), language)):
        first = joined.count(JOINT, 0, entity.start)
        end = joined.count(JOINT, 0, entity.end) + 1
        spoken = words[first:end]
        results.append(
            {
                "label": ENTITIES[entity.kind],
                "value": text[entity.start : entity.end].replace(JOINT, ""),
                "raw_value": separator.join(bare_word(word.word) for word in spoken),
                "confidence": mean_confidence(spoken),
                "start_word": first,
                "end_word": end,
            }
        )
    return results
