"""What a client of Deepgram's looks for in a transcript: terms, replacements and entities."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from statistics import fmean
from typing import Any

from api.deepgram.options import ENTITIES
from configs.schema.personal_data import Redaction
from models.stt.base import Word
from pipelines.stt.formatting import bare_word, unpunctuated
from pipelines.text.redaction import JOINT, find_entities

MAX_HITS = 10  # of each search term
LEAST_SIMILARITY = 0.8  # of the letters of a hit to those of its term, 0 to 1
Json = dict[str, Any]


class Replacements:
    """Replaces words or phrases. A term is `find:replacement`, or only `find` to remove it."""

    def __init__(self, terms: Sequence[str]) -> None:
        self._by_first: dict[str, list[tuple[list[str], str]]] = defaultdict(list)
        for term in terms:
            find, _, replacement = term.partition(":")
            if words := find.split():
                self._by_first[words[0].lower()].append((words, replacement.strip()))

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def of(self, words: Sequence[Word]) -> list[tuple[int, Word]]:
        """Returns the words after the replacement, each with the index of its first word before.

        Terms with capitals match only words with the same capitals.
        """
        plain = [unpunctuated(word.word) for word in words]
        results: list[tuple[int, Word]] = []
        at = 0
        while at < len(words):
            phrase, replacement = self._match_at(plain, at)
            end = at + max(len(phrase), 1)
            last = words[end - 1]
            if not phrase:
                results.append((at, last))
            elif replacement:
                marks = last.word.rpartition(plain[end - 1])[2]
                text = replacement + marks
                results.append((at, replace(words[at], word=text, end=last.end)))
            at = end
        return results

    def _match_at(self, plain: Sequence[str], at: int) -> tuple[list[str], str]:
        for phrase, replacement in self._by_first.get(plain[at].lower(), ()):
            spoken = plain[at : at + len(phrase)]
            text = " ".join(phrase)
            if text == " ".join(spoken if text != text.lower() else map(str.lower, spoken)):
                return phrase, replacement
        return [], ""


def search_hits(words: Sequence[Word], terms: Sequence[str], separator: str) -> list[Json]:
    """Finds the words that are spelled like each term, best first. Deepgram compares sounds."""
    plain = [bare_word(word.word) for word in words]
    results = []
    places: dict[int, dict[str, list[int]]] = {}  # by the length (words) and text of phrases
    for term in terms:
        wanted = [bare_word(word) for word in term.split()]
        length = len(wanted)
        if length not in places:
            places[length] = defaultdict(list)
            for at in range(len(words) - length + 1):
                places[length][" ".join(plain[at : at + length])].append(at)
        text = " ".join(wanted)
        hits = []
        for match in get_close_matches(text, places[length], MAX_HITS, LEAST_SIMILARITY):
            for at in places[length][match]:
                spoken = words[at : at + length]
                hits.append(
                    {
                        "confidence": _confidence(spoken),
                        "start": round(spoken[0].start, 3),
                        "end": round(spoken[-1].end, 3),
                        "snippet": separator.join(plain[at : at + length]),
                    }
                )
        results.append({"query": term, "hits": hits[:MAX_HITS]})
    return results


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
                "confidence": _confidence(spoken),
                "start_word": first,
                "end_word": end,
            }
        )
    return results


def _confidence(words: Sequence[Word]) -> float:
    return round(fmean(word.confidence for word in words), 4)
