"""Pronunciations of words, and where they are in a text.

X-SAMPA: J. C. Wells, "Computer-coding the IPA" (1995).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter

from configs.load import load_yaml

# Words, and each other sign by itself: also each letter of a script without spaces.
_TOKEN = re.compile(
    "(?:[^\\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    "|[\u0300-\u036f\u0900-\u0dff])+|\\S"
)


@cache
def _x_sampa() -> tuple[dict[str, str], re.Pattern[str]]:
    table = load_yaml(TypeAdapter(dict[str, str]), "x_sampa")
    return table, re.compile("|".join(map(re.escape, sorted(table, key=len, reverse=True))))


def to_ipa(phonemes: str, alphabet: str) -> str:
    """Raises ValueError for another alphabet than `ipa` and `x-sampa`, or without a sound."""
    if alphabet not in ("ipa", "x-sampa"):
        raise ValueError("alphabet: ipa or x-sampa")
    if alphabet == "x-sampa":
        table, signs = _x_sampa()
        phonemes = signs.sub(lambda sign: table[sign[0]], phonemes)
    if not any(map(str.isalpha, phonemes.strip("ˈˌː"))):
        raise ValueError("the phonemes have no sound")
    return phonemes


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """How a word, or several words, are spoken: as other words, or by phonemes."""

    written: str
    alias: str | None = None  # also for voices that take no phonemes
    ipa: str | None = None
    language: str | None = None  # ISO 639-1 code; None for all
    case_sensitive: bool = True


class Lexicon:
    """Finds the entries of dictionaries in texts: whole words, the longest first."""

    def __init__(self, entries: Iterable[Pronunciation]) -> None:
        """An entry comes before others of the same words that follow."""
        self._entries: defaultdict[str, list[tuple[list[str], Pronunciation]]] = defaultdict(list)
        for entry in entries:
            if tokens := _TOKEN.findall(entry.written):
                self._entries[tokens[0].casefold()].append((tokens, entry))
        for found in self._entries.values():
            found.sort(key=lambda one: -len(one[0]))

    def find(self, text: str, language: str) -> Iterator[tuple[int, int, Pronunciation]]:
        """The start and end of each word that has an entry in that language, and the entry."""
        tokens = list(_TOKEN.finditer(text))
        words = [token[0] for token in tokens]
        index = 0
        while index < len(tokens):
            for wanted, entry in self._entries.get(words[index].casefold(), ()):
                end = index + len(wanted)
                here = words[index:end]
                if not entry.case_sensitive:
                    here, wanted = [*map(str.casefold, here)], [*map(str.casefold, wanted)]
                if here == wanted and entry.language in (None, language):
                    yield tokens[index].start(), tokens[end - 1].end(), entry
                    index = end - 1
                    break
            index += 1
